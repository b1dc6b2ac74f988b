package awsirsa

import (
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

// Policy is an IAM policy. IAM accepts its JSON.
type Policy struct {
	Version   string
	Statement []Statement
}

// Statement is one statement of a Policy. A trust policy has principals, an access policy has resources.
type Statement struct {
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

// JSON returns the policy in one line.
func (p Policy) JSON() string {
	content, _ := json.Marshal(p) // strings always encode
	return string(content)
}

// equals reports whether a document of IAM, which is URL-encoded, says the same. One that says more than a Policy can does not.
func (p Policy) equals(document string) bool {
	text, err := url.PathUnescape(document)
	if err != nil {
		return false
	}
	var other Policy
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(&other) == nil && p.canonical() == other.canonical()
}

// canonical is the JSON without what has no effect: the names of statements, and the order of values.
func (p Policy) canonical() string {
	p.Statement = slices.Clone(p.Statement)
	for i := range p.Statement {
		s := &p.Statement[i]
		s.Sid, s.Action, s.Resource = "", s.Action.sorted(), s.Resource.sorted()
	}
	return p.JSON()
}

func (s oneOrMany) sorted() oneOrMany { return slices.Sorted(slices.Values(s)) }

func allow(s Statement) Policy {
	s.Effect = "Allow"
	return Policy{Version: policyVersion, Statement: []Statement{s}}
}

const policyVersion = "2012-10-17"

// TrustPolicy returns the trust policy of the hub role. The managed cluster's role may assume it if it carries the tags of the pair.
func TrustPolicy(hub, managed ClusterARN) Policy {
	tags := map[string]oneOrMany{}
	for key, value := range Tags(hub, managed) {
		tags["aws:PrincipalTag/"+key] = oneOrMany{value}
	}
	return allow(Statement{Principal: map[string]oneOrMany{"AWS": {ManagedRoleARN(hub, managed)}}, Action: oneOrMany{"sts:AssumeRole"},
		Condition: map[string]map[string]oneOrMany{"StringEquals": tags}})
}

// AccessPolicy returns the access policy of the hub role.
func AccessPolicy(hub ClusterARN) Policy {
	return allow(Statement{Action: oneOrMany{"eks:DescribeCluster", "eks:ListClusters"}, Resource: oneOrMany{hub.String()}})
}

// Role is an IAM role that an administrator creates before agent or hub start.
type Role struct {
	ARN           string
	Trust, Access Policy
	Tags          map[string]string
}

// Name returns the name of the role.
func (r Role) Name() string { return r.ARN[strings.LastIndexByte(r.ARN, '/')+1:] }

// Verify compares the role in IAM with what it should be. The access policy has to be an inline policy of the role's own name. It needs iam:GetRole and iam:GetRolePolicy.
func (r Role) Verify(ctx context.Context, c RoleReader) error {
	name := r.Name()
	out, err := c.GetRole(ctx, &iam.GetRoleInput{RoleName: &name})
	if err != nil || out.Role == nil {
		return fmt.Errorf("role %q cannot be read: %w%s", r.ARN, orEmpty(err), ifMissing(err, "; create it"))
	}
	var wrong []error
	if arn := aws.ToString(out.Role.Arn); arn != r.ARN {
		wrong = append(wrong, fmt.Errorf("its ARN is %q: use credentials of the right account, and a role without a path", arn))
	}
	if !r.Trust.equals(aws.ToString(out.Role.AssumeRolePolicyDocument)) {
		wrong = append(wrong, errors.New("its trust policy differs: replace it"))
	}
	if !contains(tagsOf(out.Role), r.Tags) {
		wrong = append(wrong, fmt.Errorf("it lacks some of the tags %q: add them", r.Tags))
	}
	access, err := c.GetRolePolicy(ctx, &iam.GetRolePolicyInput{RoleName: &name, PolicyName: &name})
	switch {
	case err != nil:
		wrong = append(wrong, fmt.Errorf("its inline policy %q cannot be read: %w%s", name, err, ifMissing(err, "; add it, or check by hand that another policy allows the same")))
	case !r.Access.equals(aws.ToString(access.PolicyDocument)):
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

// RoleReader are the calls of *iam.Client that Verify makes.
type RoleReader interface {
	GetRole(context.Context, *iam.GetRoleInput, ...func(*iam.Options)) (*iam.GetRoleOutput, error)
	GetRolePolicy(context.Context, *iam.GetRolePolicyInput, ...func(*iam.Options)) (*iam.GetRolePolicyOutput, error)
}

// Defaults of AgentRole.
const (
	defaultAgentNamespace = "open-cluster-management-agent"
	DefaultKlusterlet     = "klusterlet"
	hubServiceAccount     = "system:serviceaccount:open-cluster-management-hub:registration-controller-sa"
)

// AgentRole returns the role of a managed cluster's agent. issuer is the https URL of the managed cluster's OIDC issuer. klusterlet
// names its Klusterlet; "" means DefaultKlusterlet.
func AgentRole(hub, managed ClusterARN, issuer, klusterlet string) (Role, error) {
	if err := checkPair(hub, managed); err != nil {
		return Role{}, err
	}
	if klusterlet == "" {
		klusterlet = DefaultKlusterlet
	}
	trust := Policy{Version: policyVersion}
	for _, agent := range []string{"registration", "work"} {
		statement, err := webIdentity(managed, issuer, "system:serviceaccount:"+defaultAgentNamespace+":"+klusterlet+"-"+agent+"-sa")
		if err != nil {
			return Role{}, err
		}
		trust.Statement = append(trust.Statement, statement)
	}
	access := allow(Statement{Action: oneOrMany{"sts:AssumeRole"}, Resource: oneOrMany{HubRoleARN(hub, managed)}})
	return Role{ARN: ManagedRoleARN(hub, managed), Trust: trust, Access: access, Tags: Tags(hub, managed)}, nil
}

// HubRole returns the role of the hub. It permits exactly the calls of HubDriver: with AWSAuth no call of EKS.
func HubRole(hub ClusterARN, issuer string, binding Binding) (Role, error) {
	arn, err := IdentityCreatorRoleARN(hub)
	if err != nil {
		return Role{}, err
	}
	statement, err := webIdentity(hub, issuer, hubServiceAccount)
	if err != nil {
		return Role{}, err
	}
	access := allow(Statement{Resource: oneOrMany{roleARN(hub, hubRolePrefix+"*")}, Action: oneOrMany{"iam:CreateRole", "iam:DeleteRole",
		"iam:DeleteRolePolicy", "iam:GetRole", "iam:GetRolePolicy", "iam:PutRolePolicy", "iam:TagRole", "iam:UpdateAssumeRolePolicy"}})
	if binding == AccessEntries {
		entries := fmt.Sprintf("arn:%s:eks:%s:%s:access-entry/%s/role/%s/%s*", hub.Partition, hub.Region, hub.Account, hub.Name, hub.Account, hubRolePrefix)
		access.Statement = append(access.Statement,
			// The tags of a new entry: AWS does not document whether the cluster's or the entry's name is checked.
			Statement{Effect: "Allow", Action: oneOrMany{"eks:CreateAccessEntry", "eks:TagResource"}, Resource: oneOrMany{hub.String()}},
			Statement{Effect: "Allow", Resource: oneOrMany{entries},
				Action: oneOrMany{"eks:DeleteAccessEntry", "eks:DescribeAccessEntry", "eks:TagResource", "eks:UpdateAccessEntry"}})
	}
	return Role{ARN: arn, Trust: allow(statement), Access: access}, nil
}

// webIdentity lets one ServiceAccount of a cluster assume a role.
func webIdentity(cluster ClusterARN, issuer, subject string) (Statement, error) {
	const remedy = "use the https URL that aws eks describe-cluster shows as identity.oidc.issuer"
	if _, err := address.Parse("OIDC issuer", issuer, address.Path); err != nil {
		return Statement{}, fmt.Errorf("%w; %s", err, remedy)
	}
	if strings.ContainsAny(issuer, `"*$`) { // they mean something in a policy
		return Statement{}, errors.New("the OIDC issuer holds invalid characters; " + remedy)
	}
	provider := strings.TrimSuffix(strings.TrimPrefix(issuer, "https://"), "/")
	return Statement{Effect: "Allow", Action: oneOrMany{"sts:AssumeRoleWithWebIdentity"},
		Principal: map[string]oneOrMany{"Federated": {"arn:" + cluster.Partition + ":iam::" + cluster.Account + ":oidc-provider/" + provider}},
		Condition: map[string]map[string]oneOrMany{"StringEquals": {provider + ":sub": {subject}, provider + ":aud": {"sts.amazonaws.com"}}}}, nil
}
