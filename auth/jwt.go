package auth

import (
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/internal/jwt"
)

// parseClaims reads the claims that a token makes.
func parseClaims(token string) (*jwt.Claims, error) {
	claims, err := jwt.Parse(token)
	if err != nil {
		return nil, misconfigured("use a token of the cluster's ServiceAccount token issuer",
			"the subject token cannot be used: %v", err)
	}
	return claims, nil
}

// checkSubjectToken makes sure that a token is what was asked for before it is sent out.
func checkSubjectToken(token string, now time.Time, audiences []string, sa *corev1.ServiceAccount, policy *Policy) error {
	c, err := parseClaims(token)
	if err != nil {
		return err
	}
	if err := checkSubject(c, sa); err != nil {
		return err
	}
	if !sameAudiences(c.Audience, audiences) {
		return denied("check the source of the token",
			"the subject token has the audiences %q instead of %q", c.Audience, audiences)
	}
	own := policy.ownAudiences()
	for _, a := range c.Audience {
		if a == c.Issuer || policy.isAPIServerAudience(a) || slices.Contains(own, a) {
			// API servers accept their issuer as audience unless told otherwise.
			return denied("use an audience of the service that receives the token",
				"the subject token is good for the API server (audience %q), so it is not sent out", a)
		}
	}
	return checkExpiry(c.Expiry.Time, now)
}

func checkExpiry(expiry, now time.Time) error {
	if expiry.After(now) {
		return nil
	}
	return &Error{Reason: ErrUnavailable, Message: "the subject token has expired or has no usable expiry",
		Remedy: "check that the clocks agree, and that the token is renewed"}
}

// ownTokenFile is where the kubelet mounts a token for the API server into each pod.
const ownTokenFile = "/var/run/secrets/kubernetes.io/serviceaccount/token" //nolint:gosec // a path

// ownAudiences returns the audiences of the pod's own token: the API server accepts them, however it is configured. The file
// is read for each token that is checked, which costs little beside an exchange. Outside a pod there are none.
func (p *Policy) ownAudiences() []string {
	content, err := os.ReadFile(firstNonEmpty(p.ownTokenFile, ownTokenFile))
	if err != nil {
		return nil
	}
	c, err := jwt.Parse(strings.TrimSpace(string(content)))
	if err != nil {
		return nil
	}
	return c.Audience
}

// checkSubject compares the token's subject with the ServiceAccount, if there is one to compare with.
func checkSubject(c *jwt.Claims, sa *corev1.ServiceAccount) error {
	if sa == nil {
		return nil
	}
	want := "system:serviceaccount:" + sa.Namespace + ":" + sa.Name
	if c.Subject != want {
		return denied("check the source of the token", "the subject token is for %.300q, not for %q", c.Subject, want)
	}
	if uid := c.Kubernetes.ServiceAccount.UID; uid != "" && sa.UID != "" && uid != string(sa.UID) {
		return denied("request a new token: the ServiceAccount was re-created",
			"the subject token is for UID %.100q, the ServiceAccount has %q", uid, sa.UID)
	}
	return nil
}

// sameAudiences compares sets.
func sameAudiences(got, want []string) bool {
	for _, a := range want {
		if !slices.Contains(got, a) {
			return false
		}
	}
	for _, a := range got {
		if !slices.Contains(want, a) {
			return false
		}
	}
	return true
}
