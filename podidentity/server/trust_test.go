package server_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/aws-sdk-go-v2/service/sts/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/internal/testing/testenv"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/podidentity/server"
)

func TestSessionName(t *testing.T) {
	long := strings.Repeat("n", 63)
	longest := strings.Repeat("s", 253)
	for name, test := range map[string]struct{ cluster, namespace, serviceAccount, want string }{
		"with a cluster":            {"prod", "team-a", "app", "prod.team-a.app"},
		"dots in the name":          {"prod", "a", "b.c", "prod.a.b.c"},
		"shortest":                  {"c", "a", "b", "c.a.b"},
		"64 characters":             {"c", long[:30], longest[:31], "c." + long[:30] + "." + longest[:31]},
		"65 characters are hashed":  {"c", long[:31], longest[:31], ""},
		"319 characters are hashed": {"c", long, longest, ""},
		"381 characters are hashed": {long, long, longest, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := server.SessionName(test.cluster, test.namespace, test.serviceAccount)
			if test.want != "" && got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if !regexp.MustCompile(`^[\w+=,.@-]{2,64}$`).MatchString(got) ||
				test.want == "" && (!strings.Contains(got, "@") || len(got) != 64) {
				t.Errorf("got %q", got)
			}
		})
	}
}

// No two identities of one installation share a session name, whatever their
// lengths.
func TestSessionNameIsInjective(t *testing.T) {
	seen := map[string][3]string{}
	labels := []string{"a", "b", "a-b", strings.Repeat("a", 31), strings.Repeat("a", 63), strings.Repeat("a", 62) + "b"}
	names := append([]string{"a.b", "a.a", "b.a", strings.Repeat("a", 253), strings.Repeat("a", 252) + "b",
		strings.Repeat("a.", 120) + "a"}, labels...)
	for _, cluster := range labels {
		for _, namespace := range labels {
			for _, name := range names {
				got := server.SessionName(cluster, namespace, name)
				if other, taken := seen[got]; taken {
					t.Errorf("%v and %v share %q", other, [3]string{cluster, namespace, name}, got)
				}
				seen[got] = [3]string{cluster, namespace, name}
			}
		}
	}
}

func bindingOf(namespace, serviceAccount, role string) *v1alpha1.IAMBinding {
	return &v1alpha1.IAMBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "b"},
		Spec: v1alpha1.IAMBindingSpec{AWS: v1alpha1.AWSRole{RoleARN: role},
			ServiceAccountRef: v1alpha1.ServiceAccountReference{Name: serviceAccount}}}
}

// AWS lets the server assume a role with the printed policy for the
// ServiceAccount of the binding, and for no other.
func TestTrustPolicyAtSTS(t *testing.T) {
	cloud := testenv.Cloud(t)
	id, secret := cloud.AWS().AddUser(account, "admin")
	config := awssdk.Config{Region: region, HTTPClient: cloud.Client(),
		Credentials: credentials.NewStaticCredentialsProvider(id, secret, "")}
	roleOf := func(name string, policy []byte) *iam.CreateRoleInput {
		return &iam.CreateRoleInput{RoleName: &name, AssumeRolePolicyDocument: awssdk.String(string(policy))}
	}
	admin := iam.NewFromConfig(config)
	if _, err := admin.CreateRole(t.Context(),
		roleOf("pod-identity", []byte(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow",
		"Principal":{"AWS":"arn:aws:iam::`+account+`:user/admin"},"Action":"sts:AssumeRole"}]}`))); err != nil {
		t.Fatal(err)
	}
	cloud.AWS().Allow(serverRole, "sts:*")
	b := bindingOf("team-a", strings.Repeat("s", 253), roles+"app")
	b.Spec.AWS.ExternalID = "ext"
	policy, err := server.TrustPolicy("prod", serverRole, b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CreateRole(t.Context(), roleOf("app", policy)); err != nil {
		t.Fatal(err)
	}
	out, err := sts.NewFromConfig(config).AssumeRole(t.Context(),
		&sts.AssumeRoleInput{RoleArn: awssdk.String(serverRole), RoleSessionName: awssdk.String("server")})
	if err != nil {
		t.Fatal(err)
	}
	config.Credentials = credentials.NewStaticCredentialsProvider(*out.Credentials.AccessKeyId,
		*out.Credentials.SecretAccessKey, *out.Credentials.SessionToken)
	own := sts.NewFromConfig(config)
	for name, test := range map[string]struct {
		cluster, namespace, tagged, externalID string
		good                                   bool
	}{
		"the ServiceAccount of the binding": {"prod", "team-a", "team-a", "ext", true},
		"another namespace":                 {"prod", "team-b", "team-b", "ext", false},
		"another cluster":                   {"dev", "team-a", "team-a", "ext", false},
		"another namespace's tag":           {"prod", "team-a", "team-b", "ext", false},
		"another external ID":               {"prod", "team-a", "team-a", "other", false},
	} {
		t.Run(name, func(t *testing.T) {
			tags := map[string]string{"kubernetes-namespace": test.tagged,
				"kubernetes-service-account": b.Spec.ServiceAccountRef.Name, "cluster": test.cluster}
			in := &sts.AssumeRoleInput{RoleArn: &b.Spec.AWS.RoleARN, ExternalId: &test.externalID,
				RoleSessionName: awssdk.String(server.SessionName(test.cluster, test.namespace, b.Spec.ServiceAccountRef.Name))}
			for key, value := range tags {
				in.Tags = append(in.Tags, types.Tag{Key: awssdk.String(key), Value: awssdk.String(value)})
			}
			if _, err := own.AssumeRole(t.Context(), in); (err == nil) != test.good {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestTrustPolicy(t *testing.T) {
	policy, err := server.TrustPolicy("prod", serverRole, bindingOf("team-a", "app", roles+"app"))
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(policy) || !strings.Contains(string(policy), `"sts:RoleSessionName": "prod.team-a.app"`) ||
		strings.Contains(string(policy), "ExternalId") {
		t.Errorf("the policy is %s", policy)
	}
	if _, err := server.TrustPolicy("", serverRole, bindingOf("a", "b", roles+"app")); err == nil ||
		!strings.Contains(err.Error(), `cluster ""`) {
		t.Errorf("without a cluster: %v", err)
	}
	if _, err := server.TrustPolicy("prod", "arn:aws:sts::"+account+":assumed-role/x/y",
		bindingOf("a", "b", roles+"app")); err == nil || !strings.Contains(err.Error(), "assumed-role/x/y") {
		t.Errorf("got %v", err)
	}
}
