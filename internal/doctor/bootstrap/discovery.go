package bootstrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/kubeerror"
)

const discoveryTimeout = 15 * time.Second

// wholeToken returns the token as far as it is known: the one of the caller, or that of the cluster.
func (e *examination) wholeToken() bootstrap.Token {
	if e.token.IsZero() && e.stored != nil {
		return e.stored.Token
	}
	return e.token
}

// checkDiscovery does the same as a joining machine. A discovery never sends the token.
func (e *examination) checkDiscovery(ctx context.Context) doctor.Finding {
	switch {
	case e.Server == "":
		return doctor.Skipped("No server was named, so only the cluster's objects were examined.")
	case e.id == "":
		return doctor.Unclear(doctor.Do("Name the token, or its ID."), "There is no token to discover the cluster with.")
	}
	token := e.wholeToken()
	if token.IsZero() { // reaches the server, and cannot verify what it answers
		token, _ = bootstrap.ParseToken(e.id + ".0000000000000000")
	}
	info, err := bootstrap.Discover(ctx, []string{e.Server}, token, bootstrap.WithTimeout(discoveryTimeout), bootstrap.WithServerName(e.ServerName),
		bootstrap.WithoutWaiting(), bootstrap.WithoutPins(), bootstrap.WithPins(e.pins))
	var failed *bootstrap.AddressError
	switch {
	case errors.As(err, &failed) && failed.Cause == bootstrap.CauseSignatureWrong && e.wholeToken().IsZero():
		return doctor.Unclear(doctor.Do("Name the whole token, or a kubeconfig of an administrator."), "cluster-info is signed for the token, but only its secret tells whether the signature is right.")
	case errors.As(err, &failed):
		return e.explain(failed)
	case err != nil:
		return e.fault("ServerMalformed", "The discovery refuses its arguments: %.300s.", err)
	case len(e.pins) == 0 && !e.WithoutPins:
		pins, _ := info.Pins() // they parsed a moment ago
		return e.fault("NoPin", "There is no pin, so everyone with the token could pretend to be the cluster.").As(doctor.Warn).Detail("pins", fmt.Sprint(pins))
	}
	e.discovered = info
	return doctor.Passed("The discovery works; the cluster is at %s.", info.Server)
}

// explain adds the causes. The message is the reason that the machine gets.
func (e *examination) explain(failed *bootstrap.AddressError) doctor.Finding {
	f := e.fault(string(failed.Cause), "The discovery fails: %.300s.", failed.Err)
	switch failed.Cause {
	case bootstrap.CauseNotAPIServer:
		f.Message = fmt.Sprintf("Something other than an API server answers: %.300s.", failed.Err)
	case bootstrap.CauseStarting:
		f.Class, f.Result = "", doctor.Unknown
	case bootstrap.CauseNotSignedForToken:
		f.Causes = []string{"the token has expired or was deleted", "the ID is mistyped, or of another cluster", "the token lacks the usage signing"}
	case bootstrap.CauseSignatureWrong:
		f.Causes = []string{"the secret half of the token is mistyped", "cluster-info was edited, and the signer does not run", "an attacker is in between"}
		if e.stored != nil { // its secret half is right, and the cluster's own signature too
			f.Causes = []string{"the kubeconfig is of another cluster than the server", "an attacker is in between"}
		}
	}
	return f
}

// checkLogin sends the token over a connection that trusts what was discovered.
func (e *examination) checkLogin(ctx context.Context) doctor.Finding {
	flaw := e.loginFlaw()
	switch untried := e.discovered == nil || e.token.IsZero(); {
	case untried && flaw != "": // the token may be meant for discovery alone
		return e.fault("TokenMayNotLogIn", "%s", flaw).As(doctor.Warn)
	case untried:
		return doctor.Skipped("A login takes a discovery, and the whole token.")
	}
	to := &rest.Config{Host: e.discovered.Server, BearerToken: e.token.Reveal(), TLSClientConfig: rest.TLSClientConfig{CAData: e.discovered.CAData, ServerName: e.discovered.TLSServerName}}
	users, err := typed.NewForConfig(to)
	review := &authenticationv1.SelfSubjectReview{}
	if err == nil {
		review, err = users.SelfSubjectReviews().Create(ctx, review, metav1.CreateOptions{})
	}
	var status apierrors.APIStatus
	switch {
	case apierrors.IsUnauthorized(err) && flaw != "":
		return e.fault("TokenMayNotLogIn", "%s", flaw)
	case apierrors.IsUnauthorized(err):
		f := e.fault("LoginRefused", "The token signs, but does not log in.")
		f.Causes = []string{"the token lacks the usage authentication, or a valid group", "it has expired or was deleted a moment ago",
			"the API server runs without --enable-bootstrap-token-auth"}
		return f
	case err != nil && !apierrors.IsForbidden(err) && errors.As(err, &status):
		return doctor.Unclear(doctor.Do("Try again."), "The API server answers the login with HTTP %d.", status.Status().Code)
	case err != nil && !apierrors.IsForbidden(err):
		return e.fault("AddressUnusable", "cluster-info names an address that does not work from here: %.300s.", kubeerror.Message(err, e.secrets()...)).
			Compare("cluster-info", e.discovered.Server, "works", e.Server)
	}
	return doctor.Passed("The token logs in as %s.", cmp.Or(review.Status.UserInfo.Username, "its user")).Detail("groups", strings.Join(review.Status.UserInfo.Groups, ", "))
}

// loginFlaw goes by the Secret, if it was read.
func (e *examination) loginFlaw() string {
	switch {
	case e.stored != nil && !e.stored.Allows(bootstrap.UsageAuthentication):
		return "The token may sign, but not log in, so a machine cannot join with it."
	case e.stored != nil && e.stored.MalformedGroups:
		return "The token authenticates no user, since one of its groups does not begin with system:bootstrappers:."
	}
	return ""
}
