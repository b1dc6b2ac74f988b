package aws

import (
	"strings"

	awsauth "github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/cause"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
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

// annotate returns the command that changes an annotation of the
// ServiceAccount: "key=value", or "key-" to remove it.
func (t *target) annotate(change string) string {
	return t.Fill("kubectl annotate sa -n NAMESPACE SERVICE_ACCOUNT --overwrite ") + shell.Word(change, "KEY=VALUE")
}

// correctRole is the remedy for an annotation that names the wrong role.
func (t *target) correctRole(when string) doctor.Remedy {
	return doctor.Do(when, t.annotate(annotation.AWSRoleARN+"=arn:"+t.role.Partition+":iam::"+t.role.Account+":role/NAME"))
}

// otherPath is the finding of a role with another path than the annotation
// says. STS refuses its ARN.
func (t *target) otherPath(arn string) doctor.Finding {
	return doctor.Failed(cause.TrustPolicyRefusesSubject,
		doctor.Do("Correct the annotation:", t.annotate(annotation.AWSRoleARN+"="+arn)),
		"The ARN of role %s has another path.", t.role.Name).Compare("annotation", t.role.String(), "account", arn)
}

// refused is a finding of the trust policy. The alternative adds a statement
// that admits this token only.
func (t *target) refused(says string) doctor.Finding {
	known, remedy := cause.ClassFor("aws", cause.TrustPolicyRefusesSubject), t.correctRole("If the role is wrong:")
	remedy.Or = doctor.Advice(&known, t.TrustQuery).Or
	return doctor.Failed(cause.TrustPolicyRefusesSubject, remedy, "The trust policy of role %s %s", t.role.Name, says)
}
