package azure

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/reading"
	"github.com/workloadid/workloadid/internal/azurename"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

var _ doctor.Trust = (*Reader)(nil)

// Reader asks Azure Resource Graph for the managed identity with the client ID, and Azure Resource Manager for its federated
// credentials. If the login sees no such identity, it asks Microsoft Graph for those of the application. The zero value uses
// azidentity's DefaultAzureCredential. AZURE_AUTHORITY_HOST selects the cloud. A Reader serves one examination.
type Reader struct {
	// Credential is that of the person. Nil: DefaultAzureCredential, which takes environment, managed identity and Azure CLI.
	Credential azcore.TokenCredential
	// HTTPClient asks the APIs, and Microsoft Entra ID for DefaultAzureCredential. Nil: one of the Reader's own. In both cases
	// redirects are not followed and answers are bounded.
	HTTPClient *http.Client

	pool transport.Pool
}

// session is one reading of the credentials of a client ID.
type session struct {
	*target

	client     *http.Client
	cloud      azurename.Cloud
	credential azcore.TokenCredential
	login      string
}

// Anchor compares the token with the federated credentials of the client ID.
func (r *Reader) Anchor(ctx context.Context, q doctor.TrustQuery) doctor.Finding {
	t, f := newTarget(&q)
	if f.Result != "" {
		return f
	}
	s := &session{target: t}
	if f = r.start(s); f.Result != "" {
		return f
	}
	list, f := s.read(ctx)
	if f.Result == "" {
		f = t.judge(list)
	}
	return reading.ReadAs(s.login, f)
}

// Rule has nothing to examine.
func (*Reader) Rule(context.Context, doctor.TrustQuery) doctor.Finding { return noRule() }

func noRule() doctor.Finding {
	return doctor.Skipped("Azure has no rule beside the federated credential.")
}

func (r *Reader) start(s *session) doctor.Finding {
	authority := os.Getenv("AZURE_AUTHORITY_HOST")
	clouds := azurename.Clouds()
	i := slices.IndexFunc(clouds, func(c azurename.Cloud) bool {
		return authority == "" || slices.Contains(c.Authorities, strings.ToLower(strings.Trim(strings.TrimPrefix(authority, "https://"), "/")))
	})
	if i < 0 {
		return doctor.Unclear(doctor.Do("Read them with the command line, and use --trust-file:", s.show()),
			"The doctor cannot ask the private cloud in AZURE_AUTHORITY_HOST.")
	}
	s.cloud = clouds[i]
	s.client = r.pool.For(r.HTTPClient, nil)
	var err error
	if s.credential, err = r.credentialOf(s); err != nil {
		return s.noLogin()
	}
	return doctor.Finding{}
}

// credentialOf makes the command-line tools log in to the tenant of the identity.
func (r *Reader) credentialOf(s *session) (azcore.TokenCredential, error) {
	if r.Credential != nil {
		return r.Credential, nil
	}
	const delay, maxDelay = 200 * time.Millisecond, time.Second
	return azidentity.NewDefaultAzureCredential(&azidentity.DefaultAzureCredentialOptions{
		ClientOptions: azcore.ClientOptions{
			Cloud:     cloud.Configuration{ActiveDirectoryAuthorityHost: "https://" + s.cloud.Authorities[0] + "/"},
			Transport: s.client,
			Retry:     policy.RetryOptions{MaxRetries: 1, RetryDelay: delay, MaxRetryDelay: maxDelay},
		},
		AdditionallyAllowedTenants: []string{"*"},
		DisableInstanceDiscovery:   true, // the host was compared with Microsoft's already
		TenantID:                   s.tenant,
	})
}

func (s *session) noLogin() doctor.Finding {
	return reading.NoLogin("Azure", s.logIn(), "az account show")
}

func (s *session) logIn() string { return "az login --tenant " + s.tenant }

// token returns a token of the person, and learns the person's name from it. A login in another tenant reads the trust of an
// unrelated identity.
func (s *session) token(ctx context.Context, audience string) (string, doctor.Finding) {
	t, err := s.credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{audience + "/.default"}})
	if err != nil {
		return "", s.noLogin()
	}
	var tenant string
	tenant, s.login = readLogin(t.Token)
	if azurename.ValidGUID(s.tenant) && tenant != "" && !strings.EqualFold(tenant, s.tenant) {
		return "", doctor.Unclear(doctor.Do("Log in to the tenant of the identity:", s.logIn()),
			"Your login is in tenant %.40s, not in that of the identity, so nothing was read.", redact.Text(tenant))
	}
	return t.Token, doctor.Finding{}
}

// readLogin reads tenant and name from an access token of the person, which needs no verification here.
func readLogin(token string) (tenant, login string) {
	var c struct{ Oid, Tid, Appid, Upn string }
	if parts := strings.Split(token, "."); len(parts) > 1 {
		content, _ := base64.RawURLEncoding.DecodeString(parts[1]) // an opaque token has no name
		_ = json.Unmarshal(content, &c)
	}
	for _, name := range []string{c.Upn, c.Appid, c.Oid} {
		if name != "" {
			return c.Tid, fmt.Sprintf("%.100s", redact.Text(name))
		}
	}
	return c.Tid, ""
}
