package authtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/workloadid/workloadid/internal/awsname"
)

const (
	iamVersion   = "2010-05-08"
	iamNamespace = "https://iam.amazonaws.com/doc/2010-05-08/"
)

// iamRegion is the one in which requests to a host of IAM are signed. IAM has one endpoint for each partition.
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

// serveIAM is the query API of IAM. Of its actions it has GetRole, GetOpenIDConnectProvider and ListOpenIDConnectProviders;
// they say what SetRole and AddOIDCProvider have set, of the caller's account. Thumbprints, tags, permission boundaries,
// dates and IDs are not imitated, and whatever is not denied (Deny) is allowed.
func (a *AWS) serveIAM(w http.ResponseWriter, r *http.Request, host string) {
	s := &stsCall{aws: a, w: w, r: r, host: host, namespace: iamNamespace}
	err := s.read()
	action := s.form.Get("Action")
	call := Call{Service: "iam", Action: action, Host: host, Parameters: s.parameters()}
	fault, ok := a.cloud.begin(w, r, call, func(f Fault) { s.fail(nil, &awsError{f.Status, f.Code, f.Message}) })
	if !ok {
		return
	}
	var result node
	if err == nil {
		result, err = s.handleIAM(action)
	}
	if err != nil {
		s.fail(fault, err)
		return
	}
	s.send(fault, http.StatusOK, element(action+"Response", "",
		result, element("ResponseMetadata", "", element("RequestId", s.requestID()))))
}

func (s *stsCall) handleIAM(action string) (node, *awsError) {
	if v := s.form.Get("Version"); v != iamVersion {
		return node{}, refuse(http.StatusBadRequest, "NoSuchVersion", "The requested version ( %s ) is not valid.", v)
	}
	caller, err := s.aws.authenticate(signedRequest{s.r, s.body, "iam", iamRegion(s.host)})
	if err != nil {
		return node{}, err
	}
	partition, _ := awsname.PartitionOf(iamRegion(s.host))
	resource, answer := "*", s.listOIDCProviders
	switch action {
	case "GetRole":
		resource, answer = "role "+s.form.Get("RoleName"), s.getRole
	case "GetOpenIDConnectProvider":
		resource, answer = s.form.Get("OpenIDConnectProviderArn"), s.getOIDCProvider
	case "ListOpenIDConnectProviders":
	default:
		return node{}, refuse(http.StatusBadRequest, "InvalidAction", "Could not find operation %s for version %s", action,
			iamVersion)
	}
	if s.aws.isDenied(caller.Identity, "iam:"+action) {
		return node{}, refuse(http.StatusForbidden, "AccessDenied",
			"User: %s is not authorized to perform: iam:%s on resource: %s because no identity-based policy allows the iam:%s action",
			caller.ARN, action, resource, action)
	}
	return answer(partition.Name, caller.account)
}

func (s *stsCall) getRole(partition, account string) (node, *awsError) {
	name := s.form.Get("RoleName")
	s.aws.mu.Lock()
	defer s.aws.mu.Unlock()
	for arn, trust := range s.aws.roles {
		resource, ok := strings.CutPrefix(arn, "arn:"+partition+":iam::"+account+":role/")
		if !ok || resource[strings.LastIndexByte(resource, '/')+1:] != name {
			continue
		}
		path := "/" + resource[:len(resource)-len(name)]
		return element("GetRoleResult", "", element("Role", "", element("Path", path), element("RoleName", name),
			element("Arn", arn),
			element("AssumeRolePolicyDocument", percentEncode(string(trust.document(arn)))),
			element("MaxSessionDuration", fmt.Sprint(int(trust.maxSession().Seconds()))))), nil
	}
	return node{}, refuse(http.StatusNotFound, "NoSuchEntity", "The role with name %s cannot be found.", name)
}

// percentEncode is the encoding of RFC 3986, in which IAM hands out policies.
func percentEncode(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }

// document is the trust policy. A role that is to be assumed without a token has statements of that kind, too.
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
		s := map[string]any{"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": map[string]any{"AWS": t.Principals}}
		if t.ExternalID != "" {
			s["Condition"] = condition{"StringEquals": {"sts:ExternalId": {t.ExternalID}}}
		}
		statements = append(statements, s)
	}
	encoded, _ := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": statements}) // strings always encode
	return encoded
}

func (s *stsCall) getOIDCProvider(partition, account string) (node, *awsError) {
	arn := s.form.Get("OpenIDConnectProviderArn")
	name, ok := strings.CutPrefix(arn, "arn:"+partition+":iam::"+account+":oidc-provider/")
	s.aws.mu.Lock()
	defer s.aws.mu.Unlock()
	provider := s.aws.providers[account+" https://"+name]
	if !ok || provider == nil {
		return node{}, refuse(http.StatusNotFound, "NoSuchEntity", "OpenIDConnect Provider not found for arn %s", arn)
	}
	ids := []node{}
	for _, id := range provider.clientIDs {
		ids = append(ids, element("member", id))
	}
	return element("GetOpenIDConnectProviderResult", "", element("Url", name), element("ClientIDList", "", ids...)), nil
}

func (s *stsCall) listOIDCProviders(partition, account string) (node, *awsError) {
	s.aws.mu.Lock()
	defer s.aws.mu.Unlock()
	members := []node{}
	for _, p := range s.aws.providers {
		if s.aws.providers[account+" "+p.issuer] == p {
			members = append(members, element("member", "", element("Arn",
				"arn:"+partition+":iam::"+account+":oidc-provider/"+strings.TrimPrefix(p.issuer, "https://"))))
		}
	}
	slices.SortFunc(members, func(a, b node) int { return strings.Compare(a.children[0].text, b.children[0].text) })
	return element("ListOpenIDConnectProvidersResult", "", element("OpenIDConnectProviderList", "", members...)), nil
}
