package identity

import (
	"cmp"
	"context"
	"net/url"
	"strings"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/annotation"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/reason"
	"github.com/workloadid/workloadid/internal/gcpname"
	"github.com/workloadid/workloadid/internal/shell"
)

func (e *examination) checkAnchor(ctx context.Context, c *doctor.Claims) doctor.Finding {
	return e.judgeTrust(ctx, c, doctor.Trust.Anchor)
}
func (e *examination) checkRule(ctx context.Context, c *doctor.Claims) doctor.Finding {
	return e.judgeTrust(ctx, c, doctor.Trust.Rule)
}

func (e *examination) judgeTrust(ctx context.Context, c *doctor.Claims, judge func(doctor.Trust, context.Context, doctor.TrustQuery) doctor.Finding) doctor.Finding {
	switch {
	case !e.cloud.readsIssuer:
		return doctor.Skipped("No cloud is involved.")
	case e.Trust == nil && e.Provider.GetName() == "aws":
		return doctor.Skipped("AWS trust not checked; use --trust-live.")
	case e.Trust == nil:
		return doctor.Skipped("The answer of %s names what it does not trust.", e.cloud.name)
	}
	sa := e.serviceAccount()
	identity, err := e.Provider.GetIdentity(sa, e.resolved())
	if err != nil {
		return doctor.Skipped("The identity is unknown.")
	}
	return judge(e.Trust, ctx, doctor.TrustQuery{Claims: *c, Identity: identity, Annotations: sa.Annotations})
}

// checkExchange performs what a controller would perform, without a cache.
func (e *examination) checkExchange(ctx context.Context) doctor.Finding {
	switch {
	case !e.own() && e.usesAgent():
		return doctor.Skipped("The agent of the node makes the exchange; run wid doctor in the pod.")
	case e.stopped != nil:
		return *e.stopped
	case !e.own() && (e.token.claims == nil || e.annotationsUnknown()):
		return doctor.Skipped("The token or the identity is unknown.")
	}
	token, err := auth.GetAccessToken(ctx, e.Provider, e.options()...)
	if err != nil {
		return e.correctFirst(e.refusal(e.tokenService(), err))
	}
	e.gained = token
	end := e.Now().Add(token.GetDuration())
	return doctor.Passed("Got credentials of %s until %s UTC.", e.shortIdentity(), end.UTC().Format("15:04")).Detail("expires", stamp(end))
}

// tokenService names the token service with its host.
func (e *examination) tokenService() string {
	if u, err := url.Parse(e.tokenServiceURL()); err == nil && u.Host != "" {
		return e.cloud.service + " (" + u.Host + ")"
	}
	return e.cloud.service
}

// shortIdentity leaves the prefix of an ARN out, so that a healthy report fits on three lines.
func (e *examination) shortIdentity() string {
	identity, err := e.Provider.GetIdentity(e.serviceAccount(), e.resolved())
	if _, role, ok := strings.Cut(identity, ":role/"); ok {
		return "role " + role
	}
	if c := e.token.claims; (err != nil || identity == "") && c != nil {
		return c.Subject
	}
	return cmp.Or(identity, "the process's own identity")
}

// correctFirst names the command that corrects what the user wrote, before the alternative of a class that grants something.
func (e *examination) correctFirst(f doctor.Finding) doctor.Finding {
	known := doctor.ClassFor(e.Provider.GetName(), f.Class)
	if f.Remedy.Or == nil {
		if known.Show != "" {
			f.Remedy = doctor.Do(f.Remedy.Text+" This reads the setting:", e.filled(known.Show))
		}
		return f
	}
	grant := f.Remedy.Or.Commands
	instead := func(when, text string, commands ...string) {
		if known.Show != "" { // the error names one cause of several
			text, commands = "Compare the setting with the token. "+text, append([]string{e.filled(known.Show)}, commands...)
			grant = []string{e.filled(known.Grant)}
		}
		f.Remedy = doctor.Do(text, commands...).OrTrust(when, grant...)
	}
	annotating := func(key string) string { return e.annotating(key + "=" + e.valueOf(key)) }
	switch f.Class {
	case reason.IssuerNotTrusted, reason.IssuerCertificateChanged, reason.SigningKeyUnavailable, reason.SignatureNotVerified:
		instead("If "+e.cloud.name+" is meant to trust it", e.isMeant(), contexts)
	case reason.TrustPolicyRefusesSubject, reason.NoFederatedCredential, reason.SubjectNotTrusted, reason.SubjectCaseDiffers, reason.AttributeConditionRefuses:
		instead(e.ifMeant(), "If the identity is wrong:", annotating(cmp.Or(e.cloud.required, annotation.GCPWorkloadIdentityProvider)))
	case reason.ImpersonationDenied:
		instead(e.ifMeant(), "If the service account is wrong:", annotating(annotation.GCPServiceAccount))
	case reason.AudienceNotTrusted:
		instead("If "+e.cloud.name+" is meant to accept it", "If the audience was chosen, remove it from annotation and options.")
	}
	return f
}

func (e *examination) ifMeant() string {
	return "If " + cmp.Or(e.key().Namespace, "the identity") + " is meant to have it"
}

// remedyOf returns the remedy of a class as sentences. A grant is the alternative.
func (e *examination) remedyOf(class doctor.Class) doctor.Remedy { //nolint:gocritic // a copy
	r := sentence(e.filled(class.Remedy))
	if class.Grant != "" {
		r = r.OrTrust(e.ifMeant(), e.filled(class.Grant))
	}
	return r
}

// filled puts the names of this call into the placeholders of a class's remedy.
func (e *examination) filled(text string) string {
	set, c := e.serviceAccount().Annotations, cmp.Or(e.token.claims, &doctor.Claims{})
	named := set[annotation.GCPWorkloadIdentityProvider]
	provider, err := gcpname.ParseWorkloadIdentityProvider(named[max(strings.Index(named, "projects/"), 0):], "")
	principal := ""
	if err == nil && c.Subject != "" {
		pool, _, _ := strings.Cut(provider.Name, "/providers/")
		principal = "principal://iam.googleapis.com/" + pool + "/subject/" + c.Subject
	}
	var pairs []string
	for _, p := range [][2]string{{"NAMESPACE", e.key().Namespace}, {"SERVICE_ACCOUNT", e.key().Name}, {"EMAIL", set[annotation.GCPServiceAccount]},
		{"CLIENT_ID", set[annotation.AzureClientID]}, {"PROVIDER_NAME", provider.Name}, {"PROJECT_ID", provider.ProjectNumber},
		{"PRINCIPAL", principal}, {"ISSUER", c.Issuer}, {"SUBJECT", c.Subject}} {
		pairs = append(pairs, p[0], shell.Word(p[1], p[0]))
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// checkIdentity asks the service, or the credential itself, for its identity.
func (e *examination) checkIdentity(ctx context.Context) doctor.Finding {
	who, err := "", error(nil)
	switch t := e.gained.(type) {
	case interface{ AssumedRoleARN() string }:
		who = t.AssumedRoleARN()
	case interface{ Reveal() string }:
		if c, err := parseClaims(t.Reveal()); err == nil {
			who = c.Subject
		}
	}
	if e.Identify != nil {
		who, err = e.Identify(ctx, e.gained)
	}
	switch {
	case err != nil:
		return e.refusal(e.cloud.service, err).As(doctor.Unknown)
	case who == "":
		return doctor.Skipped("The credential does not name its identity.")
	}
	return doctor.Passed("The credential is that of %s.", who)
}
