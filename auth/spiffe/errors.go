package spiffe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
)

const opFetch = "get JWT-SVID"

// remedyAgent is the remedy for answers that no agent should give.
const remedyAgent = "check the SPIFFE agent"

func fail(reason provider.Reason, remedy, format string, args ...any) *auth.Error {
	return &auth.Error{Operation: opFetch, Reason: reason, Message: fmt.Sprintf(format, args...), Remedy: remedy}
}

func unusable(format string, args ...any) *auth.Error {
	return fail(auth.ErrUnavailable, remedyAgent, "the answer of the SPIFFE agent cannot be used: "+format, args...)
}

// explain classifies the error of a request to the agent. It uses the remedy
// for a refusal only.
func explain(err error, remedy string) *auth.Error {
	answer, ok := status.FromError(err)
	if !ok { // an error of go-spiffe, which never quotes the token
		e := unusable("%s", provider.Redact(err.Error()))
		e.Err = err
		return e
	}
	e := fail(auth.ErrUnavailable, "check that the SPIFFE agent runs and is ready", "the SPIFFE agent: %s",
		provider.Redact(answer.Message()))
	e.Code, e.Err = answer.Code().String(), err
	switch answer.Code() {
	case codes.NotFound, codes.Unauthenticated, codes.PermissionDenied:
		e.Reason, e.Remedy = auth.ErrDenied, remedy
	case codes.InvalidArgument, codes.FailedPrecondition, codes.Unimplemented:
		e.Reason, e.Remedy = auth.ErrMisconfigured, "enable this API in the configuration of the SPIFFE agent"
	default:
	}
	return e
}

const (
	tries        = 4
	firstWait    = 200 * time.Millisecond // doubles
	triesTimeout = 30 * time.Second       // of all tries
)

// retry repeats a request while the agent is unavailable (SPIFFE Broker
// Endpoint and Workload Endpoint, section 6).
func retry(ctx context.Context, request func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, triesTimeout)
	defer cancel()
	err := request(limited)
	for n, wait := 1, firstWait; n < tries && status.Code(err) == codes.Unavailable; n, wait = n+1, 2*wait {
		if !sleep(limited, wait/2+rand.N(wait/2)) { //nolint:gosec // jitter
			break
		}
		err = request(limited)
	}
	if ended := ctx.Err(); ended != nil && err != nil {
		e := fail(auth.ErrUnavailable, "", "the call ended before the SPIFFE agent answered")
		e.Err = ended
		return e
	}
	return err
}

// sleep reports whether the context outlasts the time.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// explained returns errors of this package unchanged, and explains all others.
func explained(err error, remedy string) error {
	if known := (*auth.Error)(nil); errors.As(err, &known) {
		return err
	}
	return explain(err, remedy)
}

// refused returns the error of the controller's function.
func refused(err error) error {
	if known := (*auth.Error)(nil); errors.As(err, &known) {
		return err
	}
	e := fail(auth.ErrDenied, "", "the controller states no SPIFFE ID: %s", provider.Redact(err.Error()))
	e.Err = err
	return e
}

func noAudience() error {
	return fail(auth.ErrMisconfigured, "use a provider with an audience", "a JWT-SVID needs an audience")
}
