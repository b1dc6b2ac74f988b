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
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/jwt"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

const (
	tokenService    = "token.example"
	scopeAnnotation = "token.example/scope"
	mountAnnotation = "token.example/mount"
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
type exampleProvider struct {
	Service string // the host of the token service
	Log     func(string)
	mistake string
	mu      sync.Mutex
	kept    *opaqueToken
}

func (*exampleProvider) GetName() string { return "example" }

func (*exampleProvider) NewControllerToken(context.Context, *provider.Options) (auth.Token, error) {
	return nil, failed(auth.ErrMisconfigured, "no identity of its own")
}

func (*exampleProvider) GetAudiences(context.Context, *corev1.ServiceAccount, *provider.Options) ([]string, error) {
	return []string{tokenService}, nil
}

func (p *exampleProvider) GetAnnotations() []string {
	if p.mistake == "no list of annotations" {
		return []string{scopeAnnotation}
	}
	return []string{scopeAnnotation, mountAnnotation}
}

func (p *exampleProvider) GetIdentity(sa *corev1.ServiceAccount, _ *provider.Options) (string, error) {
	if scope := sa.Annotations[scopeAnnotation]; strings.Contains(scope, " ") {
		return "", failed(auth.ErrMisconfigured, "annotation %s is %q, not one word", scopeAnnotation, scope)
	}
	if mount, ok := sa.Annotations[mountAnnotation]; ok && len(mount) != len("1234") {
		return "", failed(auth.ErrMisconfigured, "annotation %s is %q, not four characters", mountAnnotation, mount)
	}
	if p.mistake == "identity writes" && len(sa.Annotations) > 0 {
		sa.Annotations["seen"] = "yes"
	}
	return "", nil
}

func (p *exampleProvider) ValidateOptions(opts *provider.Options) error {
	switch {
	case opts.STSEndpoint != "" && p.mistake != "endpoint":
		return failed(auth.ErrMisconfigured, "the endpoint %q is refused", opts.STSEndpoint)
	case opts.STSRegion != "" && p.mistake != "region":
		return failed(auth.ErrMisconfigured, "the region %q is refused", opts.STSRegion)
	}
	return nil
}

func (p *exampleProvider) AddToCacheKey(key provider.KeyBuilder, sa *corev1.ServiceAccount, _ *provider.Options) {
	if p.mistake != "field" {
		key.Add("service", p.Service)
	}
	if sa == nil {
		return
	}
	if p.mistake != "annotation" {
		key.Add("scope", sa.Annotations[scopeAnnotation])
	}
	if p.mistake != "annotation with few valid values" {
		key.Add("mount", sa.Annotations[mountAnnotation])
	}
	if p.mistake == "cache key writes" && len(sa.Annotations) > 0 {
		sa.Annotations["seen"] = "yes"
	}
}

func (p *exampleProvider) NewTokenForServiceAccount(ctx context.Context, oidcToken string, sa *corev1.ServiceAccount,
	opts *provider.Options) (auth.Token, error) {
	if strings.HasPrefix(p.mistake, "memo") {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.kept != nil && (p.mistake == "memo" || sa.Name != "refused") {
			return p.kept, nil
		}
	}
	var answer struct{ Token string }
	address := "https://" + tokenService + "/" + sa.Annotations[scopeAnnotation]
	if err := p.send(ctx, http.MethodPost, address, oidcToken, "", opts, &answer); err != nil {
		return nil, err
	}
	// The service confirms the token, which is a request without a JWT.
	if err := p.send(ctx, http.MethodGet, "https://"+tokenService+"/lookup", "", answer.Token, opts,
		&struct{}{}); err != nil {
		return nil, err
	}
	token := &opaqueToken{answer.Token, time.Now().Add(time.Hour)}
	if strings.HasPrefix(p.mistake, "memo") {
		p.kept = token
	}
	return token, nil
}

func (p *exampleProvider) send(ctx context.Context, method, address, body, token string, opts *provider.Options,
	into any) error {
	if p.mistake == "context" {
		ctx = context.WithoutCancel(ctx)
	}
	req, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return err
	}
	if token != "" {
		req.Header.Set("X-Token", token)
	}
	resp, err := p.client(opts, method).Do(req)
	if err != nil {
		return &auth.Error{Provider: "example", Reason: auth.ErrUnavailable, Message: "no answer", Err: err}
	}
	defer resp.Body.Close() //nolint:errcheck // read as far as it is needed
	if p.mistake == "body of an outage" && resp.StatusCode >= http.StatusInternalServerError {
		_, _ = io.Copy(io.Discard, resp.Body) // the mistake
	}
	content := io.Reader(io.LimitReader(resp.Body, 1<<20))
	if p.mistake == "body" {
		content = resp.Body
	}
	err = json.NewDecoder(content).Decode(into)
	switch {
	case resp.StatusCode == http.StatusForbidden:
		return failed(auth.ErrDenied, "the service refuses the token")
	case resp.StatusCode == http.StatusTooManyRequests:
		return failed(auth.ErrThrottled, "the service limits the rate")
	case err != nil || resp.StatusCode != http.StatusOK:
		return failed(auth.ErrUnavailable, "the answer has status %d and is malformed", resp.StatusCode)
	}
	return nil
}

func (p *exampleProvider) client(opts *provider.Options, method string) *http.Client {
	c := *opts.HTTPClient
	if p.mistake != "redirect" && (p.mistake != "redirect of a header" || method != http.MethodGet) {
		c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	return &c
}

func failed(reason provider.Reason, format string, args ...any) error {
	return &auth.Error{Provider: "example", Operation: "exchange token", Reason: reason,
		Message: fmt.Sprintf(format, args...)}
}

// exchangeExample issues tokens to the ServiceAccounts app and second, and
// answers lookups of tokens.
func exchangeExample(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/lookup" {
		_, _ = io.WriteString(w, "{}")
		return
	}
	body, _ := io.ReadAll(r.Body) // what is cut short is not a token
	claims, err := jwt.Parse(string(body))
	if err != nil || claims.Subject != "system:serviceaccount:tenant-a:app" &&
		claims.Subject != "system:serviceaccount:tenant-a:second" {
		http.Error(w, "{}", http.StatusForbidden)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]string{"token": uuid.NewString()}) // a client that has gone needs no answer
}

// mistakeVariable names the mistake of the provider in a child process of
// TestConformanceFailsForMistakes.
const mistakeVariable = "AUTHTEST_MISTAKE"

func TestConformance(t *testing.T) {
	issuer, cloud := testenv.Issuer(t), testenv.Cloud(t)
	cloud.Handle(tokenService, http.HandlerFunc(exchangeExample))
	key := func(name string) client.ObjectKey { return client.ObjectKey{Namespace: "tenant-a", Name: name} }
	annotations := map[string]string{scopeAnnotation: "read", mountAnnotation: "5678"}
	if os.Getenv(mistakeVariable) == "no valid value in Harness.Annotations" {
		delete(annotations, mountAnnotation)
	}
	fields := map[string]any{"Service": "other.example", "Log": nil}
	if os.Getenv(mistakeVariable) == "no field in Harness.Fields" {
		delete(fields, "Log")
	}
	authtest.RunConformance(t, authtest.Harness{
		New:     func(*testing.T) auth.Provider { return &exampleProvider{mistake: os.Getenv(mistakeVariable)} },
		Options: []auth.Option{auth.WithHTTPClient(cloud.Client())},
		Client: issuer.Client(testenv.ServiceAccount("tenant-a", "app", mountAnnotation, "1234"),
			testenv.ServiceAccount("tenant-a", "second"), testenv.ServiceAccount("tenant-a", "refused"),
			testenv.ServiceAccount("tenant-a", "malformed", scopeAnnotation, "two words")),
		Good: key("app"), Other: key("second"), Refused: key("refused"), Malformed: key("malformed"),
		Annotations: annotations, Fields: fields,
		Break: func(t *testing.T, how provider.Reason) {
			t.Cleanup(cloud.AddFault(map[provider.Reason]cloudtest.Fault{auth.ErrThrottled: {Status: http.StatusTooManyRequests},
				auth.ErrUnavailable: {Status: http.StatusServiceUnavailable}, authtest.Hang: {Hang: true}}[how]))
		},
		Calls: func() int { return cloud.Calls("", "") },
		Secrets: func(_ *testing.T, token auth.Token) []string {
			own, _ := token.(*opaqueToken)
			return []string{own.value}
		},
	})
}

// Each mistake fails its own cases and no other.
func TestConformanceFailsForMistakes(t *testing.T) {
	const annotation, other, refused, unchanged, redirect, length = "every_annotation_is_part_of_the_cache_key",
		"no_ServiceAccount_gets_the_credential_of_another", "a_refusal_is_ErrDenied_without_a_fallback",
		"options_and_ServiceAccount_stay_unchanged", "no_redirect_is_followed", "the_length_of_answers_is_limited"
	const field, endpoint, region, ctx = "every_field_of_the_provider_is_part_of_the_cache_key",
		"a_foreign_STS_endpoint_is_refused_before_any_request",
		"a_malformed_region_is_refused_before_any_request", "a_call_ends_with_its_context"
	for mistake, want := range map[string][]string{
		"redirect":                              {redirect},
		"redirect of a header":                  {redirect},
		"body":                                  {length},
		"body of an outage":                     {length},
		"annotation":                            {annotation},
		"no list of annotations":                {"every_annotation_is_listed"},
		"annotation with few valid values":      {annotation},
		"no valid value in Harness.Annotations": {annotation},
		"memo":                                  {other, refused},
		"memo for trusted ServiceAccounts":      {other},
		"identity writes":                       {unchanged},
		"cache key writes":                      {unchanged},
		"field":                                 {field},
		"no field in Harness.Fields":            {field},
		"endpoint":                              {endpoint},
		"region":                                {region},
		"context":                               {ctx},
	} {
		t.Run(mistake, func(t *testing.T) {
			// one of them takes half a minute
			t.Parallel()
			suite := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestConformance$",
				"-test.v") //nolint:gosec // this test itself
			suite.Env = append(os.Environ(), mistakeVariable+"="+mistake)
			out, err := suite.CombinedOutput()
			var failures []string
			for _, match := range regexp.MustCompile(`--- FAIL: TestConformance/(\S+)`).FindAllSubmatch(out, -1) {
				failures = append(failures, string(match[1]))
			}
			if err == nil || !slices.Equal(failures, want) {
				t.Errorf("failed cases %q, want %q\n%s", failures, want, out)
			}
		})
	}
}

func TestConformanceLeavesOutCasesWithoutTheirFields(t *testing.T) {
	issuer := testenv.Issuer(t)
	var names []string
	cloud := testenv.Cloud(t)
	cloud.Handle(tokenService, http.HandlerFunc(exchangeExample))
	authtest.RunConformance(t, authtest.Harness{
		New: func(t *testing.T) auth.Provider {
			if name := t.Name(); !slices.Contains(names, name) {
				names = append(names, name)
			}
			return &exampleProvider{}
		},
		Options:   []auth.Option{auth.WithHTTPClient(cloud.Client())},
		Client:    issuer.Client(testenv.ServiceAccount("tenant-a", "app")),
		Good:      client.ObjectKey{Namespace: "tenant-a", Name: "app"},
		NoRegions: true,
		Fields:    map[string]any{"Service": nil, "Log": nil},
	})
	const mandatory, withHTTPClient = 7, 2
	if len(names) != mandatory+withHTTPClient {
		t.Errorf("cases that ran: %q", names)
	}
}
