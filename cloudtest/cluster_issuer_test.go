package cloudtest_test

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

func TestVerify(t *testing.T) {
	synctest.Test(t, testVerify) // so that the clock stands still
}

func testVerify(t *testing.T) {
	now := time.Now()
	issuer, err := cloudtest.NewIssuer(cloudtest.IssuerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	sign := func(by *cloudtest.Issuer, changes map[string]any) string {
		claims := by.Claims(testenv.ServiceAccount("tenant-a", "app"), []string{"vault", "other"}, time.Hour)
		maps.Copy(claims, changes)
		maps.DeleteFunc(claims, func(_ string, value any) bool { return value == nil })
		token, err := by.Sign(claims)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	good := sign(issuer, nil)
	if sa, err := issuer.Verify(good, "vault"); err != nil ||
		sa != (client.ObjectKey{Namespace: "tenant-a", Name: "app"}) {
		t.Errorf("got %v, %v", sa, err)
	}
	for name, tc := range map[string]struct{ token, audience string }{
		"no token":                 {"", "vault"},
		"another audience":         {good, "vault2"},
		"no audience":              {good, ""},
		"another issuer":           {sign(issuer, map[string]any{"iss": "https://other.example"}), "vault"},
		"another key":              {sign(testenv.Forger(t), nil), "vault"},
		"expired a second ago":     {sign(issuer, map[string]any{"exp": now.Unix() - 1}), "vault"},
		"no expiry":                {sign(issuer, map[string]any{"exp": nil}), "vault"},
		"not yet valid":            {sign(issuer, map[string]any{"nbf": now.Unix() + 2}), "vault"},
		"a user as subject":        {sign(issuer, map[string]any{"sub": "alice"}), "vault"},
		"a subject without a name": {sign(issuer, map[string]any{"sub": "system:serviceaccount:tenant-a"}), "vault"},
		"a changed signature":      {good[:len(good)-8] + "AAAAAAAA", "vault"},
	} {
		if sa, err := issuer.Verify(tc.token, tc.audience); err == nil || sa != (client.ObjectKey{}) {
			t.Errorf("%s: got %v, %v", name, sa, err)
		}
	}
	if err := issuer.Rotate(true); err != nil {
		t.Fatal(err)
	}
	if _, err := issuer.Verify(good, "vault"); err != nil {
		t.Errorf("after a rotation that keeps the old key: %v", err)
	}
	if err := issuer.Rotate(false); err != nil {
		t.Fatal(err)
	}
	if _, err := issuer.Verify(good, "vault"); err == nil {
		t.Error("a withdrawn key still verifies")
	}
}
