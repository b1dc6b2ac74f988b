package gcp

import (
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

	pool                       transport.Pool
	client                     *http.Client
	token, quotaProject, login string
	failed                     bool
	provider                   *provider
	providerFailure            *doctor.Finding
}

const logIn = "gcloud auth application-default login"

// Anchor reads the provider that the ServiceAccount names, and its pool.
func (r *Reader) Anchor(ctx context.Context, q doctor.TrustQuery) doctor.Finding {
	t, f := newTarget(&q)
	if f == nil && t.provider == "" {
		return noProvider()
	}
	if f == nil {
		f = r.start(ctx)
	}
	if f != nil {
		return *f
	}
	p, f := r.readProvider(ctx, t)
	if f == nil {
		judged := t.judgeProvider(p)
		f = &judged
	}
	if f.Result == doctor.Pass {
		if failure := r.checkPool(ctx, t); failure != nil {
			f = failure
		}
	}
	return f.Detail("read as", r.login)
}

// Rule reads the IAM policy of the service account. The provider says how the policy names the ServiceAccount.
func (r *Reader) Rule(ctx context.Context, q doctor.TrustQuery) doctor.Finding {
	t, f := newTarget(&q)
	if f == nil && q.Identity == "" {
		return noRule()
	}
	if f == nil {
		f = r.start(ctx)
	}
	if f != nil {
		return *f
	}
	var p *provider
	if t.provider != "" {
		p, _ = r.readProvider(ctx, t) // its failure is the other check's
	}
	b, f := r.readPolicy(ctx, t)
	if f == nil {
		judged := t.judgeMembers(p, b)
		f = &judged
	}
	return f.Detail("read as", r.login)
}

func (r *Reader) universe() string {
	if r.UniverseDomain != "" {
		return r.UniverseDomain
	}
	return gcpname.DefaultUniverse
}

// start logs in once.
func (r *Reader) start(ctx context.Context) *doctor.Finding {
	switch {
	case r.token != "":
		return nil
	case r.failed:
		f := reading.Again("Google Cloud")
		return &f
	}
	r.failed = true
	var err error
	if r.client, err = r.pool.For(r.HTTPClient, nil); err == nil {
		r.token, r.quotaProject, err = r.findLogin(ctx)
	}
	if err != nil || r.token == "" {
		f := reading.NoLogin("Google Cloud", logIn, "gcloud auth application-default print-access-token > /dev/null")
		return &f
	}
	r.login = r.readLogin(ctx)
	return nil
}

// findLogin ends with ctx. The library's search for a metadata server does not, and ends by itself a little later.
func (r *Reader) findLogin(ctx context.Context) (token, quotaProject string, err error) {
	type result struct {
		token, quotaProject string
		err                 error
	}
	done := make(chan result, 1)
	go func() {
		token, project, err := r.defaultLogin(ctx)
		done <- result{token, project, err}
	}()
	select {
	case found := <-done:
		return found.token, found.quotaProject, found.err
	case <-ctx.Done():
		return "", "", ctx.Err()
	}
}

func (r *Reader) defaultLogin(ctx context.Context) (token, quotaProject string, err error) {
	source := r.TokenSource
	if source == nil {
		c, err := google.FindDefaultCredentialsWithParams(context.WithValue(ctx, oauth2.HTTPClient, r.client), google.CredentialsParams{UniverseDomain: r.UniverseDomain,
			Scopes: []string{"https://www.googleapis.com/auth/cloud-platform", "https://www.googleapis.com/auth/userinfo.email"}})
		if err != nil {
			return "", "", err
		}
		var file struct {
			QuotaProject string `json:"quota_project_id"`
		}
		_ = json.Unmarshal(c.JSON, &file) // a machine of Google Cloud has no file
		source, quotaProject = c.TokenSource, file.QuotaProject
		if project := os.Getenv("GOOGLE_CLOUD_QUOTA_PROJECT"); project != "" {
			quotaProject = project
		}
	}
	t, err := source.Token()
	if err != nil {
		return "", "", err
	}
	return t.AccessToken, quotaProject, nil
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
		return "your login"
	}
	return redact.Text(info.Email, r.token)
}

func (r *Reader) request(method, name, right, resource, show string) *reading.Request {
	return &reading.Request{Method: method, URL: "https://iam." + r.universe() + "/v1/" + name, Token: r.token, QuotaProject: r.quotaProject, LogIn: logIn,
		Question: reading.Question{Service: "Google IAM", Right: right, Resource: resource, Login: r.login, Show: show, Secrets: []string{r.token}}}
}

// readProvider reads once: both checks need it.
func (r *Reader) readProvider(ctx context.Context, t *target) (*provider, *doctor.Finding) {
	if r.provider != nil || r.providerFailure != nil {
		return r.provider, r.providerFailure
	}
	q := r.request(http.MethodGet, t.provider, "iam.workloadIdentityPoolProviders.get", "provider "+t.provider, t.showProvider())
	p := &provider{}
	f := q.Ask(ctx, r.client, p)
	switch {
	case f != nil && f.StatusCode == http.StatusNotFound:
		missing := t.missingProvider()
		f = &missing
	case f == nil && (p.Name != t.provider || p.OIDC == nil):
		strange := q.Strange()
		f = &strange
	}
	if f != nil {
		r.providerFailure = f
		return nil, f
	}
	r.provider = p
	return p, nil
}

// checkPool returns nil for a pool that works.
func (r *Reader) checkPool(ctx context.Context, t *target) *doctor.Finding {
	q := r.request(http.MethodGet, t.pool, "iam.workloadIdentityPools.get", "pool "+t.pool, "gcloud iam workload-identity-pools describe "+t.pool)
	var p provider // a pool has the same members for its state
	f := q.Ask(ctx, r.client, &p)
	switch {
	case f == nil && p.Name != t.pool:
		strange := q.Strange()
		return &strange
	case f == nil && p.off() != "":
		off := t.offPool(p.off())
		return &off
	}
	return f
}

// readPolicy asks for version 3, which shows conditions.
func (r *Reader) readPolicy(ctx context.Context, t *target) (*bindings, *doctor.Finding) {
	q := r.request(http.MethodPost, "projects/-/serviceAccounts/"+t.Identity+":getIamPolicy?options.requestedPolicyVersion=3",
		"iam.serviceAccounts.getIamPolicy", "service account "+t.Identity, t.showPolicy())
	var p policy
	f := q.Ask(ctx, r.client, &p)
	switch {
	case f != nil && f.StatusCode == http.StatusNotFound:
		missing := t.missingAccount()
		return nil, &missing
	case f == nil && p.empty():
		strange := q.Strange()
		f = &strange
	}
	return p.bindings(), f
}
