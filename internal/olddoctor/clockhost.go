package doctor

import (
	"errors"
	"strings"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/awsname"
)

// tokenService is what providers tell whom they will ask with. The clock of nobody else is asked: there may be no way to
// others, and they are not to know.
type tokenService interface {
	TokenServiceURL(opts *auth.Options) (string, error)
}

// anyRegion is whose clock tells the time to whoever has chosen none.
const anyRegion = "us-east-1"

// clockURL is what the token service of the exchange answers to anybody.
func (e *examination) clockURL(opts *auth.Options) (string, error) {
	service, ok := e.Provider.(tokenService)
	if !ok {
		return e.usualClockURL(opts)
	}
	address, err := service.TokenServiceURL(opts)
	if err != nil && opts.STSRegion == "" {
		regional := *opts
		regional.STSRegion = firstOf(e.Getenv("AWS_REGION"), anyRegion)
		address, err = service.TokenServiceURL(&regional)
	}
	if err != nil {
		return "", err
	}
	return clockAt(e.Provider.GetName(), address), nil
}

func clockAt(provider, address string) string {
	address = strings.TrimSuffix(address, "/")
	switch provider {
	case "azure":
		return address + "/common/v2.0/.well-known/openid-configuration"
	case "gcp":
		return address
	}
	return address + "/"
}

var errNoTokenService = errors.New("the provider does not say whom it asks")

// usualClockURL is for providers of others that go by the name of ours.
func (e *examination) usualClockURL(opts *auth.Options) (string, error) {
	provider := e.Provider.GetName()
	switch {
	case opts.STSEndpoint != "":
		return clockAt(provider, opts.STSEndpoint), nil
	case provider == "azure":
		return clockAt(provider, firstOf(e.Getenv("AZURE_AUTHORITY_HOST"), "https://login.microsoftonline.com")), nil
	case provider == "gcp":
		return "https://sts.googleapis.com/v1/token", nil
	}
	region := firstOf(opts.STSRegion, firstOf(e.Getenv("AWS_REGION"), anyRegion))
	partition, ok := awsname.PartitionOf(region)
	if provider != "aws" || !ok {
		return "", errNoTokenService
	}
	return clockAt(provider, "https://sts."+region+"."+partition.Suffix), nil
}
