package cloudtest

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/workloadid/workloadid/internal/awsname"
)

const (
	iamVersion   = "2010-05-08"
	iamNamespace = "https://iam.amazonaws.com/doc/2010-05-08/"
)

// iamRegion returns the region in signatures for a host of IAM. IAM has one
// endpoint for each partition.
func iamRegion(host string) string {
	switch host {
	case "iam.amazonaws.com", "iam.global.api.aws":
		return "us-east-1"
	case "iam.us-gov.amazonaws.com", "iam.us-gov.api.aws":
		return "us-gov-west-1"
	}
	if e, ok := awsname.ParseEndpoint(host, "iam"); ok {
		return e.Region
	}
	return ""
}

func isIAMHost(host string) bool { return iamRegion(host) != "" }

// serveIAM is the query API of IAM with the actions of iamCall.actions, for the
// caller's account. It does not imitate thumbprints, permission boundaries,
// managed policies, pages, or the last use of a role.
func (a *AWS) serveIAM(w http.ResponseWriter, r *http.Request, host string) {
	s := &stsCall{aws: a, w: w, r: r, host: host, namespace: iamNamespace}
	err := s.read()
	action := s.form.Get("Action")
	call := Call{Service: "iam", Action: action, Host: host, Parameters: s.parameters()}
	fault, ok := a.cloud.begin(w, r, call, func(f Fault) { s.fail(nil, &awsError{f.Status, f.Code, f.Message}) })
	if !ok {
		return
	}
	var result []node
	if err == nil {
		result, err = s.handleIAM(action)
	}
	if err != nil {
		s.fail(fault, err)
		return
	}
	answer := []node{element("ResponseMetadata", "", element("RequestId", s.requestID()))}
	if len(result) > 0 {
		answer = append([]node{element(action+"Result", "", result...)}, answer...)
	}
	s.send(fault, http.StatusOK, element(action+"Response", "", answer...))
}

// iamCall is an authorized request to IAM. The callers of its actions hold the
// lock.
type iamCall struct {
	*stsCall
	caller    accessKey
	partition string
	now       time.Time
}

func (c *iamCall) actions() map[string]func() ([]node, *awsError) {
	return map[string]func() ([]node, *awsError){
		"CreateRole": c.createRole, "GetRole": c.on(c.getRole), "DeleteRole": c.on(c.deleteRole),
		"UpdateAssumeRolePolicy": c.on(c.updateAssumeRolePolicy),
		"TagRole":                c.on(c.tagRole), "UntagRole": c.on(c.untagRole), "ListRoleTags": c.on(c.listRoleTags),
		"PutRolePolicy": c.on(c.putRolePolicy), "GetRolePolicy": c.on(c.getRolePolicy),
		"DeleteRolePolicy": c.on(c.deleteRolePolicy), "ListRolePolicies": c.on(c.listRolePolicies),
		"GetOpenIDConnectProvider": c.getOIDCProvider, "ListOpenIDConnectProviders": c.listOIDCProviders,
		"EnableOutboundWebIdentityFederation":  c.enableOutboundFederation,
		"GetOutboundWebIdentityFederationInfo": c.getOutboundFederation,
	}
}

func (s *stsCall) handleIAM(action string) ([]node, *awsError) {
	if v := s.form.Get("Version"); v != iamVersion {
		return nil, refuse(http.StatusBadRequest, "NoSuchVersion", "The requested version ( %s ) is not valid.", v)
	}
	caller, err := s.aws.authenticate(signedRequest{s.r, s.body, "iam", iamRegion(s.host)})
	if err != nil {
		return nil, err
	}
	partition, _ := awsname.PartitionOf(iamRegion(s.host))
	c := &iamCall{s, caller, partition.Name, s.aws.cloud.time()}
	answer := c.actions()[action]
	if answer == nil {
		return nil, refuse(http.StatusBadRequest, "InvalidAction", "Could not find operation %s for version %s", action,
			iamVersion)
	}
	if err := c.authorize(action); err != nil {
		return nil, err
	}
	s.aws.mu.Lock()
	defer s.aws.mu.Unlock()
	return answer()
}

// authorize checks the permissions of the action. Creating a role with tags
// also requires iam:TagRole.
func (c *iamCall) authorize(action string) *awsError {
	resource, shown := "*", "*"
	switch {
	case c.form.Has("RoleName"):
		c.aws.mu.Lock()
		resource, shown = c.roleARN(), "role "+c.form.Get("RoleName")
		c.aws.mu.Unlock()
	case c.form.Has("OpenIDConnectProviderArn"):
		resource = c.form.Get("OpenIDConnectProviderArn")
		shown = resource
	}
	actions := []string{action}
	if action == "CreateRole" && c.form.Has("Tags.member.1.Key") {
		actions = append(actions, "TagRole")
	}
	for _, action := range actions {
		if !c.aws.authorized(c.caller, "iam:"+action, resource) {
			return refuse(http.StatusForbidden, "AccessDenied",
				"User: %s is not authorized to perform: iam:%s on resource: %s because no identity-based policy allows the iam:%s action",
				c.caller.ARN, action, shown, action)
		}
	}
	return nil
}

// percentEncode is the encoding of RFC 3986, which IAM applies to policies.
func percentEncode(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

// document returns the trust policy in JSON.
func (t *Trust) document(arn string) []byte {
	parts := strings.SplitN(arn, ":", 6)
	host := strings.TrimPrefix(t.Issuer, "https://")
	type condition = map[string]map[string][]string
	statements := []map[string]any{}
	web := func(operator string, subjects []string) {
		c := condition{operator: {host + ":sub": subjects}}
		if len(t.Audiences) > 0 && c["StringEquals"] == nil {
			c["StringEquals"] = map[string][]string{}
		}
		if len(t.Audiences) > 0 {
			c["StringEquals"][host+":aud"] = t.Audiences
		}
		statements = append(statements, map[string]any{"Effect": "Allow", "Action": "sts:AssumeRoleWithWebIdentity",
			"Condition": c,
			"Principal": map[string]string{"Federated": "arn:" + parts[1] + ":iam::" + parts[4] + ":oidc-provider/" + host}})
	}
	if len(t.Subjects) > 0 {
		web("StringEquals", t.Subjects)
	}
	if len(t.SubjectPatterns) > 0 {
		web("StringLike", t.SubjectPatterns)
	}
	if len(t.Principals) > 0 {
		actions := []string{"sts:AssumeRole"}
		if t.TagSession {
			actions = append(actions, "sts:TagSession")
		}
		if t.SetSourceIdentity {
			actions = append(actions, "sts:SetSourceIdentity")
		}
		s := map[string]any{"Effect": "Allow", "Action": actions, "Principal": map[string]any{"AWS": t.Principals}}
		if t.ExternalID != "" {
			s["Condition"] = condition{"StringEquals": {"sts:ExternalId": {t.ExternalID}}}
		}
		statements = append(statements, s)
	}
	encoded, _ := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": statements}) // strings always encode
	return encoded
}

func (c *iamCall) getOIDCProvider() ([]node, *awsError) {
	arn := c.form.Get("OpenIDConnectProviderArn")
	name, ok := strings.CutPrefix(arn, "arn:"+c.partition+":iam::"+c.caller.account+":oidc-provider/")
	provider := c.aws.providers[c.caller.account+" https://"+name]
	if !ok || provider == nil {
		return nil, refuse(http.StatusNotFound, "NoSuchEntity", "OpenIDConnect Provider not found for arn %s", arn)
	}
	ids := []node{}
	for _, id := range provider.clientIDs {
		ids = append(ids, element("member", id))
	}
	return []node{element("Url", name), element("ClientIDList", "", ids...)}, nil
}

func (c *iamCall) listOIDCProviders() ([]node, *awsError) {
	members := []node{}
	for _, p := range c.aws.providers {
		if c.aws.providers[c.caller.account+" "+p.issuer] == p {
			members = append(members, element("member", "", element("Arn",
				"arn:"+c.partition+":iam::"+c.caller.account+":oidc-provider/"+strings.TrimPrefix(p.issuer, "https://"))))
		}
	}
	slices.SortFunc(members, func(a, b node) int { return strings.Compare(a.children[0].text, b.children[0].text) })
	return []node{element("OpenIDConnectProviderList", "", members...)}, nil
}
