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
)

func (e *examination) checkAnchor(ctx context.Context, _ *doctor.Claims) doctor.Finding {
	return e.checkTrust(ctx, doctor.Trust.Anchor)
}
func (e *examination) checkRule(ctx context.Context, _ *doctor.Claims) doctor.Finding {
	return e.checkTrust(ctx, doctor.Trust.Rule)
}

func (e *examination) checkTrust(ctx context.Context, check func(doctor.Trust, context.Context, doctor.TrustQuery) doctor.Finding) doctor.Finding {
	switch {
	case !e.cloud.readsIssuer:
		return doctor.Skipped("No cloud is involved.")
	case e.Trust == nil && e.Provider.GetName() == "aws":
		return doctor.Skipped("AWS trust not checked; use --trust-live.")
	case e.Trust == nil:
		return doctor.Skipped("The answer of %s names what it does not trust.", e.cloud.name)
	}
	if _, err := e.Provider.GetIdentity(e.serviceAccount(), e.resolved()); err != nil {
		return doctor.Skipped("The identity is unknown.")
	}
	return check(e.Trust, ctx, *e.query())
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
		return e.refusal(e.tokenService(), err)
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

// query is what the cloud has to trust.
func (e *examination) query() *doctor.TrustQuery {
	sa, q := e.serviceAccount(), &doctor.TrustQuery{Cluster: e.Cluster}
	if e.token.claims != nil {
		q.Claims = *e.token.claims
	}
	q.Claims.Namespace, q.Claims.ServiceAccount, q.Annotations = sa.Namespace, sa.Name, sa.Annotations
	q.Identity, _ = e.Provider.GetIdentity(sa, e.resolved()) // service-account reports it
	return q
}

// remedyOf returns the remedy of a class. It corrects what the user wrote, before the alternative that grants something.
func (e *examination) remedyOf(class doctor.Class) doctor.Remedy { //nolint:gocritic // a copy
	r, text := class.Advice(e.query()), ""
	if r.Or == nil {
		return r
	}
	annotating := func(key string) string { return e.annotating(key + "=" + e.valueOf(key)) }
	commands := r.Commands
	switch class.Reason {
	case reason.IssuerNotTrusted, reason.IssuerCertificateChanged, reason.SigningKeyUnavailable, reason.SignatureNotVerified:
		text, commands = e.isMeant(), append(commands, contexts)
		r.Or.When = "If " + e.cloud.name + " is meant to trust it"
	case reason.TrustPolicyRefusesSubject, reason.NoFederatedCredential, reason.SubjectNotTrusted, reason.SubjectCaseDiffers, reason.AttributeConditionRefuses:
		text, commands = "If the identity is wrong:", append(commands, annotating(cmp.Or(e.cloud.required, annotation.GCPWorkloadIdentityProvider)))
	case reason.ImpersonationDenied:
		text, commands = "If the service account is wrong:", append(commands, annotating(annotation.GCPServiceAccount))
	case reason.AudienceNotTrusted:
		text = "If the audience was chosen, remove it from annotation and options."
		r.Or.When = "If " + e.cloud.name + " is meant to accept it"
	}
	if text != "" && class.Show != "" {
		text = "Compare the setting with the token. " + text
	}
	r.Text, r.Commands = cmp.Or(text, r.Text), commands
	return r
}

// checkIdentity asks the service, or the credential itself, for its identity.
func (e *examination) checkIdentity(context.Context) doctor.Finding {
	who := ""
	switch t := e.gained.(type) {
	case interface{ AssumedRoleARN() string }:
		who = t.AssumedRoleARN()
	case interface{ Reveal() string }:
		if c, err := parseClaims(t.Reveal()); err == nil {
			who = c.Subject
		}
	}
	if e.Identify != nil {
		who = e.Identify(e.gained)
	}
	if who == "" {
		return doctor.Skipped("The credential does not name its identity.")
	}
	return doctor.Passed("The credential is that of %s.", who)
}
