package main

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func newRotator(now func() time.Time) *rotator {
	return &rotator{client: fake.NewClientBuilder().Build(), options: certificateOptions{namespace: namespace, now: now}}
}

// A replica whose clock differs from that of the API server writes nothing, and
// says why it is not ready.
func TestReplicaWithAnotherClock(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		skew time.Duration
		want string
	}{
		"eleven years ahead":  {11 * 365 * day, "96360h"},
		"six minutes behind":  {-6 * time.Minute, "6m"},
		"four minutes ahead":  {4 * time.Minute, ""},
		"four minutes behind": {-4 * time.Minute, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRotator(func() time.Time { return now.Add(test.skew) })
			answer := &http.Response{Header: http.Header{"Date": {now.UTC().Format(http.TimeFormat)}}}
			compared := r.compareClocks(roundTripper(func(*http.Request) (*http.Response, error) { return answer, nil }))
			if _, err := compared.RoundTrip(nil); err != nil {
				t.Fatal(err)
			}
			err := r.try(t.Context())
			if ready := r.ready(nil); !errors.Is(ready, err) {
				t.Errorf("ready: got %v, want %v", ready, err)
			}
			if (err != nil) != (test.want != "") ||
				err != nil && (!strings.Contains(err.Error(), "clock") || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got error %v, want %q", err, test.want)
			}
			secrets := &corev1.SecretList{}
			if err := r.client.List(t.Context(), secrets); err != nil || (len(secrets.Items) > 0) != (test.want == "") {
				t.Errorf("got %d Secrets and error %v, want writes: %t", len(secrets.Items), err, test.want == "")
			}
		})
	}
}

// After the Secret of the CAs is gone, clients trust the former CA while the
// kubelet still has to mount the new certificates.
func TestCAOutlivesItsSecret(t *testing.T) {
	now := time.Now()
	clock := now.Add(-time.Hour)
	r := newRotator(func() time.Time { return clock })
	secret := func(name string) *corev1.Secret {
		t.Helper()
		s := &corev1.Secret{}
		if err := r.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	if err := r.rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	former := secret(name).Data["ca.crt"]
	if err := r.client.Delete(t.Context(), secret(caSecret)); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {10 * time.Second, true}, {4 * time.Minute, true}, {6 * time.Minute, false}} {
		clock = now.Add(test.after)
		if err := r.rotate(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, service := range []string{name, webhookName} {
			got := secret(service).Data["ca.crt"]
			if bytes.Contains(got, former) != test.want || bytes.Equal(got, former) {
				t.Errorf("after %s: got ca.crt of %s with the former CA: %t, want %t", test.after, service, !test.want, test.want)
			}
		}
	}
}
