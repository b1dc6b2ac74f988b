package identity

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/reason"
	"github.com/workloadid/workloadid/internal/kubeerror"
	"github.com/workloadid/workloadid/internal/shell"
)

// checkAPIServer asks who the caller is. If that fails, later checks ask the cluster nothing.
func (e *examination) checkAPIServer(ctx context.Context) doctor.Finding {
	switch {
	case e.Client == nil && (e.own() || e.InPod):
		return doctor.Skipped(noCluster)
	case e.Client == nil:
		return doctor.Unclear(doctor.Do("Pass --kubeconfig to examine the cluster too."), noCluster)
	}
	review := &authenticationv1.SelfSubjectReview{}
	err := e.Client.Create(ctx, review)
	switch {
	case err == nil:
		return doctor.Passed("The API server knows you as %s.", review.Status.UserInfo.Username).Detail("groups", list(review.Status.UserInfo.Groups))
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		return doctor.Passed("The API server answers, but does not say who you are.")
	}
	e.Client = nil
	if !apierrors.IsUnauthorized(err) {
		return doctor.Unclear(doctor.Do("Check kubeconfig and login. This has to work:", "kubectl get --raw /version"),
			"The API server cannot be asked: %s.", strings.TrimRight(kubeerror.Message(err, e.secrets...), "."))
	}
	f := doctor.Failed(reason.LoginRefused, doctor.Do("Log in again with the program that your kubeconfig names. In a pod, restart it."), "The API server refuses your credentials (401).")
	if e.token.raw != "" || e.InPod {
		f.Result = doctor.Warn // the exchange goes without the cluster
	}
	return f
}

// caller returns the name of the API server's user, "" if it is not told.
func (e *examination) caller(ctx context.Context) string {
	review := &authenticationv1.SelfSubjectReview{}
	if e.Client == nil || e.Client.Create(ctx, review) != nil {
		return ""
	}
	return review.Status.UserInfo.Username
}

// asAdministrator keeps the login that lacks a right out of the commands that grant it.
const asAdministrator = "kubectl --kubeconfig ADMIN_KUBECONFIG create "

// grant returns the commands that grant the caller a right to one object.
func (e *examination) grant(ctx context.Context, role, verb, resource string, object client.ObjectKey) []string {
	namespace := shell.Word(object.Namespace, "NAMESPACE")
	return []string{
		asAdministrator + fmt.Sprintf("role %s -n %s --verb=%s --resource=%s --resource-name=%s", role, namespace, verb, resource, shell.Word(object.Name, "NAME")),
		asAdministrator + fmt.Sprintf("rolebinding %s -n %s --role=%s %s", role, namespace, role, subjectFlag(e.caller(ctx))),
	}
}

// subjectFlag names a user as kubectl create rolebinding expects it.
func subjectFlag(user string) string {
	if rest, ok := strings.CutPrefix(user, subjectPrefix); ok {
		return "--serviceaccount=" + shell.Word(rest, "NAMESPACE:SERVICE_ACCOUNT")
	}
	return "--user=" + shell.Word(user, "USER_NAME")
}

// checkTokenRequest requests the token of the exchange.
func (e *examination) checkTokenRequest(ctx context.Context) doctor.Finding {
	switch sa := e.serviceAccount(); {
	case e.token.raw != "" || e.TokenFile != "":
		return doctor.Skipped("A token was given.")
	case e.own():
		return doctor.Skipped("No ServiceAccount was named.")
	case e.usesAgent():
		return doctor.Skipped(byAgent)
	case e.Client == nil:
		return doctor.Skipped(noCluster)
	case sa.Name == "":
		return doctor.Skipped("The ServiceAccount of the pod is unknown.")
	default:
		return e.requestToken(ctx, sa)
	}
}

func (e *examination) requestToken(ctx context.Context, sa *corev1.ServiceAccount) doctor.Finding {
	audiences, err := e.wantedAudiences(ctx)
	if err != nil {
		return doctor.Skipped("The audience that %s needs is unknown.", e.cloud.name)
	}
	opts := e.resolved()
	lifetime := opts.TokenLifetime
	if p, ok := e.Provider.(provider.TokenLifetimeProvider); ok && lifetime == 0 {
		lifetime, _ = p.GetTokenLifetime(sa, opts) // the exchange reports a malformed one
	}
	request := auth.TokenRequest{Client: e.Client, ServiceAccount: sa, Lifetime: cmp.Or(lifetime, time.Hour), BoundObject: opts.BoundObject}
	raw, _, err := request.Token(ctx, audiences)
	if err != nil {
		return e.refusedToken(ctx, err)
	}
	e.token = e.hold(raw)
	return doctor.Passed("The API server creates tokens of %s.", client.ObjectKeyFromObject(sa))
}

// refusedToken checks a TokenRequest that failed. A pod needs no right to it: the kubelet creates its tokens.
func (e *examination) refusedToken(ctx context.Context, err error) doctor.Finding {
	f := e.refusal("The API server", err)
	key := e.key()
	if f.Class != reason.RightMissing {
		return f
	}
	if user := e.caller(ctx); e.Pod.Name != "" || user == subjectPrefix+key.Namespace+":"+key.Name {
		where := fmt.Sprintf("kubectl exec -n %s %s -- wid doctor --provider %s", shell.Word(e.Pod.Namespace, "NAMESPACE"), shell.Word(e.Pod.Name, "POD_NAME"), e.Provider.GetName())
		f = doctor.Unclear(doctor.Do("The pod gets its token from the kubelet. Examine it in the pod:", where), "You may not create tokens of %s.", key)
		e.stopped = &f
		return f
	}
	return e.missingRight(ctx, "You may not create tokens of %s.", key)
}

// missingRight is the finding of a right that the exchange needs. One Role has all of them, so that the next run finds no other.
func (e *examination) missingRight(ctx context.Context, format string, args ...any) doctor.Finding {
	f := doctor.Failed(reason.RightMissing, doctor.Do("As an administrator: grant the rights to the identity that creates its tokens:",
		e.grant(ctx, "wid-token", "get,create", "serviceaccounts,serviceaccounts/token", e.key())...), format, args...)
	f.StatusCode = http.StatusForbidden
	return f
}

func (e *examination) checkTokenReview(ctx context.Context, c *doctor.Claims) doctor.Finding {
	if e.Client == nil {
		return doctor.Skipped(noCluster)
	}
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: e.token.raw, Audiences: c.Audiences}}
	err := e.Client.Create(ctx, review)
	switch {
	case apierrors.IsForbidden(err) && (e.InPod || e.Pod.Name != ""):
		return doctor.Skipped("The pod may not have tokens reviewed, and need not.")
	case apierrors.IsForbidden(err):
		return doctor.Unclear(doctor.Do("As an administrator: grant the right to review tokens:",
			asAdministrator+"clusterrolebinding wid-review --clusterrole=system:auth-delegator "+subjectFlag(e.caller(ctx))), "You may not have tokens reviewed.")
	case err != nil:
		return doctor.Unclear(doctor.Do("Try again."), "The token cannot be reviewed: %s.", kubeerror.Message(err, e.secrets...))
	case review.Status.Authenticated:
		return doctor.Passed("The cluster accepts the token.")
	}
	f := doctor.Failed(reason.TokenRefused, doctor.Do(e.isMeant()+" If it is, request a new token.", contexts), "The cluster refuses the token.").Compare("TokenReview", cmp.Or(review.Status.Error, "not authenticated"), "expected", "authenticated")
	f.Causes = []string{"its pod, Secret or ServiceAccount is gone", "it is of another cluster, or of an older issuer or key of this one"}
	return f
}
