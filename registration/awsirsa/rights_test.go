package awsirsa_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/awsirsa"
)

// login returns clients of the SDK.
func login(cloud *cloudtest.Cloud, creds aws.CredentialsProvider) (*iam.Client, *eks.Client) {
	return iam.New(iam.Options{Region: "eu-central-1", HTTPClient: cloud.Client(), Credentials: creds,
			Retryer: aws.NopRetryer{}}),
		eks.New(eks.Options{Region: "eu-central-1", HTTPClient: cloud.Client(), Credentials: creds,
			Retryer: aws.NopRetryer{}})
}

// administer returns clients of an administrator of an account.
func administer(cloud *cloudtest.Cloud, account string) (*iam.Client, *eks.Client) {
	id, secret := cloud.AWS().AddUser(account, "admin")
	return login(cloud, credentials.NewStaticCredentialsProvider(id, secret, ""))
}

// createRole does what an administrator of IAM does with the output of wid hub
// policies.
func createRole(t testing.TB, cloud *cloudtest.Cloud, account string, role awsirsa.Role) {
	t.Helper()
	c, _ := administer(cloud, account)
	name, in := role.Name(), &iam.CreateRoleInput{AssumeRolePolicyDocument: aws.String(string(role.Trust))}
	for key, value := range role.Tags {
		in.Tags = append(in.Tags, iamtypes.Tag{Key: &key, Value: &value})
	}
	in.RoleName = &name
	_, err := c.CreateRole(t.Context(), in)
	if err == nil {
		_, err = c.PutRolePolicy(t.Context(),
			&iam.PutRolePolicyInput{RoleName: &name, PolicyName: &name, PolicyDocument: aws.String(string(role.Access))})
	}
	if err == nil {
		err = role.Verify(t.Context(), c)
	}
	regtest.Must(t, err)
}

// without returns the role without the right to one action.
func without(role awsirsa.Role, action string) awsirsa.Role {
	p := parse(role.Access)
	for i, s := range p.Statement {
		p.Statement[i]["Action"] = slices.DeleteFunc(actionsOf(s), func(a string) bool { return a == action })
	}
	role.Access, _ = json.Marshal(p)
	return role
}

// policy is an IAM policy whose statements have any fields.
type policy struct {
	Version   string
	Statement []map[string]any
}

func parse(content json.RawMessage) (p policy) {
	if err := json.Unmarshal(content, &p); err != nil {
		panic(err)
	}
	return p
}

// actionsOf returns the actions of a statement. One alone is a string.
func actionsOf(statement map[string]any) (actions []string) {
	many, ok := statement["Action"].([]any)
	if !ok {
		many = []any{statement["Action"]}
	}
	for _, a := range many {
		actions = append(actions, fmt.Sprint(a))
	}
	return actions
}

// hubWith returns the hub's half with a login that has the given role.
func hubWith(t *testing.T, cloud *cloudtest.Cloud, role awsirsa.Role) *awsirsa.HubDriver {
	t.Helper()
	identity, err := cloudtest.NewIssuer(cloudtest.IssuerConfig{URL: issuer})
	regtest.Must(t, err)
	cloud.AWS().AddOIDCProvider(hubAccount, identity.URL(), identity.HTTPClient(), audience)
	createRole(t, cloud, hubAccount, role)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "open-cluster-management-hub",
		Name: "registration-controller-sa"}}
	token, err := identity.Sign(identity.Claims(account, []string{audience}, time.Hour))
	regtest.Must(t, err)
	file := filepath.Join(t.TempDir(), "token")
	regtest.Must(t, os.WriteFile(file, []byte(token), 0o600))
	i,
		e := login(cloud,
		aws.NewCredentialsCache(
			stscreds.NewWebIdentityRoleProvider(sts.New(sts.Options{Region: "eu-central-1", HTTPClient: cloud.Client()}),
				role.ARN, stscreds.IdentityTokenFile(file))))
	h, err := awsirsa.NewHubDriver(awsirsa.HubDriverOptions{Hub: hubARN, IAM: i, EKS: e})
	regtest.Must(t, err)
	return h
}

// drift changes all that a hub repairs.
func drift(t *testing.T, cloud *cloudtest.Cloud) {
	t.Helper()
	i, e := administer(cloud, hubAccount)
	hub, managed := pair(t)
	name, other := shopRole(t), string(awsirsa.GrantedRole(hub, hub).Trust)
	cloud.AWS().SetRole(awsirsa.AgentRoleARN(hub, hub), cloudtest.Trust{})
	_, err1 := i.UpdateAssumeRolePolicy(t.Context(),
		&iam.UpdateAssumeRolePolicyInput{RoleName: &name, PolicyDocument: &other})
	_, err2 := i.TagRole(t.Context(),
		&iam.TagRoleInput{RoleName: &name,
			Tags: []iamtypes.Tag{{Key: aws.String("hub_cluster_name"), Value: aws.String("other")}}})
	_, err3 := i.DeleteRolePolicy(t.Context(), &iam.DeleteRolePolicyInput{RoleName: &name, PolicyName: &name})
	_, err4 := e.UpdateAccessEntry(t.Context(),
		&eks.UpdateAccessEntryInput{ClusterName: &hub.Name, PrincipalArn: aws.String(awsirsa.GrantedRoleARN(hub, managed)),
			KubernetesGroups: []string{"other"}})
	regtest.Must(t, errors.Join(err1, err2, err3, err4))
}

// life grants, repairs and revokes with the real SDK. It returns the errors of
// the three.
func life(t *testing.T, role awsirsa.Role) (granted, repaired, revoked error) {
	t.Helper()
	cloud := newCloudOfAWS(t)
	hub, managed := pair(t)
	cloud.AWS().SetEKSCluster(cloudtest.EKSCluster{ARN: hubARN})
	cloud.AWS().SetRole(awsirsa.AgentRoleARN(hub, managed), cloudtest.Trust{})
	h := hubWith(t, cloud, role)
	if _, granted = h.Grant(t.Context(), "shop1", managedARN); granted != nil {
		return granted, nil, nil
	}
	drift(t, cloud)
	_, repaired = h.Grant(t.Context(), "shop1", managedARN)
	return nil, repaired, h.Revoke(t.Context(), "shop1", managedARN)
}

// The policies that wid hub policies prints suffice, and a hub needs each
// action in them.
func TestHubNeedsEachPermissionOfItsRole(t *testing.T) {
	hub, _ := pair(t)
	role, err := awsirsa.HubRole(hub, issuer, awsirsa.AccessEntries)
	regtest.Must(t, err)
	if err := errors.Join(life(t, role)); err != nil {
		t.Fatalf("with all: %v", err)
	}
	actions := map[string]bool{}
	for _, s := range parse(role.Access).Statement {
		for _, action := range actionsOf(s) {
			actions[action] = true
		}
	}
	for _, action := range slices.Sorted(maps.Keys(actions)) {
		t.Run("without "+action, func(t *testing.T) {
			err := errors.Join(life(t, without(role, action)))
			var api smithy.APIError
			if !errors.As(err, &api) || !strings.HasPrefix(api.ErrorCode(), "AccessDenied") ||
				!strings.Contains(err.Error(), "access policy") {
				t.Errorf("got %v", err)
			}
		})
	}
}
