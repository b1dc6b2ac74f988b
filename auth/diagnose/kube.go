package diagnose

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/internal/transport"
)

const noCluster = "pass a kubeconfig of the ServiceAccount's cluster"

// Check 13.
func (e *examination) checkAPIServer(ctx context.Context) Finding {
	if e.Client == nil {
		return unknown("there is no access to the cluster", noCluster)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	review := &authenticationv1.SelfSubjectReview{}
	err := e.Client.Create(ctx, review)
	switch {
	case apierrors.IsUnauthorized(err):
		return fail("K10", "log in again; a program re-reads its token file", "401: the API server refuses the caller's own credentials").
			with(Field{Name: "status", Observed: "401", Expected: "201", Differs: true})
	case err != nil:
		return unknown("who the caller is cannot be asked: "+kubeMessage(err, e.secrets()...),
			remedyOf(err, "allow create on selfsubjectreviews.authentication.k8s.io, as the ClusterRole system:basic-user does"))
	}
	user := review.Status.UserInfo
	name := redact.Text(user.Username, e.secrets()...)
	return pass("you are %s", shown(name)).with(same("user", name), same("groups", audiences(redacted(user.Groups, e.secrets()...))))
}

// kubeMessage makes the text of a client's error fit for a finding.
func kubeMessage(err error, secrets ...string) string {
	if isCacheEmpty(err) {
		return "the client's cache could not be filled in time"
	}
	var silent *silence
	if apierrors.ReasonForError(err) != "" || errors.As(err, &silent) {
		return shown(redact.Text(err.Error(), secrets...))
	}
	return transport.Message(err, secrets...)
}

// Check 14.
func (e *examination) checkServiceAccount(context.Context) Finding {
	if e.own() && e.token.claims == nil {
		return skip("no ServiceAccount was named")
	}
	if e.Client == nil {
		return unknown("there is no access to the cluster", noCluster)
	}
	sa := e.serviceAccount()
	switch {
	case apierrors.IsNotFound(e.read):
		return fail("K2", fmt.Sprintf("correct the name, or create it:\nkubectl create serviceaccount -n %s %s", namespaceOf(sa), nameOf(sa)),
			"the ServiceAccount does not exist").with(differs("ServiceAccount", "not found", sa.Namespace+"/"+sa.Name))
	case apierrors.IsUnauthorized(e.read):
		return fail("K10", "log in again", "401: the API server refuses the caller's own credentials")
	case e.read != nil:
		return unknown("the ServiceAccount cannot be read: "+kubeMessage(e.read, e.secrets()...),
			remedyOf(e.read, fmt.Sprintf("grant get on serviceaccounts in namespace %s", namespaceOf(sa))))
	case e.account.Name == "":
		return unknown("the ServiceAccount is not known by name", "name it")
	}
	if e.podIdentity {
		return pass("the ServiceAccount exists; %s", byPodIdentity)
	}
	return e.judgeAnnotations(e.inCluster())
}

// Check 16.
func (e *examination) checkTokenRequest(ctx context.Context) Finding {
	switch {
	case e.own() && e.token.claims == nil:
		return skip("no ServiceAccount was named")
	case e.token.raw != "" && !e.minted.tried:
		return skip("the token exists already")
	case e.TokenFile != "":
		return skip("the token comes from a file")
	case e.Client == nil:
		return unknown("there is no access to the cluster", noCluster)
	case !e.minted.tried && e.read != nil:
		return Finding{Result: Skip, Needs: 14, Message: "skipped: needs check 14"}
	case !e.minted.tried:
		return Finding{Result: Skip, Needs: 9, Message: "skipped: needs check 9"}
	case e.minted.err != nil:
		return e.mintRefused(ctx)
	}
	if c := e.token.claims; c != nil && c.Expiry.Sub(e.Now()) < e.minted.asked-time.Minute {
		return Finding{Result: Warn, Class: "K3", Message: "the API server has shortened the token's life",
			Remedy: "raise --service-account-max-token-expiration, or ask for less"}.
			with(differs("expirationSeconds", fmt.Sprint(int(c.Expiry.Sub(e.Now()).Seconds())), fmt.Sprint(int(e.minted.asked.Seconds()))))
	}
	sa := e.serviceAccount()
	return pass("may create tokens for %s/%s", sa.Namespace, sa.Name)
}

func (e *examination) mintRefused(ctx context.Context) Finding {
	f := refusal(e.minted.err)
	f.Message = redact.Text(f.Message, e.secrets()...)
	sa := e.serviceAccount()
	if f.Class != "K1" {
		return f
	}
	f.Message = fmt.Sprintf("RBAC lacks create on serviceaccounts/token for %s/%s", sa.Namespace, sa.Name)
	if allowed, known := e.mayMint(ctx); known && allowed {
		f.Message = "RBAC allows it, but the API server refuses: an admission plugin, perhaps: " + shown(redact.Text(messageOf(e.minted.err), e.secrets()...))
	}
	f.Remedy = fmt.Sprintf("kubectl create role wid-token -n %[1]s --verb=create --resource=serviceaccounts/token --resource-name=%[2]s\n"+
		"kubectl create rolebinding wid-token -n %[1]s --role=wid-token %[3]s", namespaceOf(sa), nameOf(sa), e.binding(ctx))
	return f.with(Field{Name: "create serviceaccounts/token", Observed: "no", Expected: "yes", Differs: true})
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

// binding names the caller as kubectl create rolebinding wants it.
func (e *examination) binding(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	review := &authenticationv1.SelfSubjectReview{}
	if e.Client.Create(ctx, review) != nil || review.Status.UserInfo.Username == "" {
		return "--user=<user of the controller>"
	}
	user := review.Status.UserInfo.Username
	if rest, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
		return "--serviceaccount=" + shell.Word(rest, "<namespace>:<name>")
	}
	return "--user=" + shell.Word(user, "<user>")
}

// Check 17.
func (e *examination) checkClusterIssuer(ctx context.Context) Finding {
	if f, none := e.noToken(); none {
		return f
	}
	if e.RESTConfig == nil {
		return unknown("there is no access to the cluster's discovery document", noCluster)
	}
	d := e.clusterDocument(ctx, "/.well-known/openid-configuration")
	var parsed discovery
	switch {
	case d.err != nil:
		return unknown("the cluster's discovery document cannot be read: "+transport.Message(d.err), "see check 13")
	case d.status != http.StatusOK || json.Unmarshal(d.body, &parsed) != nil || parsed.Issuer == "":
		return unknown(fmt.Sprintf("the cluster's discovery document cannot be read: HTTP %d", d.status),
			"bind the ClusterRole system:service-account-issuer-discovery to the caller")
	}
	if iss := e.token.claims.Issuer; parsed.Issuer != iss {
		return fail("K8", "request a new token, or use the cluster that issued this one",
			"the token is of another cluster, or of an older issuer: %s", difference(iss, parsed.Issuer)).with(differs("iss", iss, parsed.Issuer))
	}
	if keys := e.clusterDocument(ctx, "/openid/v1/jwks"); keys.err == nil && keys.status == http.StatusOK {
		if set := parseKeys(keys.body); set != nil && len(set.Key(e.token.claims.KeyID)) == 0 && e.token.claims.KeyID != "" {
			return fail("K6", "request a new token", "the cluster does not know the key that signed the token").
				with(differs("kid", e.token.claims.KeyID, "one of the cluster's"))
		}
	}
	return pass("cluster and token agree on the issuer").with(same("iss", parsed.Issuer))
}

func (e *examination) clusterDocument(ctx context.Context, path string) document {
	client, err := rest.HTTPClientFor(e.RESTConfig)
	if err != nil {
		return document{err: err}
	}
	base, _, err := rest.DefaultServerUrlFor(e.RESTConfig)
	if err != nil {
		return document{err: err}
	}
	return get(ctx, transport.Guard(client), e.apiServer(), base.ResolveReference(&url.URL{Path: path}).String())
}

// Check 18.
func (e *examination) checkTokenReview(ctx context.Context) Finding {
	if f, none := e.noToken(); none {
		return f
	}
	if e.Client == nil {
		return unknown("there is no access to the cluster", noCluster)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: e.token.raw, Audiences: e.token.claims.Audience}}
	err := e.Client.Create(ctx, review)
	switch {
	case apierrors.IsForbidden(err):
		return unknown("the caller may not have tokens reviewed", "kubectl create clusterrolebinding wid-review --clusterrole=system:auth-delegator --user=<you>")
	case err != nil:
		return unknown("the token cannot be reviewed: "+kubeMessage(err, e.secrets()...), remedyOf(err, ""))
	case review.Status.Authenticated:
		return pass("the cluster accepts the token as %s", shown(redact.Text(review.Status.User.Username, e.token.raw)))
	}
	text := shown(redact.Text(review.Status.Error, e.token.raw))
	why, remedy := explainReview(text)
	return fail("K6", remedy, "the cluster refuses the token: %s", why).
		with(Field{Name: "TokenReview", Observed: firstOf(text, "not authenticated"), Expected: "authenticated", Differs: true})
}

// explainReview knows the texts of Kubernetes' token authenticator. They may be wrapped in others.
func explainReview(text string) (why, remedy string) {
	const anew = "request a new token"
	for _, known := range []struct{ text, why, remedy string }{
		{"token has expired", "it has expired", anew},
		{"not valid yet", "it is not valid yet: clocks differ", "synchronize the clocks"},
		{"issued in the future", "it was issued in the future: clocks differ", "synchronize the clocks"},
		{"has been invalidated", "its pod, Secret or node is gone", "use the token of a pod that lives"},
		{"does not match claim", "the ServiceAccount was re-created since", anew},
		{"has been deleted", "the ServiceAccount was deleted", "create it again"},
		{"no keys found", "the key that signed it is not the cluster's any more", anew},
		{"is invalid for the target audiences", "it has another audience", "request it with the audience of its receiver"},
		{"token issuer", "its issuer is not this cluster's", "use the cluster that issued it"},
		{"invalid bearer token", "no authenticator of the cluster knows its issuer", "use the cluster that issued it"},
	} {
		if strings.Contains(text, known.text) {
			return known.why, known.remedy
		}
	}
	return firstOf(text, "no reason is given"), anew
}

// annotatedAt is when the ServiceAccount got its annotation, zero if nobody has recorded that.
func (e *examination) annotatedAt() (at time.Time) {
	for _, m := range e.account.ManagedFields {
		if m.FieldsV1 != nil && m.Time != nil && slices.ContainsFunc(e.cloud.annotations, func(key string) bool {
			return strings.Contains(m.FieldsV1.GetRawString(), `"f:`+key+`"`)
		}) && m.Time.After(at) {
			at = m.Time.Time
		}
	}
	return at
}
