package auth

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestNamesAreValidatedLikeKubernetesDoes(t *testing.T) {
	for _, name := range []string{
		"a", "a-b", "a.b", "0", "-", "a-", "-a", "a..b", ".a", "a.", "A", "ä", "a_b", "a/b", "a b", "", "..", "a:b",
		strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a", 253), strings.Repeat("a", 254),
		strings.Repeat("a.", 126) + "a", "a\n", "a%2f",
	} {
		checkNameLikeKubernetes(t, name)
	}
}

func FuzzNames(f *testing.F) {
	f.Add("tenant-a")
	f.Add("a.b-c.0")
	f.Fuzz(checkNameLikeKubernetes)
}

func checkNameLikeKubernetes(t *testing.T, name string) {
	if got, want := validNamespace(name), len(validation.IsDNS1123Label(name)) == 0; got != want {
		t.Errorf("namespace %q: valid %t, Kubernetes says %t", name, got, want)
	}
	if got, want := validServiceAccountName(name), len(validation.IsDNS1123Subdomain(name)) == 0; got != want {
		t.Errorf("ServiceAccount %q: valid %t, Kubernetes says %t", name, got, want)
	}
}
