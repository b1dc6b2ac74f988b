package identity

import (
	"context"
	"time"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/kube"
	"github.com/workloadid/workloadid/internal/doctor/internal/reason"
)

// tolerance is the clock skew that every service accepts.
const tolerance = 5 * time.Minute

// checkTime compares this machine's clock with that of the API server. The exchange compares the token's times with the cloud's.
func (e *examination) checkTime(ctx context.Context) doctor.Finding {
	if e.RESTConfig == nil {
		return doctor.Skipped(noCluster)
	}
	ahead, known := kube.Skew(ctx, e.RESTConfig, e.Now)
	switch {
	case !known:
		return doctor.Skipped("The API server does not tell its time.")
	case ahead.Abs() > tolerance:
		return kube.Off(reason.ClockSkew, "the API server", ahead).As(doctor.Fail)
	}
	return doctor.Passed("This machine's clock agrees with the API server's.")
}

// tokenServiceURL returns the address of the exchange, "" if the provider does not tell it.
func (e *examination) tokenServiceURL() string {
	p, ok := e.Provider.(interface {
		TokenServiceURL(opts *provider.Options) (string, error)
	})
	if !ok {
		return ""
	}
	address, _ := p.TokenServiceURL(e.resolved()) // the exchange reports a missing region
	return address
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
