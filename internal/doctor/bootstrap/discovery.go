package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/bootstrapcause"
	"github.com/workloadid/workloadid/internal/doctor"
)

const discoveryTimeout = 15 * time.Second

// checkDiscovery does the same as a joining machine. A discovery never sends the token.
func (e *examination) checkDiscovery(ctx context.Context) doctor.Finding {
	if e.Server == "" {
		return doctor.Skipped("No server was named, so only the cluster's objects were examined.")
	}
	token := e.token
	if token.IsZero() { // reaches the server, and cannot verify what it answers
		token, _ = bootstrap.ParseToken(e.id + ".0000000000000000")
	}
	info, err := bootstrap.Discover(ctx, []string{e.Server}, token, bootstrap.WithTimeout(discoveryTimeout), bootstrap.WithServerName(e.ServerName),
		bootstrap.WithoutWaiting(), bootstrap.WithoutPins(), bootstrap.WithPins(e.pins))
	var failed *bootstrap.AddressError
	switch {
	case errors.As(err, &failed) && failed.Cause == bootstrapcause.SignatureWrong && e.token.IsZero():
		return doctor.Unclear(doctor.Do("Name the whole token, or a kubeconfig of an administrator."), "cluster-info is signed for the token, but only its secret tells whether the signature is right.")
	case errors.As(err, &failed):
		return e.explain(failed)
	case err != nil:
		return e.fault("ArgumentMalformed", "The discovery refuses its arguments: %.300s.", err)
	case len(e.pins) == 0 && !e.WithoutPins:
		pins, _ := info.Pins() // they parsed a moment ago
		return e.fault("NoPin", "There is no pin, so everyone with the token could pretend to be the cluster.").As(doctor.Warn).Detail("pins", fmt.Sprint(pins))
	}
	return doctor.Passed("The discovery works; the cluster is at %s.", info.Server)
}

// explain adds the causes. The message is the reason that the machine gets.
func (e *examination) explain(failed *bootstrap.AddressError) doctor.Finding {
	f := e.fault(string(failed.Cause), "The discovery fails: %.300s.", failed.Err)
	switch failed.Cause {
	case bootstrapcause.Starting:
		f.Result = doctor.Unknown
	case bootstrapcause.NotSignedForToken:
		f.Causes = []string{"the token has expired or was deleted", "the ID is mistyped, or of another cluster", "the token lacks the usage signing"}
	case bootstrapcause.SignatureWrong:
		f.Causes = []string{"the secret half of the token is mistyped", "cluster-info was edited, and the signer does not run",
			"server and kubeconfig are of two clusters", "an attacker is in between"}
	}
	return f
}
