package aws

import (
	"strings"

	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/reading"
	"github.com/workloadid/workloadid/internal/annotation"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/shell"
)

// judgeAnchor looks for the issuer's provider among those that were read.
func (t *target) judgeAnchor(providers []provider) doctor.Finding {
	closest, slip := "", ""
	for _, p := range providers {
		if p.url == t.host {
			return t.judgeAudience(p.clientIDs)
		}
		if how := reading.Slip(p.url, t.host); closest == "" || slip == "" && how != "" {
			closest, slip = p.url, how
		}
	}
	return t.noProvider(closest, slip)
}

func (t *target) judgeAudience(clientIDs []string) doctor.Finding {
	token := t.Claims.Audiences
	switch reading.Audience(token, clientIDs) {
	case doctor.Pass:
		return doctor.Passed("Account %s has an OIDC provider for the issuer and its audience.", t.role.Account)
	case doctor.Unknown:
		return reading.SeveralAudiences(token, clientIDs)
	default:
	}
	remedy := t.correctRole("If the role is wrong:")
	if _, annotated := t.Annotations[annotation.AWSAudience]; annotated {
		remedy = doctor.Do("Request the audience "+defaultAudience+":", reading.Annotate(t.TrustQuery, annotation.AWSAudience+"-"))
	}
	remedy = remedy.OrTrust(reading.IfMeant(t.TrustQuery), "aws iam add-client-id-to-open-id-connect-provider --open-id-connect-provider-arn "+
		shell.Word(t.providerARN(), "PROVIDER_ARN")+" --client-id "+t.audience())
	return doctor.Failed("A4", remedy, "The OIDC provider of account %s lacks the token's audience as a client ID.", t.role.Account).
		Compare("token", reading.List(token), "provider", reading.List(clientIDs))
}

// noProvider is the finding of an account without a provider for the issuer. An OIDC provider cannot be corrected: its URL is fixed.
func (t *target) noProvider(closest, slip string) doctor.Finding {
	create := "aws iam create-open-id-connect-provider --url " + shell.Word(t.Claims.Issuer, "ISSUER") + " --client-id-list " + t.audience()
	if strings.HasPrefix(t.host, "oidc.eks.") {
		create = "eksctl utils associate-iam-oidc-provider --approve --cluster CLUSTER_NAME"
	}
	remedy := t.correctRole("If the kube context is right, and the role is wrong:").OrTrust("If the account is meant to trust this cluster", create)
	f := doctor.Failed("A2", remedy, "Account %s has no OIDC provider for the token's issuer.", t.role.Account)
	if closest == "" {
		return f.Compare("token", t.Claims.Issuer, "account", "no provider")
	}
	if slip != "" {
		f.Message = "The OIDC provider of account " + t.role.Account + " differs from the token's issuer " + slip + "."
		f.Remedy.Text = "If the role is wrong:"
	}
	return f.Compare("token", t.Claims.Issuer, "account", redact.Text("https://"+closest))
}
