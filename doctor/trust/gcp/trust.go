package gcp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/reading"
)

// source returns what was read of a project, or why it was not.
type source interface {
	provider(ctx context.Context, t *target) (*provider, doctor.Finding)
	// pool returns a finding for a pool that does not work.
	pool(ctx context.Context, t *target) doctor.Finding
	// policy returns the members that may act as the service account.
	policy(ctx context.Context, t *target) (*bindings, doctor.Finding)
}

// trust judges what a source has read.
type trust struct{ source }

func (s trust) Anchor(ctx context.Context, q doctor.TrustQuery) doctor.Finding {
	t, f := newTarget(&q)
	switch {
	case f.Result != "":
		return f
	case t.provider == "":
		return doctor.Skipped("The pool of a GKE cluster has no provider to examine.")
	}
	p, f := s.provider(ctx, t)
	if f.Result != "" {
		return f
	}
	if f = t.judgeProvider(p); f.Result == doctor.Pass {
		if pool := s.pool(ctx, t); pool.Result != "" {
			return pool
		}
	}
	return f
}

// Rule needs the provider, which says how a policy names the ServiceAccount. A failure to read it belongs to the other check.
func (s trust) Rule(ctx context.Context, q doctor.TrustQuery) doctor.Finding {
	t, f := newTarget(&q)
	switch {
	case f.Result != "":
		return f
	case q.Identity == "":
		return doctor.Skipped("No service account is impersonated.")
	}
	b, f := s.policy(ctx, t)
	if f.Result != "" {
		return f
	}
	var p *provider
	if t.provider != "" {
		p, _ = s.provider(ctx, t)
	}
	return t.judgeMembers(p, b)
}

// provider is a workload identity provider, as the API and gcloud write it.
type provider struct {
	Name             string            `json:"name"`
	State            string            `json:"state"`
	Disabled         bool              `json:"disabled"`
	Condition        string            `json:"attributeCondition"`
	AttributeMapping map[string]string `json:"attributeMapping"`
	OIDC             *struct {
		IssuerURI        string   `json:"issuerUri"`
		AllowedAudiences []string `json:"allowedAudiences"`
		JWKS             string   `json:"jwksJson"`
	} `json:"oidc"`
}

// off says why a provider or a pool does not work, "" if it does.
func (p *provider) off() string {
	switch {
	case p.State != "" && p.State != "ACTIVE":
		return p.State
	case p.Disabled:
		return "disabled"
	}
	return ""
}

// mapsSubject reports whether google.subject is the token's subject.
func (p *provider) mapsSubject() bool {
	return strings.TrimSpace(p.AttributeMapping["google.subject"]) == "assertion.sub"
}

// policy is an IAM policy.
type policy struct {
	ETag     string `json:"etag"`
	Bindings []struct {
		Role      string          `json:"role"`
		Members   []string        `json:"members"`
		Condition json.RawMessage `json:"condition"`
	} `json:"bindings"`
}

// empty reports whether the document is none: IAM gives every policy an etag.
func (p *policy) empty() bool { return p.ETag == "" && p.Bindings == nil }

// bindings are the members that may act as a service account, without a condition and perhaps.
type bindings struct{ members, doubtful []string }

// bindings takes a custom role as doubtful: it may hold the right.
func (p *policy) bindings() *bindings {
	b := &bindings{}
	for _, one := range p.Bindings {
		conditional := len(one.Condition) > 0 && string(one.Condition) != "null"
		known := slices.Contains([]string{"roles/iam.workloadIdentityUser", "roles/iam.serviceAccountTokenCreator"}, one.Role)
		switch {
		case known && !conditional:
			b.members = append(b.members, one.Members...)
		case known || !strings.HasPrefix(one.Role, "roles/"):
			b.doubtful = append(b.doubtful, one.Members...)
		}
	}
	return b
}

// ask sends a request to the IAM API, and logs in before.
func (r *Reader) ask(ctx context.Context, method, name, right, resource, show string, into any) (*reading.Request, doctor.Finding) {
	if f := r.start(ctx); f.Result != "" {
		return nil, f
	}
	q := &reading.Request{Method: method, URL: "https://iam." + r.universe() + "/v1/" + name, Token: r.token, QuotaProject: r.quotaProject,
		Question: reading.Question{Service: "Google IAM", Right: right, Resource: resource, Login: r.login, LogIn: logIn, Show: show, Secrets: []string{r.token}}}
	return q, q.Ask(ctx, r.client, into)
}

// provider reads once: both checks need it.
func (r *Reader) provider(ctx context.Context, t *target) (*provider, doctor.Finding) {
	if r.read != nil || r.readFailure.Result != "" {
		return r.read, r.readFailure
	}
	var p provider
	q, f := r.ask(ctx, http.MethodGet, t.provider, "iam.workloadIdentityPoolProviders.get", "provider "+t.provider, t.showProvider(), &p)
	switch {
	case f.StatusCode == http.StatusNotFound:
		f = t.missingProvider()
	case f.Result == "" && (p.Name != t.provider || p.OIDC == nil):
		f = q.Strange()
	case f.Result == "":
		r.read = &p
	}
	r.readFailure = f
	return r.read, f
}

func (r *Reader) pool(ctx context.Context, t *target) doctor.Finding {
	var p provider // a pool has the same members for its state
	q, f := r.ask(ctx, http.MethodGet, t.pool, "iam.workloadIdentityPools.get", "pool "+t.pool, "gcloud iam workload-identity-pools describe "+t.pool, &p)
	switch {
	case f.Result == "" && p.Name != t.pool:
		return q.Strange()
	case f.Result == "" && p.off() != "":
		return t.offPool(p.off())
	}
	return f
}

// policy asks for version 3, which shows conditions.
func (r *Reader) policy(ctx context.Context, t *target) (*bindings, doctor.Finding) {
	var p policy
	q, f := r.ask(ctx, http.MethodPost, "projects/-/serviceAccounts/"+t.Identity+":getIamPolicy?options.requestedPolicyVersion=3",
		"iam.serviceAccounts.getIamPolicy", "service account "+t.Identity, t.showPolicy(), &p)
	switch {
	case f.StatusCode == http.StatusNotFound:
		f = t.missingAccount()
	case f.Result == "" && p.empty():
		f = q.Strange()
	}
	return p.bindings(), f
}

// Parse reads what these commands print, one JSON document after the other:
//
//	gcloud iam workload-identity-pools providers describe --format json
//	gcloud iam service-accounts get-iam-policy --format json
func Parse(content []byte) (doctor.Trust, error) {
	f := &file{}
	return trust{f}, reading.Documents(content, f.add)
}

type file struct {
	providers []*provider
	bindings  *bindings
}

func (f *file) add(document json.RawMessage) error {
	var d struct {
		provider
		policy
	}
	err := json.Unmarshal(document, &d)
	switch {
	case err == nil && d.OIDC != nil:
		f.providers = append(f.providers, &d.provider)
	case err == nil && !d.empty():
		f.bindings = d.policy.bindings()
	default:
		return errors.New("it is neither an OIDC provider nor an IAM policy of Google Cloud")
	}
	return nil
}

// provider picks the provider that is asked for: another one says nothing.
func (f *file) provider(_ context.Context, t *target) (*provider, doctor.Finding) {
	for _, p := range f.providers {
		if p.Name == t.provider {
			return p, doctor.Finding{}
		}
	}
	return nil, reading.NotInFile("provider "+t.provider, t.showProvider()+" --format json")
}

// pool is not in a file.
func (f *file) pool(context.Context, *target) doctor.Finding { return doctor.Finding{} }

func (f *file) policy(_ context.Context, t *target) (*bindings, doctor.Finding) {
	if f.bindings == nil {
		return nil, reading.NotInFile("the policy of the service account", t.showPolicy()+" --format json")
	}
	return f.bindings, doctor.Finding{}
}
