package doctor

import (
	"context"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/shell"
)

// ownToken is for a pod that asks about its own ServiceAccount from outside.
const ownToken = "leave --service-account out, and the token that the pod has is examined"

func (e *examination) mintRefused(ctx context.Context) Finding {
	f := refusal(e.minted.err)
	f.Message = redact.Line(f.Message, e.secrets()...)
	if f.Class != "K1" {
		return f
	}
	sa := e.serviceAccount()
	user := e.caller(ctx)
	own := user == subjectOf(client.ObjectKeyFromObject(sa))
	if e.Pod.Name != "" || e.InPod || own {
		return e.notTheKubelet(own)
	}
	f.Message = fmt.Sprintf("RBAC lacks create on serviceaccounts/token for %s/%s", sa.Namespace, sa.Name)
	if allowed, known := e.mayMint(ctx); known && allowed {
		f.Message = "RBAC allows it, but the API server refuses: an admission plugin, perhaps: " + redact.Text(messageOf(e.minted.err), e.secrets()...)
	}
	f.Remedy = e.grantToMint(user)
	return f.with(differs("create serviceaccounts/token", "no", "yes"))
}

// readRefused is for a caller that may not read the ServiceAccount. If it lacks the right to create tokens as well, and one is to
// be created, it learns of both.
func (e *examination) readRefused(ctx context.Context) Finding {
	user := e.caller(ctx)
	if !e.InPod && user == subjectOf(client.ObjectKeyFromObject(e.serviceAccount())) {
		return unknown("the ServiceAccount may not read itself, and no pod needs to", ownToken)
	}
	allow := grant("wid-read", "get", "serviceaccounts", client.ObjectKeyFromObject(e.serviceAccount()), user)
	f := unknown("the ServiceAccount cannot be read: "+kubeMessage(e.read, e.secrets()...), "allow it:\n"+allow).
		with(differs("get serviceaccounts", "no", "yes"))
	if !e.needsAPI() || e.InPod || e.Pod.Name != "" {
		return f
	}
	if allowed, known := e.mayMint(ctx); known && !allowed {
		f.Remedy += "\n" + e.grantToMint(user)
		f = f.with(differs("create serviceaccounts/token", "no", "yes"))
	}
	return f
}

func (e *examination) grantToMint(user string) string {
	return "if it is you who creates its tokens, as controllers do (a pod has them from the kubelet: name it with --pod):\n" +
		grant("wid-token", "create", "serviceaccounts/token", client.ObjectKeyFromObject(e.serviceAccount()), user)
}

// grant gives a user a right to one object alone.
func grant(role, verb, resource string, object client.ObjectKey, user string) string {
	namespace, name := shell.Word(object.Namespace, "NAMESPACE"), shell.Word(object.Name, "NAME")
	return fmt.Sprintf("kubectl create role %[1]s -n %[2]s --verb=%[3]s --resource=%[4]s --resource-name=%[5]s\n"+
		"kubectl create rolebinding %[1]s -n %[2]s --role=%[1]s %[6]s", role, namespace, verb, resource, name, binding(user))
}

// notTheKubelet is for a pod: its tokens are made by the kubelet, and no right of the caller, nor of the pod itself, has to do
// with that.
func (e *examination) notTheKubelet(own bool) Finding {
	sa := e.serviceAccount()
	remedy := "examine the token that the pod has: run wid doctor in the pod, without --service-account, or pass --token-file"
	if e.Pod.Name != "" {
		remedy += fmt.Sprintf("\nkubectl exec -n %s %s -- wid doctor --provider %s", shell.Word(e.Pod.Namespace, "NAMESPACE"),
			shell.Word(e.Pod.Name, "POD_NAME"), shell.Word(e.Provider.GetName(), "PROVIDER"))
	}
	if own && !e.InPod && e.Pod.Name == "" {
		remedy = ownToken
	}
	return unknown(fmt.Sprintf("you may not create tokens for %s/%s; the pod needs no such right, for the kubelet creates its tokens",
		sa.Namespace, sa.Name), remedy).with(same("create serviceaccounts/token", "no"))
}

func (e *examination) mayMint(ctx context.Context) (allowed, known bool) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	sa := e.serviceAccount()
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: sa.Namespace, Name: sa.Name,
			Verb: "create", Resource: "serviceaccounts", Subresource: "token"}}}
	err := e.Client.Create(ctx, review)
	return review.Status.Allowed, err == nil
}

// caller is the name of the API server's user, "" if it does not tell.
func (e *examination) caller(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	review := &authenticationv1.SelfSubjectReview{}
	if e.Client.Create(ctx, review) != nil {
		return ""
	}
	return review.Status.UserInfo.Username
}

// binding names a user as kubectl create rolebinding wants it.
func binding(user string) string {
	if user == "" {
		return "--user=USER_NAME"
	}
	if rest, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
		return "--serviceaccount=" + shell.Word(rest, "NAMESPACE:SERVICE_ACCOUNT")
	}
	return "--user=" + shell.Word(user, "USER_NAME")
}
