package diagnose

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
	t := &Trust{}
	decoder := json.NewDecoder(bytes.NewReader(content))
	for n := 1; ; n++ {
		var document json.RawMessage
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) && n > 1 {
			return fixedTrust{t}, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d is not JSON", n)
		}
		if err := t.add(document); err != nil {
			return nil, fmt.Errorf("document %d: %w", n, err)
		}
	}
}

type fixedTrust struct{ trust *Trust }

func (f fixedTrust) ReadTrust(context.Context, string, *Claims) (*Trust, error) { return f.trust, nil }

// cloudDocument has the members by which the documents are told apart.
type cloudDocument struct {
	Role *struct {
		AssumeRolePolicyDocument json.RawMessage
	}
	URL          string `json:"Url"`
	ClientIDList []string
	Name         string `json:"name"`
	State        string `json:"state"`
	Disabled     bool   `json:"disabled"`
	Condition    string `json:"attributeCondition"`
	OIDC         *struct {
		IssuerURI        string   `json:"issuerUri"`
		AllowedAudiences []string `json:"allowedAudiences"`
		JWKS             string   `json:"jwksJson"`
	} `json:"oidc"`
	Bindings *[]struct {
		Role    string   `json:"role"`
		Members []string `json:"members"`
	} `json:"bindings"`
	ETag string `json:"etag"`
}

func (t *Trust) add(document json.RawMessage) error {
	if strings.HasPrefix(strings.TrimSpace(string(document)), "[") {
		var credentials []struct {
			Name      string   `json:"name"`
			Issuer    string   `json:"issuer"`
			Subject   string   `json:"subject"`
			Audiences []string `json:"audiences"`
		}
		if json.Unmarshal(document, &credentials) != nil {
			return errors.New("it is not a list of federated credentials")
		}
		for _, c := range credentials {
			t.Anchors = append(t.Anchors, Anchor{Name: c.Name, Issuer: c.Issuer, Subject: c.Subject, Audiences: c.Audiences})
		}
		return nil
	}
	var d cloudDocument
	if json.Unmarshal(document, &d) != nil {
		return errors.New("it is none that a cloud's command line prints")
	}
	return t.addDocument(&d)
}

func (t *Trust) addDocument(d *cloudDocument) error {
	switch {
	case d.Role != nil:
		t.Policy = decodePolicy(d.Role.AssumeRolePolicyDocument)
	case d.URL != "":
		t.Anchors = append(t.Anchors, Anchor{Issuer: withScheme(d.URL), Audiences: d.ClientIDList})
	case d.OIDC != nil:
		a := Anchor{Name: d.Name, Issuer: d.OIDC.IssuerURI, Audiences: d.OIDC.AllowedAudiences, JWKS: []byte(d.OIDC.JWKS), Condition: d.Condition}
		if d.Disabled {
			a.Disabled = "disabled"
		}
		if d.State != "" && d.State != "ACTIVE" {
			a.Disabled = d.State
		}
		t.Anchors = append(t.Anchors, a)
	case d.Bindings != nil || d.ETag != "":
		t.Members = []string{}
		if d.Bindings == nil {
			return nil
		}
		for _, b := range *d.Bindings {
			if slices.Contains([]string{"roles/iam.workloadIdentityUser", "roles/iam.serviceAccountTokenCreator"}, b.Role) {
				t.Members = append(t.Members, b.Members...)
			}
		}
	default:
		return errors.New("it is none that a cloud's command line prints")
	}
	return nil
}

// decodePolicy takes it as JSON, which the command line prints, or in percent-encoding, as the API has it.
func decodePolicy(policy json.RawMessage) []byte {
	var text string
	if json.Unmarshal(policy, &text) != nil {
		return policy
	}
	if decoded, err := url.QueryUnescape(text); err == nil {
		return []byte(decoded)
	}
	return []byte(text)
}
