package doctor

import (
	"context"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/workloadid/workloadid/internal/redact"
)

// Check 18.
func (e *examination) checkTokenReview(ctx context.Context) Finding {
	if f, none := e.noToken(); none {
		return f
	}
	if e.Client == nil {
		return e.noAccess()
	}
	request, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: e.token.raw, Audiences: e.token.claims.Audience}}
	err := e.Client.Create(request, review)
	former, isFormer := e.ofFormer(ctx)
	switch {
	case isFormer && err != nil:
		return former
	case isFormer && review.Status.Authenticated: // it remembers tokens for some seconds, or what was read is older
		former.Result, former.Message = Warn, former.Message+"; but the cluster still accepts the token"
		return former
	case apierrors.IsForbidden(err):
		return unknown("the caller may not have tokens reviewed",
			"kubectl create clusterrolebinding wid-review --clusterrole=system:auth-delegator "+binding(e.caller(ctx)))
	case err != nil:
		return unknown("the token cannot be reviewed: "+kubeMessage(err, e.secrets()...), remedyOf(err, ""))
	case review.Status.Authenticated:
		return pass("the cluster accepts the token as %s", redact.Text(review.Status.User.Username, e.token.raw))
	}
	text := redact.Text(review.Status.Error, e.token.raw)
	why, remedy := e.explainReview(ctx, text)
	return fail("K6", remedy, "the cluster refuses the token: %s", why).
		with(Field{Name: "TokenReview", Observed: firstOf(text, "not authenticated"), Expected: "authenticated", Differs: true})
}

// ofFormer compares the UIDs that the token is bound to with those of the objects that were read.
func (e *examination) ofFormer(ctx context.Context) (Finding, bool) {
	c := e.token.claims
	for _, bound := range []struct{ name, claimed, now, why string }{
		{"serviceaccount.uid", c.uid, e.uidOfAccount(), accountAnew},
		{"pod.uid", c.podUID, e.uidOfPod(), podAnew},
	} {
		if bound.claimed != "" && bound.now != "" && bound.claimed != bound.now {
			return fail("K6", e.renewal(ctx), "the token is not of what is there now: %s", bound.why+e.orElsewhere()).
				with(differs(bound.name, bound.claimed, bound.now)), true
		}
	}
	return Finding{}, false
}

// orElsewhere is another cause of UIDs that differ, where nobody has compared the issuers.
func (e *examination) orElsewhere() string {
	if e.results[17] == Pass {
		return ""
	}
	return ", or the token is of another cluster"
}

func (e *examination) uidOfAccount() string {
	if c := e.token.claims; e.account.Name == "" || e.account.Name != c.ServiceAccount || e.account.Namespace != c.Namespace {
		return ""
	}
	return string(e.account.UID)
}

func (e *examination) uidOfPod() string {
	c := e.token.claims
	if e.pod == nil || e.podErr != nil || e.pod.Name != c.Pod || e.pod.Namespace != c.Namespace {
		return ""
	}
	return string(e.pod.UID)
}

const (
	accountAnew = "the ServiceAccount was re-created since"
	podAnew     = "its pod was re-created since, under the same name"
)

// explainReview knows the texts of Kubernetes' token authenticator. They may be wrapped in others.
func (e *examination) explainReview(ctx context.Context, text string) (why, remedy string) {
	const (
		clocks = "synchronize the clocks"
		alive  = "use the token of a pod that lives"
	)
	anew := e.renewal(ctx)
	for _, known := range []struct{ text, why, remedy string }{
		{"token has expired", "it has expired", anew},
		{"not valid yet", "it is not valid yet: clocks differ", clocks},
		{"issued in the future", "it was issued in the future: clocks differ", clocks},
		{"has been invalidated", "its pod, Secret or node is gone", alive},
		{"does not match service account pod ref", podAnew, e.renewalOfPod(ctx)},
		{"does not match service account secret ref", "its Secret was re-created since", "use the token of the new Secret"},
		{"does not match service account node ref", "its node was re-created since", anew},
		{"does not match claim", accountAnew, anew},
		{"has been deleted", "the ServiceAccount was deleted", "create it again\n" + anew},
		{`serviceaccounts "`, "the ServiceAccount was deleted", "create it again\n" + anew},
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
