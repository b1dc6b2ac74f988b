package authtest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/internal/jwt"
	"github.com/workloadid/workloadid/internal/testworld"
)

const (
	tokenService    = "token.example"
	scopeAnnotation = "token.example/scope"
)

// opaqueToken is a credential of the token service.
type opaqueToken struct {
	value   string
	expires time.Time
}

func (t opaqueToken) GetDuration() time.Duration { return time.Until(t.expires) }
func (opaqueToken) Format(s fmt.State, _ rune)   { _, _ = io.WriteString(s, "redacted") }
func (opaqueToken) MarshalJSON() ([]byte, error) { return []byte(`"redacted"`), nil }

// exampleProvider keeps the contract except for one mistake.
type exampleProvider struct{ mistake string }

func (exampleProvider) GetName() string { return "example" }

func (exampleProvider) NewControllerToken(context.Context, *auth.Options) (auth.Token, error) {
	return nil, failed(auth.ErrMisconfigured, "no identity of its own")
}

func (exampleProvider) GetAudiences(context.Context, *corev1.ServiceAccount, *auth.Options) ([]string, error) {
	return []string{tokenService}, nil
}

func (exampleProvider) GetIdentity(sa *corev1.ServiceAccount, opts *auth.Options) (string, error) {
	if scope := sa.Annotations[scopeAnnotation]; strings.Contains(scope, " ") {
		return "", failed(auth.ErrMisconfigured, "annotation %s%s is %q, not one word", scopeAnnotation, opts.CallersIdentity(scopeAnnotation), scope)
	}
	return "", nil
}

func (p exampleProvider) AddToCacheKey(key *auth.KeyBuilder, sa *corev1.ServiceAccount, _ *auth.Options) {
	if sa != nil && p.mistake != "annotation" {
		key.Add("scope", sa.Annotations[scopeAnnotation])
	}
}

func (p exampleProvider) NewTokenForServiceAccount(ctx context.Context, oidcToken string, sa *corev1.ServiceAccount, opts *auth.Options) (auth.Token, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+tokenService+"/"+sa.Annotations[scopeAnnotation], strings.NewReader(oidcToken))
	if err != nil {
		return nil, err
	}
	c := *opts.HTTPClient
	if p.mistake != "redirect" {
		c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	resp, err := c.Do(req)
	if err != nil {
		return nil, &auth.Error{Provider: "example", Reason: auth.ErrUnavailable, Message: "no answer", Err: err}
	}
	defer resp.Body.Close() //nolint:errcheck // read as far as it is needed
	body := io.Reader(io.LimitReader(resp.Body, 1<<20))
	if p.mistake == "body" {
		body = resp.Body
	}
	var answer struct{ Token string }
	err = json.NewDecoder(body).Decode(&answer)
	switch {
	case resp.StatusCode == http.StatusForbidden:
		return nil, failed(auth.ErrDenied, "the service refuses the token")
	case resp.StatusCode == http.StatusTooManyRequests:
		return nil, failed(auth.ErrThrottled, "the service limits the rate")
	case err != nil || resp.StatusCode != http.StatusOK:
		return nil, failed(auth.ErrUnavailable, "the answer has status %d and is malformed", resp.StatusCode)
	}
	return &opaqueToken{answer.Token, time.Now().Add(time.Hour)}, nil
}

func failed(reason auth.Reason, format string, args ...any) error {
	return &auth.Error{Provider: "example", Operation: "exchange token", Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// exchangeExample issues tokens to the ServiceAccount app.
func exchangeExample(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body) // what is cut short is not a token
	claims, err := jwt.Parse(string(body))
	if err != nil || claims.Subject != "system:serviceaccount:tenant-a:app" {
		http.Error(w, "{}", http.StatusForbidden)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]string{"token": uuid.NewString()}) // a client that has gone needs no answer
}

// mistakeVariable names the mistake of the provider in a child process of TestConformanceFailsForMistakes.
const mistakeVariable = "AUTHTEST_MISTAKE"

func TestConformance(t *testing.T) {
	issuer, cloud := testworld.Issuer(t), testworld.Cloud(t)
	cloud.Handle(tokenService, http.HandlerFunc(exchangeExample))
	key := func(name string) client.ObjectKey { return client.ObjectKey{Namespace: "tenant-a", Name: name} }
	authtest.RunConformance(t, authtest.Harness{
		New:     func(*testing.T) auth.Provider { return exampleProvider{os.Getenv(mistakeVariable)} },
		Options: []auth.Option{auth.WithHTTPClient(cloud.Client())},
		Client: issuer.Client(testworld.ServiceAccount("tenant-a", "app"), testworld.ServiceAccount("tenant-a", "other"),
			testworld.ServiceAccount("tenant-a", "malformed", scopeAnnotation, "two words")),
		Good: key("app"), Refused: key("other"), Malformed: key("malformed"),
		Annotations: map[string]string{scopeAnnotation: "read"},
		Break: func(t *testing.T, how auth.Reason) {
			t.Cleanup(cloud.AddFault(map[auth.Reason]authtest.Fault{auth.ErrThrottled: {Status: http.StatusTooManyRequests},
				auth.ErrUnavailable: {Status: http.StatusServiceUnavailable}, authtest.Hang: {Hang: true}}[how]))
		},
		Calls: func() int { return cloud.Calls("", "") },
		Secrets: func(_ *testing.T, token auth.Token) []string {
			own, _ := token.(*opaqueToken)
			return []string{own.value}
		},
	})
}

// Each mistake fails its own case and no other.
func TestConformanceFailsForMistakes(t *testing.T) {
	for mistake, want := range map[string]string{
		"redirect":   "no_redirect_receives_a_credential",
		"body":       "the_length_of_answers_is_limited",
		"annotation": "every_annotation_is_part_of_the_cache_key",
	} {
		t.Run(mistake, func(t *testing.T) {
			suite := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestConformance$", "-test.v") //nolint:gosec // this test itself
			suite.Env = append(os.Environ(), mistakeVariable+"="+mistake)
			out, err := suite.CombinedOutput()
			var failures []string
			for _, match := range regexp.MustCompile(`--- FAIL: TestConformance/(\S+)`).FindAllSubmatch(out, -1) {
				failures = append(failures, string(match[1]))
			}
			if err == nil || !slices.Equal(failures, []string{want}) {
				t.Errorf("failed cases %q, want %q\n%s", failures, want, out)
			}
		})
	}
}

func TestConformanceLeavesOutCasesWithoutTheirFields(t *testing.T) {
	issuer := testworld.Issuer(t)
	var names []string
	cloud := testworld.Cloud(t)
	cloud.Handle(tokenService, http.HandlerFunc(exchangeExample))
	authtest.RunConformance(t, authtest.Harness{
		New: func(t *testing.T) auth.Provider {
			if name := t.Name(); !slices.Contains(names, name) {
				names = append(names, name)
			}
			return exampleProvider{}
		},
		Options: []auth.Option{auth.WithHTTPClient(cloud.Client())},
		Client:  issuer.Client(testworld.ServiceAccount("tenant-a", "app")),
		Good:    client.ObjectKey{Namespace: "tenant-a", Name: "app"},
	})
	const mandatory, withHTTPClient = 5, 2
	if len(names) != mandatory+withHTTPClient {
		t.Errorf("cases that ran: %q", names)
	}
}
