package tokens_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/bootstrap/tokens"
)

func TestManager(t *testing.T) {
	bad := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-bad000"},
		Type: bootstrapapi.SecretTypeBootstrapToken}
	foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-mine00"},
		Type: corev1.SecretTypeOpaque}
	c := fake.NewClientBuilder().WithObjects(bad, foreign).Build()
	m, ctx := tokens.Manager{Client: c}, t.Context()
	expires := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	created, err := m.Create(ctx,
		bootstrap.TokenConfig{Expires: expires, Usages: []string{"custom", bootstrap.UsageSigning}, Description: "d"})
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
	var s corev1.Secret
	if err := c.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "bootstrap-token-" + created.Token.ID()},
		&s); err != nil {
		t.Fatal(err)
	}
	if stored, err := bootstrap.ParseSecret(&s); err != nil || !stored.Expires.Equal(expires) ||
		!stored.Allows("custom") || stored.Description != "d" {
		t.Errorf("stored %+v, %v", stored, err)
	}
	for name, want := range map[string]string{
		created.Token.ID() + ".0000000000000000": "another secret", "none00": `"none00"`, "NOT-AN-ID": "six lower-case",
		"mine00": "not that of a token"} {
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

// What could not be used is not created.
func TestCreateRefuses(t *testing.T) { synctest.Test(t, testCreateRefuses) }

func testCreateRefuses(t *testing.T) {
	time.Sleep(500 * time.Millisecond) // of fake time, which starts at 2000-01-01
	now := time.Now()
	c := fake.NewClientBuilder().Build()
	m := tokens.Manager{Client: c}
	signing := []string{bootstrap.UsageSigning}
	for want, config := range map[string]bootstrap.TokenConfig{
		"no usages":            {},
		"2000-01-01T00:00:00Z": {Usages: signing, Expires: now.Add(100 * time.Millisecond)},
		"1999-12-31T23:00:00Z": {Usages: signing, Expires: now.Add(-time.Hour)},
		// zero when it is cut, but not never
		"0001-01-01T00:00:00Z":  {Usages: signing, Expires: time.Time{}.Add(time.Millisecond)},
		"10000-01-01T00:00:00Z": {Usages: signing, Expires: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		if created, err := m.Create(t.Context(), config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", want, created, err)
		}
	}
	created, err := m.Create(t.Context(), bootstrap.TokenConfig{Usages: signing, Expires: now.Add(time.Second)})
	if err != nil || !created.Expires.Equal(now.Add(time.Second).Truncate(time.Second)) {
		t.Errorf("%+v, %v", created, err)
	}
}

// List returns a token with malformed groups, with its other data.
func TestListMalformedGroups(t *testing.T) {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-abc123"},
		Type: bootstrapapi.SecretTypeBootstrapToken, Data: map[string][]byte{
			"token-id": []byte("abc123"), "token-secret": []byte("0123456789abcdef"),
			"auth-extra-groups": []byte("hunter2-in-the-wrong-key")}}
	list, err := tokens.Manager{Client: fake.NewClientBuilder().WithObjects(s).Build()}.List(t.Context())
	if err != nil || len(list) != 1 || list[0].Config == nil || list[0].Err == nil ||
		strings.Contains(list[0].Err.Error(), "hunter2") {
		t.Errorf("%+v, %v", list, err)
	}
}

// The API server's clock decides when a token expires.
func TestCreateByTheClockOfTheCluster(t *testing.T) {
	for name, row := range map[string]clockRow{
		"same clock":                    {ttl: time.Hour},
		"cluster ahead by half the TTL": {ahead: 30 * time.Minute, ttl: time.Hour},
		"cluster ahead by the TTL":      {ahead: time.Hour, ttl: time.Hour, refused: true},
		"cluster ahead by more":         {ahead: 25 * time.Hour, ttl: time.Hour, refused: true},
		"cluster behind":                {ahead: -24 * time.Hour, ttl: time.Hour},
		"without expiry":                {ahead: 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, row.test) })
	}
}

// clockRow is a token that is created at an API server with another clock.
type clockRow struct {
	ahead, ttl time.Duration // ttl 0: never expires
	refused    bool
}

func (row clockRow) test(t *testing.T) {
	now := time.Now().UTC()
	at := func(d time.Duration) string { return now.Add(d).Format(time.RFC3339) }
	c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			o.SetCreationTimestamp(metav1.NewTime(now.Add(row.ahead)))
			return c.Create(ctx, o, opts...)
		},
	}).Build()
	config := bootstrap.TokenConfig{Usages: []string{bootstrap.UsageSigning}}
	if row.ttl != 0 {
		config.Expires = now.Add(row.ttl)
	}
	m := tokens.Manager{Client: c}
	_, err := m.Create(t.Context(), config)
	left, listErr := m.List(t.Context())
	if listErr != nil {
		t.Fatal(listErr)
	}
	if !row.refused {
		if err != nil || len(left) != 1 {
			t.Errorf("%d tokens, %v", len(left), err)
		}
		return
	}
	if err == nil || !strings.Contains(err.Error(), at(row.ttl)) || !strings.Contains(err.Error(), at(row.ahead)) {
		t.Errorf("%v, want both times", err)
	}
	if len(left) != 0 {
		t.Errorf("the expired token is left: %+v", left)
	}
}
