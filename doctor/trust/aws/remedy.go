package aws

import (
	"encoding/json"
	"strings"

	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/reading"
	"github.com/workloadid/workloadid/internal/annotation"
	"github.com/workloadid/workloadid/internal/shell"
)

const defaultAudience = "sts.amazonaws.com"

// correctRole is the remedy for an annotation that names the wrong role.
func (t *target) correctRole(when string) doctor.Remedy {
	return doctor.Do(when, reading.Annotate(t.TrustQuery, annotation.AWSRoleARN+"=arn:"+t.role.Partition+":iam::"+t.role.Account+":role/NAME"))
}

// noRole is the finding of a role that IAM does not know.
func (t *target) noRole() doctor.Finding {
	return doctor.Failed("A1", t.correctRole("Correct the annotation, or create the role:"),
		"Role %s does not exist in account %s.", t.role.Name, t.role.Account)
}

// otherPath is the finding of a role that has another path than the annotation says. STS refuses its ARN.
func (t *target) otherPath(arn string) doctor.Finding {
	return doctor.Failed("A1", doctor.Do("Correct the annotation:", reading.Annotate(t.TrustQuery, annotation.AWSRoleARN+"="+arn)),
		"The ARN of role %s has another path.", t.role.Name).Compare("annotation", t.role.String(), "account", arn)
}

// orAdmit adds the commands that add a statement to the trust policy.
func (t *target) orAdmit(r doctor.Remedy) doctor.Remedy {
	statement, ok := t.statement()
	if !ok {
		return r
	}
	program := ".Statement = ([.Statement, " + statement + "] | flatten)"
	return r.OrTrust(reading.IfMeant(t.TrustQuery),
		t.showRole()+" --query Role.AssumeRolePolicyDocument --output json > old.json",
		"jq "+shell.Word(program, "PROGRAM")+" old.json > new.json",
		"aws iam update-assume-role-policy --role-name "+shell.Word(t.role.Name, "ROLE_NAME")+" --policy-document file://new.json")
}

// statement admits this token only. It reports false for an issuer or a subject that a policy cannot name literally. A token with
// another audience than the default must not make the policy trust that audience.
func (t *target) statement() (string, bool) {
	special := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("*?$", r) }
	if strings.ContainsFunc(t.host+t.Claims.Subject, special) || t.Claims.Subject == "" {
		return "", false
	}
	encoded, err := json.Marshal(map[string]any{"Effect": "Allow", "Action": webIdentityAction,
		"Principal": map[string]string{"Federated": t.providerARN()},
		"Condition": map[string]any{"StringEquals": map[string]string{t.host + ":sub": t.Claims.Subject, t.host + ":aud": t.audience()}}})
	return string(encoded), err == nil
}

// audience returns the token's audience if a cloud may trust it without a second look, else a word to fill in.
func (t *target) audience() string {
	if a := t.Claims.Audiences; len(a) == 1 && a[0] == defaultAudience {
		return defaultAudience
	}
	return "AUDIENCE"
}
