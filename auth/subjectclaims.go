package auth

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/jwt"
)

// parseClaims reads the claims that a token makes.
func parseClaims(token string) (*jwt.Claims, error) {
	claims, err := jwt.Parse(token)
	if err != nil {
		return nil, misconfigured("use a JWT of the ServiceAccount's token issuer",
			"the subject token cannot be used: %v", err)
	}
	return claims, nil
}

// checkSubjectToken refuses a token that is not the requested one, before it is
// sent out.
func checkSubjectToken(token string, now time.Time, audiences []string, want *subjectClaims, policy *Policy) error {
	c, err := parseClaims(token)
	if err != nil {
		return err
	}
	if err := checkSubject(c, want); err != nil {
		return err
	}
	if !sameAudiences(c.Audience, audiences) {
		return denied("check the source of the token",
			"the subject token has the audiences %q instead of %q", c.Audience, audiences)
	}
	own := policy.ownAudiences()
	for _, a := range c.Audience {
		if a == c.Issuer || policy.isAPIServerAudience(a) || slices.Contains(own, a) {
			// API servers accept their issuer as audience unless told
			// otherwise.
			e := denied("use an audience of the service that receives the token",
				"the subject token is good for the API server (audience %q), so it is not sent out", a)
			e.Cause = provider.CauseAPIServerAudience
			return e
		}
	}
	return checkExpiry(c.Expiry.Time, now)
}

func checkExpiry(expiry, now time.Time) error {
	if expiry.After(now) {
		return nil
	}
	e := unavailable("check that the clocks agree, and that the token is renewed",
		"the subject token has expired or has no usable expiry")
	e.Cause = provider.CauseTokenExpired
	return e
}

// ownTokenFile is where the kubelet mounts a token for the API server into each
// pod.
const ownTokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token" //nolint:gosec // a path

// ownAudiences returns the audiences of the pod's own token, which the API
// server accepts however it is configured. The file is read for each token that
// is checked, which costs little beside an exchange. Outside a pod there are
// none.
func (p *Policy) ownAudiences() []string {
	content, err := os.ReadFile(cmp.Or(p.ownTokenFile, ownTokenFile))
	if err != nil {
		return nil
	}
	c, err := jwt.Parse(strings.TrimSpace(string(content)))
	if err != nil {
		return nil
	}
	return c.Audience
}

// subjectClaims are the claims that a subject token has to have. The subject is
// required. An empty issuer or UID is not compared.
type subjectClaims struct{ issuer, subject, uid string }

// claimsOf returns the claims of the API server's tokens.
func claimsOf(sa *corev1.ServiceAccount) *subjectClaims {
	return &subjectClaims{subject: (&provider.Options{}).SubjectClaim(sa), uid: string(sa.UID)}
}

// checkSubject compares the token with the claims that it has to have, if they
// are known.
func checkSubject(c *jwt.Claims, want *subjectClaims) error {
	if want == nil {
		return nil
	}
	const remedy = "check the source of the token"
	if want.issuer != "" && c.Issuer != want.issuer {
		return denied(remedy, "the subject token is of the issuer %.300q, not of %q", c.Issuer, want.issuer)
	}
	if c.Subject != want.subject {
		return denied(remedy, "the subject token is for %.300q, not for %q", c.Subject, want.subject)
	}
	if uid := c.Kubernetes.ServiceAccount.UID; uid != "" && want.uid != "" && uid != want.uid {
		return denied("request a new token: the ServiceAccount was re-created",
			"the subject token is for UID %.100q, the ServiceAccount has %q", uid, want.uid)
	}
	return nil
}

// sameAudiences compares sets.
func sameAudiences(got, want []string) bool { return includes(got, want) && includes(want, got) }

func includes(all, some []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}
