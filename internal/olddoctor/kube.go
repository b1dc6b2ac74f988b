package doctor

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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/internal/kubeerror"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

// Check 13.
func (e *examination) checkAPIServer(ctx context.Context) Finding {
	if e.Client == nil {
		return e.noAccess()
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	review := &authenticationv1.SelfSubjectReview{}
	err := e.Client.Create(ctx, review)
	if f, stopped := e.onTheWay(err); stopped {
		return f
	}
	switch {
	case apierrors.IsUnauthorized(err):
		return e.lockedOut()
	case err != nil:
		return unknown("who the caller is cannot be asked: "+kubeMessage(err, e.secrets()...),
			remedyOf(err, "allow create on selfsubjectreviews.authentication.k8s.io, as the ClusterRole system:basic-user does"))
	}
	user := review.Status.UserInfo
	name := redact.Text(user.Username, e.secrets()...)
	return pass("you are %s", name).with(same("user", name), same("groups", audiences(redacted(user.Groups, e.secrets()...))))
}

// kubeMessage makes the text of a client's error fit for a finding.
func kubeMessage(err error, secrets ...string) string {
	if isCacheEmpty(err) {
		return "the client's cache could not be filled in time"
	}
	var silent *silence
	if apierrors.ReasonForError(err) != "" || errors.As(err, &silent) {
		return kubeerror.Message(err, secrets...)
	}
	return transport.Message(err, secrets...)
}

// Check 14.
func (e *examination) checkServiceAccount(ctx context.Context) Finding {
	switch {
	case e.own() && e.token.claims == nil:
		return skip("no ServiceAccount was named")
	case e.Client == nil:
		return e.noAccess()
	case e.nameless():
		return e.unnamed()
	}
	sa := e.serviceAccount()
	switch {
	case apierrors.IsNotFound(e.read):
		return fail("K2", fmt.Sprintf("correct the name, or create it:\nkubectl create serviceaccount -n %s %s", namespaceOf(sa), nameOf(sa)),
			"the ServiceAccount does not exist").with(differs("ServiceAccount", "not found", sa.Namespace+"/"+sa.Name))
	case apierrors.IsUnauthorized(e.read):
		return e.lockedOut()
	case apierrors.IsForbidden(e.read):
		return e.readRefused(ctx)
	case e.read != nil:
		return unknown("the ServiceAccount cannot be read: "+kubeMessage(e.read, e.secrets()...), remedyOf(e.read, ""))
	case e.account.Name == "":
		return unknown("the ServiceAccount is not known by name", nameIt)
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
		return e.noAccess()
	case e.nameless():
		return e.unnamed()
	case !e.minted.tried && e.read != nil:
		return Finding{Result: Skip, Needs: 14, Message: "skipped: needs check 14"}
	case !e.minted.tried:
		return Finding{Result: Skip, Needs: 9, Message: "skipped: needs check 9"}
	case e.minted.err != nil:
		return e.mintRefused(ctx)
	}
	if c := e.token.claims; c != nil && c.life(e.Now()) < e.minted.asked-time.Minute {
		return Finding{Result: Warn, Class: "K3", Message: "the API server has shortened the token's life",
			Remedy: "raise --service-account-max-token-expiration, or ask for less"}.
			with(differs("expirationSeconds", fmt.Sprint(int(c.life(e.Now()).Seconds())), fmt.Sprint(int(e.minted.asked.Seconds()))))
	}
	sa := e.serviceAccount()
	return pass("may create tokens for %s/%s", sa.Namespace, sa.Name)
}

// Check 17.
func (e *examination) checkClusterIssuer(ctx context.Context) Finding {
	if f, none := e.noToken(); none {
		return f
	}
	if e.RESTConfig == nil || e.barred {
		f := e.noAccess()
		f.unasked = !e.barred
		return f
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
		return fail("K8", e.renewal(ctx)+"\nor use the cluster that issued this one",
			"the token is of another cluster, or of an older issuer: %s", difference(iss, parsed.Issuer)).with(differs("iss", iss, parsed.Issuer))
	}
	if keys := e.clusterDocument(ctx, "/openid/v1/jwks"); keys.err == nil && keys.status == http.StatusOK {
		if set := parseKeys(keys.body); set != nil && len(set.Key(e.token.claims.KeyID)) == 0 && e.token.claims.KeyID != "" {
			return fail("K6", e.renewal(ctx), "the cluster does not know the key that signed the token").
				with(differs("kid", e.token.claims.KeyID, "one of the cluster's"))
		}
	}
	return pass("cluster and token agree on the issuer").with(same("iss", parsed.Issuer))
}

func (e *examination) clusterDocument(ctx context.Context, path string) document {
	given, err := httpClientFor(ctx, e.RESTConfig)
	if err != nil {
		return document{err: err}
	}
	base, _, err := rest.DefaultServerUrlFor(e.RESTConfig)
	if err != nil {
		return document{err: err}
	}
	return get(ctx, transport.Guard(given), e.apiServer(), base.ResolveReference(&url.URL{Path: path}).String())
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
