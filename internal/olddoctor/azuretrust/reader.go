package azuretrust

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/olddoctor"
	"github.com/workloadid/workloadid/internal/azurename"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

var _ doctor.TrustReader = (*Reader)(nil)

// Reader asks Azure. The zero value uses azidentity's DefaultAzureCredential: environment, workload identity, managed
// identity, Azure CLI, Azure Developer CLI. It is safe for concurrent use.
type Reader struct {
	// Credential is the caller's. Nil: DefaultAzureCredential.
	Credential azcore.TokenCredential
	// HTTPClient asks the APIs, and Microsoft Entra ID for DefaultAzureCredential. Nil: one of the Reader's own. Redirects are
	// not followed and answers are bounded in any case.
	HTTPClient *http.Client
	// AuthorityHost is the address of the token service, which tells the cloud. Empty: AZURE_AUTHORITY_HOST, or else the
	// public cloud. Private clouds are not supported.
	AuthorityHost string
	// IdentityID is the resource ID of the managed identity, for callers that Resource Graph does not show it to.
	IdentityID string

	pool transport.Pool
	mu   sync.Mutex
	// credentials are those that were made, by tenant.
	credentials map[string]azcore.TokenCredential
}

// session is one reading of what a client ID trusts.
type session struct {
	reader           *Reader
	client           *http.Client
	cloud            azurename.Cloud
	tenant, clientID string
	credential       azcore.TokenCredential
	// who is the caller, once a token tells.
	who string
}

// ReadTrust reads the federated credentials of the client ID in the identity, <tenant>/<client ID>.
func (r *Reader) ReadTrust(ctx context.Context, query doctor.TrustQuery) (*doctor.Trust, error) {
	tenant, clientID, _ := strings.Cut(query.Identity, "/")
	if !azurename.ValidTenant(tenant) || !azurename.ValidGUID(clientID) {
		return nil, errors.New("the identity is not a tenant and a client ID")
	}
	s := &session{reader: r, tenant: tenant, clientID: clientID, client: r.pool.For(r.HTTPClient, nil)}
	var err error
	if s.cloud, err = r.cloud(); err != nil {
		return nil, err
	}
	if s.credential, err = r.login(s); err != nil {
		return nil, err
	}
	t := &doctor.Trust{}
	t.Anchors, t.AnchorErr = s.read(ctx)
	t.ReadBy = s.who
	return t, nil
}

// CloseIdleConnections closes those that Reader has opened itself.
func (r *Reader) CloseIdleConnections() { r.pool.CloseIdleConnections() }

// cloud is the one of the authority.
func (r *Reader) cloud() (azurename.Cloud, error) {
	authority := r.AuthorityHost
	if authority == "" {
		authority = os.Getenv("AZURE_AUTHORITY_HOST")
	}
	clouds := azurename.Clouds()
	if authority == "" {
		return clouds[0], nil
	}
	host := strings.ToLower(strings.Trim(strings.TrimPrefix(authority, "https://"), "/"))
	for _, c := range clouds {
		if slices.Contains(c.Authorities, host) {
			return c, nil
		}
	}
	return clouds[0], &auth.Error{Provider: "azure", Reason: auth.ErrMisconfigured,
		Message: fmt.Sprintf("the federated credentials of the cloud at %.100q cannot be read: only public clouds are known",
			authority),
		Remedy: "az identity federated-credential list ... > trust.json; wid doctor --trust-file trust.json"}
}

// login makes the credential of DefaultAzureCredential. The command-line tools are asked for the identity's tenant.
func (r *Reader) login(s *session) (azcore.TokenCredential, error) {
	if r.Credential != nil {
		return r.Credential, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := r.credentials[s.tenant]; ok {
		return c, nil
	}
	c, err := azidentity.NewDefaultAzureCredential(&azidentity.DefaultAzureCredentialOptions{
		ClientOptions: azcore.ClientOptions{
			Cloud:     cloud.Configuration{ActiveDirectoryAuthorityHost: "https://" + s.cloud.Authorities[0] + "/"},
			Transport: s.client,
			Retry:     policy.RetryOptions{MaxRetries: 1, RetryDelay: 200 * time.Millisecond, MaxRetryDelay: time.Second},
		},
		AdditionallyAllowedTenants: []string{"*"},
		DisableInstanceDiscovery:   true, // the host was compared with Microsoft's already
		TenantID:                   s.tenant,
	})
	if err != nil {
		return nil, noLogin(err)
	}
	if r.credentials == nil {
		r.credentials = map[string]azcore.TokenCredential{}
	}
	r.credentials[s.tenant] = c
	return c, nil
}

// token also learns who the caller is. A login in another tenant would read what somebody else trusts.
func (s *session) token(ctx context.Context, audience string) (string, error) {
	t, err := s.credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{audience + "/.default"}})
	if err != nil {
		return "", noLogin(err)
	}
	claims := readClaims(t.Token)
	if s.who == "" {
		s.who = claims.String()
	}
	if azurename.ValidGUID(s.tenant) && claims.Tenant != "" && !strings.EqualFold(claims.Tenant, s.tenant) {
		return "", &auth.Error{Provider: "azure", Reason: auth.ErrDenied,
			Message: fmt.Sprintf("your login (%s) is in tenant %.100q, but the identity is in tenant %q: nothing was read", s.who,
				claims.Tenant, s.tenant),
			Remedy: "az login --tenant " + s.tenant + ", and try again"}
	}
	return t.Token, nil
}

// tokenClaims are what an access token says of the caller. It is the caller's own, so nothing is verified.
type tokenClaims struct {
	ObjectID string `json:"oid"`
	Tenant   string `json:"tid"`
	AppID    string `json:"appid"`
	Name     string `json:"upn"`
}

// readClaims returns nothing for tokens that are not JWTs.
func readClaims(token string) (c tokenClaims) {
	const parts = 3
	p := strings.Split(token, ".")
	if len(p) != parts {
		return c
	}
	content, err := base64.RawURLEncoding.DecodeString(p[1])
	if err != nil || json.Unmarshal(content, &c) != nil {
		return tokenClaims{}
	}
	return c
}

// String names an object ID, and what a person knows it by.
func (c tokenClaims) String() string {
	name := c.Name
	if name == "" && c.AppID != "" {
		name = "application " + c.AppID
	}
	switch {
	case c.ObjectID == "":
		return "somebody whom the token does not name"
	case name == "":
		return fmt.Sprintf("object ID %.100s", redact.Text(c.ObjectID))
	}
	return fmt.Sprintf("object ID %.100s (%.100s)", redact.Text(c.ObjectID), redact.Text(name))
}

// noLogin is for callers without credentials. The SDK's text holds whole answers, so nothing of it is shown but the code.
func noLogin(err error) error {
	message := "there is no login for Azure on this machine, or it was refused"
	code := regexp.MustCompile(`AADSTS\d{1,10}`).FindString(err.Error())
	switch {
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
		message = "the login for Azure was not found in time"
	case code != "":
		message = "Microsoft Entra ID refuses the login for Azure with " + code
	}
	return &auth.Error{Provider: "azure", Reason: auth.ErrMisconfigured, Err: err, Code: code, Message: message,
		Remedy: "az login, and see: az account show"}
}
