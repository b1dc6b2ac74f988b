package authenticator_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/bootstrap/authenticator"
)

const good = "abc123.0123456789abcdef"

func secret(t *testing.T, change func(*corev1.Secret)) *corev1.Secret {
	t.Helper()
	token, err := bootstrap.ParseToken(good)
	if err != nil {
		t.Fatal(err)
	}
	config := bootstrap.TokenConfig{Token: token, Expires: time.Now().Add(time.Hour),
		Usages: []string{bootstrap.UsageAuthentication}, Groups: []string{"system:bootstrappers:workers"}}
	s, err := config.Secret()
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(s)
	}
	return s
}

// groups are the token's groups.
var groups = []string{"system:bootstrappers", "system:bootstrappers:workers"}

// The tests of bootstrap.ParseSecret have the forms of a Secret.
func TestAuthenticate(t *testing.T) {
	set := func(key, value string) func(*corev1.Secret) {
		return func(s *corev1.Secret) { s.Data[key] = []byte(value) }
	}
	for name, tc := range map[string]struct {
		token  string
		change func(*corev1.Secret)
		ok     bool
	}{
		"good":             {good, nil, true},
		"wrong secret":     {"abc123.fedcba9876543210", nil, false},
		"unknown":          {"xyz789.0123456789abcdef", nil, false},
		"upper case":       {"ABC123.0123456789abcdef", nil, false},
		"empty":            {"", nil, false},
		"a JWT":            {"eyJhbGciOiJub25lIn0.e30.", nil, false},
		"expired":          {good, set("expiration", "2020-01-01T00:00:00Z"), false},
		"no expiration":    {good, func(s *corev1.Secret) { delete(s.Data, "expiration") }, true},
		"usage off":        {good, set("usage-bootstrap-authentication", "false"), false},
		"another type":     {good, func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }, false},
		"a group too many": {good, set("auth-extra-groups", "system:bootstrappers:a,system:masters"), false},
		"unsorted groups": {good, set("auth-extra-groups", "system:bootstrappers:workers,system:bootstrappers:admins"),
			true},
		"being deleted": {good, func(s *corev1.Secret) {
			s.DeletionTimestamp, s.Finalizers = &metav1.Time{Time: time.Now()}, []string{"example.com/x"}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := authenticator.New(fake.NewClientBuilder().WithObjects(secret(t, tc.change)).Build())
			response, ok, err := a.AuthenticateToken(t.Context(), tc.token)
			if ok != tc.ok || err != nil {
				t.Errorf("got authenticated: %t and error %v, want %t", ok, err, tc.ok)
			}
			if ok && (response.User.GetName() != "system:bootstrap:abc123" ||
				!slices.Contains(response.User.GetGroups(), groups[1]) ||
				response.User.GetGroups()[0] != groups[0] || !slices.IsSorted(response.User.GetGroups())) {
				t.Errorf("got %+v, want the token's user and the sorted groups, with %q", response.User, groups)
			}
		})
	}
}

type broken struct{ client.Reader }

func (broken) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("the API server is down")
}

func TestHandler(t *testing.T) {
	post := func(a *authenticator.Authenticator, body string) (int, authenticationv1.TokenReview, string) {
		w := httptest.NewRecorder()
		a.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body)))
		var review authenticationv1.TokenReview
		_ = json.Unmarshal(w.Body.Bytes(), &review) // refusals are text
		return w.Code, review, w.Body.String()
	}
	review := `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","spec":{"token":"` + good + `"}}`
	a := authenticator.New(fake.NewClientBuilder().WithObjects(secret(t, nil)).Build())
	code, got, body := post(a, review)
	if code != 200 || !got.Status.Authenticated || got.Status.User.Username != "system:bootstrap:abc123" ||
		!slices.Equal(got.Status.User.Groups, groups) || strings.Contains(body, "0123456789") {
		t.Errorf("%d %s", code, body)
	}
	if _, got, body := post(a, strings.Replace(review, "0123456789", "9876543210", 1)); got.Status.Authenticated ||
		got.Status.Error != "" {
		t.Errorf("wrong secret: %s", body)
	}
	down, failures := authenticator.New(broken{}), 0
	down.Failed = func(err error) {
		if failures++; !strings.Contains(err.Error(), "the API server is down") ||
			strings.Contains(err.Error(), "0123456789") {
			t.Errorf("told %v", err)
		}
	}
	if _, got, body := post(down, review); failures != 1 || got.Status.Authenticated || got.Status.Error == "" ||
		strings.Contains(body, "0123456789") {
		t.Errorf("API server down: %s", body)
	}
	if _, got, body := post(authenticator.New(broken{}), review); got.Status.Authenticated || got.Status.Error == "" {
		t.Errorf("API server down, Failed was not called: %s", body)
	}
	// No audience is vouched for: the API server compares its own with those
	// that are asked for.
	asked := strings.Replace(review, `"spec":{`, `"spec":{"audiences":["https://vault.example","sts.amazonaws.com"],`, 1)
	if _, got, body := post(a, asked); !got.Status.Authenticated || len(got.Status.Audiences) != 0 ||
		strings.Contains(body, "vault") {
		t.Errorf("audiences: %s", body)
	}
	for _, bad := range []string{"", "{", `{"kind":"Pod"}`,
		`{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1beta1"}`, strings.Repeat(" ", 2<<20) + review} {
		if code, _, body := post(a, bad); code != http.StatusBadRequest {
			t.Errorf("%.50q: %d %s", bad, code, body)
		}
	}
}
