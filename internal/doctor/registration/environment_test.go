package registration_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/internal/doctor"
	examine "github.com/workloadid/workloadid/internal/doctor/registration"
)

const (
	secretValue = "0123456789abcdef"
	// kubeconfigValue holds secretValue as its token.
	kubeconfigValue = "apiVersion: v1\nkind: Config\nclusters: [{name: hub, cluster: {server: 'https://hub.example'}}]\n" +
		"users: [{name: agent, user: {token: " + secretValue + "}}]\n"
	agentUser  = "system:open-cluster-management:cluster1:agent1"
	managedARN = "arn:aws:eks:eu-west-1:111122223333:cluster/managedcluster1"
	hubARN     = "arn:aws:eks:eu-west-1:444455556666:cluster/hubcluster1"
	// roleOfPair is the md5 of 444455556666#hubcluster1#111122223333#managedcluster1, as md5sum prints it.
	roleOfPair = "8d104e2d3a0318fc14df47d2cb9f5974"
)

type object = map[string]any

// part is an object in another one.
func part(o object, key string) object {
	inner, ok := o[key].(object)
	if !ok {
		panic("there is no " + key)
	}
	return inner
}

// environment is a hub and a cluster that is enrolled there, until a fault changes that.
type environment struct {
	t testing.TB
	// cluster is the ManagedCluster; nil leaves it out, as with the other objects.
	cluster, lease, klusterlet, addon, boot, agent, role, binding, deployment, program object
	csrs, events                                                                       []object
	// unknown are kinds that the clusters do not know, forbidden are those that may not be read.
	unknown, forbidden map[string]bool
	hubOnly            bool // the cluster is not examined
	config             examine.Config
}

func ago(d time.Duration) string { return time.Now().Add(-d).UTC().Format(time.RFC3339) }

func newEnvironment(t testing.TB) *environment {
	t.Helper()
	w := &environment{t: t, unknown: map[string]bool{"addon.open-cluster-management.io/v1alpha1": true}, forbidden: map[string]bool{}, config: examine.Config{ClusterName: "cluster1"}}
	w.cluster = object{"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
		"metadata": object{"name": "cluster1", "creationTimestamp": ago(2 * time.Hour)},
		"spec":     object{"hubAcceptsClient": true, "leaseDurationSeconds": int64(60)}}
	setConditions(w.cluster, "HubAcceptedManagedCluster", "True", "HubClusterAdminAccepted", "ManagedClusterJoined", "True", "ManagedClusterJoined",
		"ManagedClusterConditionAvailable", "True", "ManagedClusterAvailable", "ManagedClusterConditionClockSynced", "True", "ManagedClusterClockSynced")
	w.lease = object{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": object{"name": "managed-cluster-lease", "namespace": "cluster1"},
		"spec": object{"renewTime": time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")}}
	w.csrs = []object{newCSR("cluster1-abcde", "system:serviceaccount:open-cluster-management:agent-registration-bootstrap", "Approved", 2*time.Hour)}
	w.klusterlet = object{"apiVersion": "operator.open-cluster-management.io/v1", "kind": "Klusterlet", "metadata": object{"name": "klusterlet"},
		"spec": object{"clusterName": "cluster1", "namespace": "agents"}}
	setConditions(w.klusterlet, "Applied", "True", "KlusterletApplied", "HubConnectionDegraded", "False", "HubConnectionFunctional")
	w.addon = object{"apiVersion": "addon.open-cluster-management.io/v1beta1", "kind": "ManagedClusterAddOn", "metadata": object{"name": "work", "namespace": "cluster1"}}
	setConditions(w.addon, "TokenInfrastructureReady", "True", "TokenInfrastructureReady")
	const name = "open-cluster-management:managedcluster:cluster1"
	w.role = object{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": object{"name": name}}
	w.binding = object{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": object{"name": name},
		"subjects": []any{object{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:open-cluster-management:cluster1"}},
		"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}}
	w.program = object{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": object{"name": "registration-controller", "namespace": "open-cluster-management-hub"},
		"spec": object{"template": object{"spec": object{"containers": []any{object{"name": "hub", "image": "registry.example/wid-hub:v1",
			"args": []any{"--registration-auth=csr", "--leader-elect", "--ocm-agents", "--bootstrap-group=a"}}}}}}}
	w.boot = newSecret("bootstrap-hub-kubeconfig", map[string]string{"kubeconfig": secretValue})
	w.agent = newSecret("hub-kubeconfig-secret", map[string]string{"kubeconfig": kubeconfigValue, "cluster-name": "cluster1", "agent-name": "agent1",
		"tls.key": secretValue, "tls.crt": clientCertificate(t, agentUser, time.Hour, 23*time.Hour)})
	return w
}

// setConditions adds or replaces conditions, each type, status and reason.
func setConditions(o object, list ...string) {
	for i := 0; i+2 < len(list); i += 3 {
		setCondition(o, list[i], list[i+1], list[i+2], "")
	}
}

// setCondition adds, replaces or, with an empty status, removes one.
func setCondition(o object, kind, status, reason, message string) {
	old, _, _ := unstructured.NestedSlice(o, "status", "conditions")
	var kept []any
	for _, c := range old {
		if fields, ok := c.(map[string]any); ok && fields["type"] != kind {
			kept = append(kept, c)
		}
	}
	if status != "" {
		kept = append(kept, object{"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": ago(time.Hour)})
	}
	if err := unstructured.SetNestedSlice(o, kept, "status", "conditions"); err != nil {
		panic(err)
	}
}

func newCSR(name, user, state string, age time.Duration) object {
	csr := object{"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
		"metadata": object{"name": name, "creationTimestamp": ago(age), "labels": object{"open-cluster-management.io/cluster-name": "cluster1"}},
		"spec":     object{"username": user}, "status": object{}}
	if state != "" {
		setConditions(csr, state, "True", "ByTest")
	}
	if state == "Approved" {
		part(csr, "status")["certificate"] = "eA=="
	}
	return csr
}

// newEvent is the hub's Event of a request.
func newEvent(name, about, reason string, age time.Duration) object {
	return object{"apiVersion": "v1", "kind": "Event", "metadata": object{"name": name, "namespace": "default"}, "action": "Approve", "reason": reason,
		"message": "by the hub", "eventTime": time.Now().Add(-age).UTC().Format("2006-01-02T15:04:05.000000Z"), "involvedObject": object{"uid": about}}
}

func newSecret(name string, data map[string]string) object {
	encoded := object{}
	for key, value := range data {
		encoded[key] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	return object{"apiVersion": "v1", "kind": "Secret", "metadata": object{"name": name, "namespace": "agents"}, "data": encoded}
}

// clientCertificate was issued some time ago and has some left.
func clientCertificate(t testing.TB, user string, age, left time.Duration) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: user}, NotBefore: time.Now().Add(-age), NotAfter: time.Now().Add(left)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// ownAgent replaces the Klusterlet by the agent of wid join.
func (w *environment) ownAgent() {
	w.unknown["Klusterlet"], w.klusterlet = true, nil
	const namespace = "open-cluster-management-agent"
	w.deployment = object{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": object{"name": "registration-agent", "namespace": namespace},
		"spec": object{"template": object{"spec": object{"containers": []any{object{"name": "agent",
			"args": []any{"--cluster-name=cluster1", "--registration-auth=csr"}}}}}},
		"status": object{"availableReplicas": int64(1)}}
	part(w.boot, "metadata")["namespace"], part(w.agent, "metadata")["namespace"] = namespace, namespace
}

// ownIRSA registers the cluster with an AWS role under the names of this module.
func (w *environment) ownIRSA() {
	w.irsa()
	w.ownAgent()
	part(w.cluster, "metadata")["annotations"] = object{"eks-managed-cluster-arn": managedARN}
	setConditions(w.cluster, "ClusterIAMRoleReady", "True", "KubeconfigWritten")
}

// items are registrations of the add-on, with its token.
func (w *environment) items() {
	setConditions(w.addon, "AddonTokenRefreshed", "True", "AddonTokenRefreshed")
	part(w.addon, "status")["registrations"] = []any{object{"type": "kubeClient", "kubeClient": object{"driver": "token",
		"subject": object{"user": "system:serviceaccount:cluster1:cluster1-work-agent"}}}}
}

// irsa registers the cluster with an AWS role.
func (w *environment) irsa() {
	w.csrs = nil
	w.annotate(managedARN, roleOfPair)
	part(w.klusterlet, "spec")["registrationConfiguration"] = object{"registrationDriver": object{"authType": "awsirsa", "awsIrsa": object{"hubClusterArn": hubARN}}}
	w.agent = newSecret("hub-kubeconfig-secret", map[string]string{"kubeconfig": kubeconfigValue, "cluster-name": "cluster1", "agent-name": "agent1"})
	w.config.HubClusterARN = hubARN
}

func (w *environment) annotate(arn, suffix string) {
	annotations := object{}
	for key, value := range map[string]string{"arn": arn, "iam-role-suffix": suffix} {
		if value != "" {
			annotations["agent.open-cluster-management.io/managed-cluster-"+key] = value
		}
	}
	part(w.cluster, "metadata")["annotations"] = annotations
}

// serve is a cluster with the objects that are there.
func (w *environment) serve(objects ...object) client.Reader {
	builder := fake.NewClientBuilder().WithScheme(runtime.NewScheme())
	for _, o := range objects {
		if o != nil {
			builder = builder.WithObjects(&unstructured.Unstructured{Object: o})
		}
	}
	refuse := func(kind schema.GroupVersionKind, name string) error {
		group := schema.GroupResource{Group: kind.Group, Resource: kind.Kind}
		switch {
		case w.unknown[kind.Kind] || w.unknown[kind.GroupVersion().String()]:
			return &meta.NoKindMatchError{GroupKind: kind.GroupKind(), SearchedVersions: []string{kind.Version}}
		case w.forbidden[kind.Kind]:
			return apierrors.NewForbidden(group, name, nil)
		}
		return nil
	}
	return interceptor.NewClient(builder.Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if err := refuse(obj.GetObjectKind().GroupVersionKind(), key.Name); err != nil {
				return err
			}
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			kind := list.GetObjectKind().GroupVersionKind()
			kind.Kind = kind.Kind[:len(kind.Kind)-len("List")]
			if err := refuse(kind, ""); err != nil {
				return err
			}
			if kind.Kind == "Event" { // whose fields the fake does not select by
				opts = nil
			}
			return c.List(ctx, list, opts...)
		},
	})
}

func (w *environment) run() *doctor.Report {
	w.t.Helper()
	if w.config.Hub == nil {
		w.config.Hub = w.serve(append(append(w.csrs, w.events...), w.cluster, w.lease, w.addon, w.role, w.binding, w.program)...)
	}
	if w.config.Spoke == nil && !w.hubOnly {
		w.config.Spoke = w.serve(w.klusterlet, w.deployment, w.boot, w.agent)
	}
	return examine.Run(w.t.Context(), w.config)
}
