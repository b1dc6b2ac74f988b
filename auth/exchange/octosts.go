package exchange

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// OctoSTSScopeAnnotation names the repository or organization whose trust
	// policy applies: <organization>[/<repository>].
	OctoSTSScopeAnnotation = annotationPrefix + "octo-sts-scope"
	// OctoSTSIdentityAnnotation names the trust policy,
	// .github/chainguard/<identity>.sts.yaml.
	OctoSTSIdentityAnnotation = annotationPrefix + "octo-sts-identity"
)

// NewOctoSTS returns a [Provider] for installation tokens of GitHub from
// octo-sts (octo-sts.dev, or the host of your own). The trust policy has to
// name the cluster's issuer and the subject
// system:serviceaccount:<namespace>:<name>. The audience is the host. Each
// ServiceAccount needs [OctoSTSScopeAnnotation] and
// [OctoSTSIdentityAnnotation]. GitHub ignores the case of repositories, so
// [auth.Policy.Authorize] sees the scope in lower case. Tokens live for an
// hour.
func NewOctoSTS(host string) *Provider {
	host = strings.ToLower(host)
	return &Provider{
		Name: "octo-sts", Endpoint: "https://" + host + "/sts/exchange", KubernetesAudience: host, AssumedLifetime: time.Hour,
		AnnotatedParameters: map[string]string{"scope": OctoSTSScopeAnnotation, "identity": OctoSTSIdentityAnnotation},
		service:             octoSTS{tokenForm{newOwnForm("octo-sts", "identity", "scope")}},
	}
}

type octoSTS struct{ tokenForm }

func (octoSTS) ignoresCase(parameter string) bool { return parameter == "scope" }

func (octoSTS) request(ctx context.Context, r *tokenRequest) (*http.Request, error) {
	query := url.Values{"scope": {r.parameters["scope"]}, "identity": {r.parameters["identity"]}}
	req, err := getJSON(ctx, r.endpoint.String()+"?"+query.Encode())
	if err == nil {
		req.Header.Set("Authorization", "Bearer "+r.SubjectToken)
	}
	return req, err
}
