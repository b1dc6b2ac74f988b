package hub_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/manifests"
	"github.com/workloadid/workloadid/registration/ocm"
)

const addOnGroup = "addon.open-cluster-management.io"

// The CustomResourceDefinitions of a released hub bound fewer fields than ours.
func TestPoliciesOnAReleasedHub(t *testing.T) {
	k := startReleased(t)
	config := k.controllerConfig()
	k.run(t, config, 4, newHubDriver("one", driverAnnotation))
	hub := regtest.NewClient(t, config)
	k.Step("an agent fills its cluster", k.testFillCluster)
	k.Step("an agent fills its cluster with field managers", k.testFillManagers)
	k.Step("a cluster was full before", k.testFullBefore)
	k.Step("an agent fills an add-on", func(t *testing.T) { k.testFillAddOns(t, hub) })
	k.Step("a bootstrap user creates large clusters", k.testLargeClusters)
	k.Step("a bootstrap user creates large requests", k.testLargeRequests)
	k.Step("a cluster labels its own requests only", k.testRequestLabels)
	k.Step("the hub binds ClusterRoles of clusters only", func(t *testing.T) { k.testBind(t, hub) })
}

// startReleased returns the hub that most tests share.
func startReleased(t *testing.T) *hubKube {
	t.Helper()
	return startReleasedOn(t, kubetest.StartSecond(t))
}

func startReleasedOn(t *testing.T, cluster *kubetest.Cluster) *hubKube {
	t.Helper()
	admin := regtest.NewClient(t, cluster.Config())
	for _, name := range []string{"managedclusters", "managedclusteraddons"} {
		crd, err := os.ReadFile("testdata/ocm/" + name + ".yaml")
		regtest.Must(t, err)
		kubetest.Apply(t, admin, string(crd))
	}
	// two manifests need it
	kubetest.Apply(t, admin, "apiVersion: v1\nkind: Namespace\nmetadata: {name: open-cluster-management-hub}\n")
	kubetest.Apply(t, admin, manifests.TokenRBAC())
	kubetest.Apply(t, admin, manifests.BootstrapRBAC())
	k := &hubKube{Environment: regtest.NewHub(t, cluster)} // HubRBAC's last policy is the one to wait for
	k.awaitPolicy(t)
	kubetest.Eventually(t, "the API server serves add-ons", func() bool {
		k.Admin = regtest.NewClient(t, k.Hub.Config()) // a client may remember that there are none
		return k.Admin.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "a"}, newAddOn("v1beta1", "a")) != nil
	})
	return k
}

// controllerConfig is the configuration of the hub controller's ServiceAccount.
func (k *hubKube) controllerConfig() *rest.Config {
	config := k.Hub.Config()
	config.Impersonate.UserName = regtest.HubUser
	config.Impersonate.Groups = []string{"system:serviceaccounts", "system:serviceaccounts:open-cluster-management-hub",
		"system:authenticated"}
	return config
}

// field writes n characters to one field of an object.
type field struct {
	name, path string
	value      func(n int) any
}

// patch writes the field as a user. The other keys of a map stay.
func (f field) patch(t *testing.T, c client.Client, o *unstructured.Unstructured, n int, dryRun ...string) error {
	t.Helper()
	value := f.value(n)
	if list, ok := value.([]any); ok && f.path == "status.conditions" {
		value = append(hubConditions(o.Object), list...)
	}
	body := map[string]any{}
	regtest.Must(t, unstructured.SetNestedField(body, value, strings.Split(f.path, ".")...))
	data, err := json.Marshal(body)
	regtest.Must(t, err)
	patch := client.RawPatch(types.MergePatchType, data)
	options := client.PatchOptions{DryRun: dryRun}
	if strings.HasPrefix(f.path, "status") {
		return c.Status().Patch(t.Context(), o.DeepCopy(), patch, &client.SubResourcePatchOptions{PatchOptions: options})
	}
	return c.Patch(t.Context(), o.DeepCopy(), patch, &options)
}

// hubConditions returns the condition that agents may not change.
func hubConditions(o map[string]any) (own []any) {
	all, _, _ := unstructured.NestedSlice(o, "status", "conditions")
	for _, c := range all {
		if c, ok := c.(map[string]any); ok && c["type"] == ocm.ConditionHubAccepted {
			own = append(own, c)
		}
	}
	return own
}

// text returns n characters that take six bytes each in etcd.
func text(n int) any { return strings.Repeat("<", n) }

// items returns a function that makes items of at most limit characters.
func items(limit int, item func(i int, s string) map[string]any) func(int) any {
	return func(n int) any {
		all := []any{}
		for i := 0; n > 0; i++ {
			all = append(all, item(i, strings.Repeat("<", min(n, limit))))
			n -= limit
		}
		return all
	}
}

func condition(i int, s string) map[string]any {
	return map[string]any{"type": fmt.Sprintf("Fill%d", i), "status": "True", "reason": "A", "message": s,
		"lastTransitionTime": "2026-01-01T00:00:00Z"}
}

// manyLabels returns labels of 380 characters each.
func manyLabels(n int) any {
	all := map[string]any{}
	for i := range n / 380 {
		all[fmt.Sprintf("%s%04d/%s", strings.Repeat("a", 249), i, strings.Repeat("x", 63))] = strings.Repeat("x", 63)
	}
	return all
}

// capacity returns resources of 45 characters each.
func capacity(n int) any {
	all := map[string]any{}
	for i := range n / 45 {
		all[fmt.Sprintf("%s%04d", strings.Repeat("<", 40), i)] = "1"
	}
	return all
}

// clusterFields lists the fields of a ManagedCluster that its agent may write.
func clusterFields() []field {
	return []field{
		// the API server has a limit of 256 KiB
		{"annotations", "metadata.annotations", func(n int) any { return map[string]any{"fill": text(min(n, 250_000))} }},
		{"labels", "metadata.labels", manyLabels},
		{"client configs", "spec.managedClusterClientConfigs", items(1<<12, func(_ int, s string) map[string]any {
			return map[string]any{"url": s}
		})},
		{"taints", "spec.taints", items(1<<10, func(i int, s string) map[string]any {
			return map[string]any{"key": fmt.Sprintf("fill%d", i), "value": s, "effect": "NoSelect"}
		})},
		{"allocatable resources", "status.allocatable", func(n int) any {
			all := map[string]any{}
			for i := range n / 1024 {
				all[fmt.Sprintf("%s%04d", strings.Repeat("<", 1019), i)] = int64(1)
			}
			return all
		}},
		{"capacity", "status.capacity", capacity},
		{"version", "status.version.kubernetes", text},
		{"claims", "status.clusterClaims", items(1<<10, func(i int, s string) map[string]any {
			return map[string]any{"name": fmt.Sprintf("fill%d", i), "value": s}
		})},
		{"conditions", "status.conditions", items(1<<15, condition)},
		{"managed namespaces", "status.managedNamespaces", items(1<<12, func(i int, s string) map[string]any {
			return map[string]any{"name": fmt.Sprintf("fill%d", i), "clusterSet": s}
		})},
		{"conditions of a managed namespace", "status.managedNamespaces", func(n int) any {
			return []any{map[string]any{"name": "a", "clusterSet": "b", "conditions": items(1<<15, condition)(n)}}
		}},
	}
}

// fill tries ever more characters in a field, until the policy refuses 4,096
// characters more. It returns the characters.
func fill(t *testing.T, c client.Client, o *unstructured.Unstructured, f field) int {
	t.Helper()
	const tooMany = 1 << 18 // for etcd too
	least, most := 0, 1<<16
	wantTooLarge(t, f.patch(t, c, o, tooMany, "All"), "65536 bytes")
	for !t.Failed() && most-least > 1<<12 {
		n := (least + most) / 2
		if err := f.patch(t, c, o, n, "All"); err == nil {
			least = n
		} else {
			most = n
			wantTooLarge(t, err, "65536 bytes")
		}
	}
	t.Logf("%d characters", least)
	if least < 4096 { // field managers repeat some keys, escaped twice
		t.Errorf("the user may only write %d characters", least)
	}
	return least
}

func newCluster(name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"hubAcceptsClient": true}}}
	o.SetGroupVersionKind(ocm.GroupVersion.WithKind("ManagedCluster"))
	o.SetName(name)
	return o
}

// read returns a cluster with all its fields.
func (k *hubKube) read(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	o := newCluster(name)
	regtest.Must(t, k.Admin.Get(t.Context(), client.ObjectKey{Name: name}, o))
	return o
}

// accepted creates a cluster that the hub has accepted, and returns its agent's
// client.
func (k *hubKube) accepted(t *testing.T, name string) client.Client {
	t.Helper()
	regtest.Must(t, k.Admin.Create(t.Context(), newCluster(name)))
	k.AwaitReason(name, ocm.ConditionHubAccepted, ocm.ReasonHubAccepted)
	k.awaitAgent(t, name, authorizationv1.ResourceAttributes{Verb: "patch", Group: ocm.GroupVersion.Group,
		Resource: "managedclusters", Subresource: "status", Name: name})
	k.awaitAgent(t, name, authorizationv1.ResourceAttributes{Verb: "patch", Group: addOnGroup,
		Resource: "managedclusteraddons", Subresource: "status", Namespace: name})
	return k.AsAgent(name)
}

func (k *hubKube) awaitAgent(t *testing.T, cluster string, attributes authorizationv1.ResourceAttributes) {
	t.Helper()
	k.Hub.Await(t, authorizationv1.SubjectAccessReviewSpec{User: "agent",
		Groups:             []string{registration.ClusterGroup(cluster)},
		ResourceAttributes: &attributes})
}

// remove denies and deletes a cluster, and waits until the hub has revoked its
// access.
func (k *hubKube) remove(t *testing.T, name string) {
	t.Helper()
	if err := setAccepted(t, k.Admin, name, false); err != nil {
		t.Fatalf("an administrator denies: %.300v", err)
	}
	k.AwaitRevoked(name)
	k.AwaitReason(name, ocm.ConditionHubAccepted, ocm.ReasonHubDenied)
	if err := k.Admin.Delete(t.Context(), newCluster(name)); err != nil {
		t.Fatalf("an administrator deletes: %.300v", err)
	}
	kubetest.Eventually(t, "the hub has removed its finalizer", func() bool {
		return apierrors.IsNotFound(k.Admin.Get(t.Context(), client.ObjectKey{Name: name}, &ocm.ManagedCluster{}))
	})
}

// The hub still removes a cluster that its agent has filled.
func (k *hubKube) testFillCluster(t *testing.T) {
	agent := k.accepted(t, "filled")
	var full func(t *testing.T) // the conditions; they leave no room for the other fields
	for _, f := range clusterFields() {
		k.Step(f.name, func(t *testing.T) {
			o := k.read(t, "filled")
			if n := fill(t, agent, o, f); f.name == "conditions" {
				full = func(t *testing.T) { regtest.Must(t, f.patch(t, agent, o, n)) }
			}
		})
	}
	k.Step("conditions to the limit", full)
	k.remove(t, "filled")
}

// Each field manager repeats all keys.
func (k *hubKube) testFillManagers(t *testing.T) {
	agent := k.accepted(t, "managers")
	apply := newCluster("managers")
	unstructured.RemoveNestedField(apply.Object, "spec")
	apply.Object["metadata"] = map[string]any{"name": "managers", "labels": manyLabels(4000)}
	var err error
	n := 0
	for ; err == nil && n < 1000; n++ {
		err = agent.Patch(t.Context(), apply.DeepCopy(), client.Apply, //nolint:staticcheck // no generated type
			client.FieldOwner(fmt.Sprintf("manager%d", n)))
	}
	wantTooLarge(t, err, "65536 bytes")
	t.Logf("%d field managers", n)
	k.remove(t, "managers")
}

// A hub may have large clusters from before its policies. They may change but
// not grow, and the cost of the policies does not refuse the hub.
func (k *hubKube) testFullBefore(*testing.T) {
	for i, f := range []field{
		{"one text of 1.2 MiB", "status.version.kubernetes", func(int) any { return text(210_000) }},
		{"1,000 conditions", "status.conditions", func(int) any { return items(1, condition)(1_000) }},
		{"2,000 resources", "status.capacity", func(int) any { return capacity(90_000) }},
		{"650 labels", "metadata.labels", func(int) any { return manyLabels(247_000) }},
	} {
		k.Step(f.name, func(t *testing.T) {
			name := fmt.Sprintf("before%d", i)
			agent := k.accepted(t, name)
			o := k.read(t, name)
			url := func(url string) field {
				return field{"", "spec.managedClusterClientConfigs", func(int) any { return []any{map[string]any{"url": url}} }}
			}
			if err := errors.Join(url("https://a1").patch(t, agent, o, 0), f.patch(t, k.Admin, o, 0)); err != nil {
				t.Fatalf("%.300v", err)
			}
			wantTooLarge(t, url("https://a12").patch(t, agent, o, 0), "65536 bytes")
			if err := url("https://a2").patch(t, agent, o, 0); err != nil {
				t.Errorf("the agent changes it without growth: %.300v", err)
			}
			k.remove(t, name)
		})
	}
}

func newAddOn(version, namespace string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: addOnGroup, Version: version, Kind: "ManagedClusterAddOn"})
	o.SetNamespace(namespace)
	o.SetName("fill")
	o.SetFinalizers([]string{"example.com/clean-up"})
	return o
}

// addOnFields lists fields of an add-on that its cluster may write: all lists
// of v1alpha1, and those of v1beta1 that differ.
func addOnFields(version string) []field {
	if version == "v1beta1" {
		return []field{
			{"config references", "status.configReferences", items(1<<10, func(_ int, s string) map[string]any {
				return map[string]any{"resource": "a", "desiredConfig": map[string]any{"name": s}}
			})},
			{"registrations", "status.registrations", items(1<<10, func(_ int, s string) map[string]any {
				return map[string]any{"type": "kubeClient", "kubeClient": map[string]any{"subject": map[string]any{"user": s}}}
			})},
		}
	}
	return []field{
		{"description", "status.addOnMeta.description", text},
		{"conditions", "status.conditions", items(1<<15, condition)},
		{"config references", "status.configReferences", items(1<<10, func(_ int, s string) map[string]any {
			return map[string]any{"resource": "a", "name": s}
		})},
		{"namespace", "status.namespace", text},
		{"registrations", "status.registrations", items(1<<10, func(_ int, s string) map[string]any {
			return map[string]any{"signerName": "example.com/a", "subject": map[string]any{"groups": []any{s}}}
		})},
		{"related objects", "status.relatedObjects", items(1<<10, func(_ int, s string) map[string]any {
			return map[string]any{"group": "a", "resource": "b", "name": s}
		})},
		{"supported configs", "status.supportedConfigs", items(1<<10, func(i int, s string) map[string]any {
			return map[string]any{"group": s, "resource": fmt.Sprint("a", i)}
		})},
	}
}

func (k *hubKube) testFillAddOns(t *testing.T, hub client.Client) {
	k.allow(t, "add-on-manager", rbacv1.Subject{Kind: rbacv1.UserKind, Name: "add-on-manager"}, rbacv1.PolicyRule{
		APIGroups: []string{addOnGroup}, Resources: []string{"managedclusteraddons"},
		Verbs: []string{"get", "patch", "delete"}})
	manager := k.As("add-on-manager")
	agent := k.accepted(t, "addons")
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		for i, f := range addOnFields(version) {
			k.Step(version+" "+f.name, func(t *testing.T) {
				o := newAddOn(version, "addons")
				o.SetName(fmt.Sprintf("%s-%d", version, i)) // a failed row leaves its add-on
				regtest.Must(t, k.Admin.Create(t.Context(), o))
				regtest.Must(t, f.patch(t, agent, o, fill(t, agent, o, f)))
				report := field{"", "status.healthCheck", func(int) any { return map[string]any{"mode": "Customized"} }}
				if err := report.patch(t, hub, o, 0); err != nil {
					t.Errorf("the hub reports: %.300v", err)
				}
				if err := manager.Delete(t.Context(), o); err != nil {
					t.Fatalf("its manager deletes it: %.300v", err)
				}
				if err := manager.Patch(t.Context(), o,
					client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
					t.Fatalf("its manager removes the finalizer: %.300v", err)
				}
				if err := k.Admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
					t.Errorf("it is still there: %.300v", err)
				}
			})
		}
	}
}

// bootstrap returns a client of a bootstrap user.
func (k *hubKube) bootstrap(t *testing.T) client.Client {
	t.Helper()
	for group, resource := range map[string]string{ocm.GroupVersion.Group: "managedclusters",
		certificatesv1.GroupName: "certificatesigningrequests"} {
		k.Hub.Await(t, authorizationv1.SubjectAccessReviewSpec{User: "bootstrap",
			Groups:             []string{registration.BootstrapGroup},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "create", Group: group, Resource: resource}})
	}
	return k.As("bootstrap", registration.BootstrapGroup)
}

// wantTooLarge checks that a policy refuses an object for its size. A Forbidden
// would mean to an agent that the hub has not accepted it.
func wantTooLarge(t *testing.T, err error, limit string) {
	t.Helper()
	if !apierrors.IsRequestEntityTooLargeError(err) || !strings.Contains(err.Error(), limit) {
		t.Errorf("no policy refuses it: %.300v", err)
	}
}

func wantRefused(t *testing.T, err error, refused bool) {
	t.Helper()
	switch {
	case refused:
		wantTooLarge(t, err, "16384 bytes")
	case err != nil:
		t.Errorf("refused: %.300v", err)
	}
}

func (k *hubKube) testLargeClusters(t *testing.T) {
	bootstrap := k.bootstrap(t)
	annotated := func(n int) *ocm.ManagedCluster {
		return managedCluster("large", func(c *ocm.ManagedCluster) {
			c.Annotations = map[string]string{"fill": strings.Repeat("x", n)}
		})
	}
	configured := managedCluster("large", func(c *ocm.ManagedCluster) {
		c.Spec.ManagedClusterClientConfigs = []ocm.ClientConfig{{URL: "https://cluster", CABundle: make([]byte, 12<<10)}}
	})
	regtest.Must(t, bootstrap.Create(t.Context(), managedCluster("small")))
	annotate := func(n int) error {
		return bootstrap.Patch(t.Context(), managedCluster("small"),
			client.RawPatch(types.MergePatchType,
				fmt.Appendf(nil, `{"metadata":{"annotations":{"fill":%q}}}`, strings.Repeat("x", n))), client.DryRunAll)
	}
	create := func(c client.Client, o client.Object) error { return c.Create(t.Context(), o, client.DryRunAll) }
	for _, test := range []struct {
		name    string
		err     error
		refused bool
	}{
		{"15 KiB of annotations", create(bootstrap, annotated(15<<10)), false},
		{"16 KiB of annotations", create(bootstrap, annotated(16<<10)), true},
		{"a CA bundle of 16 KiB in base64", create(bootstrap, configured.DeepCopy()), true},
		{"an administrator's cluster", create(k.Admin, configured.DeepCopy()), false},
		{"15 KiB of annotations later", annotate(15 << 10), false},
		{"16 KiB of annotations later", annotate(16 << 10), true},
	} {
		k.Step(test.name, func(t *testing.T) { wantRefused(t, test.err, test.refused) })
	}
}

// newRequest returns a certificate request with an extension of n bytes.
func newRequest(t *testing.T, n int,
	change ...func(*certificatesv1.CertificateSigningRequest)) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	regtest.Must(t, err)
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: registration.AgentUser("cluster1", "agent1")},
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 3}, Value: make([]byte, n)}}}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	regtest.Must(t, err)
	request := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "fill", Labels: map[string]string{ocm.ClusterNameLabel: "cluster1"},
			Annotations: map[string]string{}},
		Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: certificatesv1.KubeAPIServerClientSignerName,
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			Usages:  []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}}}
	for _, f := range change {
		f(request)
	}
	return request
}

func (k *hubKube) testLargeRequests(t *testing.T) {
	type request = certificatesv1.CertificateSigningRequest
	bootstrap := k.bootstrap(t)
	annotate := func(text string, n int) func(*request) {
		return func(r *request) { r.Annotations["fill"] = strings.Repeat(text, n) }
	}
	for _, test := range []struct {
		name    string
		request *request
		refused bool
	}{
		{"the body of an RSA key of 8192 bits", newRequest(t, 2<<10), false},
		{"15 KiB of annotations", newRequest(t, 0, annotate("x", 14<<10)), false},
		{"16 KiB of annotations", newRequest(t, 0, annotate("x", 16<<10)), true},
		{"16 KiB of annotations in 5461 characters", newRequest(t, 0, annotate("世", 5461)), true},
		{"a body of 10 KiB, twice in base64", newRequest(t, 10<<10), true},
		{"a body of 512 KiB", newRequest(t, 512<<10), true},
		{"a request of no cluster", newRequest(t, 16<<10, func(r *request) { r.Labels = nil }), true},
	} {
		k.Step(test.name, func(t *testing.T) {
			wantRefused(t, bootstrap.Create(t.Context(), test.request, client.DryRunAll), test.refused)
		})
	}
}

func (k *hubKube) testRequestLabels(t *testing.T) {
	agent := k.accepted(t, "labels")
	k.awaitAgent(t, "labels",
		authorizationv1.ResourceAttributes{Verb: "create", Group: certificatesv1.GroupName,
			Resource: "certificatesigningrequests"})
	for _, cluster := range []string{"labels", "neighbour", "label"} {
		k.Step(cluster, func(t *testing.T) {
			err := agent.Create(t.Context(), newRequest(t, 0, func(r *certificatesv1.CertificateSigningRequest) {
				r.Labels[ocm.ClusterNameLabel] = cluster
			}), client.DryRunAll)
			if (cluster == "labels") != (err == nil) || err != nil && !apierrors.IsForbidden(err) {
				t.Errorf("the error is %v, want Forbidden", err)
			}
		})
	}
}

func (k *hubKube) testBind(t *testing.T, hub client.Client) {
	k.accepted(t, "bound")
	for _, cluster := range []string{"bound", "registration", "work", "addon", "cluster", "default", "managed-clusters",
		"kube-system"} {
		k.Step(cluster, func(t *testing.T) {
			role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: registration.ClusterRoleName(cluster)}}
			if err := k.Admin.Create(t.Context(), role); err != nil && !apierrors.IsAlreadyExists(err) {
				t.Fatal(err)
			}
			binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "bind"},
				Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind,
					Name: registration.ClusterGroup("bound")}},
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}}
			err := hub.Create(t.Context(), binding, client.DryRunAll)
			allowed := registration.CheckClusterName(cluster) == nil
			if allowed && err != nil ||
				!allowed && (err == nil || !strings.Contains(err.Error(), "binds ClusterRoles of clusters only")) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}
