package bootstrap_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	tokenutil "k8s.io/cluster-bootstrap/token/util"
	"k8s.io/cluster-bootstrap/util/secrets"

	"github.com/workloadid/workloadid/bootstrap"
)

func TestSecrets(t *testing.T) {
	expires := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	config := bootstrap.TokenConfig{Token: parse(t, wellKnown), Description: "for CI", Expires: expires,
		Usages: []string{"authentication", "custom", "signing"}, Groups: []string{"system:bootstrappers:workers"}}
	secret, err := config.Secret()
	if err != nil {
		t.Fatal(err)
	}
	if id, ok := secrets.ParseName(secret.Name); !ok || id != "abc123" ||
		secrets.GetData(secret, bootstrapapi.BootstrapTokenSecretKey) != "0123456789abcdef" {
		t.Errorf("Kubernetes reads the ID %q, %t", id, ok)
	}
	if groups, err := secrets.GetGroups(secret); err != nil || !slices.Contains(groups, "system:bootstrappers:workers") ||
		secrets.HasExpired(secret, time.Now()) {
		t.Errorf("Kubernetes reads groups %v, %v", groups, err)
	}
	back, err := bootstrap.ParseSecret(secret)
	if err != nil || !back.Token.Equal(config.Token) || back.Description != "for CI" || !back.Expires.Equal(expires) ||
		!slices.Equal(back.Usages, config.Usages) || !slices.Equal(back.Groups, config.Groups) {
		t.Errorf("comes back as %+v, %v", back, err)
	}
	if back.User() != "system:bootstrap:abc123" || !back.Allows("signing") || back.Allows("other") ||
		!back.Expired(expires) || back.Expired(expires.Add(-time.Second)) {
		t.Errorf("got %+v", back)
	}
}

func TestSecretsThatAreRefused(t *testing.T) {
	good := func() *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-abc123"},
			Type: bootstrapapi.SecretTypeBootstrapToken,
			Data: map[string][]byte{"token-id": []byte("abc123"), "token-secret": []byte("0123456789abcdef"),
				"usage-bootstrap-signing": []byte("true")}}
	}
	for name, change := range map[string]func(*corev1.Secret){
		"type":        func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque },
		"name":        func(s *corev1.Secret) { s.Name = "bootstrap-token-xyz789" },
		"no prefix":   func(s *corev1.Secret) { s.Name = "abc123" },
		"ID":          func(s *corev1.Secret) { s.Data["token-id"] = []byte("ABC123") },
		"no secret":   func(s *corev1.Secret) { delete(s.Data, "token-secret") },
		"nil data":    func(s *corev1.Secret) { s.Data = nil },
		"other token": func(s *corev1.Secret) { s.Data["token-secret"] = []byte("0123456789ABCDEF") },
	} {
		s := good()
		change(s)
		if c, err := bootstrap.ParseSecret(s); err == nil {
			t.Errorf("%s: accepted as %+v", name, c)
		} else if strings.Contains(strings.ToLower(err.Error()), "0123456789abcdef") {
			t.Errorf("%s: the error holds the secret: %v", name, err)
		}
	}
	for text, want := range map[string]bool{"true": true, "True": false, "1": false, "": false, "true ": false} {
		s := good()
		s.Data["usage-bootstrap-signing"] = []byte(text)
		if c, err := bootstrap.ParseSecret(s); err != nil || c.Allows("signing") != want {
			t.Errorf("usage %q: %+v, %v", text, c, err)
		}
	}
	s := good()
	s.Data["expiration"] = []byte("tomorrow")
	if c, err := bootstrap.ParseSecret(s); err != nil || !c.Expired(time.Now()) || !c.MalformedExpiration ||
		!secrets.HasExpired(s, time.Now()) {
		t.Errorf("an expiration that cannot be parsed: %+v, %v", c, err)
	}
	for name, c := range map[string]bootstrap.TokenConfig{
		"no token": {},
		"group": {Token: parse(t, wellKnown), Usages: []string{"authentication"},
			Groups: []string{"system:masters"}},
		"group without its usage": {Token: parse(t, wellKnown), Groups: []string{"system:bootstrappers:a"}},
		"usage":                   {Token: parse(t, wellKnown), Usages: []string{"a/b"}},
		"malformed groups":        {Token: parse(t, wellKnown), Usages: []string{"authentication"}, MalformedGroups: true},
		"year 10000": {Token: parse(t, wellKnown), Usages: []string{"signing"},
			Expires: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		if s, err := c.Secret(); err == nil {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// A token expires when it does in Kubernetes. The zero time of Go is past
// there, and never means no expiry.
func TestExpirationIsThatOfKubernetes(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, text := range []string{"", "soon", "0001-01-01T00:00:00Z", "0001-01-01T02:00:00+02:00",
		"0000-12-31T19:00:00-05:00", "0001-01-01T00:00:00.5Z",
		"0000-01-01T00:00:00Z", "0001-01-01T00:00:01Z", "1970-01-01T00:00:00Z", "2029-12-31T23:59:59Z",
		"2030-01-01T00:00:00Z", "2030-01-01T00:00:01Z",
		"2030-01-01T01:00:00+02:00", "9999-12-31T23:59:59Z", " 2031-01-01T00:00:00Z", "2031-01-01"} {
		t.Run(text, func(t *testing.T) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-abc123"},
				Type: bootstrapapi.SecretTypeBootstrapToken, Data: map[string][]byte{
					"token-id": []byte("abc123"), "token-secret": []byte("0123456789abcdef"), "expiration": []byte(text),
					"usage-bootstrap-signing": []byte("true")}}
			for range 2 { // as it was written, and written again by us
				config, err := bootstrap.ParseSecret(secret)
				if err != nil {
					t.Fatal(err)
				}
				left, expired := secrets.GetExpiration(secret, now)
				if config.Expired(now) != expired || !expired && !config.Expires.IsZero() && config.Expires.Sub(now) != left ||
					config.Expires.IsZero() != (text == "") {
					t.Errorf("expires %s, Kubernetes says %t in %s", config.Expires, expired, left)
				}
				if secret, err = config.Secret(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// A token has the groups that Kubernetes gives it; where Kubernetes refuses
// some, the rest of the token still counts.
func TestGroupsAreThoseOfKubernetes(t *testing.T) {
	for _, text := range []string{"", "system:bootstrappers:a",
		"system:bootstrappers:a,system:bootstrappers:b,system:bootstrappers:a",
		"system:bootstrappers:b,system:bootstrappers:a:b,system:bootstrappers:a-b,system:bootstrappers:a",
		"system:bootstrappers:a,", ",", " ", "system:bootstrappers:a,system:masters", "hunter2-in-the-wrong-key"} {
		config := bootstrap.TokenConfig{Token: parse(t, wellKnown), Usages: []string{"authentication"}}
		secret, err := config.Secret()
		if err != nil {
			t.Fatal(err)
		}
		secret.Data["auth-extra-groups"], secret.Data["auth-groups"] = []byte(text), []byte("system:bootstrappers:old")
		ours, err := bootstrap.ParseSecret(secret)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		theirs, err := secrets.GetGroups(secret)
		if ours.MalformedGroups != (err != nil) ||
			err == nil && !slices.Equal(append([]string{bootstrapapi.BootstrapDefaultGroup}, ours.Groups...), theirs) {
			t.Errorf("%q: %+v, Kubernetes says %v, %v", text, ours, theirs, err)
		}
	}
}

func FuzzSecret(f *testing.F) {
	f.Add("abc123", "0123456789abcdef", "2030-01-01T00:00:00Z", "system:bootstrappers:a", "true")
	f.Add("abc123", "0123456789abcdef", "0001-01-01T00:00:00+00:00",
		"system:bootstrappers:b,system:bootstrappers:a", "true")
	f.Fuzz(func(t *testing.T, id, secret, expiration, groups, usage string) {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id},
			Type: bootstrapapi.SecretTypeBootstrapToken, Data: map[string][]byte{
				"token-id": []byte(id), "token-secret": []byte(secret), "expiration": []byte(expiration),
				"auth-extra-groups": []byte(groups), "usage-bootstrap-signing": []byte(usage)}}
		c, err := bootstrap.ParseSecret(s)
		if err != nil {
			return
		}
		if !tokenutil.IsValidBootstrapToken(c.Token.Reveal()) || c.Allows("signing") != (usage == "true") ||
			c.Expired(time.Now()) != secrets.HasExpired(s, time.Now()) {
			t.Errorf("%+v", c)
		}
	})
}
