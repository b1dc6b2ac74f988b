package bootstrap

import (
	"context"
	"errors"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/kubeerror"
)

// checkLogin sends the token over a connection that trusts what was discovered.
func (e *examination) checkLogin(ctx context.Context) doctor.Finding {
	stored, mayNot := e.mayNotLogIn()
	switch untried := e.discovered == nil || !e.isWhole; {
	case untried && mayNot:
		return stored.As(doctor.Warn) // the token may be meant for discovery alone
	case untried:
		return doctor.Skipped("A login takes a discovery, and the whole token.")
	}
	to := &rest.Config{Host: e.discovered.Server, BearerToken: e.token.Reveal(), TLSClientConfig: rest.TLSClientConfig{CAData: e.discovered.CAData, ServerName: e.discovered.TLSServerName}}
	users, err := typed.NewForConfig(to)
	if err != nil {
		return doctor.Unclear(doctor.Do("Try again."), "The login could not be tried: %s.", kubeerror.Message(err, e.secrets()...))
	}
	review, err := users.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	var status apierrors.APIStatus
	switch {
	case apierrors.IsUnauthorized(err) && mayNot:
		return stored
	case apierrors.IsUnauthorized(err):
		f := doctor.Failed("LoginRefused", e.newToken(createToken), "The token signs, but does not log in.")
		f.Causes = []string{"the token lacks the usage authentication, or a valid group", "it has expired or was deleted a moment ago",
			"the API server runs without --enable-bootstrap-token-auth"}
		return f
	case apierrors.IsForbidden(err):
		return doctor.Passed("The token logs in.")
	case errors.As(err, &status):
		return doctor.Unclear(doctor.Do("Try again."), "The API server answers the login with HTTP %d.", status.Status().Code)
	case err != nil:
		return doctor.Failed("AddressUnusable", doctor.Do("Publish an address that this machine reaches and that the server's certificate names:", "wid bootstrap publish --server HOST:PORT"),
			"cluster-info names an address that does not work from here: %.300s.", kubeerror.Message(err, e.secrets()...)).Compare("cluster-info", e.discovered.Server, "works", e.Server)
	}
	return doctor.Passed("The token logs in as %s.", review.Status.UserInfo.Username).Detail("groups", strings.Join(review.Status.UserInfo.Groups, ", "))
}

// mayNotLogIn goes by the Secret, if it was read.
func (e *examination) mayNotLogIn() (doctor.Finding, bool) {
	switch {
	case e.stored == nil:
	case !e.stored.Allows(bootstrap.UsageAuthentication):
		return doctor.Failed("TokenMayNotLogIn", e.newToken(createToken), "The token may sign, but not log in, so a machine cannot join with it.").
			Compare("usages", strings.Join(e.stored.Usages, ", "), "needed", bootstrap.UsageAuthentication), true
	case e.stored.MalformedGroups:
		return doctor.Failed("TokenMayNotLogIn", e.newToken(createToken), "The token authenticates no user, since one of its groups does not begin with system:bootstrappers:."), true
	}
	return doctor.Finding{}, false
}
