package doctor

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// TrustReader reads what a cloud has been told to trust, with rights that the identity under examination mostly lacks.
// ParseTrust makes one from what the clouds' command lines print; the packages awstrust, azuretrust and gcptrust ask the
// clouds.
type TrustReader interface {
	// ReadTrust returns what was read. Its error means that nothing was; errors of the package auth have their remedies shown.
	ReadTrust(ctx context.Context, query TrustQuery) (*Trust, error)
}

// TrustQuery says whose trust is wanted.
type TrustQuery struct {
	// Identity is as auth.Provider.GetIdentity returns it.
	Identity string
	// Annotations are the ServiceAccount's: Google Cloud's provider is named in one.
	Annotations map[string]string
	// Claims are the token's. Nothing of them has been verified.
	Claims *Claims
}

// ErrMissing is below the errors that say that something does not exist, as the cloud itself has said.
const ErrMissing = missingError("it does not exist")

type missingError string

func (e missingError) Error() string { return string(e) }

// Trust is what a cloud has been told to trust. What was read of it can fail a check, but does not pass one if something is
// missing.
type Trust struct {
	// Anchors are the OIDC providers of the role's account, the federated credentials of the client ID, or the workload
	// identity provider. Nil: they were not read; empty: there are none.
	Anchors []Anchor
	// AnchorErr is why not all of that was read.
	AnchorErr error
	// Policy is the trust policy of the AWS role, in JSON. Empty: it was not read.
	Policy []byte
	// Members are those that have roles/iam.workloadIdentityUser on the GCP service account. Nil: they were not read.
	Members []string
	// Conditional are those that have it under a condition, or have a custom role, which may mean the same.
	Conditional []string
	// RuleErr is why Policy or Members were not read.
	RuleErr error
	// ReadBy is whose rights it was read with: an ARN, an object ID, an e-mail address. Empty: the caller's, from a file.
	ReadBy string
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
	// SubjectMapping is the attribute mapping of google.subject, in CEL. Empty: it is not known.
	SubjectMapping string
	// Expression is what a federated credential matches instead of a subject.
	Expression string
}

// trust is read once.
func (e *examination) readTrust(ctx context.Context) (*Trust, error) {
	if e.anchors != nil || e.trustErr != nil {
		return e.anchors, e.trustErr
	}
	sa := e.serviceAccount()
	identity, err := e.Provider.GetIdentity(sa, e.resolved())
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		defer waiting(ctx, "what "+e.cloud.name+" trusts")()
		e.anchors, err = e.Trust.ReadTrust(ctx, TrustQuery{Identity: identity, Annotations: sa.Annotations,
			Claims: e.token.claims})
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
		f := unknown("what "+e.cloud.name+" trusts was not read", e.howToRead())
		f.unasked = true
		return nil, f
	}
	e.learnAudience(ctx)
	before := e.trustErr
	trust, err := e.readTrust(ctx)
	switch {
	case before != nil && e.results[19] == Unknown:
		return nil, unknown("what "+e.cloud.name+" trusts cannot be read: see check 19", "")
	case err != nil:
		return nil, e.unread(err)
	}
	return trust, Finding{}
}

// unread explains why something could not be looked at, with what to do about that.
func (e *examination) unread(err error) Finding {
	f := unknown("what "+e.cloud.name+" trusts cannot be read: "+shown(messageOf(err)), e.howToRead())
	if own, ok := asError(err); ok {
		f.Remedy = firstOf(own.Remedy, f.Remedy)
		f.StatusCode, f.Code, f.RequestID = own.StatusCode, own.Code, own.RequestID
	}
	return f
}

// judged is the finding about what was read: a failure stands, but what was not read does not pass. missing is the class of
// a failure because something does not exist.
func (e *examination) judged(trust *Trust, read bool, err error, missing string, judge func() Finding) Finding {
	var f Finding
	switch {
	case errors.Is(err, ErrMissing):
		f = e.unread(err).as(Fail)
		f.Class, f.Message = missing, shown(messageOf(err))
	case read:
		f = e.correctFirst(judge())
		if f.Result == Pass && err != nil {
			f = e.unread(err)
		}
	case err != nil:
		f = e.unread(err)
	default:
		f = unknown("this was not among what was read", e.howToRead())
	}
	if trust.ReadBy == "" || f.Result == Skip {
		return f
	}
	if f.Result == Pass {
		f.Message += ", read as " + shown(trust.ReadBy) // the fields of what has passed are not printed
	}
	return f.with(same("read as", trust.ReadBy))
}

// howToRead is for people at a command line, who have to repeat what they named there.
func (e *examination) howToRead() string {
	const again = "run this again with --trust-live, or with --trust-file trust.json after:\n"
	switch e.Provider.GetName() {
	case "aws":
		return again + "(aws iam get-role --role-name " + e.roleWord() + "; aws iam get-open-id-connect-provider --open-id-connect-provider-arn " +
			e.oidcProviderWord() + ") > trust.json"
	case "azure":
		return again + "az identity federated-credential list --identity-name IDENTITY_NAME --resource-group RESOURCE_GROUP > trust.json"
	}
	describe := "gcloud iam workload-identity-pools providers describe " + e.poolProviderWord() + " --format json"
	if e.email() == "" {
		return again + describe + " > trust.json"
	}
	return again + "(" + describe + "; gcloud iam service-accounts get-iam-policy " + e.emailWord() + " --format json) > trust.json"
}

// Check 19.
func (e *examination) checkAnchor(ctx context.Context) Finding {
	trust, f := e.beforeTrust(ctx)
	if trust == nil {
		return f
	}
	judge, missing := func(anchors []Anchor) Finding { return e.gcpAnchor(ctx, anchors) }, "G1"
	switch e.Provider.GetName() {
	case "aws":
		judge, missing = e.awsAnchor, "A2"
	case "azure":
		judge, missing = e.azureAnchor, "Z7"
	}
	return e.judged(trust, trust.Anchors != nil, trust.AnchorErr, missing, func() Finding { return judge(trust.Anchors) })
}

func (e *examination) awsAnchor(anchors []Anchor) Finding {
	c := e.token.claims
	create := "in the role's account:\n"
	if strings.HasPrefix(c.Issuer, "https://oidc.eks.") {
		create += "eksctl utils associate-iam-oidc-provider --approve --cluster CLUSTER_NAME"
	} else { // eksctl knows its own clusters only
		create += "aws iam create-open-id-connect-provider --url " + issuerOf(c) + " --client-id-list " + e.audienceWord()
	}
	closest := ""
	for _, a := range anchors {
		url := withScheme(a.Issuer)
		if url != c.Issuer {
			if closest == "" || distance(url, c.Issuer) < distance(closest, c.Issuer) {
				closest = url
			}
			continue
		}
		fits := fitsAudience(a.Audiences, c)
		if fits == Unknown {
			return severalAudiences(a.Audiences, c)
		}
		if fits == Fail {
			return fail("A4", "aws iam add-client-id-to-open-id-connect-provider --open-id-connect-provider-arn "+
				e.oidcProviderWord()+" --client-id "+e.audienceWord(), "the OIDC provider lacks the token's audience as client ID").
				with(differs("aud", audiences(c.Audience), "one of "+audiences(a.Audiences)))
		}
		return pass("the account has an OIDC provider for the issuer")
	}
	if closest == "" {
		return fail("A2", create, "the account has no OIDC provider for the issuer").with(differs("iss", c.Issuer,
			"the URL of an OIDC provider"))
	}
	return fail("A2", create, "the account has no OIDC provider for the issuer: %s", difference(c.Issuer, closest)).
		with(differs("iss", c.Issuer, closest)).near(sameIssuer(closest, c.Issuer))
}

// fitsAudience is Unknown for tokens with several audiences of which some are trusted: clouds differ in what they make of them.
func fitsAudience(trusted []string, c *Claims) Result {
	fits := 0
	for _, audience := range c.Audience {
		if slices.Contains(trusted, audience) {
			fits++
		}
	}
	if fits == 0 {
		return Fail
	}
	if fits == len(c.Audience) {
		return Pass
	}
	return Unknown
}

func severalAudiences(trusted []string, c *Claims) Finding {
	return unknown("the token has several audiences, and not all of them are trusted", wrongAudience).
		with(differs("aud", audiences(c.Audience), audiences(trusted)))
}

// withScheme completes the URL of an OIDC provider, which IAM keeps without https://.
func withScheme(url string) string {
	if strings.Contains(url, "://") {
		return url
	}
	return "https://" + url
}

// Check 20.
func (e *examination) checkRule(ctx context.Context) Finding {
	if e.Provider.GetName() == "azure" {
		return skip("Azure has no rule beside the federated credential")
	}
	if e.Provider.GetName() == "gcp" && e.token.claims != nil && e.email() == "" {
		return skip("no service account is impersonated")
	}
	trust, f := e.beforeTrust(ctx)
	if trust == nil {
		return f
	}
	if e.Provider.GetName() == "aws" {
		return e.judged(trust, len(trust.Policy) > 0, trust.RuleErr, "A1", func() Finding { return e.judgePolicy(trust.Policy) })
	}
	return e.judged(trust, trust.Members != nil, trust.RuleErr, "G12", func() Finding { return e.judgeMembers(ctx, trust) })
}
