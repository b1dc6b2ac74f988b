// Package testenv sets up what the tests of many packages need: an issuer of
// tokens, a cloud and a cache. It also checks the rules for every error.
package testenv

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
)

// maxMessage bounds an error in characters, because it ends up in a condition.
const maxMessage = 2500

// sharedKey is made once, because that takes longer than most tests.
var sharedKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

// Issuer returns an issuer of the test's own. All of them begin with the same
// key.
func Issuer(t testing.TB) *cloudtest.Issuer {
	t.Helper()
	return IssuerAt(t, "")
}

// IssuerAt is Issuer with a URL.
func IssuerAt(t testing.TB, url string) *cloudtest.Issuer {
	t.Helper()
	key, err := sharedKey()
	if err != nil {
		t.Fatal(err)
	}
	return newIssuer(t, cloudtest.IssuerConfig{URL: url, Key: key})
}

// Forger returns an issuer that differs from Issuer's in its key alone.
func Forger(t testing.TB) *cloudtest.Issuer {
	t.Helper()
	return newIssuer(t, cloudtest.IssuerConfig{})
}

func newIssuer(t testing.TB, config cloudtest.IssuerConfig) *cloudtest.Issuer {
	t.Helper()
	issuer, err := cloudtest.NewIssuer(config)
	if err != nil {
		t.Fatal(err)
	}
	return issuer
}

// Cloud returns a cloud that is closed with the test.
func Cloud(t testing.TB) *cloudtest.Cloud {
	t.Helper()
	cloud, err := cloudtest.NewCloud()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cloud.Close)
	return cloud
}

// CancelAt returns a context that ends when the cloud has got a request, and
// how long ago that was.
func CancelAt(t testing.TB, cloud *cloudtest.Cloud, service,
	action string) (ctx context.Context, since func() time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var cancelled time.Time
	go func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for cloud.Calls(service, action) == 0 && ctx.Err() == nil {
			<-tick.C
		}
		cancelled = time.Now()
		cancel()
	}()
	return ctx, func() time.Duration {
		<-ctx.Done()
		return time.Since(cancelled)
	}
}

// Cache returns a cache that is closed with the test. Its callers wait for a
// minute, because exchanges are slow on a busy machine.
func Cache(t testing.TB, opts ...cache.Option) *cache.TokenCache {
	t.Helper()
	tokens, err := cache.NewTokenCache(10_000, append([]cache.Option{cache.WithPatience(time.Minute)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tokens.Close)
	return tokens
}

// ServiceAccount returns one with annotations, given as key, value, key, value.
func ServiceAccount(namespace, name string, annotations ...string) *corev1.ServiceAccount {
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		Annotations: map[string]string{}}}
	for i := 0; i < len(annotations); i += 2 {
		sa.Annotations[annotations[i]] = annotations[i+1]
	}
	return sa
}

// CheckError compares the reason, wants parts of the message, and finds tokens
// in it: tokens of issuers and of the clouds of cloudtest.
func CheckError(t testing.TB, err error, reason provider.Reason, want ...string) {
	t.Helper()
	if !errors.Is(err, reason) {
		t.Fatalf("got %v, want reason %q", err, reason)
	}
	message := err.Error()
	for _, w := range want {
		if !strings.Contains(message, w) {
			t.Errorf("the message lacks %s: %v", w, err)
		}
	}
	for _, token := range []string{"eyJ", "azure-", "ya29.", "ghs_"} {
		if strings.Contains(message, token) {
			t.Errorf("the message holds a token: %v", err)
		}
	}
	if len(message) > maxMessage {
		t.Errorf("the message is too long for a condition: %v", err)
	}
}

// CheckInvalidate runs in a synctest bubble. It checks that Invalidate of an
// adapter replaces what use returns, once, and not within ten seconds.
func CheckInvalidate(t testing.TB, adapter interface{ Invalidate() }, use func() (string, error)) {
	t.Helper()
	must := func() string {
		t.Helper()
		got, err := use()
		if err != nil || got == "" {
			t.Fatalf("got %q, %v", got, err)
		}
		return got
	}
	first := must()
	adapter.Invalidate()
	if must() != first {
		t.Error("a credential that is seconds old was replaced")
	}
	time.Sleep(11 * time.Second)
	if second := must(); second == first || must() != second {
		t.Error("the credential was not replaced once")
	}
}
