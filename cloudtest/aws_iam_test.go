package cloudtest_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	ststypes "github.com/aws/aws-sdk-go-v2/service/sts/types"

	"github.com/workloadid/workloadid/cloudtest"
)

const (
	hubAccount = "210987654321"
	hubCluster = "arn:aws:eks:eu-central-1:" + hubAccount + ":cluster/hub"
	agentRole  = "arn:aws:iam::" + account + ":role/agent"
	hubRole    = "arn:aws:iam::" + hubAccount + ":role/ocm-hub-1"
	anyone     = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"*"},"Action":"sts:AssumeRole"}]}`
)

// hubEnvironment has an administrator in each of two accounts, and the hub's
// EKS cluster in the second.
type hubEnvironment struct {
	environment
	admin, hubAdmin aws.CredentialsProvider
}

func newHubEnvironment(t *testing.T) hubEnvironment {
	t.Helper()
	w := hubEnvironment{environment: newEnvironment(t)}
	w.admin, w.hubAdmin = w.user(account), w.user(hubAccount)
	w.Cloud.AWS().SetEKSCluster(cloudtest.EKSCluster{ARN: hubCluster})
	return w
}

func (w hubEnvironment) user(account string) aws.CredentialsProvider {
	id, secret := w.Cloud.AWS().AddUser(account, "admin")
	return credentials.NewStaticCredentialsProvider(id, secret, "")
}

func (w hubEnvironment) iam(creds aws.CredentialsProvider) *iam.Client {
	return iam.New(iam.Options{Region: "eu-central-1", HTTPClient: w.Cloud.Client(), Credentials: creds,
		RetryMaxAttempts: 1})
}

func (w hubEnvironment) eks(creds aws.CredentialsProvider) *eks.Client {
	return eks.New(eks.Options{Region: "eu-central-1", HTTPClient: w.Cloud.Client(), Credentials: creds,
		RetryMaxAttempts: 1})
}

func tags(pairs ...string) (list []iamtypes.Tag) {
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, iamtypes.Tag{Key: &pairs[i], Value: &pairs[i+1]})
	}
	return list
}

func (w hubEnvironment) createRole(t *testing.T, creds aws.CredentialsProvider, name, trust string,
	tags ...iamtypes.Tag) *iamtypes.Role {
	t.Helper()
	out, err := w.iam(creds).CreateRole(t.Context(),
		&iam.CreateRoleInput{RoleName: &name, AssumeRolePolicyDocument: &trust, Tags: tags})
	if err != nil {
		t.Fatal(err)
	}
	return out.Role
}

func (w hubEnvironment) putPolicy(t *testing.T, creds aws.CredentialsProvider, role, effect, action, resource string) {
	t.Helper()
	document := fmt.Sprintf(`{"Version":"2012-10-17","Statement":{"Effect":%q,"Action":%q,"Resource":%q}}`, effect, action,
		resource)
	_, err := w.iam(creds).PutRolePolicy(t.Context(),
		&iam.PutRolePolicyInput{RoleName: &role, PolicyName: aws.String(effect), PolicyDocument: &document})
	if err != nil {
		t.Fatal(err)
	}
}

func (w hubEnvironment) deleteRole(t *testing.T, creds aws.CredentialsProvider, name string, policies ...string) {
	t.Helper()
	for _, p := range policies {
		if _, err := w.iam(creds).DeleteRolePolicy(t.Context(),
			&iam.DeleteRolePolicyInput{RoleName: &name, PolicyName: &p}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.iam(creds).DeleteRole(t.Context(), &iam.DeleteRoleInput{RoleName: &name}); err != nil {
		t.Fatal(err)
	}
}

// trustOf is the trust policy of the hub's role for a cluster.
func trustOf(principal string, tags ...string) string {
	conditions := map[string]string{}
	for i := 0; i < len(tags); i += 2 {
		conditions["aws:PrincipalTag/"+tags[i]] = tags[i+1]
	}
	document,
		_ := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": []any{map[string]any{"Effect": "Allow",
		"Principal": map[string]string{"AWS": principal}, "Action": "sts:AssumeRole",
		"Condition": map[string]any{"StringEquals": conditions}}}})
	return string(document)
}

// agent makes the agent's role with its tags, and returns a session that a
// ServiceAccount's token was exchanged for.
func (w hubEnvironment) agent(t *testing.T, tags ...iamtypes.Tag) aws.CredentialsProvider {
	t.Helper()
	trust := fmt.Sprintf(`{"Version":"2012-10-17","Statement":[
		{"Effect":"Allow","Principal":{"Federated":"arn:aws:iam::%[1]s:oidc-provider/issuer.example"},
		 "Action":"sts:AssumeRoleWithWebIdentity",
		 "Condition":{"StringEquals":{"issuer.example:sub":"system:serviceaccount:tenant-a:other",
			"issuer.example:aud":"sts.amazonaws.com"}}},
		{"Effect":"Allow","Principal":{"Federated":"arn:aws:iam::%[1]s:oidc-provider/issuer.example"},
		 "Action":"sts:AssumeRoleWithWebIdentity",
		 "Condition":{"StringEquals":{"issuer.example:sub":%[2]q,
			"issuer.example:aud":"sts.amazonaws.com"}}}]}`, account, subject)
	w.createRole(t, w.admin, "agent", trust, tags...)
	return w.agentSession(t)
}

func (w hubEnvironment) agentSession(t *testing.T) aws.CredentialsProvider {
	t.Helper()
	out, err := w.exchange(t.Context(), w.token(t), func(in *sts.AssumeRoleWithWebIdentityInput) {
		in.RoleArn = aws.String(agentRole)
	})
	if err != nil {
		t.Fatal(err)
	}
	return static(*out.Credentials.AccessKeyId, *out.Credentials.SecretAccessKey, *out.Credentials.SessionToken)
}

func static(id, secret, token string) aws.CredentialsProvider {
	return credentials.NewStaticCredentialsProvider(id, secret, token)
}

func (w hubEnvironment) assume(t *testing.T, creds aws.CredentialsProvider, role,
	session string) (aws.CredentialsProvider, error) {
	t.Helper()
	out, err := w.sts(creds).AssumeRole(t.Context(), &sts.AssumeRoleInput{RoleArn: &role, RoleSessionName: &session})
	if err != nil {
		return nil, err
	}
	return static(*out.Credentials.AccessKeyId, *out.Credentials.SecretAccessKey, *out.Credentials.SessionToken), nil
}

func TestRoleLifecycle(t *testing.T) {
	w := newHubEnvironment(t)
	client, name := w.iam(w.hubAdmin), aws.String("ocm-hub-1")
	created, err := client.CreateRole(t.Context(),
		&iam.CreateRoleInput{RoleName: name, Path: aws.String("/hub/"), Description: aws.String("d"),
			AssumeRolePolicyDocument: aws.String(anyone), MaxSessionDuration: aws.Int32(7200),
			Tags: tags("cluster", "one", "hub", "h")})
	if err != nil {
		t.Fatal(err)
	}
	if r := created.Role; aws.ToString(r.Arn) != "arn:aws:iam::"+hubAccount+":role/hub/ocm-hub-1" ||
		!strings.HasPrefix(*r.RoleId, "AROA") || time.Since(*r.CreateDate) > time.Minute {
		t.Errorf("created %+v", r)
	}
	_, err = client.TagRole(t.Context(), &iam.TagRoleInput{RoleName: name, Tags: tags("Cluster", "two", "b", "")})
	if err == nil {
		_, err = client.UntagRole(t.Context(), &iam.UntagRoleInput{RoleName: name, TagKeys: []string{"hub", "unknown"}})
	}
	if err == nil {
		_, err = client.UpdateAssumeRolePolicy(t.Context(),
			&iam.UpdateAssumeRolePolicyInput{RoleName: name, PolicyDocument: aws.String(trustOf(account))})
	}
	if err != nil {
		t.Fatal(err)
	}
	listed, err := client.ListRoleTags(t.Context(), &iam.ListRoleTagsInput{RoleName: name})
	if err != nil || len(listed.Tags) != 2 || *listed.Tags[0].Key != "Cluster" || *listed.Tags[0].Value != "two" ||
		*listed.Tags[1].Key != "b" {
		t.Errorf("tags %+v, %v", listed, err)
	}
	got, err := client.GetRole(t.Context(), &iam.GetRoleInput{RoleName: aws.String("OCM-HUB-1")})
	if err != nil {
		t.Fatal(err)
	}
	document, _ := url.QueryUnescape(*got.Role.AssumeRolePolicyDocument)
	if document != trustOf(account) || *got.Role.RoleId != *created.Role.RoleId || *got.Role.Path != "/hub/" ||
		*got.Role.Description != "d" || *got.Role.MaxSessionDuration != 7200 || len(got.Role.Tags) != 2 {
		t.Errorf("role %+v", got.Role)
	}
	w.putPolicy(t, w.hubAdmin, *name, "Allow", "eks:DescribeCluster", "*")
	policy, err := client.GetRolePolicy(t.Context(),
		&iam.GetRolePolicyInput{RoleName: name, PolicyName: aws.String("Allow")})
	if err != nil || !strings.Contains(*policy.PolicyDocument, "eks%3ADescribeCluster") || *policy.PolicyName != "Allow" {
		t.Errorf("policy %+v, %v", policy, err)
	}
	names, err := client.ListRolePolicies(t.Context(), &iam.ListRolePoliciesInput{RoleName: name})
	if err != nil || !slices.Equal(names.PolicyNames, []string{"Allow"}) {
		t.Errorf("policies %+v, %v", names, err)
	}
	_, err = client.DeleteRole(t.Context(), &iam.DeleteRoleInput{RoleName: name})
	wantCode(t, err, 409, "DeleteConflict", "must delete policies first")
	if roles := w.Cloud.AWS().Roles(); !slices.Contains(roles, *created.Role.Arn) {
		t.Errorf("roles %v", roles)
	}
	w.deleteRole(t, w.hubAdmin, *name, "Allow")
	again := w.createRole(t, w.hubAdmin, *name, anyone)
	if *again.RoleId == *created.Role.RoleId || len(again.Tags) > 0 {
		t.Errorf("created again: %+v", again)
	}
	if n := w.Cloud.Calls("iam", "CreateRole"); n != 2 {
		t.Errorf("%d calls", n)
	}
}

func TestRolesThatAreRefused(t *testing.T) {
	w := newHubEnvironment(t)
	w.createRole(t, w.hubAdmin, "ocm-hub-1", anyone)
	client, missing := w.iam(w.hubAdmin), aws.String("missing")
	create := func(change func(*iam.CreateRoleInput)) error {
		in := &iam.CreateRoleInput{RoleName: aws.String("new"), AssumeRolePolicyDocument: aws.String(anyone)}
		change(in)
		_, err := client.CreateRole(t.Context(), in)
		return err
	}
	ask := func(_ any, err error) error { return err }
	for name, tc := range map[string]struct {
		err     error
		status  int
		code    string
		message string
	}{
		"exists": {create(func(in *iam.CreateRoleInput) {
			in.RoleName = aws.String("Ocm-Hub-1")
		}), 409, "EntityAlreadyExists", "Role with name Ocm-Hub-1 already exists."},
		"name too long": {create(func(in *iam.CreateRoleInput) {
			in.RoleName = aws.String(strings.Repeat("x", 65))
		}), 400, "ValidationError", "'roleName'"},
		"name": {create(func(in *iam.CreateRoleInput) {
			in.RoleName = aws.String("a/b")
		}), 400, "ValidationError", "'roleName'"},
		"path": {create(func(in *iam.CreateRoleInput) {
			in.Path = aws.String("x")
		}), 400, "ValidationError", "'path'"},
		"session": {create(func(in *iam.CreateRoleInput) {
			in.MaxSessionDuration = aws.Int32(60)
		}), 400, "ValidationError", "'maxSessionDuration'"},
		"tags twice": {create(func(in *iam.CreateRoleInput) {
			in.Tags = tags("a", "1", "A", "2")
		}), 400, "InvalidInput", "Duplicate tag keys"},
		"get": {ask(client.GetRole(t.Context(), &iam.GetRoleInput{RoleName: missing})), 404, "NoSuchEntity",
			"The role with name missing cannot be found."},
		"delete": {ask(client.DeleteRole(t.Context(), &iam.DeleteRoleInput{RoleName: missing})), 404, "NoSuchEntity",
			"missing"},
		"tag": {ask(client.TagRole(t.Context(), &iam.TagRoleInput{RoleName: missing, Tags: tags("a", "b")})), 404,
			"NoSuchEntity", "missing"},
		"another account": {ask(w.iam(w.admin).GetRole(t.Context(), &iam.GetRoleInput{RoleName: aws.String("ocm-hub-1")})),
			404, "NoSuchEntity", "ocm-hub-1"},
		"get policy": {
			ask(client.GetRolePolicy(t.Context(),
				&iam.GetRolePolicyInput{RoleName: aws.String("ocm-hub-1"), PolicyName: missing})), 404, "NoSuchEntity",
			"The role policy with name missing cannot be found."},
		"delete policy": {
			ask(client.DeleteRolePolicy(t.Context(),
				&iam.DeleteRolePolicyInput{RoleName: aws.String("ocm-hub-1"), PolicyName: missing})), 404, "NoSuchEntity",
			"role policy"},
		"unknown action": {ask(client.ListRoles(t.Context(), &iam.ListRolesInput{})), 400, "InvalidAction", "ListRoles"},
	} {
		t.Run(name, func(t *testing.T) { wantCode(t, tc.err, tc.status, tc.code, tc.message) })
	}
	w.createRole(t, w.hubAdmin, "second", anyone)
	w.createRole(t, w.admin, "of-another-account", anyone)
	tag := func(from, to int) error {
		var list []string
		for n := from; n < to; n++ {
			list = append(list, fmt.Sprintf("k%d", n), "v")
		}
		_, err := client.TagRole(t.Context(), &iam.TagRoleInput{RoleName: aws.String("second"), Tags: tags(list...)})
		return err
	}
	if err := tag(0, 50); err != nil {
		t.Error(err)
	}
	wantCode(t, tag(50, 51), 409, "LimitExceeded", "number of tags")
	defer w.Cloud.AddFault(cloudtest.Fault{Service: "iam", Status: 400, Code: "Throttling", Message: "Rate exceeded"})()
	wantCode(t, create(func(*iam.CreateRoleInput) {}), 400, "Throttling", "Rate exceeded")
}

func TestPoliciesThatAreMalformed(t *testing.T) {
	w := newHubEnvironment(t)
	w.createRole(t, w.hubAdmin, "ocm-hub-1", anyone)
	statement := func(s string) string { return `{"Version":"2012-10-17","Statement":[` + s + `]}` }
	for name, tc := range map[string]struct{ trust, identity, message string }{
		"no JSON": {"{", "{", "invalid Json"},
		"unknown field": {statement(`{"Effect":"Allow","Nope":1}`), statement(`{"Nope":1}`),
			"Syntax errors in policy."},
		"version":      {`{"Version":"2020-01-01","Statement":[]}`, `{"Version":"x"}`, "Syntax errors"},
		"no statement": {statement(""), statement(""), "Syntax errors"},
		"effect":       {statement(`{"Effect":"allow"}`), statement(`{}`), "Invalid effect"},
		"no action": {statement(`{"Effect":"Allow","Principal":"*"}`),
			statement(`{"Effect":"Allow","Resource":"*"}`), "must contain actions"},
		"another action": {trust: statement(`{"Effect":"Allow","Principal":"*","Action":"s3:Get"}`),
			message: "may only specify STS"},
		"no principal": {trust: statement(`{"Effect":"Allow","Action":"sts:AssumeRole"}`),
			message: "Missing required field Principal"},
		"resource": {
			trust:   statement(`{"Effect":"Allow","Principal":"*","Action":"sts:AssumeRole","Resource":"*"}`),
			message: "prohibited field Resource"},
		"unknown principal": {trust: trustOf(agentRole),
			message: `Invalid principal in policy: "AWS":"` + agentRole + `"`},
		"operator": {
			trust: statement(
				`{"Effect":"Allow","Principal":"*","Action":"sts:AssumeRole","Condition":{"IpAddress":{"a":"b"}}}`),
			message: "does not imitate"},
		"identity's principal": {identity: statement(`{"Effect":"Allow","Principal":"*","Action":"a:b","Resource":"*"}`),
			message: "should not specify a principal"},
		"no resource": {identity: statement(`{"Effect":"Allow","Action":"a:b"}`), message: "must contain resources"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.trust != "" {
				_, err := w.iam(w.hubAdmin).CreateRole(t.Context(),
					&iam.CreateRoleInput{RoleName: aws.String("new"), AssumeRolePolicyDocument: &tc.trust})
				wantCode(t, err, 400, "MalformedPolicyDocument", tc.message)
				_, err = w.iam(w.hubAdmin).UpdateAssumeRolePolicy(t.Context(),
					&iam.UpdateAssumeRolePolicyInput{RoleName: aws.String("ocm-hub-1"), PolicyDocument: &tc.trust})
				wantCode(t, err, 400, "MalformedPolicyDocument", tc.message)
			}
			if tc.identity != "" {
				_, err := w.iam(w.hubAdmin).PutRolePolicy(t.Context(),
					&iam.PutRolePolicyInput{RoleName: aws.String("ocm-hub-1"), PolicyName: aws.String("p"),
						PolicyDocument: &tc.identity})
				wantCode(t, err, 400, "MalformedPolicyDocument", tc.message)
			}
		})
	}
	if roles := w.Cloud.AWS().Roles(); len(roles) != 2 {
		t.Errorf("roles %v", roles)
	}
}

// The trust policy, the tags of the caller's role and the caller's own policy
// must all agree.
func TestAssumeRoleByPolicies(t *testing.T) {
	good := []string{"cluster", "one", "hub", "h"}
	for name, tc := range map[string]struct {
		tags     []string
		trust    string
		resource string
		deny     bool
		ok       bool
	}{
		"all agree":          {good, trustOf(agentRole, good...), hubRole, false, true},
		"more tags":          {append(good[:4:4], "a", "b"), trustOf(agentRole, good...), hubRole, false, true},
		"another tag":        {[]string{"cluster", "two", "hub", "h"}, trustOf(agentRole, good...), hubRole, false, false},
		"no tag":             {good[:2], trustOf(agentRole, good...), hubRole, false, false},
		"no policy":          {good, trustOf(agentRole, good...), "", false, false},
		"policy for another": {good, trustOf(agentRole, good...), hubRole + "0", false, false},
		"policy with a star": {good, trustOf(agentRole, good...), "arn:aws:iam::" + hubAccount + ":role/ocm-hub-*",
			false, true},
		"policy denies":    {good, trustOf(agentRole, good...), hubRole, true, false},
		"account":          {good, trustOf("arn:aws:iam::"+account+":root", good...), hubRole, false, true},
		"account's number": {good, trustOf(account), hubRole, false, true},
		"another account":  {good, trustOf("arn:aws:iam::" + hubAccount + ":root"), hubRole, false, false},
		"session": {good, trustOf("arn:aws:sts::" + account + ":assumed-role/agent/session"), hubRole,
			false, true},
		"another session": {good, trustOf("arn:aws:sts::" + account + ":assumed-role/agent/other"), hubRole,
			false, false},
		"wildcard":     {good, anyone, hubRole, false, true},
		"trust denies": {good, strings.Replace(anyone, "Allow", "Deny", 1), hubRole, false, false},
		"trust of web tokens": {good, strings.Replace(anyone, "sts:AssumeRole", "sts:AssumeRoleWithWebIdentity", 1), hubRole,
			false, false},
		"trust of all actions": {good, strings.Replace(anyone, "sts:AssumeRole", "STS:*", 1), hubRole, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHubEnvironment(t)
			creds := w.agent(t, tags(tc.tags...)...)
			w.createRole(t, w.hubAdmin, "ocm-hub-1", tc.trust)
			if tc.resource != "" {
				w.putPolicy(t, w.admin, "agent", "Allow", "sts:AssumeRole", tc.resource)
			}
			if tc.deny {
				w.putPolicy(t, w.admin, "agent", "Deny", "*", "*")
			}
			_, err := w.assume(t, creds, hubRole, "session")
			if tc.ok && err != nil {
				t.Error(err)
			} else if !tc.ok {
				wantCode(t, err, 403, "AccessDenied",
					"assumed-role/agent/session is not authorized to perform: sts:AssumeRole on resource: "+hubRole)
			}
		})
	}
}

// A session's tags hide those of its role.
func TestSessionTagsBeforeRoleTags(t *testing.T) {
	w := newHubEnvironment(t)
	const tagger = "arn:aws:iam::" + account + ":role/tagger"
	w.Cloud.AWS().SetRole(tagger, cloudtest.Trust{Principals: []string{account}, TagSession: true})
	if _, err := w.iam(w.admin).TagRole(t.Context(),
		&iam.TagRoleInput{RoleName: aws.String("tagger"), Tags: tags("cluster", "two")}); err != nil {
		t.Fatal(err)
	}
	w.createRole(t, w.hubAdmin, "ocm-hub-1", trustOf(tagger, "cluster", "one"))
	for _, cluster := range []string{"one", "two"} {
		key := "Cluster"
		out, err := w.sts(w.admin).AssumeRole(t.Context(),
			&sts.AssumeRoleInput{RoleArn: aws.String(tagger), RoleSessionName: aws.String("s1"),
				Tags: []ststypes.Tag{{Key: &key, Value: &cluster}}})
		if err != nil {
			t.Fatal(err)
		}
		c := out.Credentials
		_, err = w.assume(t, static(*c.AccessKeyId, *c.SecretAccessKey, *c.SessionToken), hubRole, "s2")
		if cluster == "one" && err != nil {
			t.Error(err)
		} else if cluster == "two" {
			wantCode(t, err, 403, "AccessDenied", "sts:AssumeRole")
		}
	}
}

// Within an account, a trust policy that names the role suffices, and one that
// names the account does not.
func TestAssumeRoleWithinAnAccount(t *testing.T) {
	w := newHubEnvironment(t)
	creds := w.agent(t)
	w.createRole(t, w.admin, "named", trustOf(agentRole))
	w.createRole(t, w.admin, "account", trustOf(account))
	if _, err := w.assume(t, creds, "arn:aws:iam::"+account+":role/named", "s1"); err != nil {
		t.Error(err)
	}
	_, err := w.assume(t, creds, "arn:aws:iam::"+account+":role/account", "s1")
	wantCode(t, err, 403, "AccessDenied", "sts:AssumeRole")
}

// IAM stores the IDs of principals: a role of the same name is another one.
func TestTrustedRoleThatIsMadeAnew(t *testing.T) {
	w := newHubEnvironment(t)
	creds := w.agent(t)
	w.putPolicy(t, w.admin, "agent", "Allow", "sts:AssumeRole", "*")
	w.createRole(t, w.hubAdmin, "ocm-hub-1", trustOf(agentRole))
	w.deleteRole(t, w.admin, "agent", "Allow")
	_, err := w.assume(t, creds, hubRole, "s1")
	wantCode(t, err, 403, "AccessDenied", "")
	creds = w.agent(t)
	w.putPolicy(t, w.admin, "agent", "Allow", "sts:AssumeRole", "*")
	_, err = w.assume(t, creds, hubRole, "s1")
	wantCode(t, err, 403, "AccessDenied", "")
	got, err := w.iam(w.hubAdmin).GetRole(t.Context(), &iam.GetRoleInput{RoleName: aws.String("ocm-hub-1")})
	if err != nil || !strings.Contains(*got.Role.AssumeRolePolicyDocument, "%22AROA") {
		t.Errorf("got %+v, %v, want the ID of the old role", got, err)
	}
	trust := trustOf(agentRole)
	if _, err := w.iam(w.hubAdmin).UpdateAssumeRolePolicy(t.Context(),
		&iam.UpdateAssumeRolePolicyInput{RoleName: aws.String("ocm-hub-1"), PolicyDocument: &trust}); err != nil {
		t.Fatal(err)
	}
	if _, err = w.assume(t, creds, hubRole, "s1"); err != nil {
		t.Error(err)
	}
}

// A role's own policies decide its calls, for the resources that the services
// document.
func TestPermissionsOfARole(t *testing.T) {
	w := newHubEnvironment(t)
	w.createRole(t, w.hubAdmin, "creator", trustOf(hubAccount))
	creds, err := w.assume(t, w.hubAdmin, "arn:aws:iam::"+hubAccount+":role/creator", "s1")
	if err != nil {
		t.Fatal(err)
	}
	create := func(name string, tags ...iamtypes.Tag) error {
		_, err := w.iam(creds).CreateRole(t.Context(),
			&iam.CreateRoleInput{RoleName: &name, AssumeRolePolicyDocument: aws.String(anyone), Tags: tags})
		return err
	}
	entry := func(tags map[string]string) error {
		_, err := w.eks(creds).CreateAccessEntry(t.Context(),
			&eks.CreateAccessEntryInput{ClusterName: aws.String("hub"), PrincipalArn: aws.String(hubRole), Tags: tags})
		return err
	}
	wantCode(t, create("ocm-hub-1"), 403, "AccessDenied",
		"iam:CreateRole on resource: role ocm-hub-1 because no identity-based policy allows the iam:CreateRole action")
	w.putPolicy(t, w.hubAdmin, "creator", "Allow", "iam:CreateRole", "arn:aws:iam::"+hubAccount+":role/ocm-hub-*")
	wantCode(t, create("admin"), 403, "AccessDenied", "iam:CreateRole")
	wantCode(t, create("ocm-hub-1", tags("a", "b")...), 403, "AccessDenied", "iam:TagRole")
	if err := create("ocm-hub-1"); err != nil {
		t.Error(err)
	}
	wantCode(t, entry(nil), 403, "AccessDeniedException", "eks:CreateAccessEntry on resource: "+hubCluster)
	w.putPolicy(t, w.hubAdmin, "creator", "Allow", "eks:*AccessEntry", hubCluster)
	wantCode(t, entry(map[string]string{"a": "b"}), 403, "AccessDeniedException",
		"eks:TagResource on resource: "+hubCluster)
	if err := entry(nil); err != nil {
		t.Error(err)
	}
	remove := func() error {
		_, err := w.eks(creds).DeleteAccessEntry(t.Context(),
			&eks.DeleteAccessEntryInput{ClusterName: aws.String("hub"), PrincipalArn: aws.String(hubRole)})
		return err
	}
	prefix := "arn:aws:eks:eu-central-1:" + hubAccount + ":access-entry/hub/"
	wantCode(t, remove(), 403, "AccessDeniedException",
		"eks:DeleteAccessEntry on resource: "+prefix+"role/"+hubAccount+"/ocm-hub-1/*")
	w.putPolicy(t, w.hubAdmin, "creator", "Allow", "eks:*AccessEntry", prefix+"*")
	if err := remove(); err != nil {
		t.Error(err)
	}
}

// IAM shows a new role at once, other services show it later.
func TestConsistencyDelay(t *testing.T) {
	w := newHubEnvironment(t)
	entry := func() error {
		_, err := w.eks(w.hubAdmin).CreateAccessEntry(t.Context(),
			&eks.CreateAccessEntryInput{ClusterName: aws.String("hub"), PrincipalArn: aws.String(hubRole)})
		return err
	}
	w.Cloud.AWS().SetConsistencyDelay(0, 3)
	w.createRole(t, w.hubAdmin, "ocm-hub-1", anyone)
	wantCode(t, entry(), 400, "InvalidParameterException", "invalid principal")
	_, err := w.assume(t, w.admin, hubRole, "s1")
	wantCode(t, err, 403, "AccessDenied", "")
	trust := trustOf(hubRole)
	_, err = w.iam(w.admin).CreateRole(t.Context(),
		&iam.CreateRoleInput{RoleName: aws.String("second"), AssumeRolePolicyDocument: &trust})
	wantCode(t, err, 400, "MalformedPolicyDocument", "Invalid principal")
	if err := entry(); err != nil {
		t.Error(err)
	}
	w.deleteEntry(t)
	w.deleteRole(t, w.hubAdmin, "ocm-hub-1")

	w.Cloud.AWS().SetConsistencyDelay(10*time.Second, 0)
	w.createRole(t, w.hubAdmin, "ocm-hub-1", anyone)
	wantCode(t, entry(), 400, "InvalidParameterException", "invalid principal")
	w.Cloud.SetClock(func() time.Time { return time.Now().Add(11 * time.Second) })
	if err := entry(); err != nil {
		t.Error(err)
	}
}
