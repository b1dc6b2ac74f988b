package identity

import (
	"cmp"
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/cause"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor/internal/kube"
	"github.com/workloadid/workloadid/internal/annotation"
)

// checkTrust reads the trust policy, on which the answer of AWS is silent.
func (e *examination) checkTrust(ctx context.Context) doctor.Finding {
	q := e.query()
	switch {
	case e.Trust == nil && e.Provider.GetName() == "aws":
		return doctor.Skipped("AWS trust not checked; use --trust-live.")
	case e.Trust == nil:
		return doctor.Skipped("The answer of %s names what it does not trust.", e.cloud.name)
	case e.token.claims == nil || q.Identity == "":
		return doctor.Skipped("The token or the identity is unknown.")
	}
	return e.Trust.Rule(ctx, *q)
}

// checkExchange performs what a controller would perform, without a cache.
func (e *examination) checkExchange(ctx context.Context) doctor.Finding {
	switch {
	case !e.own() && e.usesAgent():
		return doctor.Skipped("The agent of the node makes the exchange; run wid doctor in the pod.")
	case !e.own() && (e.token.claims == nil || e.annotationsUnknown()):
		return doctor.Skipped("The token or the identity is unknown.")
	}
	gained, err := auth.GetAccessToken(ctx, e.Provider, e.options()...)
	if err != nil {
		return e.refusal(e.tokenService(), err)
	}
	end := time.Now().Add(gained.GetDuration())
	return doctor.Passed("Got credentials of %s until %s UTC.", e.whose(gained),
		end.UTC().Format("15:04")).Detail("expires", kube.Stamp(end))
}

// tokenService names the token service, with its host if the provider tells it.
func (e *examination) tokenService() string {
	if p, ok := e.Provider.(interface {
		TokenServiceURL(opts *provider.Options) (string, error)
	}); ok {
		address, _ := p.TokenServiceURL(e.resolved()) // the exchange reports a missing region
		if u, err := url.Parse(address); err == nil && u.Host != "" {
			return e.cloud.service + " (" + u.Host + ")"
		}
	}
	return e.cloud.service
}

// whose names the identity of a credential: as STS told it, or else as it was
// asked for. A role's name fits on the line of a healthy report.
func (e *examination) whose(gained auth.Token) string {
	if t, ok := gained.(*aws.Token); ok && e.own() && t.AssumedRoleARN() != "" {
		return t.AssumedRoleARN()
	}
	q := e.query()
	if _, role, ok := strings.Cut(q.Identity, ":role/"); ok {
		return "role " + role
	}
	return cmp.Or(q.Identity, q.Claims.Subject, "the process's own identity")
}

// query describes what the cloud has to trust.
func (e *examination) query() *doctor.TrustQuery {
	sa, q := e.serviceAccount(), &doctor.TrustQuery{}
	if e.token.claims != nil {
		q.Claims = *e.token.claims
	}
	q.Claims.Namespace, q.Claims.ServiceAccount, q.Annotations = sa.Namespace, sa.Name, sa.Annotations
	if e.Provider != nil { // see Detect
		q.Identity, _ = e.Provider.GetIdentity(sa, e.resolved()) // service-account reports it
	}
	return q
}

// remedyOf returns the remedy of a class. It corrects what the user wrote,
// before the alternative that grants something.
func (e *examination) remedyOf(class cause.Class) doctor.Remedy { //nolint:gocritic // a copy
	r, before := doctor.Advice(&class, e.query()), ""
	if class.Show != "" {
		before = "Compare the setting with the token. "
	}
	correct := func(text, command string) {
		r.Text, r.Commands = before+text, append(r.Commands, command)
	}
	switch class.Reason {
	case cause.SigningKeyUnavailable, cause.SignatureNotVerified:
		if r.Or == nil { // wid issuer check shows the keys too
			r.Commands = nil
		}
		r.Text, r.Commands = comparing, append(r.Commands, e.publishing()...)
	case cause.IssuerNotTrusted, cause.IssuerCertificateChanged:
		correct(e.isMeant(), contexts)
	case cause.AudienceNotTrusted:
		if q := e.query(); e.Provider.GetName() == aws.ProviderName && q.Annotations[annotation.AWSAudience] != "" {
			text, command := cli.ChosenAudience(q.Claims.Namespace, q.Claims.ServiceAccount,
				q.Annotations[annotation.AWSAudience])
			return doctor.Do(text, command)
		}
		r.Text = before + "If the audience was chosen, remove it from annotation and options."
	case cause.TrustPolicyRefusesSubject, cause.NoFederatedCredential, cause.SubjectNotTrusted, cause.SubjectCaseDiffers,
		cause.AttributeConditionRefuses:
		correct("If the identity is wrong:", e.annotating(e.cloud.settings[0].annotation))
		return r
	case cause.ImpersonationDenied:
		correct("If the service account is wrong:", e.annotating(annotation.GCPServiceAccount))
		return r
	default:
		return r
	}
	if r.Or != nil {
		r.Or.When = "If " + e.cloud.name + " is meant to trust it"
	}
	return r
}
