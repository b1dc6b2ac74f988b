package awsirsa_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/internal/testing/slowserver"
	"github.com/workloadid/workloadid/registration/awsirsa"
)

const nodes = "- groups:\n  - system:nodes\n  rolearn: arn:aws:iam::111111111111:role/nodes\n  username: system:node:{{EC2PrivateDNSName}}\n  extra: kept\n"

// configMap is kube-system/aws-auth, of which it counts the writes.
func configMap(t testing.TB, mapRoles string, writes *int) client.Client {
	t.Helper()
	return fake.NewClientBuilder().WithScheme(regtest.Scheme(t)).WithObjects(
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "aws-auth"},
			Data: map[string]string{"mapRoles": mapRoles, "mapUsers": "[]"}}).
		WithInterceptorFuncs(interceptor.Funcs{Update: func(ctx context.Context, c client.WithWatch, o client.Object,
			opts ...client.UpdateOption) error {
			*writes++
			return c.Update(ctx, o, opts...)
		}}).Build()
}

func withAWSAuth(c client.Client) func(*awsirsa.HubDriverOptions) {
	return func(o *awsirsa.HubDriverOptions) { o.Binding, o.Client, o.EKS = awsirsa.AWSAuth, c, nil }
}

func mapRoles(t testing.TB, c client.Client) string {
	t.Helper()
	var cm corev1.ConfigMap
	regtest.Must(t, c.Get(t.Context(), client.ObjectKey{Namespace: "kube-system", Name: "aws-auth"}, &cm))
	return cm.Data["mapRoles"]
}

func mappings(t testing.TB, c client.Client) (all []map[string]any) {
	t.Helper()
	regtest.Must(t, yaml.Unmarshal([]byte(mapRoles(t, c)), &all))
	return all
}

func TestAWSAuthKeepsTheEntriesOfOthers(t *testing.T) {
	var writes int
	c, kube := newCloud(), configMap(t, nodes, &writes)
	h := newHub(t, c, withAWSAuth(kube))
	for range 2 {
		if _, err := h.Grant(t.Context(), "shop1", managedARN); err != nil {
			t.Fatal(err)
		}
	}
	all := mappings(t, kube)
	if len(all) != 2 || all[0]["extra"] != "kept" || all[1]["rolearn"] != awsirsa.GrantedRoleARN(pair(t)) ||
		fmt.Sprint(all[1]["groups"]) != "[system:open-cluster-management:shop1]" {
		t.Errorf("entries %v", all)
	}
	if writes != 1 {
		t.Errorf("%d writes", writes)
	}
	regtest.Must(t, h.Revoke(t.Context(), "shop1", managedARN))
	if all := mappings(t, kube); len(all) != 1 || all[0]["extra"] != "kept" || len(c.roles) > 0 {
		t.Errorf("left behind: %v, %v", all, c.roles)
	}
}

// Versions of YAML differ in the types of these values, and a program that
// reads them as strings sees the text.
func TestAWSAuthKeepsTheTextOfOthersEntries(t *testing.T) {
	for _, value := range []string{"0123", "1e3", "yes", "2026-11-22", "1_000", "0o17", "12345678901234567890", "1.10",
		"~", `"0123"`, "!!str 7"} {
		t.Run(value, func(t *testing.T) {
			var writes int
			text := "# nodes\n- rolearn: arn:aws:iam::111111111111:role/admin # ours\n  username: " + value +
				"\n  groups:\n  - on\n  - system:nodes\n"
			kube := configMap(t, text, &writes)
			h := newHub(t, newCloud(), withAWSAuth(kube))
			if _, err := h.Grant(t.Context(), "shop1", managedARN); err != nil {
				t.Fatal(err)
			}
			if got := mapRoles(t, kube); !strings.HasPrefix(got, text) || len(mappings(t, kube)) != 2 {
				t.Errorf("after the grant:\n%s", got)
			}
			regtest.Must(t, h.Revoke(t.Context(), "shop1", managedARN))
			if got := mapRoles(t, kube); got != text || writes != 2 {
				t.Errorf("after the revocation, with %d writes:\n%s", writes, got)
			}
		})
	}
}

func TestAWSAuthDriftIsRepaired(t *testing.T) {
	user := "open-cluster-management:shop1:{{SessionName}}"
	arn := awsirsa.GrantedRoleARN(pair(t))
	entry := func(groups string) string {
		return "- rolearn: " + arn + "\n  username: \"" + user + "\"\n  groups: [" + groups + "]\n"
	}
	for name, mapRoles := range map[string]string{
		"groups":         entry("system:masters"),
		"entry twice":    entry(`"system:open-cluster-management:shop1"`) + entry(`"system:masters"`),
		"further field":  entry(`"system:open-cluster-management:shop1"`) + "  more: true\n",
		"no groups":      entry(""),
		"nothing at all": "",
	} {
		t.Run(name, func(t *testing.T) {
			var writes int
			kube := configMap(t, mapRoles, &writes)
			if _, err := newHub(t, newCloud(), withAWSAuth(kube)).Grant(t.Context(), "shop1", managedARN); err != nil {
				t.Fatal(err)
			}
			all := mappings(t, kube)
			if len(all) != 1 || fmt.Sprint(all[0]["groups"]) != "[system:open-cluster-management:shop1]" || len(all[0]) != 3 ||
				writes != 1 {
				t.Errorf("entries %v after %d writes", all, writes)
			}
		})
	}
}

func TestAWSAuthTouchesNothingThatIsNotOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		arn := awsirsa.GrantedRoleARN(pair(t))
		for name, mapRoles := range map[string]string{
			"another's entry for the role": "- rolearn: " + arn + "\n  username: admin\n  groups: [system:masters]\n",
			"not a list":                   "rolearn: a\n",
			"no YAML":                      "\t:",
			"not of mappings":              "- a\n",
			"a field twice":                "- rolearn: a\n  rolearn: b\n",
			"an anchor in our entry": "- &a {rolearn: " + arn +
				", username: 'open-cluster-management:shop1:{{SessionName}}', groups: []}\n" + "- {<<: *a, rolearn: other}\n",
		} {
			var writes int
			kube := configMap(t, mapRoles, &writes)
			h := newHub(t, newCloud(), withAWSAuth(kube))
			if _, err := h.Grant(t.Context(), "shop1", managedARN); err == nil {
				t.Errorf("%s: granted", name)
			}
			_ = h.Revoke(t.Context(), "shop1", managedARN)
			if writes > 0 {
				t.Errorf("%s: %d writes", name, writes)
			}
		}
	})
}

func TestAWSAuthIsCreatedWhereThereIsNone(t *testing.T) {
	kube := fake.NewClientBuilder().WithScheme(regtest.Scheme(t)).Build()
	if _, err := newHub(t, newCloud(), withAWSAuth(kube)).Grant(t.Context(), "shop1", managedARN); err != nil {
		t.Fatal(err)
	}
	if all := mappings(t, kube); len(all) != 1 {
		t.Errorf("entries %v", all)
	}
}

// An old access entry gives nothing once its role is gone. Denying the cluster
// before the switch leaves none.
func TestSwitchOfTheBindingLeavesTheOldMapping(t *testing.T) {
	var writes int
	c, kube := newCloud(), configMap(t, nodes, &writes)
	mustGrant(t, c, "shop1", managedARN)
	h := newHub(t, c, withAWSAuth(kube))
	if _, err := h.Grant(t.Context(), "shop1", managedARN); err != nil || len(mappings(t, kube)) != 2 {
		t.Fatalf("entries %v, %v", mappings(t, kube), err)
	}
	regtest.Must(t, h.Revoke(t.Context(), "shop1", managedARN))
	if len(c.entries) != 1 || len(c.groups(shopRole(t))) > 0 || len(c.roles) > 0 {
		t.Errorf("access entries %v, which give %q", c.entries, c.groups(shopRole(t)))
	}
	if _, err := h.Grant(t.Context(), "shop1", managedARN); err != nil || len(c.groups(shopRole(t))) > 0 {
		t.Errorf("the old entry gives %q to the new role, %v", c.groups(shopRole(t)), err)
	}
	mustRevoke(t, c, "shop1", managedARN) // by the binding of before
	checkNothingLeft(t, c)
}

func TestAWSAuthLosesNoConcurrentEdit(t *testing.T) {
	var writes int
	var mu sync.Mutex
	base, ok := configMap(t, nodes, &writes).(client.WithWatch)
	if !ok {
		t.Fatal("no WithWatch")
	}
	kube := interceptor.NewClient(base,
		interceptor.Funcs{Update: func(ctx context.Context, c client.WithWatch, o client.Object,
			opts ...client.UpdateOption) error {
			mu.Lock()
			defer mu.Unlock()
			return c.Update(ctx, o, opts...)
		}})
	h := newHub(t, newCloud(), withAWSAuth(kube))
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			if _, err := h.Grant(t.Context(), fmt.Sprint("shop", i), fmt.Sprint(managedARN, i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := mappings(t, kube); len(got) != 17 {
		t.Errorf("%d entries, want 17", len(got))
	}
}

func TestHubOptionsAreChecked(t *testing.T) {
	for name, change := range map[string]func(*awsirsa.HubDriverOptions){
		"no hub":           func(o *awsirsa.HubDriverOptions) { o.Hub = "" },
		"no IAM":           func(o *awsirsa.HubDriverOptions) { o.IAM = nil },
		"no EKS":           func(o *awsirsa.HubDriverOptions) { o.EKS = nil },
		"no client":        func(o *awsirsa.HubDriverOptions) { o.Binding = awsirsa.AWSAuth },
		"unknown binding":  func(o *awsirsa.HubDriverOptions) { o.Binding = "other" },
		"negative maximum": func(o *awsirsa.HubDriverOptions) { o.MaxRoles = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			options := awsirsa.HubDriverOptions{Hub: hubARN, IAM: newCloud(), EKS: newCloud()}
			change(&options)
			if _, err := awsirsa.NewHubDriver(options); err == nil || !strings.HasPrefix(err.Error(), "awsirsa: ") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A revocation that counts as done would let the hub delete its record.
func TestAWSAuthReportsAWriteThatTimesOut(t *testing.T) {
	var writes int
	cloud, kube := newCloud(), configMap(t, nodes, &writes)
	_, err := newHub(t, cloud, withAWSAuth(kube)).Grant(t.Context(), "shop1", managedARN)
	regtest.Must(t, err)
	mapped := &corev1.ConfigMap{}
	regtest.Must(t, kube.Get(t.Context(), client.ObjectKey{Namespace: "kube-system", Name: "aws-auth"}, mapped))
	slowserver.TestObject(t, regtest.Scheme(t), mapped, func(c client.WithWatch) error {
		return newHub(t, cloud, withAWSAuth(c)).Revoke(t.Context(), "shop1", managedARN)
	})
}
