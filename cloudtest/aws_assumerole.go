package cloudtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// refuses returns the first action of the session that the caller may not do
// with the role, or "". The trust policy and the caller's own policies must
// both allow each action. Within an account, the trust policy suffices if it
// names the caller itself.
func (s *stsCall) refuses(caller accessKey, target role, wanted Identity) (action string) {
	asked := access{resource: target.arn, kind: "AWS", context: s.aws.contextOf(caller)}
	partition, account := strings.SplitN(caller.ARN, ":", 3)[1], strings.SplitN(target.arn, ":", 6)[4]
	asked.names = []string{caller.principalID(), caller.ARN, firstOf(caller.RoleARN, caller.ARN)}
	asked.groups = []string{"*", caller.account, "arn:" + partition + ":iam::" + caller.account + ":root"}
	asked.context["sts:rolesessionname"] = []string{s.form.Get("RoleSessionName")}
	if s.form.Has("ExternalId") {
		asked.context["sts:externalid"] = []string{s.form.Get("ExternalId")}
	}
	for key, value := range wanted.Tags {
		asked.context["aws:requesttag/"+strings.ToLower(key)] = []string{value}
	}
	actions := []string{"sts:AssumeRole"}
	if len(wanted.Tags) > 0 {
		actions = append(actions, "sts:TagSession")
	}
	if wanted.SourceIdentity != "" {
		actions = append(actions, "sts:SetSourceIdentity")
	}
	for _, asked.action = range actions {
		trust, own := target.trust.decide(asked), s.aws.identityDecision(caller, asked)
		named := trust == allowedByName && caller.account == account && own != denied
		if !named && (trust == silent || trust == denied || own != allowed) {
			return asked.action
		}
	}
	return ""
}

func notAuthorized(caller accessKey, action, resource string) *awsError {
	return refuse(http.StatusForbidden, "AccessDenied",
		"User: %s is not authorized to perform: %s on resource: %s", caller.ARN, action, resource)
}

// inherit copies the source identity, which cannot change, and the transitive
// tags of the previous session.
func (id *Identity) inherit(before Identity) bool {
	if before.SourceIdentity != "" {
		if id.SourceIdentity != "" && id.SourceIdentity != before.SourceIdentity {
			return false
		}
		id.SourceIdentity = before.SourceIdentity
	}
	for _, key := range before.TransitiveTagKeys {
		id.Tags[key] = before.Tags[key]
		if !slices.Contains(id.TransitiveTagKeys, key) {
			id.TransitiveTagKeys = append(id.TransitiveTagKeys, key)
		}
	}
	return true
}

// sessionParameters reads and checks the parameters of AssumeRole that shape
// the session. It does not imitate managed policies (PolicyArns), MFA and
// ProvidedContexts.
func (s *stsCall) sessionParameters() (Identity, *awsError) {
	id := Identity{Tags: map[string]string{}, SourceIdentity: s.form.Get("SourceIdentity")}
	for _, rule := range []struct {
		name, pattern string
		min, max      int
	}{
		{"ExternalId", `[\w+=,.@:\/-]*`, 2, 1224},
		{"SourceIdentity", `[\w+=,.@-]*`, 2, 64},
		{"Policy", `[\s\S]*`, 1, 2048},
	} {
		if err := s.checkLength(rule.name, rule.pattern, rule.min, rule.max); err != nil {
			return id, err
		}
	}
	if policy := s.form.Get("Policy"); policy != "" && !json.Valid([]byte(policy)) {
		return id, refuse(http.StatusBadRequest, "MalformedPolicyDocument", "The policy is not in the valid JSON format.")
	}
	if err := s.readTags(&id); err != nil {
		return id, err
	}
	return id, s.readTransitive(&id)
}

const maxTags = 50

func (s *stsCall) readTags(id *Identity) *awsError {
	const key, value = `[\p{L}\p{Z}\p{N}_.:/=+\-@]+`, `[\p{L}\p{Z}\p{N}_.:/=+\-@]*`
	seen := map[string]bool{}
	for n := 1; s.form.Has(fmt.Sprintf("Tags.member.%d.Key", n)); n++ {
		member := fmt.Sprintf("Tags.member.%d.", n)
		if n > maxTags {
			return refuse(http.StatusBadRequest, "ValidationError", "1 validation error detected: Value at 'tags' failed to "+
				"satisfy constraint: Member must have length less than or equal to %d", maxTags)
		}
		if err := s.checkLength(member+"Key", key, 1, 128); err != nil {
			return err
		}
		if err := s.checkLength(member+"Value", value, 0, 256); err != nil {
			return err
		}
		name := s.form.Get(member + "Key")
		switch folded := strings.ToLower(name); {
		case strings.HasPrefix(folded, "aws:"):
			return refuse(http.StatusBadRequest, "ValidationError", "Tag keys must not begin with aws:")
		case seen[folded]:
			return refuse(http.StatusBadRequest, "InvalidParameterValue",
				"Duplicate tag keys found. Please note that Tag keys are case insensitive.")
		default:
			seen[folded] = true
		}
		id.Tags[name] = s.form.Get(member + "Value")
	}
	return nil
}

func (s *stsCall) readTransitive(id *Identity) *awsError {
	for n := 1; s.form.Has(fmt.Sprintf("TransitiveTagKeys.member.%d", n)); n++ {
		key := s.form.Get(fmt.Sprintf("TransitiveTagKeys.member.%d", n))
		if _, ok := id.Tags[key]; !ok {
			return refuse(http.StatusBadRequest, "ValidationError",
				"The specified transitive tag key must be included in the requested tags.")
		}
		id.TransitiveTagKeys = append(id.TransitiveTagKeys, key)
	}
	return nil
}
