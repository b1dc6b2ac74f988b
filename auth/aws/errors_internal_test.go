package aws

import (
	"net/http"
	"testing"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
)

// What goes away by itself must not drop a credential that is valid.
func TestTransientCodes(t *testing.T) {
	for code, want := range map[string]provider.Reason{
		"Throttling": auth.ErrThrottled, "ThrottledException": auth.ErrThrottled,
		"TooManyRequestsException": auth.ErrThrottled,
		"RequestThrottled":         auth.ErrThrottled, "RequestThrottledException": auth.ErrThrottled,
		"RequestLimitExceeded":   auth.ErrThrottled,
		"BandwidthLimitExceeded": auth.ErrThrottled, "SlowDown": auth.ErrThrottled,
		"PriorRequestNotComplete":        auth.ErrThrottled,
		"TransactionInProgressException": auth.ErrThrottled,
		"RequestTimeout":                 auth.ErrUnavailable, "RequestTimeoutException": auth.ErrUnavailable,
		"RequestExpired":       auth.ErrUnavailable,
		"RequestTimeTooSkewed": auth.ErrUnavailable, "ServerException": auth.ErrUnavailable,
		"IDPCommunicationError": auth.ErrUnavailable,
		"AccessDenied":          auth.ErrDenied, "ValidationError": auth.ErrMisconfigured,
	} {
		if got, _ := reasonOf(code, "m", http.StatusBadRequest); got != want {
			t.Errorf("%s is %s, want %s", code, got, want)
		}
	}
	if got, _ := reasonOf("Teapot", "m", http.StatusRequestTimeout); got != auth.ErrUnavailable {
		t.Errorf("HTTP 408 is %s", got)
	}
}
