package gcp

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/reading"
)

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

// Parse reads what these commands print, one JSON document after the other:
//
//	gcloud iam workload-identity-pools providers describe --format json
//	gcloud iam service-accounts get-iam-policy --format json
func Parse(content []byte) (doctor.Trust, error) {
	f := &file{}
	return f, reading.Documents(content, f.add)
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

// find picks the provider that is asked for: another one says nothing.
func (f *file) find(t *target) *provider {
	i := slices.IndexFunc(f.providers, func(p *provider) bool { return p.Name == t.provider })
	if i < 0 {
		return nil
	}
	return f.providers[i]
}

func (f *file) Anchor(_ context.Context, q doctor.TrustQuery) doctor.Finding {
	t, failure := newTarget(&q)
	if failure != nil {
		return *failure
	}
	p := f.find(t)
	switch {
	case t.provider == "":
		return noProvider()
	case p == nil:
		return reading.NotInFile("provider "+t.provider, t.showProvider()+" --format json")
	}
	return t.judgeProvider(p)
}

func (f *file) Rule(_ context.Context, q doctor.TrustQuery) doctor.Finding {
	t, failure := newTarget(&q)
	switch {
	case failure != nil:
		return *failure
	case q.Identity == "":
		return noRule()
	case f.bindings == nil:
		return reading.NotInFile("the policy of the service account", t.showPolicy()+" --format json")
	}
	return t.judgeMembers(f.find(t), f.bindings)
}
