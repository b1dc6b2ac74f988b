package aws

import (
	"slices"
	"strings"

	awsauth "github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	reason "github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/internal/annotation"
	"github.com/workloadid/workloadid/internal/shell"
)

// target is the role, and the token that should be able to assume it.
type target struct {
	*doctor.TrustQuery

	role awsauth.RoleARN
	host string // the issuer without https://
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
	return &target{q, role, host}, doctor.Finding{}
}

func (t *target) providerARN() string {
	return "arn:" + t.role.Partition + ":iam::" + t.role.Account + ":oidc-provider/" + t.host
}

func (t *target) showRole() string { return t.Fill("aws iam get-role --role-name ROLE_NAME") }

func (t *target) showProvider() string {
	return t.Fill("aws iam get-open-id-connect-provider --open-id-connect-provider-arn PROVIDER_ARN")
}

// annotate returns the command that changes an annotation of the ServiceAccount: "key=value", or "key-" to remove it.
func (t *target) annotate(change string) string {
	return t.Fill("kubectl annotate sa -n NAMESPACE SERVICE_ACCOUNT --overwrite ") + shell.Word(change, "KEY=VALUE")
}

// correctRole is the remedy for an annotation that names the wrong role.
func (t *target) correctRole(when string) doctor.Remedy {
	return doctor.Do(when, t.annotate(annotation.AWSRoleARN+"=arn:"+t.role.Partition+":iam::"+t.role.Account+":role/NAME"))
}

// granting returns the remedy with the Grant of a class as the alternative.
func (t *target) granting(class string, remedy doctor.Remedy) doctor.Remedy {
	known := reason.ClassFor("aws", class)
	remedy.Or = doctor.Advice(&known, t.TrustQuery).Or
	return remedy
}

func (t *target) noRole() doctor.Finding {
	return doctor.Failed(reason.TrustPolicyRefusesSubject, t.correctRole("Correct the annotation, or create the role:"),
		"Role %s does not exist in account %s.", t.role.Name, t.role.Account)
}

// otherPath is the finding of a role with another path than the annotation says. STS refuses its ARN.
func (t *target) otherPath(arn string) doctor.Finding {
	return doctor.Failed(reason.TrustPolicyRefusesSubject, doctor.Do("Correct the annotation:", t.annotate(annotation.AWSRoleARN+"="+arn)),
		"The ARN of role %s has another path.", t.role.Name).Compare("annotation", t.role.String(), "account", arn)
}

// refused is a finding of the trust policy. The alternative adds a statement that admits this token only.
func (t *target) refused(says string) doctor.Finding {
	return doctor.Failed(reason.TrustPolicyRefusesSubject, t.granting(reason.TrustPolicyRefusesSubject, t.correctRole("If the role is wrong:")),
		"The trust policy of role %s %s", t.role.Name, says)
}

func (t *target) noProvider() doctor.Finding {
	return doctor.Failed(reason.IssuerNotTrusted, t.granting(reason.IssuerNotTrusted, t.correctRole("If the kube context is right, and the role is wrong:")),
		"Account %s has no OIDC provider for the token's issuer.", t.role.Account).Compare("token", t.Claims.Issuer, "account", "no provider")
}

func (t *target) checkAudience(clientIDs []string) doctor.Finding {
	token := t.Claims.Audiences
	switch {
	case len(token) > 1:
		return doctor.Unclear(doctor.Do("Request a token with one audience."), "The token has several audiences, which the doctor does not check.")
	case len(token) == 1 && slices.Contains(clientIDs, token[0]):
		return doctor.Passed("Account %s has an OIDC provider for the issuer and its audience.", t.role.Account)
	}
	remedy := t.correctRole("If the role is wrong:")
	if _, annotated := t.Annotations[annotation.AWSAudience]; annotated {
		remedy = doctor.Do("Request the default audience:", t.annotate(annotation.AWSAudience+"-"))
	}
	return doctor.Failed(reason.AudienceNotTrusted, t.granting(reason.AudienceNotTrusted, remedy), "The OIDC provider of account %s lacks the token's audience as a client ID.", t.role.Account).
		Compare("token", list(token), "provider", list(clientIDs))
}
