package awsirsa

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/workloadid/workloadid/internal/address"
)

// policy is an IAM policy. IAM accepts its JSON.
type policy struct {
	Version   string
	Statement []statement
}

// statement is one statement of a policy. A trust policy has principals, an
// access policy has resources.
type statement struct {
	Sid       string `json:",omitempty"`
	Effect    string
	Principal map[string]oneOrMany `json:",omitempty"`
	Action    oneOrMany
	Resource  oneOrMany                       `json:",omitempty"`
	Condition map[string]map[string]oneOrMany `json:",omitempty"`
}

// oneOrMany encodes one value as a string in JSON, and several as a list.
type oneOrMany []string

// MarshalJSON implements json.Marshaler.
func (s oneOrMany) MarshalJSON() ([]byte, error) {
	if len(s) == 1 {
		return json.Marshal(s[0])
	}
	return json.Marshal([]string(s))
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *oneOrMany) UnmarshalJSON(content []byte) error {
	var one string
	if json.Unmarshal(content, &one) == nil {
		*s = oneOrMany{one}
		return nil
	}
	return json.Unmarshal(content, (*[]string)(s))
}

// json returns the policy in one line.
func (p policy) json() json.RawMessage {
	content, _ := json.Marshal(p) // strings always encode
	return content
}

// samePolicy reports whether a URL-encoded document of IAM has the effect of a
// policy. A document with more fields than ours differs.
func samePolicy(want json.RawMessage, document string) bool {
	text, err := url.PathUnescape(document)
	if err != nil {
		return false
	}
	a, errA := parsePolicy(string(want))
	b, errB := parsePolicy(text)
	return errA == nil && errB == nil && bytes.Equal(a.canonical(), b.canonical())
}

func parsePolicy(text string) (p policy, err error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	return p, decoder.Decode(&p)
}

// canonical returns the JSON without parts that have no effect: the names of
// statements, and the order of values.
func (p policy) canonical() json.RawMessage {
	p.Statement = slices.Clone(p.Statement)
	for i := range p.Statement {
		s := &p.Statement[i]
		s.Sid, s.Action, s.Resource = "", s.Action.sorted(), s.Resource.sorted()
	}
	return p.json()
}

func (s oneOrMany) sorted() oneOrMany { return slices.Sorted(slices.Values(s)) }

func allow(s statement) policy {
	s.Effect = "Allow"
	return policy{Version: policyVersion, Statement: []statement{s}}
}

const policyVersion = "2012-10-17"

// Role is an IAM role.
type Role struct {
	ARN string
	// Trust and Access are the trust policy and the access policy.
	Trust, Access json.RawMessage
	Tags          map[string]string
}

// Name returns the name of the role.
func (r Role) Name() string { return r.ARN[strings.LastIndexByte(r.ARN, '/')+1:] }

// Verify compares the role in IAM with the expected one. The access policy has
// to be an inline policy with the role's name. Verify calls only GetRole and
// GetRolePolicy.
func (r Role) Verify(ctx context.Context, c IAM) error {
	name := r.Name()
	out, err := c.GetRole(ctx, &iam.GetRoleInput{RoleName: &name})
	if err != nil || out.Role == nil {
		return fmt.Errorf("role %q cannot be read: %w%s", r.ARN, orEmpty(err), ifMissing(err, "; create it"))
	}
	var wrong []error
	if arn := aws.ToString(out.Role.Arn); arn != r.ARN {
		wrong = append(wrong,
			fmt.Errorf("its ARN is %q: use credentials of the right account, and a role without a path", arn))
	}
	if !samePolicy(r.Trust, aws.ToString(out.Role.AssumeRolePolicyDocument)) {
		wrong = append(wrong, errors.New("its trust policy differs: replace it"))
	}
	if !contains(tagsOf(out.Role), r.Tags) {
		wrong = append(wrong, fmt.Errorf("it lacks some of the tags %q: add them", r.Tags))
	}
	access, err := c.GetRolePolicy(ctx, &iam.GetRolePolicyInput{RoleName: &name, PolicyName: &name})
	switch {
	case err != nil:
		wrong = append(wrong, fmt.Errorf("its inline policy %q cannot be read: %w%s", name, err,
			ifMissing(err, "; add it, or check by hand that another policy allows the same")))
	case !samePolicy(r.Access, aws.ToString(access.PolicyDocument)):
		wrong = append(wrong, fmt.Errorf("its inline policy %q differs: replace it", name))
	}
	if len(wrong) > 0 {
		return fmt.Errorf("role %q: %w", r.ARN, errors.Join(wrong...))
	}
	return nil
}

// ifMissing returns a remedy if IAM says that the object does not exist.
func ifMissing(err error, remedy string) string {
	if hasCode(err, codeNoRole) {
		return remedy
	}
	return ""
}

const (
	agentNamespace    = "open-cluster-management-agent"
	hubServiceAccount = "system:serviceaccount:open-cluster-management-hub:registration-controller-sa"
)

// AgentRole returns the role of a managed cluster's agent. An administrator
// creates it before the agent starts. issuer is the https URL of the managed
// cluster's OIDC issuer. namespace is the namespace of the agent; "" means
// "open-cluster-management-agent". klusterlet names its Klusterlet; "" means
// "klusterlet".
func AgentRole(hub, managed ClusterARN, issuer, namespace, klusterlet string) (Role, error) {
	if err := checkPair(hub, managed); err != nil {
		return Role{}, err
	}
	trust := policy{Version: policyVersion}
	for _, agent := range []string{"registration", "work"} {
		account := "system:serviceaccount:" + cmp.Or(namespace, agentNamespace) + ":" +
			cmp.Or(klusterlet, DefaultKlusterlet) + "-" + agent + "-sa"
		statement, err := webIdentity(managed, issuer, account)
		if err != nil {
			return Role{}, err
		}
		trust.Statement = append(trust.Statement, statement)
	}
	access := allow(statement{Action: oneOrMany{"sts:AssumeRole"}, Resource: oneOrMany{GrantedRoleARN(hub, managed)}})
	return Role{ARN: AgentRoleARN(hub, managed), Trust: trust.json(), Access: access.json(), Tags: Tags(hub, managed)}, nil
}

// GrantedRole returns the role that the hub creates for an accepted cluster.
// Only the role of its agent may assume it.
func GrantedRole(hub, managed ClusterARN) Role {
	return Role{ARN: GrantedRoleARN(hub, managed), Trust: trustPolicy(hub, managed).json(),
		Access: accessPolicy(hub).json(), Tags: Tags(hub, managed)}
}

// trustPolicy lets the managed cluster's role assume the hub role if it carries
// the tags of the pair.
func trustPolicy(hub, managed ClusterARN) policy {
	tags := map[string]oneOrMany{}
	for key, value := range Tags(hub, managed) {
		tags["aws:PrincipalTag/"+key] = oneOrMany{value}
	}
	return allow(statement{Principal: map[string]oneOrMany{"AWS": {AgentRoleARN(hub, managed)}},
		Action:    oneOrMany{"sts:AssumeRole"},
		Condition: map[string]map[string]oneOrMany{"StringEquals": tags}})
}

func accessPolicy(hub ClusterARN) policy {
	return allow(statement{Action: oneOrMany{"eks:DescribeCluster", "eks:ListClusters"},
		Resource: oneOrMany{hub.String()}})
}

// HubRole returns the role of the hub itself. An administrator creates it
// before the hub starts. It permits exactly the calls of [HubDriver]. With
// AWSAuth it permits no call of EKS.
func HubRole(hub ClusterARN, issuer string, binding Binding) (Role, error) {
	arn, err := HubRoleARN(hub)
	if err != nil {
		return Role{}, err
	}
	trust, err := webIdentity(hub, issuer, hubServiceAccount)
	if err != nil {
		return Role{}, err
	}
	access := allow(statement{Resource: oneOrMany{roleARN(hub, grantedRolePrefix+"*")},
		Action: oneOrMany{"iam:CreateRole", "iam:DeleteRole",
			"iam:DeleteRolePolicy", "iam:GetRole", "iam:GetRolePolicy", "iam:PutRolePolicy", "iam:TagRole",
			"iam:UpdateAssumeRolePolicy"}})
	if binding == AccessEntries {
		entries := fmt.Sprintf("arn:%s:eks:%s:%s:access-entry/%s/role/%s/%s*", hub.Partition, hub.Region, hub.Account,
			hub.Name, hub.Account, grantedRolePrefix)
		access.Statement = append(access.Statement,
			// For the tags of a new entry, AWS does not document whether it
			// checks the name of the cluster or of the entry.
			statement{Effect: "Allow", Action: oneOrMany{"eks:CreateAccessEntry", "eks:TagResource"},
				Resource: oneOrMany{hub.String()}},
			statement{Effect: "Allow", Resource: oneOrMany{entries},
				Action: oneOrMany{"eks:DeleteAccessEntry", "eks:DescribeAccessEntry", "eks:TagResource", "eks:UpdateAccessEntry"}})
	}
	return Role{ARN: arn, Trust: allow(trust).json(), Access: access.json()}, nil
}

// webIdentity lets one ServiceAccount of a cluster assume a role.
func webIdentity(cluster ClusterARN, issuer, subject string) (statement, error) {
	const remedy = "use the https URL that aws eks describe-cluster shows as identity.oidc.issuer"
	if _, err := address.Parse("OIDC issuer", issuer, address.Path); err != nil {
		return statement{}, fmt.Errorf("%w; %s", err, remedy)
	}
	if strings.ContainsAny(issuer, `"*$`) { // they have a meaning in a policy
		return statement{}, errors.New("the OIDC issuer holds invalid characters; " + remedy)
	}
	provider := strings.TrimSuffix(strings.TrimPrefix(issuer, "https://"), "/")
	return statement{Effect: "Allow", Action: oneOrMany{"sts:AssumeRoleWithWebIdentity"},
		Principal: map[string]oneOrMany{
			"Federated": {"arn:" + cluster.Partition + ":iam::" + cluster.Account + ":oidc-provider/" + provider}},
		Condition: map[string]map[string]oneOrMany{"StringEquals": {provider + ":sub": {subject},
			provider + ":aud": {"sts.amazonaws.com"}}}}, nil
}
