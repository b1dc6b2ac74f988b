package gcptrust

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"strings"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/olddoctor"
	"github.com/workloadid/workloadid/internal/annotation"
	"github.com/workloadid/workloadid/internal/gcpname"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

var _ doctor.TrustReader = (*Reader)(nil)

// Reader asks Google Cloud. The zero value uses application default credentials. It is safe for concurrent use.
type Reader struct {
	// TokenSource is the caller's. Nil: application default credentials.
	TokenSource oauth2.TokenSource
	// HTTPClient asks the APIs, and Google's token endpoints for application default credentials. Nil: one of the Reader's own.
	// Redirects are not followed and answers are bounded in any case.
	HTTPClient *http.Client
	// UniverseDomain is the domain of Google's cloud. Empty: googleapis.com.
	UniverseDomain string

	pool transport.Pool
}

const (
	providerAnnotation = annotation.GCPWorkloadIdentityProvider
	cloudPlatform      = "https://www.googleapis.com/auth/cloud-platform"
	userEmail          = "https://www.googleapis.com/auth/userinfo.email"
)

// session is one reading.
type session struct {
	client          *http.Client
	universe, token string
	quotaProject    string
	who             string
}

// ReadTrust reads the provider that the annotation of the ServiceAccount names, and the policy of the service account that
// is the identity, if there is one.
func (r *Reader) ReadTrust(ctx context.Context, query doctor.TrustQuery) (*doctor.Trust, error) {
	s, err := r.start(ctx)
	if err != nil {
		return nil, err
	}
	t := &doctor.Trust{ReadBy: s.who}
	if name, ok := query.Annotations[providerAnnotation]; ok {
		t.Anchors, t.AnchorErr = s.readProvider(ctx, name)
	} else {
		t.Anchors = []doctor.Anchor{} // GKE's own pool has none
	}
	if query.Identity != "" {
		s.readPolicy(ctx, query.Identity, t)
	}
	return t, nil
}

// CloseIdleConnections closes those that Reader has opened itself.
func (r *Reader) CloseIdleConnections() { r.pool.CloseIdleConnections() }

func (r *Reader) start(ctx context.Context) (*session, error) {
	client := r.pool.For(r.HTTPClient, nil)
	l, err := r.login(ctx, client)
	if err != nil {
		return nil, noLogin(err)
	}
	s := &session{client: client, universe: r.UniverseDomain, token: l.token, quotaProject: l.quotaProject}
	if s.universe == "" {
		s.universe = gcpname.DefaultUniverse
	}
	s.who = s.askWho(ctx)
	return s, nil
}

// login is a token of the caller, and the project that pays for the calls of people.
type login struct{ token, quotaProject string }

// login ends with ctx. The library does not where it looks for a metadata server; that ends by itself, a little later.
func (r *Reader) login(ctx context.Context, client *http.Client) (login, error) {
	type outcome struct {
		login login
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		l, err := r.find(ctx, client)
		done <- outcome{l, err}
	}()
	select {
	case o := <-done:
		return o.login, o.err
	case <-ctx.Done():
		return login{}, ctx.Err()
	}
}

func (r *Reader) find(ctx context.Context, client *http.Client) (l login, err error) {
	source := r.TokenSource
	if source == nil {
		c, err := google.FindDefaultCredentialsWithParams(context.WithValue(ctx, oauth2.HTTPClient, client),
			google.CredentialsParams{Scopes: []string{cloudPlatform, userEmail}, UniverseDomain: r.UniverseDomain})
		if err != nil {
			return l, err
		}
		var file struct {
			QuotaProject string `json:"quota_project_id"`
		}
		_ = json.Unmarshal(c.JSON, &file) // there is none on machines of Google Cloud
		source, l.quotaProject = c.TokenSource, file.QuotaProject
		if project := os.Getenv("GOOGLE_CLOUD_QUOTA_PROJECT"); project != "" {
			l.quotaProject = project
		}
	}
	t, err := source.Token()
	if err != nil {
		return l, err
	}
	l.token = t.AccessToken
	return l, nil
}

// askWho asks for the e-mail address. The token goes where it came from, and not into a URL. Federated logins have none.
func (s *session) askWho(ctx context.Context) string {
	const nobody = "a login without an e-mail address"
	form := url.Values{"access_token": {s.token}}.Encode()
	answer, err := transport.Send(ctx, s.client, func() (*http.Request, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://oauth2."+s.universe+"/tokeninfo",
			strings.NewReader(form))
		if err == nil {
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		return req, err
	}, nil)
	if err != nil || answer.Status != http.StatusOK {
		return nobody
	}
	if email := readEmail(answer.Body); email != "" {
		return email
	}
	return nobody
}

// noLogin is for callers without credentials. The library's text holds whole answers, so it is not shown.
func noLogin(err error) error {
	message := "there is no login for Google Cloud on this machine, or it was refused"
	var answer *oauth2.RetrieveError
	switch {
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
		message = "the login for Google Cloud was not found in time"
	case errors.As(err, &answer) && answer.Response != nil:
		message = "the login for Google Cloud was refused: " + redact.Text(answer.Response.Status)
	}
	return &auth.Error{Provider: "gcp", Reason: auth.ErrMisconfigured, Err: err, Message: message,
		Remedy: "gcloud auth application-default login, and see: gcloud auth application-default print-access-token > /dev/null"}
}
