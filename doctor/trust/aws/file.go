package aws

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"

	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/reading"
)

// Parse reads what these commands print, one JSON document after the other:
//
//	aws iam get-role
//	aws iam get-open-id-connect-provider
func Parse(content []byte) (doctor.Trust, error) {
	f := &file{}
	return f, reading.Documents(content, f.add)
}

type file struct {
	providers []provider
	roles     []fileRole
}

// fileRole is a role of a file. The ARN is empty if someone has cut the document down to the policy.
type fileRole struct {
	arn    string
	policy []byte
}

func (f *file) add(document json.RawMessage) error {
	var d struct {
		Role *struct {
			Arn                      string
			AssumeRolePolicyDocument json.RawMessage
		}
		URL          string `json:"Url"`
		ClientIDList []string
	}
	err := json.Unmarshal(document, &d)
	switch {
	case err == nil && d.Role != nil:
		f.roles = append(f.roles, fileRole{d.Role.Arn, decodePolicy(d.Role.AssumeRolePolicyDocument)})
	case err == nil && d.URL != "":
		f.providers = append(f.providers, provider{strings.TrimPrefix(d.URL, "https://"), d.ClientIDList})
	default:
		return errors.New("it is neither a role nor an OIDC provider of AWS")
	}
	return nil
}

// decodePolicy takes a policy as JSON, as the command line prints it, or in percent-encoding, as the API returns it.
func decodePolicy(policy json.RawMessage) []byte {
	var text string
	if json.Unmarshal(policy, &text) != nil {
		return policy
	}
	if decoded, err := url.PathUnescape(text); err == nil {
		return []byte(decoded)
	}
	return []byte(text)
}

func (f *file) Anchor(_ context.Context, q doctor.TrustQuery) doctor.Finding {
	t, failure := newTarget(&q)
	switch {
	case failure != nil:
		return *failure
	case len(f.providers) == 0:
		return reading.NotInFile("an OIDC provider", t.showProvider())
	}
	return t.judgeAnchor(f.providers)
}

// Rule picks the role that is asked for: the policy of another role says nothing.
func (f *file) Rule(_ context.Context, q doctor.TrustQuery) doctor.Finding {
	t, failure := newTarget(&q)
	if failure != nil {
		return *failure
	}
	for _, role := range f.roles {
		if role.arn == q.Identity || role.arn == "" && len(f.roles) == 1 {
			return t.judgePolicy(role.policy)
		}
	}
	return reading.NotInFile("role "+t.role.Name, t.showRole())
}
