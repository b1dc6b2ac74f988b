package provider_test

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth/provider"
)

// self makes the errors of the provider.
const self = provider.Name("vault")

const roleAnnotation = "vault.example.com/role"

// vaultToken is the token of the provider.
type vaultToken struct{ expiresAt time.Time }

func (t *vaultToken) GetDuration() time.Duration { return time.Until(t.expiresAt) }

// getIdentity is the GetIdentity of the provider.
func getIdentity(sa *corev1.ServiceAccount) (string, error) {
	role := sa.Annotations[roleAnnotation]
	if role == "" {
		return "", self.Misconfigured("set it to the name of a role", "the annotation %q is empty", roleAnnotation)
	}
	return role, nil
}

// tokenOf checks what the service answered to a login.
func tokenOf(status int, role string, expiresAt, now time.Time) (provider.Token, error) {
	switch status {
	case 200:
	case 403:
		return nil, self.Denied("bind the role to this ServiceAccount", "Vault refused the role %q", role)
	default:
		return nil, self.Unavailable("log in", "check that Vault is unsealed", "Vault failed")
	}
	if err := provider.CheckExpiry(expiresAt, now, 24*time.Hour); err != nil {
		return nil, self.Unusable("log in", "Vault", "%v", err)
	}
	return &vaultToken{expiresAt}, nil
}

// A provider checks the annotation of a ServiceAccount and the answers of its
// service. The constructors of Name make its errors, whose Reason says what the
// caller does next.
func Example() {
	_, err := getIdentity(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app"}})
	fmt.Println(err)

	now := time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	for _, status := range []int{403, 503, 200} {
		_, err := tokenOf(status, "app", now.Add(-time.Hour), now)
		fmt.Println(err)
		fmt.Println("denied:", errors.Is(err, provider.ErrDenied))
	}

	token, err := tokenOf(200, "app", now.Add(time.Hour), now)
	if err != nil {
		fmt.Println(err)
		return
	}
	own, err := provider.As[vaultToken](self, token)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("expires at", own.expiresAt.Format(time.TimeOnly))
	// Output:
	// vault: misconfigured: the annotation "vault.example.com/role" is empty; set it to the name of a role
	// vault: denied: Vault refused the role "app"; bind the role to this ServiceAccount
	// denied: true
	// vault: log in: unavailable: Vault failed; check that Vault is unsealed
	// denied: false
	// vault: log in: unavailable: the answer of Vault cannot be used: it expired at 2026-01-02T14:00:00Z; check that no proxy answers for Vault, and that the clocks agree
	// denied: false
	// expires at 16:00:00
}
