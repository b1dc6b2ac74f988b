package azure

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

type sdkToken = azcore.AccessToken

// notSetUp means that there is no such identity here, and that the next kind may be tried.
type notSetUp struct {
	source, why string
	definite    bool // a service has said so
}

func (e *notSetUp) Error() string { return e.source + ": " + e.why }

// source is one kind of identity that a controller can have.
type source struct {
	name    string
	secrets []string
	record  *recorder
	absent  func(ctx context.Context) string // why the kind is not there; "" if it is
	make    func() (azcore.TokenCredential, error)
	imds    bool
	tool    bool
	// fromEnvironment means that AZURE_TENANT_ID is its tenant.
	fromEnvironment bool
}

// sources returns all kinds in the order in which they are tried, with credentials that nobody else uses.
func sources(c *chain, authority string, opts *auth.Options) []source {
	record := &recorder{chain: c}
	// Microsoft's hosts were compared with ours already, and private clouds have none: no discovery of instances.
	options := azcore.ClientOptions{
		Cloud:     cloud.Configuration{ActiveDirectoryAuthorityHost: "https://" + authority + "/"},
		Transport: record,
		Retry: policy.RetryOptions{MaxRetries: 2, RetryDelay: 200 * time.Millisecond, MaxRetryDelay: 5 * time.Second,
			TryTimeout: transport.RequestTimeout},
	}
	all := []source{
		{name: "environment", record: record, absent: noEnvironment, fromEnvironment: true, secrets: environmentSecrets(),
			make: func() (azcore.TokenCredential, error) { return newEnvironmentCredential(options) }},
		{name: "workload identity", record: record, absent: noWorkloadIdentity, fromEnvironment: true,
			make: func() (azcore.TokenCredential, error) { return newWorkloadIdentity(options) }},
		{name: "managed identity", record: record, absent: c.noManagedIdentity, imds: true,
			make: func() (azcore.TokenCredential, error) { return newManagedIdentity(options) }},
	}
	if opts.AllowShellOut {
		all = append(all,
			source{name: "Azure CLI", tool: true, record: record, absent: never,
				make: func() (azcore.TokenCredential, error) { return azidentity.NewAzureCLICredential(nil) }},
			source{name: "Azure Developer CLI", tool: true, record: record, absent: never,
				make: func() (azcore.TokenCredential, error) { return azidentity.NewAzureDeveloperCLICredential(nil) }})
	}
	return all
}

func never(context.Context) string { return "" }

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

func environmentSecrets() []string {
	return []string{os.Getenv("AZURE_CLIENT_SECRET"), os.Getenv("AZURE_CLIENT_CERTIFICATE_PASSWORD")}
}

func newEnvironmentCredential(options azcore.ClientOptions) (azcore.TokenCredential, error) {
	return azidentity.NewEnvironmentCredential(&azidentity.EnvironmentCredentialOptions{
		ClientOptions: options, DisableInstanceDiscovery: true})
}

func newWorkloadIdentity(options azcore.ClientOptions) (azcore.TokenCredential, error) {
	if _, err := os.Stat(os.Getenv("AZURE_FEDERATED_TOKEN_FILE")); err != nil { //nolint:gosec // the controller's own environment
		return nil, err // the SDK's own error, later, would not say so
	}
	return azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{
		ClientOptions: options, DisableInstanceDiscovery: true})
}

// newManagedIdentity is that of AZURE_CLIENT_ID, else the one that the system has assigned.
func newManagedIdentity(options azcore.ClientOptions) (azcore.TokenCredential, error) {
	managed := &azidentity.ManagedIdentityCredentialOptions{ClientOptions: options}
	if id := os.Getenv("AZURE_CLIENT_ID"); id != "" {
		managed.ID = azidentity.ClientID(id)
	}
	return azidentity.NewManagedIdentityCredential(managed)
}

// token asks one source. Its error is *notSetUp if there is no such identity.
func (s source) token(ctx context.Context, request policy.TokenRequestOptions) (sdkToken, error) {
	if why := s.absent(ctx); why != "" {
		if err := ctx.Err(); err != nil {
			return sdkToken{}, unanswered(err, opControllerToken)
		}
		return sdkToken{}, &notSetUp{source: s.name, why: why}
	}
	credential, err := s.make()
	if err != nil {
		return sdkToken{}, &auth.Error{Provider: ProviderName, Operation: opControllerToken, Reason: auth.ErrMisconfigured,
			Message: s.name + ": " + redact.Text(err.Error(), s.secrets...), Err: err,
			Remedy: "correct the environment variables of this process"}
	}
	if s.imds && request.Claims == "" {
		// Claims have the SDK pass over its cache of managed identities, which the whole process shares. They are not sent.
		request.Claims = "{}"
	}
	token, err := credential.GetToken(ctx, request)
	if err != nil {
		s.record.forget()
		return sdkToken{}, s.failed(ctx, err)
	}
	return token, nil
}

// failed goes by the last answer that was no success: the errors of the SDK hold whole answers.
func (s source) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return unanswered(ctx.Err(), opControllerToken)
	}
	refusal, failure := s.record.last()
	switch {
	case refusal != nil && s.imds && refusal.Status == http.StatusBadRequest && os.Getenv("AZURE_CLIENT_ID") == "":
		return &notSetUp{source: s.name, why: "the metadata service knows no identity of this machine", definite: parseEntra(refusal.Body) != nil}
	case refusal != nil:
		e := classifyEntra(*refusal, opControllerToken, s.secrets...)
		if s.imds && (refusal.Status == http.StatusNotFound || refusal.Status == http.StatusGone) {
			e.Reason, e.Remedy = auth.ErrUnavailable, "" // it answers so while it is updated
		}
		e.Message, e.Err = fmt.Sprintf("%s: %s", s.name, e.Message), err
		return e
	case failure != nil:
		return unanswered(fmt.Errorf("%s: %w", s.name, failure), opControllerToken, s.secrets...)
	}
	e := &auth.Error{Provider: ProviderName, Operation: opControllerToken, Reason: auth.ErrUnavailable, Err: err,
		Message: s.name + ": no usable answer"}
	if s.tool {
		return &notSetUp{source: s.name, why: "it gives no token; it may not be installed, or nobody has logged in"}
	}
	return e
}
