package identity

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/internal/kubeerror"
)

// checkClusterIssuer compares the token with the cluster's own discovery document and keys.
func (e *examination) checkClusterIssuer(ctx context.Context, c *doctor.Claims) doctor.Finding {
	if e.RESTConfig == nil || e.Client == nil {
		return doctor.Skipped(noCluster)
	}
	d := e.clusterDocument(ctx, "/.well-known/openid-configuration")
	var own discovery
	if d.err != nil || d.status != http.StatusOK || json.Unmarshal(d.body, &own) != nil || own.Issuer == "" {
		return doctor.Unclear(doctor.Do("Bind the ClusterRole system:service-account-issuer-discovery to yourself, and check that this works:",
			"kubectl get --raw /.well-known/openid-configuration"), "The cluster's discovery document cannot be read.")
	}
	if own.Issuer != c.Issuer {
		return doctor.Failed("K8", doctor.Do(e.isMeant()+" If it is, request a new token.", contexts), "The token is of another cluster, or of an older issuer of this one.").
			Compare("token", c.Issuer, "cluster", own.Issuer)
	}
	keys := e.clusterDocument(ctx, "/openid/v1/jwks")
	if set := parseKeys(keys.body); keys.status == http.StatusOK && set != nil && len(set.Key(c.KeyID)) == 0 {
		return doctor.Failed("K6", doctor.Do("Request a new token, or restart its pod."), "The cluster no longer has the key that signed the token.").
			Compare("kid", c.KeyID, "expected", "one of the cluster's")
	}
	return doctor.Passed("The cluster issues tokens as %s.", own.Issuer)
}

func (e *examination) clusterDocument(ctx context.Context, path string) document {
	httpClient, address, err := e.apiServer(path)
	if err != nil {
		return document{err: err}
	}
	return get(ctx, httpClient, address)
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
		return doctor.Unclear(doctor.Do("Grant the right to review tokens:",
			"kubectl create clusterrolebinding wid-review --clusterrole=system:auth-delegator "+subjectFlag(e.caller(ctx))), "You may not have tokens reviewed.")
	case err != nil:
		return doctor.Unclear(doctor.Do("Try again."), "The token cannot be reviewed: %s.", kubeerror.Message(err, e.secrets...))
	case review.Status.Authenticated:
		return doctor.Passed("The cluster accepts the token.")
	}
	f := doctor.Failed("K6", doctor.Do("Request a new token, or restart its pod."), "The cluster refuses the token.").Compare("TokenReview", cmp.Or(review.Status.Error, "not authenticated"), "expected", "authenticated")
	f.Causes = []string{"its pod, Secret or ServiceAccount is gone", "the cluster's issuer or its signing keys have changed"}
	return f
}
