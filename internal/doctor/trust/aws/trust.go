package aws

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/redact"
)

// source returns what was read of an account, or why it was not.
type source interface {
	// providers returns the OIDC provider of the issuer, or others if there is none.
	providers(ctx context.Context, t *target) ([]provider, doctor.Finding)
	// policy returns the trust policy of the role.
	policy(ctx context.Context, t *target) ([]byte, doctor.Finding)
}

// provider is an OIDC provider of the account, without its https://.
type provider struct {
	url       string
	clientIDs []string
}

// trust checks what a source has read.
type trust struct{ source }

func (s trust) Anchor(ctx context.Context, q doctor.TrustQuery) doctor.Finding {
	t, f := newTarget(&q)
	if f.Result == "" {
		var list []provider
		if list, f = s.providers(ctx, t); f.Result == "" {
			f = t.checkAnchor(list)
		}
	}
	return f
}

func (s trust) Rule(ctx context.Context, q doctor.TrustQuery) doctor.Finding {
	t, f := newTarget(&q)
	if f.Result == "" {
		var policy []byte
		if policy, f = s.policy(ctx, t); f.Result == "" {
			f = t.checkPolicy(policy)
		}
	}
	return f
}

// Anchor reads the OIDC provider of the role's account for the token's issuer.
func (r *Reader) Anchor(ctx context.Context, q doctor.TrustQuery) doctor.Finding {
	return r.readAs(trust{r}.Anchor(ctx, q))
}

// Rule reads the trust policy of the role.
func (r *Reader) Rule(ctx context.Context, q doctor.TrustQuery) doctor.Finding {
	return r.readAs(trust{r}.Rule(ctx, q))
}

func (r *Reader) policy(ctx context.Context, t *target) ([]byte, doctor.Finding) {
	if f := r.start(ctx, t.role.Partition, t.role.Account); f.Result != "" {
		return nil, f
	}
	out, err := iam.NewFromConfig(r.config).GetRole(ctx, &iam.GetRoleInput{RoleName: &t.role.Name})
	var missing *types.NoSuchEntityException
	switch {
	case errors.As(err, &missing):
		return nil, t.noRole()
	case err != nil:
		return nil, r.explain(err, "iam:GetRole", t.showRole())
	case out.Role == nil || aws.ToString(out.Role.AssumeRolePolicyDocument) == "":
		return nil, r.unusable(nil, 0, "")
	case aws.ToString(out.Role.Arn) != t.role.String():
		return nil, t.otherPath(redact.Text(aws.ToString(out.Role.Arn), r.secrets...))
	}
	policy, err := url.PathUnescape(*out.Role.AssumeRolePolicyDocument) // RFC 3986
	if err != nil {
		return nil, r.unusable(nil, 0, "")
	}
	return []byte(policy), doctor.Finding{}
}

func (r *Reader) providers(ctx context.Context, t *target) ([]provider, doctor.Finding) {
	if f := r.start(ctx, t.role.Partition, t.role.Account); f.Result != "" {
		return nil, f
	}
	arn, client := t.providerARN(), iam.NewFromConfig(r.config)
	out, err := client.GetOpenIDConnectProvider(ctx, &iam.GetOpenIDConnectProviderInput{OpenIDConnectProviderArn: &arn})
	var missing *types.NoSuchEntityException
	switch {
	case errors.As(err, &missing):
		return otherProviders(ctx, client), doctor.Finding{}
	case err != nil:
		return nil, r.explain(err, "iam:GetOpenIDConnectProvider", t.showProvider())
	case out.Url == nil:
		return nil, r.unusable(nil, 0, "")
	}
	return []provider{{strings.TrimPrefix(*out.Url, "https://"), out.ClientIDList}}, doctor.Finding{}
}

// otherProviders is for near misses only, so an error does not matter. The list of IAM has no pages.
func otherProviders(ctx context.Context, client *iam.Client) (list []provider) {
	out, err := client.ListOpenIDConnectProviders(ctx, &iam.ListOpenIDConnectProvidersInput{})
	if err != nil {
		return nil
	}
	for _, p := range out.OpenIDConnectProviderList {
		_, name, _ := strings.Cut(aws.ToString(p.Arn), ":oidc-provider/")
		list = append(list, provider{url: name})
	}
	return list
}

// Parse reads what these commands print, one JSON document after the other:
//
//	aws iam get-role
//	aws iam get-open-id-connect-provider
func Parse(content []byte) (doctor.Trust, error) {
	f, d := &file{}, json.NewDecoder(bytes.NewReader(content))
	for n := 1; ; n++ {
		var document struct {
			Role         *fileRole
			URL          string `json:"Url"`
			ClientIDList []string
		}
		err := d.Decode(&document)
		switch {
		case errors.Is(err, io.EOF) && n > 1:
			return trust{f}, nil
		case err == nil && document.Role != nil:
			f.roles = append(f.roles, *document.Role)
		case err == nil && document.URL != "":
			f.oidc = append(f.oidc, provider{strings.TrimPrefix(document.URL, "https://"), document.ClientIDList})
		default:
			return nil, fmt.Errorf("document %d of the trust file is neither a role nor an OIDC provider of AWS", n)
		}
	}
}

type file struct {
	oidc  []provider
	roles []fileRole
}

type fileRole struct {
	Arn                      string
	AssumeRolePolicyDocument json.RawMessage
}

func lacks(what, command string) doctor.Finding {
	return doctor.Unclear(doctor.Do("Add it to the file:", command+" >> trust.json"), "The trust file does not hold %s.", what)
}

func (f *file) providers(_ context.Context, t *target) ([]provider, doctor.Finding) {
	if len(f.oidc) == 0 {
		return nil, lacks("an OIDC provider", t.showProvider())
	}
	return f.oidc, doctor.Finding{}
}

// policy picks the role that is asked for: the policy of another role says nothing.
func (f *file) policy(_ context.Context, t *target) ([]byte, doctor.Finding) {
	for _, role := range f.roles {
		if role.Arn == t.Identity {
			return role.AssumeRolePolicyDocument, doctor.Finding{}
		}
	}
	return nil, lacks("role "+t.role.Name, t.showRole())
}
