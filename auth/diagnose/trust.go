package diagnose

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// TrustReader reads what a cloud has been told to trust, with rights that the identity under examination mostly lacks.
// ParseTrust makes one from what the clouds' command lines print.
type TrustReader interface {
	// ReadTrust returns what concerns the identity, as auth.Provider.GetIdentity returns it, and the token.
	ReadTrust(ctx context.Context, identity string, claims *Claims) (*Trust, error)
}

// Trust is what a cloud has been told to trust.
type Trust struct {
	// Anchors are the OIDC providers of the role's account, the federated credentials of the client ID, or the workload
	// identity provider.
	Anchors []Anchor
	// Policy is the trust policy of the AWS role, in JSON. Empty: it was not read.
	Policy []byte
	// Members are those that have roles/iam.workloadIdentityUser on the GCP service account. Nil: they were not read.
	Members []string
}

// Anchor is one issuer that is trusted.
type Anchor struct {
	// Name is the cloud's own.
	Name string
	// Issuer is the issuer, Subject the subject of a federated credential, Audiences the client IDs or allowed audiences.
	Issuer, Subject string
	Audiences       []string
	// Disabled says why it does not count, such as DELETED.
	Disabled string
	// JWKS are keys that were uploaded.
	JWKS []byte
	// Condition is the attribute condition, in CEL.
	Condition string
}

// trust is read once.
func (e *examination) readTrust(ctx context.Context) (*Trust, error) {
	if e.anchors != nil || e.trustErr != nil {
		return e.anchors, e.trustErr
	}
	identity, err := e.Provider.GetIdentity(*e.serviceAccount(), e.resolved())
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		e.anchors, err = e.Trust.ReadTrust(ctx, identity, e.token.claims)
	}
	if err == nil && e.anchors == nil {
		e.anchors = &Trust{}
	}
	e.trustErr = err
	return e.anchors, err
}

// beforeTrust are the outcomes that both checks share.
func (e *examination) beforeTrust(ctx context.Context) (*Trust, Finding) {
	if f, none := e.noToken(); none {
		return nil, f
	}
	if !e.cloud.readsIssuer {
		return nil, skip("no cloud is involved")
	}
	if e.Trust == nil {
		return nil, unknown("what "+e.cloud.name+" trusts cannot be read with these rights", e.howToRead())
	}
	trust, err := e.readTrust(ctx)
	if err != nil {
		return nil, unknown("what "+e.cloud.name+" trusts cannot be read: "+shown(messageOf(err)), e.howToRead())
	}
	return trust, Finding{}
}

func (e *examination) howToRead() string {
	switch e.Provider.GetName() {
	case "aws":
		return "(aws iam get-role --role-name <role>; aws iam get-open-id-connect-provider --open-id-connect-provider-arn <arn>) > trust.json; wid doctor --trust-file trust.json"
	case "azure":
		return "az identity federated-credential list --identity-name <name> --resource-group <group> > trust.json; wid doctor --trust-file trust.json"
	}
	return "(gcloud iam workload-identity-pools providers describe <provider> --format json; gcloud iam service-accounts get-iam-policy <email> --format json) > trust.json; wid doctor --trust-file trust.json"
}

// Check 19.
func (e *examination) checkAnchor(ctx context.Context) Finding {
	trust, f := e.beforeTrust(ctx)
	if trust == nil {
		return f
	}
	switch e.Provider.GetName() {
	case "aws":
		return e.awsAnchor(trust.Anchors)
	case "azure":
		return e.azureAnchor(trust.Anchors)
	}
	return e.gcpAnchor(trust.Anchors)
}

func (e *examination) awsAnchor(anchors []Anchor) Finding {
	c := e.token.claims
	const create = "eksctl utils associate-iam-oidc-provider --approve --cluster <name>, in the role's account"
	closest := ""
	for _, a := range anchors {
		url := withScheme(a.Issuer)
		if url != c.Issuer {
			closest = url
			continue
		}
		if !slices.ContainsFunc(c.Audience, func(aud string) bool { return slices.Contains(a.Audiences, aud) }) {
			return fail("A4", fmt.Sprintf("aws iam add-client-id-to-open-id-connect-provider --open-id-connect-provider-arn <arn> --client-id %s", c.Audience[0]),
				"the OIDC provider lacks the token's audience as client ID").with(differs("aud", audiences(c.Audience), "one of "+audiences(a.Audiences)))
		}
		return pass("the account has an OIDC provider for the issuer")
	}
	if closest == "" {
		return fail("A2", create, "the account has no OIDC provider").with(differs("iss", c.Issuer, "the URL of an OIDC provider"))
	}
	return fail("A2", create, "the account has no OIDC provider for the issuer: %s", difference(c.Issuer, closest)).with(differs("iss", c.Issuer, closest))
}

// withScheme completes the URL of an OIDC provider, which IAM keeps without https://.
func withScheme(url string) string {
	if strings.Contains(url, "://") {
		return url
	}
	return "https://" + url
}

// azureAnchor finds the federated credential that fits best, and shows the one field that does not.
func (e *examination) azureAnchor(anchors []Anchor) Finding {
	c := e.token.claims
	if len(anchors) == 0 {
		return fail("Z6", "az identity federated-credential create ... --issuer "+shown(c.Issuer)+" --subject "+shown(c.Subject)+" --audiences "+audiences(c.Audience),
			"the identity has no federated credential")
	}
	best, most := 0, -1
	for i, a := range anchors {
		fits := 0
		for _, ok := range []bool{strings.TrimSuffix(a.Issuer, "/") == strings.TrimSuffix(c.Issuer, "/"), a.Issuer == c.Issuer,
			strings.EqualFold(a.Subject, c.Subject), a.Subject == c.Subject, fitsAudience(a, c)} {
			if ok {
				fits++
			}
		}
		if fits > most {
			best, most = i, fits
		}
	}
	a := anchors[best]
	which := fmt.Sprintf("the closest federated credential (%s, %d of %d)", shown(a.Name), best+1, len(anchors))
	const update = "az identity federated-credential update --name %s --identity-name <name> --resource-group <group> --%s %s"
	switch {
	case a.Issuer != c.Issuer:
		return fail("Z2", fmt.Sprintf(update, a.Name, "issuer", shown(c.Issuer)), "%s differs in issuer: %s", which, difference(c.Issuer, a.Issuer)).
			with(differs("iss", c.Issuer, a.Issuer))
	case a.Subject != c.Subject && strings.EqualFold(a.Subject, c.Subject):
		return fail("Z5", fmt.Sprintf(update, a.Name, "subject", shown(c.Subject)), "%s differs in the subject's upper and lower case", which).
			with(differs("sub", c.Subject, a.Subject))
	case a.Subject != c.Subject:
		return fail("Z4", fmt.Sprintf(update, a.Name, "subject", shown(c.Subject)), "%s differs in subject", which).with(differs("sub", c.Subject, a.Subject))
	case !fitsAudience(a, c):
		return fail("Z3", fmt.Sprintf(update, a.Name, "audiences", audiences(c.Audience)), "%s differs in audience", which).
			with(differs("aud", audiences(c.Audience), audiences(a.Audiences)))
	}
	return pass("federated credential %d of %d fits", best+1, len(anchors))
}

func fitsAudience(a Anchor, c *Claims) bool {
	return slices.ContainsFunc(c.Audience, func(aud string) bool { return slices.Contains(a.Audiences, aud) })
}

// Check 20.
func (e *examination) checkRule(ctx context.Context) Finding {
	if e.Provider.GetName() == "azure" {
		return skip("Azure has no rule beside the federated credential")
	}
	trust, f := e.beforeTrust(ctx)
	if trust == nil {
		return f
	}
	if e.Provider.GetName() == "aws" {
		if len(trust.Policy) == 0 {
			return unknown("the role's trust policy was not among what was read", e.howToRead())
		}
		return e.judgePolicy(trust.Policy)
	}
	return e.judgeMembers(trust)
}
