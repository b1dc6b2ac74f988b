package install

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/registration/manifests"
	"github.com/workloadid/workloadid/registration/ocm"
)

func TestReleaseImage(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3":                               "ghcr.io/workloadid/wid-hub:v1.2.3",
		"v0.1.0-rc.1":                          "ghcr.io/workloadid/wid-hub:v0.1.0-rc.1",
		"(devel)":                              "",
		"unknown":                              "",
		"v1.2.3+dirty":                         "",
		"v0.0.0-20261122101010-0123456789ab":   "",
		"v1.2.4-0.20261122101010-0123456789ab": "",
	} {
		if got := ReleaseImage(version, "wid-hub"); got != want {
			t.Errorf("%s: got %q, want %q", version, got, want)
		}
	}
}

// Pods of Open Cluster Management run in the namespaces of the same names.
func TestPodSecurityIsOfOurNamespacesOnly(t *testing.T) {
	const label = "pod-security.kubernetes.io/enforce"
	for name, row := range map[string]struct {
		manager string // of the namespace that exists
		want    string
	}{"a new namespace": {"", "restricted"}, "our own": {"wid", "restricted"},
		"of Open Cluster Management": {"cluster-manager", ""}} {
		t.Run(name, func(t *testing.T) {
			c := fake.NewClientBuilder().WithReturnManagedFields().Build()
			if row.manager != "" {
				namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ocm.HubNamespace,
					Labels: map[string]string{"a": "b"}}}
				if err := c.Create(t.Context(), namespace, client.FieldOwner(row.manager)); err != nil {
					t.Fatal(err)
				}
			}
			objects, err := manifests.Parse(manifests.HubRBAC())
			if err == nil {
				err = keepPodSecurity(t.Context(), c, objects[0])
			}
			if got := objects[0].GetLabels()[label]; err != nil || got != row.want {
				t.Errorf("the label is %q, %v", got, err)
			}
		})
	}
}

// What an address proves is refused, with the reason. What it does not prove is
// a warning.
func TestSupportMatrixIsEnforced(t *testing.T) {
	const onEKS, elsewhere = "https://ab.gr7.eu-central-1.eks.amazonaws.com", "https://hub.example:6443"
	hub := func(server string, authTypes ...string) func(*cobra.Command) error {
		return func(cmd *cobra.Command) error { return CheckHub(cmd, authTypes, server) }
	}
	managed := func(server, authType string) func(*cobra.Command) error {
		return func(cmd *cobra.Command) error { CheckManaged(cmd, authType, server); return nil }
	}
	for name, tc := range map[string]struct {
		check          func(*cobra.Command) error
		refuses, warns string
	}{
		"csr on EKS":      {hub(onEKS, "csr"), "EKS signs none", ""},
		"csr elsewhere":   {hub(elsewhere, "csr"), "", ""},
		"aws-irsa on EKS": {hub(onEKS, "aws-irsa"), "", ""},
		"aws-irsa alone elsewhere": {hub(elsewhere, "aws-irsa"), "",
			`alone needs a hub on EKS, which checks tokens of AWS itself: on other hubs use it together with "csr"`},
		"both on EKS": {hub(onEKS, "csr", "aws-irsa"), "EKS signs none", ""},
		"both elsewhere": {hub(elsewhere, "csr", "aws-irsa"), "",
			"needs an authentication webhook for tokens of AWS"},
		"managed cluster on EKS": {managed(onEKS, "aws-irsa"), "", ""},
		"managed cluster elsewhere": {managed(elsewhere, "aws-irsa"), "",
			"needs a managed cluster on EKS, since its ARN names it"},
		"managed cluster elsewhere that has csr": {managed(elsewhere, "csr"), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var said strings.Builder
			cmd := &cobra.Command{}
			cmd.SetErr(&said)
			err := tc.check(cmd)
			if (err != nil) != (tc.refuses != "") || err != nil && !strings.Contains(err.Error(), tc.refuses) {
				t.Errorf("got %v, want %q", err, tc.refuses)
			}
			if (said.Len() > 0) != (tc.warns != "") || !strings.Contains(said.String(), tc.warns) {
				t.Errorf("warns %q, want %q", said.String(), tc.warns)
			}
		})
	}
}

func TestIsEKS(t *testing.T) {
	for server, want := range map[string]bool{
		"https://AB.gr7.eu-central-1.eks.amazonaws.com":       true,
		"https://ab.sk1.cn-north-1.eks.amazonaws.com.cn":      true,
		"https://ab.gr7.eu-central-1.eks.amazonaws.com:443/x": true,
		"https://ab.eks-cluster.eu-central-1.api.aws":         true,
		"https://hub.example:6443":                            false,
		"https://hub.example/.eks.amazonaws.com":              false,
		"https://x.eks.amazonaws.com.attacker.example":        false,
		"::": false,
	} {
		if got := IsEKS(server); got != want {
			t.Errorf("isEKS(%q) = %t", server, got)
		}
	}
}

// The command of a wait that ends names the cluster.
func TestAwaitDeploymentNamesTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"},
			Spec: appsv1.DeploymentSpec{Replicas: new(int32(1))}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		cmd := &cobra.Command{}
		cmd.SetErr(&bytes.Buffer{})
		err := awaitDeployment(ctx, cmd, cli.KubeFile{Context: "hub"}, fake.NewClientBuilder().WithObjects(d).Build(),
			"a", "b")
		if err == nil || !strings.Contains(err.Error(), "kubectl --context hub -n a describe pods") {
			t.Errorf("it says %v", err)
		}
	})
}

// A definition may be another tool's, with other users: --force-conflicts never
// overwrites it.
func TestForceConflictsSparesDefinitions(t *testing.T) {
	for name, tc := range map[string]struct {
		kind          string
		force, forced bool
	}{
		"forced":              {"ClusterRole", true, true},
		"not forced":          {"ClusterRole", false, false},
		"definition":          {"CustomResourceDefinition", true, false},
		"definition, unasked": {"CustomResourceDefinition", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			var applied client.ApplyOptions
			c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{Apply: func(_ context.Context,
				_ client.WithWatch, _ runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
				applied.ApplyOptions(opts)
				return nil
			}})
			object := &unstructured.Unstructured{}
			object.SetKind(tc.kind)
			err := (&Installing{force: tc.force}).apply(t.Context(), c, object)
			if got := applied.Force != nil && *applied.Force; err != nil || got != tc.forced {
				t.Errorf("forced is %t, %v, want %t", got, err, tc.forced)
			}
		})
	}
}
