package main

import (
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/internal/olddoctor"
	"github.com/workloadid/workloadid/internal/olddoctor/awstrust"
	"github.com/workloadid/workloadid/internal/olddoctor/azuretrust"
	"github.com/workloadid/workloadid/internal/olddoctor/gcptrust"
)

// live has the checks 19, 20 and 24 ask the cloud itself, with the login of whoever runs this program. It is only done on
// request: that login is not what is examined, and can mostly do more.
func (d *doctorFlags) live(config *doctor.Config) error {
	switch {
	case !d.trustLive:
		return nil
	case d.trustFile != "":
		return usagef("--trust-live and --trust-file both say what the cloud trusts: use one of them")
	}
	switch config.Provider.GetName() {
	case aws.ProviderName:
		r := &awstrust.Reader{HTTPClient: d.id.httpClient}
		config.Trust, config.Access = r, r
	case azure.ProviderName:
		config.Trust = &azuretrust.Reader{HTTPClient: d.id.httpClient}
	case gcp.ProviderName:
		config.Trust = &gcptrust.Reader{HTTPClient: d.id.httpClient}
	default:
		return usagef("--trust-live is for aws, azure and gcp; %s has no cloud to ask", config.Provider.GetName())
	}
	return nil
}
