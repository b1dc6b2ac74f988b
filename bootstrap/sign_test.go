package bootstrap_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"k8s.io/cluster-bootstrap/token/jws"

	"github.com/workloadid/workloadid/bootstrap"
)

// What we sign Kubernetes verifies, and the other way round, to the byte.
func TestSignaturesAreThoseOfKubernetes(t *testing.T) {
	token := parse(t, wellKnown)
	for _, size := range []int{0, 1, 2, 3, 767, 768, 769, 1700, 10000} {
		content := strings.Repeat("kubeconfig ", size)[:size]
		want, err := jws.ComputeDetachedSignature(content, "abc123", "0123456789abcdef")
		if err != nil {
			t.Fatal(err)
		}
		if got := bootstrap.Sign([]byte(content), token); got != want {
			t.Errorf("%d bytes: %s instead of %s", size, got, want)
		}
		if err := bootstrap.Verify([]byte(content), want, token); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

// The zero Token has an empty key, which is no secret. It signs and verifies
// nothing.
func TestZeroTokenProvesNothing(t *testing.T) {
	none, content := bootstrap.Token{}, []byte("payload")
	mac := hmac.New(sha256.New, nil)
	header := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","kid":""}`))
	mac.Write([]byte(header + "." + base64.RawURLEncoding.EncodeToString(content)))
	forged := header + ".." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	for _, signature := range []string{forged, bootstrap.Sign(content, none)} {
		if err := bootstrap.Verify(content, signature, none); !errors.Is(err, bootstrap.ErrSignature) {
			t.Errorf("%q: %v", signature, err)
		}
	}
}

func TestSignaturesThatAreRefused(t *testing.T) {
	token, content := parse(t, wellKnown), []byte("payload")
	good := bootstrap.Sign(content, token)
	header, signature, _ := strings.Cut(good, "..")
	other := bootstrap.Sign(content, parse(t, "abc123.fedcba9876543210"))
	for name, bad := range map[string]string{
		"empty":             "",
		"another token's":   other,
		"another ID":        bootstrap.Sign(content, parse(t, "xyz789.0123456789abcdef")),
		"other content":     bootstrap.Sign([]byte("payloae"), token),
		"alg none":          "eyJhbGciOiJub25lIiwia2lkIjoiYWJjMTIzIn0..",
		"alg HS512":         "eyJhbGciOiJIUzUxMiIsImtpZCI6ImFiYzEyMyJ9.." + signature,
		"header in a blank": " " + good,
		"attached":          header + ".cGF5bG9hZA." + signature,
		"cut":               good[:len(good)-1],
		"longer":            good + "A",
		"padded":            good + "=",
		"last bits changed": good[:len(good)-1] + string(good[len(good)-1]+1),
		"one dot":           header + "." + signature,
	} {
		if err := bootstrap.Verify(content, bad, token); !errors.Is(err, bootstrap.ErrSignature) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzVerify(f *testing.F) {
	content := []byte("payload")
	token := parse(f, wellKnown)
	f.Add(bootstrap.Sign(content, token))
	f.Add("eyJhbGciOiJub25lIn0..")
	f.Fuzz(func(t *testing.T, s string) {
		if bootstrap.Verify(content, s, token) == nil && s != bootstrap.Sign(content, token) {
			t.Errorf("%q was accepted", s)
		}
	})
}
