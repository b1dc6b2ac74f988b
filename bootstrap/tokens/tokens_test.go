package tokens_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/bootstrap/tokens"
)

func TestManager(t *testing.T) {
	bad := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-bad000"}, Type: bootstrap.SecretType}
	foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-mine00"}, Type: corev1.SecretTypeOpaque}
	c := fake.NewClientBuilder().WithObjects(bad, foreign).Build()
	m, ctx := tokens.Manager{Client: c}, t.Context()
	expires := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	created, err := m.Create(ctx, bootstrap.TokenConfig{Expires: expires, Usages: []string{"custom", bootstrap.UsageSigning}, Description: "d"})
	if err != nil || created.Token.IsZero() {
		t.Fatal(created, err)
	}
	if _, err := m.Create(ctx, *created); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("created twice: %v", err)
	}
	list, err := m.List(ctx)
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, l := range list {
		if (l.Name == bad.Name) != (l.Err != nil) {
			t.Errorf("%+v", l)
		}
	}
	later := expires.Add(time.Hour)
	for _, end := range []time.Time{later, {}} {
		extended, err := m.Extend(ctx, created.Token.Reveal(), end)
		if err != nil || !extended.Expires.Equal(end) {
			t.Errorf("%+v, %v", extended, err)
		}
		var s corev1.Secret
		if err := c.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "bootstrap-token-" + created.Token.ID()}, &s); err != nil {
			t.Fatal(err)
		}
		if stored, err := bootstrap.ParseSecret(&s); err != nil || !stored.Expires.Equal(end) || !stored.Allows("custom") || stored.Description != "d" {
			t.Errorf("stored %+v, %v", stored, err)
		}
	}
	for name, want := range map[string]string{
		created.Token.ID() + ".0000000000000000": "another secret", "none00": `"none00"`, "NOT-AN-ID": "six lower-case", "mine00": "not that of a token"} {
		if err := m.Delete(ctx, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("delete %q: %v", name, err)
		}
	}
	for _, name := range []string{created.Token.Reveal(), "bad000"} {
		if err := m.Delete(ctx, name); err != nil {
			t.Error(err)
		}
	}
	if list, err := m.List(ctx); err != nil || len(list) != 0 {
		t.Errorf("left: %+v, %v", list, err)
	}
}
