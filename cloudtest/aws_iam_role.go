package cloudtest

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// roleARN returns the ARN of the role in the request, which may not exist yet.
func (c *iamCall) roleARN() string {
	if r := c.named(); r != nil {
		return r.arn
	}
	return c.accountRoles() + c.path() + c.form.Get("RoleName")
}

func (c *iamCall) accountRoles() string {
	return "arn:" + c.partition + ":iam::" + c.caller.account + ":role"
}

func (c *iamCall) path() string { return firstOf(c.form.Get("Path"), "/") }

// named ignores case, because the names of two roles must not differ in case
// alone.
func (c *iamCall) named() *role {
	prefix, name := c.accountRoles()+"/", c.form.Get("RoleName")
	if r := c.aws.roles[prefix+name]; r != nil {
		return r
	}
	for arn, r := range c.aws.roles {
		if strings.HasPrefix(arn, prefix) && strings.EqualFold(r.name(), name) {
			return r
		}
	}
	return nil
}

func noSuchEntity(format, name string) *awsError {
	return refuse(http.StatusNotFound, "NoSuchEntity", format, name)
}

// on returns an action that passes the role of the request to do.
func (c *iamCall) on(do func(*role) ([]node, *awsError)) func() ([]node, *awsError) {
	return func() ([]node, *awsError) {
		r := c.named()
		if r == nil {
			return nil, noSuchEntity("The role with name %s cannot be found.", c.form.Get("RoleName"))
		}
		return do(r)
	}
}

func (c *iamCall) createRole() ([]node, *awsError) {
	r := newRole(c.accountRoles() + c.path() + c.form.Get("RoleName"))
	r.description, r.created = c.form.Get("Description"), c.now
	r.visibleFrom, r.unseen = c.now.Add(c.aws.delay), c.aws.delayedCalls
	if err := c.readRole(r); err != nil {
		return nil, err
	}
	if err := c.setTrust(r, c.form.Get("AssumeRolePolicyDocument")); err != nil {
		return nil, err
	}
	if c.named() != nil {
		return nil, refuse(http.StatusConflict, "EntityAlreadyExists", "Role with name %s already exists.",
			c.form.Get("RoleName"))
	}
	c.aws.roles[r.arn] = r
	return []node{c.describe(r)}, nil
}

func (c *iamCall) readRole(r *role) *awsError {
	if !c.form.Has("RoleName") {
		return invalidParameter("null", "roleName", "Member must not be null")
	}
	for _, rule := range []struct {
		name, pattern string
		min, max      int
	}{
		{"RoleName", `[\w+=,.@-]+`, 1, 64},
		{"Path", `/|/[\x21-\x7E]+/`, 1, 512},
		{"Description", `[\t\n\r\x20-\x7E\xA1-\x{FF}]*`, 0, 1000},
	} {
		if err := c.checkLength(rule.name, rule.pattern, rule.min, rule.max); err != nil {
			return err
		}
	}
	if text := c.form.Get("MaxSessionDuration"); text != "" {
		seconds, err := strconv.Atoi(text)
		if err != nil || seconds < 3600 || seconds > 43200 {
			return invalidParameter(text, "maxSessionDuration", "Member must have value between 3600 and 43200")
		}
		r.maxSession = time.Duration(seconds) * time.Second
	}
	return c.addTags(r)
}

func (c *iamCall) setTrust(r *role, document string) *awsError {
	parsed, err := parsePolicy(document, checkTrust)
	if err != nil {
		return err
	}
	bound, err := c.aws.bind(parsed, c.now)
	if err != nil {
		return err
	}
	r.trust, r.document, r.bound = parsed, document, bound
	return nil
}

func (c *iamCall) updateAssumeRolePolicy(r *role) ([]node, *awsError) {
	return nil, c.setTrust(r, c.form.Get("PolicyDocument"))
}

func (c *iamCall) getRole(r *role) ([]node, *awsError) {
	return []node{c.describe(r)}, nil
}

func (c *iamCall) describe(r *role) node {
	path := strings.TrimPrefix(r.arn[:len(r.arn)-len(r.name())], c.accountRoles())
	d := []node{element("Path", path), element("RoleName", r.name()), element("RoleId", r.id), element("Arn", r.arn),
		element("CreateDate", r.created.UTC().Format(time.RFC3339)),
		element("AssumeRolePolicyDocument", percentEncode(c.aws.shownDocument(r))),
		element("MaxSessionDuration", fmt.Sprint(int(r.maxSession.Seconds())))}
	if r.description != "" {
		d = append(d, element("Description", r.description))
	}
	if len(r.tags) > 0 {
		d = append(d, tagList(r))
	}
	return element("Role", "", d...)
}

// deleteRole requires that the inline policies are deleted, but not the tags.
func (c *iamCall) deleteRole(r *role) ([]node, *awsError) {
	if len(r.policies) > 0 {
		return nil, refuse(http.StatusConflict, "DeleteConflict", "Cannot delete entity, must delete policies first.")
	}
	delete(c.aws.roles, r.arn)
	return nil, nil
}

// addTags replaces tags whose keys differ only in case.
func (c *iamCall) addTags(r *role) *awsError {
	added := Identity{Tags: map[string]string{}}
	if err := c.readTags(&added); err != nil {
		if err.code == "InvalidParameterValue" {
			err.code = "InvalidInput"
		}
		return err
	}
	tags := maps.Clone(r.tags)
	for key, value := range added.Tags {
		maps.DeleteFunc(tags, func(old, _ string) bool { return strings.EqualFold(old, key) })
		tags[key] = value
	}
	if len(tags) > maxTags {
		return refuse(http.StatusConflict, "LimitExceeded", "The number of tags has reached the maximum limit.")
	}
	r.tags = tags
	return nil
}

func (c *iamCall) tagRole(r *role) ([]node, *awsError) { return nil, c.addTags(r) }

func (c *iamCall) untagRole(r *role) ([]node, *awsError) {
	r.tags = maps.Clone(r.tags)
	for n := 1; c.form.Has(fmt.Sprintf("TagKeys.member.%d", n)); n++ {
		key := c.form.Get(fmt.Sprintf("TagKeys.member.%d", n))
		maps.DeleteFunc(r.tags, func(old, _ string) bool { return strings.EqualFold(old, key) })
	}
	return nil, nil
}

func (c *iamCall) listRoleTags(r *role) ([]node, *awsError) {
	return []node{element("IsTruncated", "false"), tagList(r)}, nil
}

func tagList(r *role) node {
	members := []node{}
	for _, key := range slices.Sorted(maps.Keys(r.tags)) {
		members = append(members, element("member", "", element("Key", key), element("Value", r.tags[key])))
	}
	return element("Tags", "", members...)
}

func (c *iamCall) putRolePolicy(r *role) ([]node, *awsError) {
	if err := c.checkLength("PolicyName", `[\w+=,.@-]+`, 1, 128); err != nil {
		return nil, err
	}
	name, document := c.form.Get("PolicyName"), c.form.Get("PolicyDocument")
	parsed, err := parsePolicy(document, checkIdentity)
	if err != nil {
		return nil, err
	}
	r.policies[name] = inlinePolicy{document, parsed}
	return nil, nil
}

func noSuchPolicy(name string) *awsError {
	return noSuchEntity("The role policy with name %s cannot be found.", name)
}

func (c *iamCall) getRolePolicy(r *role) ([]node, *awsError) {
	name := c.form.Get("PolicyName")
	p, ok := r.policies[name]
	if !ok {
		return nil, noSuchPolicy(name)
	}
	return []node{element("RoleName", r.name()), element("PolicyName", name),
		element("PolicyDocument", percentEncode(p.document))}, nil
}

func (c *iamCall) listRolePolicies(r *role) ([]node, *awsError) {
	members := []node{}
	for _, name := range slices.Sorted(maps.Keys(r.policies)) {
		members = append(members, element("member", name))
	}
	return []node{element("IsTruncated", "false"), element("PolicyNames", "", members...)}, nil
}

func (c *iamCall) deleteRolePolicy(r *role) ([]node, *awsError) {
	name := c.form.Get("PolicyName")
	if _, ok := r.policies[name]; !ok {
		return nil, noSuchPolicy(name)
	}
	delete(r.policies, name)
	return nil, nil
}
