package cloudtest_test

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/workloadid/workloadid/cloudtest"
)

func TestAccessEntries(t *testing.T) {
	w := newHubEnvironment(t)
	w.createRole(t, w.hubAdmin, "ocm-hub-1", anyone)
	client := w.eks(w.hubAdmin)
	create := func(cluster, principal, user string, groups ...string) error {
		_, err := client.CreateAccessEntry(t.Context(),
			&eks.CreateAccessEntryInput{ClusterName: &cluster, PrincipalArn: &principal,
				Username: aws.String(user), KubernetesGroups: groups, Tags: map[string]string{"cluster": "one"}})
		return err
	}
	if err := create("hub", hubRole, "", "open-cluster-management:one"); err != nil {
		t.Fatal(err)
	}
	w.Cloud.AWS().SetEKSCluster(cloudtest.EKSCluster{ARN: strings.Replace(hubCluster, "/hub", "/old", 1),
		AuthenticationMode: "CONFIG_MAP"})
	describe := func() (*eks.DescribeAccessEntryOutput, error) {
		return client.DescribeAccessEntry(t.Context(),
			&eks.DescribeAccessEntryInput{ClusterName: aws.String("hub"), PrincipalArn: aws.String(hubRole)})
	}
	out, err := describe()
	if err != nil {
		t.Fatal(err)
	}
	if e := out.AccessEntry; !slices.Equal(e.KubernetesGroups, []string{"open-cluster-management:one"}) ||
		e.Tags["cluster"] != "one" || *e.Type != "STANDARD" ||
		*e.Username != "arn:aws:sts::"+hubAccount+":assumed-role/ocm-hub-1/{{SessionName}}" ||
		time.Since(*e.CreatedAt) > time.Minute ||
		!strings.HasPrefix(*e.AccessEntryArn,
			"arn:aws:eks:eu-central-1:"+hubAccount+":access-entry/hub/role/"+hubAccount+"/ocm-hub-1/") {
		t.Errorf("the access entry is %+v", e)
	}
	for name, tc := range map[string]struct {
		err     error
		status  int
		code    string
		message string
	}{
		"exists":  {create("hub", hubRole, ""), 409, "ResourceInUseException", "already in use on this cluster"},
		"no role": {create("hub", hubRole+"0", ""), 400, "InvalidParameterException", "invalid principal"},
		"reserved group": {create("hub", hubRole, "", "system:masters"), 400, "InvalidParameterException",
			"The kubernetes group name system:masters is invalid, it cannot start with system:"},
		"no cluster": {create("nope", hubRole, ""), 404, "ResourceNotFoundException", "No cluster found for name: nope."},
		"no entries": {create("old", hubRole, ""), 400, "InvalidRequestException", "authentication mode"},
		"another account": {func() error {
			_, err := w.eks(w.admin).DeleteAccessEntry(t.Context(),
				&eks.DeleteAccessEntryInput{ClusterName: aws.String("hub"), PrincipalArn: aws.String(hubRole)})
			return err
		}(), 404, "ResourceNotFoundException", "No cluster found"},
	} {
		t.Run(name, func(t *testing.T) { wantCode(t, tc.err, tc.status, tc.code, tc.message) })
	}
	update := func(in eks.UpdateAccessEntryInput) error {
		in.ClusterName, in.PrincipalArn = aws.String("hub"), aws.String(hubRole)
		_, err := client.UpdateAccessEntry(t.Context(), &in)
		return err
	}
	if err := update(eks.UpdateAccessEntryInput{Username: aws.String("one:{{SessionName}}")}); err != nil {
		t.Error(err)
	}
	if e := w.Cloud.AWS().EKSAccessEntries(hubCluster)[hubRole]; len(e.Groups) != 1 ||
		e.Username != "one:{{SessionName}}" {
		t.Errorf("after an update of the name: %+v", e)
	}
	if err := update(eks.UpdateAccessEntryInput{KubernetesGroups: []string{}}); err != nil {
		t.Error(err)
	}
	if out, err := describe(); err != nil || len(out.AccessEntry.KubernetesGroups) != 0 ||
		*out.AccessEntry.Username != "one:{{SessionName}}" {
		t.Errorf("after an update of the groups: %+v, %v", out, err)
	}
	wantCode(t, update(eks.UpdateAccessEntryInput{KubernetesGroups: []string{"system:x"}}), 400,
		"InvalidParameterException", "system:x")
	for _, want := range []int{0, 404} {
		_, err := client.DeleteAccessEntry(t.Context(),
			&eks.DeleteAccessEntryInput{ClusterName: aws.String("hub"), PrincipalArn: aws.String(hubRole)})
		if want == 0 && err != nil {
			t.Error(err)
		} else if want != 0 {
			wantCode(t, err, want, "ResourceNotFoundException", "principalArn could not be found")
		}
	}
	wantCode(t, update(eks.UpdateAccessEntryInput{}), 404, "ResourceNotFoundException", "principalArn could not be found")
}

func (w hubEnvironment) bearer(t *testing.T, creds aws.CredentialsProvider) string {
	t.Helper()
	out, err := sts.NewPresignClient(w.sts(creds), func(o *sts.PresignOptions) {
		o.Presigner = withHeader{v4.NewSigner(), "hub"}
	}).
		PresignGetCallerIdentity(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return "k8s-aws-v1." + base64.RawURLEncoding.EncodeToString([]byte(out.URL))
}

// The whole way: token, role, hub's role, bearer, user.
func TestUsersByAccessEntry(t *testing.T) {
	w := newHubEnvironment(t)
	agent := w.agent(t, tags("cluster", "one")...)
	w.putPolicy(t, w.admin, "agent", "Allow", "sts:AssumeRole", hubRole)
	session := func() aws.CredentialsProvider {
		w.createRole(t, w.hubAdmin, "ocm-hub-1", trustOf(agentRole, "cluster", "one"))
		creds, err := w.assume(t, agent, hubRole, "a@b")
		if err != nil {
			t.Fatal(err)
		}
		return creds
	}
	enter := func() {
		if _, err := w.eks(w.hubAdmin).CreateAccessEntry(t.Context(),
			&eks.CreateAccessEntryInput{ClusterName: aws.String("hub"), PrincipalArn: aws.String(hubRole),
				Username:         aws.String("{{AccountID}}:{{SessionName}}"),
				KubernetesGroups: []string{"open-cluster-management:one"}}); err != nil {
			t.Fatal(err)
		}
	}
	notMapped := func(name, bearer string) {
		t.Helper()
		if user, _, err := w.Cloud.AWS().VerifyEKSToken(hubCluster, bearer); err == nil ||
			err.Error() != "identity is not mapped" || user.UID != "" {
			t.Errorf("%s: got %+v, %v, want no identity", name, user, err)
		}
	}
	creds := session()
	notMapped("no entry", w.bearer(t, creds))
	enter()
	user, id, err := w.Cloud.AWS().VerifyEKSToken(hubCluster, w.bearer(t, creds))
	if err != nil || user.Username != hubAccount+":a-b" ||
		!slices.Equal(user.Groups, []string{"open-cluster-management:one"}) ||
		id.RoleARN != hubRole || !strings.HasPrefix(user.UID, "aws-iam-authenticator:"+hubAccount+":AROA") {
		t.Errorf("got %+v, %v, want a-b in the group of cluster one", user, err)
	}
	notMapped("another role", w.bearer(t, agent))
	w.deleteRole(t, w.hubAdmin, "ocm-hub-1")
	creds = session()
	notMapped("a role that was made anew", w.bearer(t, creds))
	w.deleteEntry(t)
	enter()
	if _, _, err := w.Cloud.AWS().VerifyEKSToken(hubCluster, w.bearer(t, creds)); err != nil {
		t.Errorf("an entry for the new role: %v", err)
	}
	w.Cloud.AWS().SetEKSCluster(cloudtest.EKSCluster{ARN: hubCluster, AuthenticationMode: "CONFIG_MAP"})
	notMapped("a cluster without access entries", w.bearer(t, creds))
}

func (w hubEnvironment) deleteEntry(t *testing.T) {
	t.Helper()
	_, err := w.eks(w.hubAdmin).DeleteAccessEntry(t.Context(),
		&eks.DeleteAccessEntryInput{ClusterName: aws.String("hub"), PrincipalArn: aws.String(hubRole)})
	if err != nil {
		t.Fatal(err)
	}
}

func TestUsersByAuthMap(t *testing.T) {
	w := newHubEnvironment(t)
	const path = "arn:aws:iam::" + hubAccount + ":role/team/ocm-hub-1"
	w.Cloud.AWS().SetRole(path, cloudtest.Trust{Principals: []string{hubAccount}})
	creds, err := w.assume(t, w.hubAdmin, path, "s1")
	if err != nil {
		t.Fatal(err)
	}
	entry := func(arn string) string {
		return "- rolearn: " + arn + "\n  username: \"{{SessionName}}\"\n  groups: [\"system:open-cluster-management:one\"]\n"
	}
	for name, tc := range map[string]struct {
		mode, text string
		fail, ok   bool
	}{
		"beside entries":     {"", entry("arn:aws:iam::1:role/other") + entry(hubRole), false, true},
		"alone":              {"CONFIG_MAP", entry(hubRole), false, true},
		"not EKS":            {"none", entry(hubRole), false, true},
		"not consulted":      {"API", entry(hubRole), false, false},
		"longer name":        {"", entry(hubRole + "0"), false, false},
		"with a path":        {"", entry(path), false, false},
		"empty":              {"", "", false, false},
		"not YAML":           {"", "{", false, false},
		"cannot be read now": {"", entry(hubRole), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := hubCluster
			if tc.mode == "none" {
				cluster = "arn:aws:eks:eu-west-1:" + hubAccount + ":cluster/hub"
			} else {
				w.Cloud.AWS().SetEKSCluster(cloudtest.EKSCluster{ARN: hubCluster, AuthenticationMode: tc.mode})
			}
			w.Cloud.AWS().SetEKSAuthMap(cluster, func() (string, error) {
				if tc.fail {
					return tc.text, context.DeadlineExceeded
				}
				return tc.text, nil
			})
			user, _, err := w.Cloud.AWS().VerifyEKSToken(cluster, w.bearer(t, creds))
			if (err == nil) != tc.ok ||
				tc.ok && (user.Username != "s1" || !slices.Equal(user.Groups, []string{"system:open-cluster-management:one"})) {
				t.Errorf("got %+v, %v, want a user: %t", user, err, tc.ok)
			}
		})
	}
}
