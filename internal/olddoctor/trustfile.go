package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
)

// ParseTrust reads what the clouds' command lines print, one JSON document after the other:
//
//	aws iam get-role                                                   the trust policy
//	aws iam get-open-id-connect-provider                               an OIDC provider of the role's account
//	az identity federated-credential list                              the federated credentials of the client ID
//	gcloud iam workload-identity-pools providers describe --format json
//	gcloud iam service-accounts get-iam-policy --format json
//
// Documents of other kinds are refused.
func ParseTrust(content []byte) (TrustReader, error) {
	t := &trustFile{}
	decoder := json.NewDecoder(bytes.NewReader(content))
	for n := 1; ; n++ {
		var document json.RawMessage
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) && n > 1 {
			return t, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d is not JSON", n)
		}
		if err := t.add(document); err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
	}
}

// trustFile is what was read, and the trust policies of roles.
type trustFile struct {
	Trust
	roles []fileRole
}

// fileRole is a role in a file. Files that hold the policy alone have no ARN.
type fileRole struct {
	arn    string
	policy []byte
}

// ReadTrust picks the role that is asked for: the policy of another one says nothing.
func (t *trustFile) ReadTrust(_ context.Context, query TrustQuery) (*Trust, error) {
	trust := t.Trust
	for _, role := range t.roles {
		if role.arn == query.Identity || role.arn == "" && len(t.roles) == 1 {
			trust.Policy = role.policy
			return &trust, nil
		}
	}
	if len(t.roles) > 0 {
		trust.RuleErr = fmt.Errorf("the file has the trust policy of %.300q, not that of %.300q", t.roles[0].arn, query.Identity)
	}
	return &trust, nil
}

// cloudDocument has the members by which the documents are told apart.
type cloudDocument struct {
	Role *struct {
		ARN                      string `json:"Arn"`
		AssumeRolePolicyDocument json.RawMessage
	}
	URL          string `json:"Url"`
	ClientIDList []string
	Name         string            `json:"name"`
	State        string            `json:"state"`
	Disabled     bool              `json:"disabled"`
	ExpireTime   string            `json:"expireTime"`
	Condition    string            `json:"attributeCondition"`
	Mapping      map[string]string `json:"attributeMapping"`
	OIDC         *struct {
		IssuerURI        string   `json:"issuerUri"`
		AllowedAudiences []string `json:"allowedAudiences"`
		JWKS             string   `json:"jwksJson"`
	} `json:"oidc"`
	Bindings *[]struct {
		Role      string          `json:"role"`
		Members   []string        `json:"members"`
		Condition json.RawMessage `json:"condition"`
	} `json:"bindings"`
	ETag string `json:"etag"`
}

func (t *trustFile) add(document json.RawMessage) error {
	if strings.HasPrefix(strings.TrimSpace(string(document)), "[") {
		return t.addCredentials(document)
	}
	var d cloudDocument
	if json.Unmarshal(document, &d) != nil {
		return errors.New("it is none that a cloud's command line prints")
	}
	return t.addDocument(&d)
}

func (t *trustFile) addCredentials(document json.RawMessage) error {
	var credentials []struct {
		Name       string   `json:"name"`
		Issuer     string   `json:"issuer"`
		Subject    string   `json:"subject"`
		Audiences  []string `json:"audiences"`
		Expression *struct {
			Value string `json:"value"`
		} `json:"claimsMatchingExpression"`
	}
	if json.Unmarshal(document, &credentials) != nil {
		return errors.New("it is not a list of federated credentials")
	}
	if t.Anchors == nil {
		t.Anchors = []Anchor{}
	}
	for _, c := range credentials {
		a := Anchor{Name: c.Name, Issuer: c.Issuer, Subject: c.Subject, Audiences: c.Audiences}
		if c.Expression != nil {
			a.Expression = c.Expression.Value
		}
		t.Anchors = append(t.Anchors, a)
	}
	return nil
}

func (t *trustFile) addDocument(d *cloudDocument) error {
	switch {
	case d.Role != nil:
		t.roles = append(t.roles, fileRole{d.Role.ARN, decodePolicy(d.Role.AssumeRolePolicyDocument)})
	case d.URL != "":
		t.Anchors = append(t.Anchors, Anchor{Issuer: withScheme(d.URL), Audiences: d.ClientIDList})
	case d.OIDC != nil:
		a := Anchor{Name: d.Name, Issuer: d.OIDC.IssuerURI, Audiences: d.OIDC.AllowedAudiences, JWKS: []byte(d.OIDC.JWKS),
			Condition:      d.Condition,
			SubjectMapping: d.Mapping["google.subject"], Disabled: disabled(d.Disabled, d.State, d.ExpireTime)}
		t.Anchors = append(t.Anchors, a)
	case d.Bindings != nil || d.ETag != "":
		t.Members = []string{}
		if d.Bindings == nil {
			return nil
		}
		for _, b := range *d.Bindings {
			switch {
			case !strings.HasPrefix(b.Role, "roles/"): // a custom one may have the right
				t.Conditional = append(t.Conditional, b.Members...)
			case !slices.Contains([]string{"roles/iam.workloadIdentityUser", "roles/iam.serviceAccountTokenCreator"}, b.Role):
			case len(b.Condition) > 0 && string(b.Condition) != "null":
				t.Conditional = append(t.Conditional, b.Members...)
			default:
				t.Members = append(t.Members, b.Members...)
			}
		}
	default:
		return errors.New("it is none that a cloud's command line prints")
	}
	return nil
}

// disabled words what a provider of Google Cloud says of itself, "" if it counts.
func disabled(disabled bool, state, expireTime string) string {
	switch {
	case state == "DELETED" && expireTime != "":
		return "DELETED, to be undeleted until " + expireTime
	case state != "" && state != "ACTIVE":
		return state
	case disabled:
		return "disabled"
	}
	return ""
}

// decodePolicy takes it as JSON, which the command line prints, or in percent-encoding, as the API has it.
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
