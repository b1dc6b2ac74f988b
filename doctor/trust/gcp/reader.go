package gcp

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"strings"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/reading"
	"github.com/workloadid/workloadid/internal/gcpname"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

var _ doctor.Trust = (*Reader)(nil)

// Reader asks Google Cloud, in up to four calls: tokeninfo for the name of the login, the provider, its pool, and the policy. The zero
// value uses application default credentials. A Reader serves one examination.
type Reader struct {
	// TokenSource is that of the person. Nil: application default credentials.
	TokenSource oauth2.TokenSource
	// HTTPClient asks the APIs, and Google's token endpoints for application default credentials. Nil: one of the Reader's own. In
	// both cases redirects are not followed and answers are bounded.
	HTTPClient *http.Client
	// UniverseDomain is the domain of Google's cloud. Empty: googleapis.com.
	UniverseDomain string

	clients                    transport.Pool
	client                     *http.Client
	token, quotaProject, login string
	failed                     bool
	read                       *provider
	readFailure                doctor.Finding
}

const logIn = "gcloud auth application-default login"

// Anchor reads the provider that the ServiceAccount names, and its pool.
func (r *Reader) Anchor(ctx context.Context, q doctor.TrustQuery) doctor.Finding {
	f := trust{r}.Anchor(ctx, q)
	return reading.ReadAs(r.login, f)
}

// Rule reads the IAM policy of the service account.
func (r *Reader) Rule(ctx context.Context, q doctor.TrustQuery) doctor.Finding {
	f := trust{r}.Rule(ctx, q)
	return reading.ReadAs(r.login, f)
}

func (r *Reader) universe() string {
	if r.UniverseDomain != "" {
		return r.UniverseDomain
	}
	return gcpname.DefaultUniverse
}

// start logs in once.
func (r *Reader) start(ctx context.Context) (f doctor.Finding) {
	switch {
	case r.token != "":
		return f
	case r.failed:
		return reading.Again("Google Cloud")
	}
	r.client = r.clients.For(r.HTTPClient, nil)
	err := r.findLogin(ctx)
	if r.failed = err != nil || r.token == ""; r.failed {
		return reading.NoLogin("Google Cloud", logIn, "gcloud auth application-default print-access-token > /dev/null")
	}
	r.login = r.readLogin(ctx)
	return f
}

func (r *Reader) findLogin(ctx context.Context) error {
	source := r.TokenSource
	if source == nil {
		c, err := google.FindDefaultCredentialsWithParams(context.WithValue(ctx, oauth2.HTTPClient, r.client), google.CredentialsParams{UniverseDomain: r.UniverseDomain,
			Scopes: []string{"https://www.googleapis.com/auth/cloud-platform", "https://www.googleapis.com/auth/userinfo.email"}})
		if err != nil {
			return err
		}
		var file struct {
			QuotaProject string `json:"quota_project_id"`
		}
		_ = json.Unmarshal(c.JSON, &file) // a machine of Google Cloud has no file
		source, r.quotaProject = c.TokenSource, cmp.Or(os.Getenv("GOOGLE_CLOUD_QUOTA_PROJECT"), file.QuotaProject)
	}
	t, err := source.Token()
	if err == nil {
		r.token = t.AccessToken
	}
	return err
}

// readLogin asks for the e-mail address. The token goes to its own service, and not into a URL. A federated login has no address.
func (r *Reader) readLogin(ctx context.Context) string {
	answer, err := transport.Send(ctx, r.client, func() (*http.Request, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://oauth2."+r.universe()+"/tokeninfo",
			strings.NewReader(url.Values{"access_token": {r.token}}.Encode()))
		if err == nil {
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		return req, err
	}, nil)
	var info struct {
		Email string `json:"email"`
	}
	if err != nil || answer.Status != http.StatusOK || json.Unmarshal(answer.Body, &info) != nil || info.Email == "" {
		return ""
	}
	return redact.Text(info.Email, r.token)
}
