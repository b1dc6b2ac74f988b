package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/ocm"
)

// webhookOfOCM asks as the registration webhook of Open Cluster Management does, and refuses clusters whose namespace ends.
const webhookOfOCM = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: webhook-of-ocm}
spec:
  matchConstraints:
    objectSelector: {matchLabels: {webhook: ocm}}
    resourceRules: [{apiGroups: [cluster.open-cluster-management.io], apiVersions: ["*"], resources: [managedclusters], operations: [UPDATE]}]
  validations:
  - expression: >-
      object.spec.hubAcceptsClient == oldObject.spec.hubAcceptsClient || !object.spec.hubAcceptsClient ||
      authorizer.group('register.open-cluster-management.io').resource('managedclusters').subresource('accept').name(object.metadata.name).check('update').allowed()
    reason: Forbidden
    message: the user cannot update the HubAcceptsClient field
  - expression: "!has(object.metadata.labels.ending)"
    reason: Forbidden
    message: the cluster namespace is terminating
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: webhook-of-ocm}
spec: {policyName: webhook-of-ocm, validationActions: [Deny]}`

// rightsWorld is a hub without its program, whose users lack rights.
type rightsWorld struct{ *regtest.World }

// cluster creates a cluster that waits for acceptance.
func (w rightsWorld) cluster(t *testing.T, name string, accepted bool, labels map[string]string) {
	t.Helper()
	cluster := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: ocm.ManagedClusterSpec{HubAcceptsClient: accepted}}
	if err := w.Admin.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Admin.Delete(context.WithoutCancel(t.Context()), cluster); err != nil {
			t.Error(err)
		}
	})
}

// installWebhook returns when it refuses.
func (w rightsWorld) installWebhook(t *testing.T) {
	t.Helper()
	w.Apply(w.Admin, webhookOfOCM)
	t.Cleanup(func() {
		for _, kind := range []string{"ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"} {
			o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": map[string]any{"name": "webhook-of-ocm"}}}
			if err := w.Admin.Delete(context.WithoutCancel(t.Context()), o); err != nil {
				t.Error(err)
			}
		}
	})
	w.cluster(t, "rights-probe", false, map[string]string{"webhook": "ocm", "ending": "yes"})
	regtest.Eventually(t, "the webhook is in force", func() bool {
		return apierrors.IsForbidden(regtest.Patch(t.Context(), w.Admin, "rights-probe", `{"metadata":{"annotations":{"a":"b"}}}`))
	})
}

// allow gives a user more rules.
func (w rightsWorld) allow(t *testing.T, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	config := w.Hub.User(t, user, "", rules...)
	t.Setenv("KUBECONFIG", writeFile(t, "kubeconfig", kubeconfigOf(t, config.Host, config.CAData, config.CertData, config.KeyData, "")))
}

var ruleText = regexp.MustCompile(`\{apiGroups: [^}]*\}`)

// rulesIn returns the rules that a remedy names.
func rulesIn(t *testing.T, err error) (rules []rbacv1.PolicyRule) {
	t.Helper()
	var known *auth.Error
	if !errors.As(err, &known) || strings.Contains(known.Remedy, "\n") {
		t.Fatalf("no remedy in one line: %v", err)
	}
	for _, text := range ruleText.FindAllString(known.Remedy, -1) {
		var rule rbacv1.PolicyRule
		if err := yaml.UnmarshalStrict([]byte(text), &rule); err != nil {
			t.Fatal(err)
		}
		rules = append(rules, rule)
	}
	return rules
}

// A person who lacks rights gets them one command after the other, as each remedy says, until the hub takes the decision.
func TestHubAcceptNamesTheMissingRight(t *testing.T) {
	w := rightsWorld{regtest.New(t)}
	w.installWebhook(t)
	rule := func(verb, group, resource string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}}
	}
	const registerGroup = "register.open-cluster-management.io"
	patch, accept := rule("patch", ocm.GroupVersion.Group, "managedclusters"), rule("update", ocm.GroupVersion.Group, "managedclusters/accept")
	register := rule("update", registerGroup, "managedclusters/accept")
	hook := map[string]string{"webhook": "ocm"}
	n := 0
	for name, row := range map[string]struct {
		deny   bool
		labels map[string]string
		has    []rbacv1.PolicyRule
		want   []string // the remedies, one for each run before the last
	}{
		"nothing":                          {false, nil, nil, []string{"patch managedclusters, update managedclusters/accept"}},
		"no right to accept":               {false, nil, []rbacv1.PolicyRule{patch}, []string{"update managedclusters/accept"}},
		"no right to write":                {false, nil, []rbacv1.PolicyRule{accept}, []string{"patch managedclusters"}},
		"nothing, with OCM's webhook":      {false, hook, nil, []string{"patch managedclusters, update managedclusters/accept", "update managedclusters/accept of register"}},
		"not that of OCM's webhook":        {false, hook, []rbacv1.PolicyRule{patch, accept}, []string{"update managedclusters/accept of register"}},
		"all, with OCM's webhook":          {false, hook, []rbacv1.PolicyRule{patch, accept, register}, nil},
		"all, without OCM's webhook":       {false, nil, []rbacv1.PolicyRule{patch, accept}, nil},
		"no right to accept, for a denial": {true, nil, []rbacv1.PolicyRule{patch}, []string{"update managedclusters/accept"}},
		"a denial takes no right of OCM's": {true, hook, []rbacv1.PolicyRule{patch, accept}, nil},
		"all, but the namespace is ending": {false, map[string]string{"webhook": "ocm", "ending": "yes"}, []rbacv1.PolicyRule{patch, accept, register}, []string{""}},
		"one, and the namespace is ending": {false, map[string]string{"webhook": "ocm", "ending": "yes"}, []rbacv1.PolicyRule{patch, accept}, []string{"update managedclusters/accept of register", ""}},
		"nothing, for a denial":            {true, nil, nil, []string{"patch managedclusters, update managedclusters/accept"}},
	} {
		t.Run(name, func(t *testing.T) {
			n++
			cluster := fmt.Sprintf("rights-%d", n)
			w.cluster(t, cluster, row.deny, row.labels)
			w.allow(t, cluster, append([]rbacv1.PolicyRule{rule("get", ocm.GroupVersion.Group, "managedclusters"), rule("patch", ocm.GroupVersion.Group, "managedclusters/status"),
				rule("get", rbacv1.GroupName, "clusterroles"), rule("list", "certificates.k8s.io", "certificatesigningrequests")}, row.has...)...)
			args := []string{"hub", "accept", "--clusters=" + cluster, "--claim="}
			if row.deny {
				args = []string{"hub", "deny", "--clusters=" + cluster}
			}
			for _, want := range row.want {
				_, err := wid(t, "", args...)
				if err == nil || cli.ExitCode(t.Context(), err) != cli.ExitDenied {
					t.Fatalf("it says %v", err)
				}
				var got []string
				rules := rulesIn(t, err)
				for _, r := range rules {
					got = append(got, strings.TrimSuffix(r.Verbs[0]+" "+r.Resources[0]+" of "+strings.Split(r.APIGroups[0], ".")[0], " of cluster"))
				}
				if strings.Join(got, ", ") != want {
					t.Fatalf("the remedy names %q, want %q: %v", got, want, err)
				}
				if slices.Contains(row.want, "") && want == "" {
					return // no right helps
				}
				w.allow(t, cluster, rules...)
			}
			must(t, args...)
			if err := w.Admin.Get(t.Context(), client.ObjectKey{Name: cluster}, &ocm.ManagedCluster{}); err != nil || w.Cluster(cluster).Spec.HubAcceptsClient == row.deny {
				t.Errorf("accepted %t, %v", w.Cluster(cluster).Spec.HubAcceptsClient, err)
			}
		})
	}
}
