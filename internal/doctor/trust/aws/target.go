package aws

import (
	"encoding/json"
	"strings"

	awsauth "github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/internal/annotation"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/reading"
	"github.com/workloadid/workloadid/internal/doctor/internal/reason"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/shell"
)

// target is the role, and the token that should be able to assume it.
type target struct {
	*doctor.TrustQuery

	role awsauth.RoleARN
	host string // the issuer without https://
	name string // of the role, for commands
}

func newTarget(q *doctor.TrustQuery) (*target, doctor.Finding) {
	role, err := awsauth.ParseRoleARN(q.Identity)
	host, https := strings.CutPrefix(q.Claims.Issuer, "https://")
	switch {
	case err != nil:
		return nil, doctor.Skipped("The identity is not the ARN of a role.")
	case !https:
		return nil, doctor.Skipped("AWS trusts no issuer without https.")
	}
	return &target{q, role, host, shell.Word(role.Name, "ROLE_NAME")}, doctor.Finding{}
}

func (t *target) providerARN() string {
	return "arn:" + t.role.Partition + ":iam::" + t.role.Account + ":oidc-provider/" + t.host
}

func (t *target) showRole() string { return "aws iam get-role --role-name " + t.name }

func (t *target) showProvider() string {
	return "aws iam get-open-id-connect-provider --open-id-connect-provider-arn " + shell.Word(t.providerARN(), "PROVIDER_ARN")
}

const defaultAudience = "sts.amazonaws.com"

// audience returns the token's audience if a cloud may trust it without a second look, else a word to fill in.
func (t *target) audience() string { return reading.SafeAudience(t.Claims.Audiences, defaultAudience) }

// correctRole is the remedy for an annotation that names the wrong role.
func (t *target) correctRole(when string) doctor.Remedy {
	return doctor.Do(when, reading.Annotate(t.TrustQuery, annotation.AWSRoleARN+"=arn:"+t.role.Partition+":iam::"+t.role.Account+":role/NAME"))
}

func (t *target) noRole() doctor.Finding {
	return doctor.Failed(reason.TrustPolicyRefusesSubject, t.correctRole("Correct the annotation, or create the role:"),
		"Role %s does not exist in account %s.", t.role.Name, t.role.Account)
}

// otherPath is the finding of a role with another path than the annotation says. STS refuses its ARN.
func (t *target) otherPath(arn string) doctor.Finding {
	return doctor.Failed(reason.TrustPolicyRefusesSubject, doctor.Do("Correct the annotation:", reading.Annotate(t.TrustQuery, annotation.AWSRoleARN+"="+arn)),
		"The ARN of role %s has another path.", t.role.Name).Compare("annotation", t.role.String(), "account", arn)
}

// refused is a finding of the trust policy. The alternative adds a statement that admits this token only, unless a policy cannot name
// its issuer or subject literally, or a report would cut the statement.
func (t *target) refused(format string, args ...any) doctor.Finding {
	const maxStatement = 800
	remedy := t.correctRole("If the role is wrong:")
	special := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("*?$", r) }
	statement, err := json.Marshal(map[string]any{"Effect": "Allow", "Action": webIdentityAction,
		"Principal": map[string]string{"Federated": t.providerARN()},
		"Condition": map[string]any{"StringEquals": map[string]string{t.host + ":sub": t.Claims.Subject, t.host + ":aud": t.audience()}}})
	if err == nil && len(statement) < maxStatement && t.Claims.Subject != "" && !strings.ContainsFunc(t.host+t.Claims.Subject, special) {
		remedy = remedy.OrTrust(reading.IfMeant(t.TrustQuery),
			t.showRole()+" --query Role.AssumeRolePolicyDocument --output json | jq "+
				shell.Word(".Statement = ([.Statement, "+string(statement)+"] | flatten)", "PROGRAM")+" > trust.json",
			"aws iam update-assume-role-policy --role-name "+t.name+" --policy-document file://trust.json")
	}
	return doctor.Failed(reason.TrustPolicyRefusesSubject, remedy, format, args...)
}

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
	}
	remedy := t.correctRole("If the role is wrong:")
	if _, annotated := t.Annotations[annotation.AWSAudience]; annotated {
		remedy = doctor.Do("Request the audience "+defaultAudience+":", reading.Annotate(t.TrustQuery, annotation.AWSAudience+"-"))
	}
	remedy = remedy.OrTrust(reading.IfMeant(t.TrustQuery), "aws iam add-client-id-to-open-id-connect-provider --open-id-connect-provider-arn "+
		shell.Word(t.providerARN(), "PROVIDER_ARN")+" --client-id "+t.audience())
	return doctor.Failed(reason.AudienceNotTrusted, remedy, "The OIDC provider of account %s lacks the token's audience as a client ID.", t.role.Account).
		Compare("token", reading.List(token), "provider", reading.List(clientIDs))
}

// noProvider is the finding of an account without a provider for the issuer. An OIDC provider cannot be corrected: its URL is fixed.
func (t *target) noProvider(closest, slip string) doctor.Finding {
	create := "aws iam create-open-id-connect-provider --url " + shell.Word(t.Claims.Issuer, "ISSUER") + " --client-id-list " + t.audience()
	if strings.HasPrefix(t.host, "oidc.eks.") {
		create = "eksctl utils associate-iam-oidc-provider --approve --cluster CLUSTER_NAME"
	}
	remedy := t.correctRole("If the kube context is right, and the role is wrong:").OrTrust("If the account is meant to trust this cluster", create)
	f := doctor.Failed(reason.IssuerNotTrusted, remedy, "Account %s has no OIDC provider for the token's issuer.", t.role.Account)
	if closest == "" {
		return f.Compare("token", t.Claims.Issuer, "account", "no provider")
	}
	if slip != "" {
		f.Message = "The OIDC provider of account " + t.role.Account + " differs from the token's issuer " + slip + "."
		f.Remedy.Text = "If the role is wrong:"
	}
	return f.Compare("token", t.Claims.Issuer, "account", redact.Text("https://"+closest))
}
