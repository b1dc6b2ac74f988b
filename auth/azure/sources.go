package azure

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/input"
	"github.com/workloadid/workloadid/internal/jwt"
	"github.com/workloadid/workloadid/internal/transport"
)

type sdkToken = azcore.AccessToken

// notSetUp means that the process has no such identity. The search goes on with
// the next source.
type notSetUp struct {
	source, why string
	definite    bool // according to a service
}

func (e *notSetUp) Error() string { return e.source + ": " + e.why }

// source is one kind of identity that a controller can have.
type source struct {
	name            string
	absent          func(ctx context.Context) string // why it is not set up, "" if it is; nil for command-line tools
	make            func() (azcore.TokenCredential, error)
	imds            bool
	fromEnvironment bool // its tenant is AZURE_TENANT_ID
	secrets         []string
	record          *recorder
}

// sources returns all sources in their order. They serve one call. A token
// proxy (nil: none) serves workload identity. Its token needs the audience, if
// that is not "".
func sources(client *http.Client, proxy *tokenProxy, authority, audience string, opts *provider.Options) []source {
	record := &recorder{client: client}
	// No instance discovery: environmentOf has checked the authority, and
	// private clouds have no such service.
	options := azcore.ClientOptions{
		Cloud:     cloud.Configuration{ActiveDirectoryAuthorityHost: "https://" + authority + "/"},
		Transport: record,
		Retry: policy.RetryOptions{MaxRetries: 2, RetryDelay: 200 * time.Millisecond, MaxRetryDelay: 5 * time.Second,
			TryTimeout: transport.RequestTimeout},
	}
	recordBound, bound := &recorder{client: proxy.clientOr(client), proxy: proxy}, options
	bound.Transport = recordBound
	all := []source{
		{name: "environment", absent: noEnvironment, fromEnvironment: true,
			secrets: []string{os.Getenv("AZURE_CLIENT_SECRET"), os.Getenv("AZURE_CLIENT_CERTIFICATE_PASSWORD")},
			make: func() (azcore.TokenCredential, error) {
				return azidentity.NewEnvironmentCredential(&azidentity.EnvironmentCredentialOptions{
					ClientOptions: options, DisableInstanceDiscovery: true})
			}},
		{name: "workload identity", absent: noWorkloadIdentity, fromEnvironment: true, record: recordBound,
			make: func() (azcore.TokenCredential, error) { return newWorkloadIdentity(bound, audience) }},
		{name: "managed identity", imds: true,
			absent: func(ctx context.Context) string { return noManagedIdentity(ctx, client) },
			make:   func() (azcore.TokenCredential, error) { return newManagedIdentity(options) }},
	}
	if opts.AllowShellOut {
		all = append(all,
			source{name: "Azure CLI", make: func() (azcore.TokenCredential, error) {
				return azidentity.NewAzureCLICredential(nil)
			}},
			source{name: "Azure Developer CLI", make: func() (azcore.TokenCredential, error) {
				return azidentity.NewAzureDeveloperCLICredential(nil)
			}})
	}
	for i := range all {
		all[i].record = cmp.Or(all[i].record, record)
	}
	return all
}

func noEnvironment(context.Context) string {
	if os.Getenv("AZURE_CLIENT_SECRET") == "" && os.Getenv("AZURE_CLIENT_CERTIFICATE_PATH") == "" {
		return "neither AZURE_CLIENT_SECRET nor AZURE_CLIENT_CERTIFICATE_PATH is set"
	}
	return ""
}

func noWorkloadIdentity(context.Context) string {
	if os.Getenv("AZURE_FEDERATED_TOKEN_FILE") == "" {
		return "AZURE_FEDERATED_TOKEN_FILE is not set"
	}
	return ""
}

func newWorkloadIdentity(options azcore.ClientOptions, audience string) (azcore.TokenCredential, error) {
	content, err := input.ReadFile(os.Getenv("AZURE_FEDERATED_TOKEN_FILE"))
	if err != nil {
		return nil, err // the error of the SDK would not name the cause
	}
	if audience != "" {
		claims, err := jwt.Parse(strings.TrimSpace(string(content)))
		if err != nil || !slices.Contains(claims.Audience, audience) {
			return nil, fmt.Errorf("the token of AZURE_FEDERATED_TOKEN_FILE lacks the audience %q of the call's cloud", audience)
		}
	}
	return azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{
		ClientOptions: options, DisableInstanceDiscovery: true})
}

// newManagedIdentity uses the identity of AZURE_CLIENT_ID, else the one that
// the system has assigned.
func newManagedIdentity(options azcore.ClientOptions) (azcore.TokenCredential, error) {
	managed := &azidentity.ManagedIdentityCredentialOptions{ClientOptions: options}
	if id := os.Getenv("AZURE_CLIENT_ID"); id != "" {
		managed.ID = azidentity.ClientID(id)
	}
	return azidentity.NewManagedIdentityCredential(managed)
}

// token asks one source. It fails with *notSetUp if the identity does not
// exist.
func (s source) token(ctx context.Context, request policy.TokenRequestOptions) (sdkToken, error) {
	if s.absent != nil {
		if why := s.absent(ctx); ctx.Err() != nil {
			return sdkToken{}, self.Unanswered(opControllerToken, ctx.Err())
		} else if why != "" {
			return sdkToken{}, &notSetUp{source: s.name, why: why}
		}
	}
	credential, err := s.make()
	if err != nil {
		return sdkToken{}, &auth.Error{Provider: ProviderName, Operation: opControllerToken, Reason: auth.ErrMisconfigured,
			Message: s.name + ": " + provider.Redact(err.Error(), s.secrets...), Err: err,
			Remedy: "correct the environment variables of this process"}
	}
	if s.imds && request.Claims == "" {
		// With claims the SDK skips its cache of managed identities, which the
		// whole process shares. It does not send them.
		request.Claims = "{}"
	}
	token, err := credential.GetToken(ctx, request)
	if err != nil {
		return sdkToken{}, s.failed(ctx, err)
	}
	return token, nil
}

// failed goes by the last answer that was no success, because the errors of the
// SDK hold whole answers.
func (s source) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return self.Unanswered(opControllerToken, ctx.Err())
	}
	refusal, failure := s.record.last()
	switch {
	case refusal != nil && s.imds && refusal.Status == http.StatusBadRequest && os.Getenv("AZURE_CLIENT_ID") == "":
		return &notSetUp{source: s.name, why: "the metadata service knows no identity of this machine",
			definite: refusal.refusal != nil}
	case refusal != nil:
		e := classify(*refusal, opControllerToken, s.secrets...)
		if s.imds && (refusal.Status == http.StatusNotFound || refusal.Status == http.StatusGone) {
			e.Reason, e.Remedy = auth.ErrUnavailable, "" // the answer during an update
		}
		if s.record.proxy != nil {
			explainBinding(e, *refusal, os.Getenv("AZURE_CLIENT_ID"), "the controller's own ServiceAccount")
		}
		e.Message, e.Err = fmt.Sprintf("%s: %s", s.name, e.Message), err
		return e
	case failure != nil:
		return self.Unanswered(opControllerToken, fmt.Errorf("%s: %w", s.name, failure), s.secrets...)
	}
	if s.absent == nil {
		return &notSetUp{source: s.name, why: "it gives no token; install it and log in"}
	}
	e := self.Unavailable(opControllerToken, "", "%s: no usable answer", s.name)
	e.Err = err
	return e
}

// recorder sends the requests of the SDK for one call and remembers the last
// failure.
type recorder struct {
	client *http.Client // bounds the bodies
	proxy  *tokenProxy  // receives all requests; nil: none

	mu      sync.Mutex
	refusal *entraAnswer
	failure error
}

// Do implements policy.Transporter.
func (r *recorder) Do(req *http.Request) (*http.Response, error) {
	resp, err := r.client.Do(r.proxy.reroute(req)) //nolint:gosec // the SDK builds it from an authority that was checked
	if err != nil {
		r.remember(nil, err)
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // nothing was written
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.remember(nil, err)
		return nil, err
	}
	var refusal *entraAnswer
	if resp.StatusCode != http.StatusOK {
		answer := parseEntra(transport.Answer{Status: resp.StatusCode, Header: resp.Header, Body: body})
		refusal = &answer
	}
	r.remember(refusal, nil)
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

func (r *recorder) remember(refusal *entraAnswer, failure error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refusal, r.failure = refusal, failure
}

func (r *recorder) last() (*entraAnswer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refusal, r.failure
}

const (
	metadataEndpoint = "http://169.254.169.254/metadata/identity/oauth2/token"
	metadataPatience = time.Second
)

// noManagedIdentity finds out whether the machine has a metadata service:
// elsewhere the SDK would wait long for it. The request lacks the required
// header, so any answer counts.
func noManagedIdentity(ctx context.Context, client *http.Client) string {
	for _, name := range []string{"IDENTITY_ENDPOINT", "MSI_ENDPOINT", "IMDS_ENDPOINT"} {
		if os.Getenv(name) != "" {
			return ""
		}
	}
	ctx, cancel := context.WithTimeout(ctx, metadataPatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, metadataEndpoint, nil)
	if err != nil {
		return "there is no metadata service"
	}
	resp, err := client.Do(req)
	if err != nil {
		return "there is no metadata service"
	}
	_ = resp.Body.Close() // nothing was written
	return ""
}
