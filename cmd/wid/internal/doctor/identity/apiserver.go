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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/cause"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	"github.com/workloadid/workloadid/internal/apiserver"
	"github.com/workloadid/workloadid/internal/shell"
)

// caller returns the name of the API server's user, "" if it is not told.
func (e *examination) caller(ctx context.Context) string {
	review := &authenticationv1.SelfSubjectReview{}
	if e.Client == nil || e.Client.Create(ctx, review) != nil {
		return ""
	}
	return review.Status.UserInfo.Username
}

// asAdministrator keeps the login that lacks a right out of the commands that
// grant it.
const asAdministrator = "kubectl --kubeconfig ADMIN_KUBECONFIG create "

// subjectFlag names a user as kubectl create rolebinding expects it.
func subjectFlag(user string) string {
	if rest, ok := strings.CutPrefix(user, subjectPrefix); ok {
		return "--serviceaccount=" + shell.Word(rest, "NAMESPACE:SERVICE_ACCOUNT")
	}
	return "--user=" + shell.Word(user, "USER_NAME")
}

func (e *examination) checkTokenRequest(ctx context.Context) doctor.Finding {
	switch sa := e.serviceAccount(); {
	case e.Token != nil:
		return doctor.Skipped("A token was given.")
	case e.own():
		return doctor.Skipped("No ServiceAccount was named.")
	case e.Client == nil:
		return doctor.Unclear(doctor.Do("Pass --kubeconfig, or a token."), noCluster)
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
	request := auth.TokenRequest{Client: e.Client, ServiceAccount: sa, Lifetime: cmp.Or(lifetime, time.Hour),
		BoundObject: opts.BoundObject}
	raw, _, err := request.Token(ctx, audiences)
	if err != nil {
		return e.refusedToken(ctx, err)
	}
	e.token = e.hold(raw, time.Time{}, nil)
	return doctor.Passed("The API server creates tokens of %s.", client.ObjectKeyFromObject(sa))
}

// refusedToken checks a TokenRequest that failed. A pod needs no right to it:
// the kubelet creates its tokens.
func (e *examination) refusedToken(ctx context.Context, err error) doctor.Finding {
	f := e.refusal("The API server", err)
	key := e.key()
	if f.Class != string(cause.RightMissing) {
		return f
	}
	if e.Pod.Name != "" || e.caller(ctx) == subjectPrefix+key.Namespace+":"+key.Name {
		where := fmt.Sprintf("kubectl exec -n %s %s -- wid doctor --provider %s", shell.Word(e.Pod.Namespace, "NAMESPACE"),
			shell.Word(e.Pod.Name, "POD_NAME"), e.Provider.GetName())
		return doctor.Unclear(doctor.Do("The pod gets its token from the kubelet. Examine it in the pod:", where),
			"You may not create tokens of %s.", key)
	}
	return e.missingRight(ctx, "You may not create tokens of %s.", key)
}

// missingRight is the finding of a right that the exchange needs. One Role has
// all of them, so that the next run finds no other.
func (e *examination) missingRight(ctx context.Context, format string, args ...any) doctor.Finding {
	q, user := e.query(), e.caller(ctx)
	if e.RESTConfig != nil && apiserver.CheckVerified(e.RESTConfig) != nil {
		user = "" // another host may have answered, with a user of its own
	}
	f := doctor.Failed(cause.RightMissing,
		doctor.Do("As an administrator: grant the rights to the identity that creates its tokens:", asAdministrator+
			q.Fill(
				"role wid-token -n NAMESPACE --verb=get,create --resource=serviceaccounts,serviceaccounts/token --resource-name=SERVICE_ACCOUNT"),
			asAdministrator+q.Fill("rolebinding wid-token -n NAMESPACE --role=wid-token ")+subjectFlag(user)), format, args...)
	f.StatusCode = http.StatusForbidden
	return f
}
