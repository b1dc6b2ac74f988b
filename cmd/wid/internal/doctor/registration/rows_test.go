package registration_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor/registration"
	contract "github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/ocm/addon/v1alpha1"
)

// forbidding is a hub that knows the agent, and refuses it everything else.
func forbidding(t *testing.T) (kubeconfigs string) {
	t.Helper()
	return serving(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/selfsubjectreviews") {
			w.WriteHeader(http.StatusCreated)
			_,
				_ = w.Write(
				[]byte(
					`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview","status":{"userInfo":{"username":"agent-of-cluster1"}}}`))
			return
		}
		w.WriteHeader(http.StatusForbidden)
		_,
			_ = w.Write(
			[]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no"}`))
	})
}

// environment are the objects of both sides, and the kinds that may not be
// read.
type environment struct {
	hub, spoke []client.Object
	forbidden  map[string]bool // by kind and namespace
	lost       bool            // the hub's program has no rights
}

func (w *environment) cluster() *ocm.ManagedCluster {
	return w.hub[0].(*ocm.ManagedCluster) //nolint:errcheck,forcetypeassert // of joined
}

func (w *environment) deployment() *appsv1.Deployment {
	return w.spoke[0].(*appsv1.Deployment) //nolint:errcheck,forcetypeassert // of member
}

func (w *environment) side(t *testing.T, objects []client.Object) client.Client {
	t.Helper()
	refuse := func(kind schema.GroupVersionKind, namespace string) error {
		if name := strings.TrimSuffix(kind.Kind, "List"); w.forbidden[name+" "+namespace] {
			return apierrors.NewForbidden(schema.GroupResource{Resource: name}, "", nil)
		}
		return nil
	}
	return interceptor.NewClient(newClient(t, objects...), interceptor.Funcs{
		Create: w.review,
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if err := refuse(o.GetObjectKind().GroupVersionKind(), key.Namespace); err != nil {
				return err
			}
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			kind, all := list.GetObjectKind().GroupVersionKind(), client.ListOptions{}
			if kind.Kind == "ManagedClusterAddOnList" {
				return &meta.NoKindMatchError{GroupKind: kind.GroupKind()} // a hub without add-ons
			}
			if err := refuse(kind, all.ApplyOptions(opts).Namespace); err != nil {
				return err
			}
			return c.List(ctx, list, opts...)
		},
	})
}

func (w *environment) run(t *testing.T) *doctor.Report {
	t.Helper()
	return registration.Run(t.Context(),
		registration.Config{ClusterName: "cluster1", Hub: w.side(t, w.hub), Spoke: w.side(t, w.spoke)})
}

// healthy is a cluster whose agent works.
func healthy(t *testing.T) *environment {
	t.Helper()
	w := &environment{hub: joined(), spoke: member(echo(t, http.StatusOK)), forbidden: map[string]bool{}}
	w.cluster().UID = "theirs"
	return w
}

const agents = "open-cluster-management-agent"

func warning(namespace, kind, name string, uid types.UID, reason, message string) client.Object {
	return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: strings.ToLower(reason)},
		Type: corev1.EventTypeWarning, Reason: reason, Message: message,
		InvolvedObject: corev1.ObjectReference{Kind: kind, Name: name, UID: uid},
		LastTimestamp:  metav1.NewTime(time.Now().Add(time.Second))}
}

func (w *environment) decide(accepts bool, status metav1.ConditionStatus, reason string) {
	c := w.cluster()
	c.Spec.HubAcceptsClient = accepts
	meta.RemoveStatusCondition(&c.Status.Conditions, ocm.ConditionHubAccepted)
	if status != "" {
		meta.SetStatusCondition(&c.Status.Conditions,
			metav1.Condition{Type: ocm.ConditionHubAccepted, Status: status, Reason: reason})
	}
}

// unavailable has a Deployment without a Pod that runs.
func (w *environment) unavailable() {
	d := w.deployment()
	d.UID, d.Spec.Selector = "1", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}
	d.Status = appsv1.DeploymentStatus{
		Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionFalse,
			Message: "not the minimum", LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Minute))}}}
}

// What each line shows, and the headline with its command.
func TestRows(t *testing.T) {
	const accept = "wid hub accept --clusters cluster1 --context HUB"
	for name, tc := range map[string]struct {
		change               func(t *testing.T, w *environment)
		class, line, command string
	}{
		"healthy": {func(*testing.T, *environment) {}, "", "✓ credential", ""},
		"the hub refuses, and says whom": {func(t *testing.T, w *environment) {
			w.spoke = member(forbidding(t))
		}, "HubKubeConfigForbidden",
			`answers 403 to user "agent-of-cluster1"`, "kubectl --context HUB get clusterrole,clusterrolebinding"},
		"the Secret may not be read": {func(_ *testing.T, w *environment) {
			w.forbidden["Secret "+agents] = true
		}, "", "? secret      Secret hub-kubeconfig-secret", ""},
		"Events at the hub may not be read": {func(t *testing.T, w *environment) {
			w.request(t)
			w.forbidden["Event default"] = true
		}, "", "its Events cannot be read", ""},
		"Events in the cluster may not be read": {func(_ *testing.T, w *environment) {
			w.forbidden["Event "+agents] = true
		}, "", "? agent       its Events cannot be read", ""},
		"denied": {func(_ *testing.T, w *environment) {
			w.decide(false, metav1.ConditionFalse, ocm.ReasonHubDenied)
		}, ocm.ReasonHubDenied, "✗ decision", accept},
		"refused before acceptance": {func(_ *testing.T, w *environment) {
			w.decide(false, metav1.ConditionFalse, "InvalidClaim")
		}, "InvalidClaim", "✗ decision", ""},
		"the hub has not acted": {func(_ *testing.T, w *environment) {
			w.decide(true, "", "")
		}, "HubNotActing", "✗ decision", "kubectl --context HUB logs"},
		"the hub's API server refuses what it does": {func(_ *testing.T, w *environment) {
			w.decide(true, "", "")
			meta.SetStatusCondition(&w.cluster().Status.Conditions,
				metav1.Condition{Type: ocm.ConditionReconciled, Status: metav1.ConditionFalse,
					Reason: "ReconcileFailed", Message: "policy says no"})
		}, "ReconcileFailed", "policy says no", "kubectl --context HUB"},
		"the hub still lets it in": {func(_ *testing.T, w *environment) {
			w.decide(false, metav1.ConditionTrue, ocm.ReasonHubAccepted)
		}, "HubNotActing",
			"still has access", "kubectl --context HUB logs"},
		"a role that AWS refuses": {func(_ *testing.T, w *environment) {
			c := w.cluster()
			role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: contract.ClusterRoleName("cluster1")}}
			role.Annotations = map[string]string{ocm.AuthTypeAnnotation: contract.AuthTypeAWS,
				ocm.ClaimAnnotation: "arn:aws:eks:eu-central-1:123456789012:cluster/prod"}
			w.hub = append(w.hub, role)
			meta.SetStatusCondition(&c.Status.Conditions,
				metav1.Condition{Type: ocm.ConditionIAMRoleReady, Status: metav1.ConditionFalse, Reason: "RoleRefused"})
		}, "RoleRefused", "✗ aws",
			"wid hub policies --verify --eks-hub-cluster-arn HUB_ARN --eks-managed-cluster-arn arn:aws:eks:eu-central-1:123456789012:cluster/prod"},
		"the ClusterRole may not be read": {func(_ *testing.T, w *environment) { w.forbidden["ClusterRole "] = true },
			"", "its claim is not known", ""},
		"the hub has not read the claim": {func(_ *testing.T, w *environment) { w.decide(false, "", "") },
			"NotAccepted", "the hub has not published its claim yet", accept},
		"a Pod that no node takes": {func(_ *testing.T, w *environment) {
			w.unavailable()
			w.spoke = append(w.spoke,
				&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: agents, Name: "registration-agent-1-x",
					Labels: map[string]string{"app": "agent"}},
					Status: corev1.PodStatus{
						Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
							Reason: "Unschedulable", Message: "0/3 nodes"}}}})
		}, "AgentNotRunning", "PodScheduled=False, Unschedulable: 0/3 nodes",
			"kubectl --context CLUSTER describe deployment,pods"},
		"a ReplicaSet without Pods": {func(_ *testing.T, w *environment) {
			w.unavailable()
			w.spoke = append(w.spoke,
				warning(agents, "ReplicaSet", "registration-agent-1", "2", "FailedCreate", "exceeded quota"),
				warning(agents, "Pod", "other-1", "3", "BackOff", "of another Deployment"))
		}, "FailedCreate", "exceeded quota", "kubectl --context CLUSTER describe deployment,pods"},
		"no bootstrap Secret": {func(_ *testing.T, w *environment) {
			w.spoke = append(w.spoke[:1],
				warning(agents, "Secret", ocm.HubKubeconfigSecret, "", "BootstrapCredentialRefused", "there is no Secret"))
		}, "BootstrapCredentialRefused", "✗ bootstrap", "wid hub token --cluster-name cluster1 --context HUB"},
	} {
		t.Run(name, func(t *testing.T) {
			w := healthy(t)
			tc.change(t, w)
			report := w.run(t)
			said, text := report.Summary(), report.Text(doctor.TextOptions{Width: 400})
			if said.Class != tc.class || !strings.Contains(text, tc.line) ||
				tc.command != "" && !strings.HasPrefix(strings.Join(said.Remedy.Commands, "\n"), tc.command) {
				t.Errorf("%s, %q:\n%s", said.Class, said.Remedy.Commands, text)
			}
			expectHarmless(t, report)
			if isHealthy := report.Result == doctor.Pass; isHealthy != (name == "healthy") {
				t.Errorf("the whole is %s:\n%s", report.Result, text)
			}
		})
	}
}

// request is the agent's, which waits at the hub.
func (w *environment) request(t *testing.T) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{
		CommonName: contract.AgentUser("cluster1", "agent1"), Organization: []string{contract.ClusterGroup("cluster1")}}},
		key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	own := w.spoke[1].(*corev1.Secret) //nolint:errcheck,forcetypeassert // of member
	state := contract.Step{
		State: map[string][]byte{"key": pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded})}}
	if own.Data, err = contract.Pack(contract.AuthTypeCSR, own.Data, state); err != nil {
		t.Fatal(err)
	}
	r := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "cluster1-abc",
		UID: "of the request", CreationTimestamp: metav1.Now(),
		Labels: map[string]string{ocm.ClusterNameLabel: "cluster1"}}, Spec: certificatesv1.CertificateSigningRequestSpec{
		SignerName: certificatesv1.KubeAPIServerClientSignerName, Username: "system:bootstrap:abcdef",
		Groups:  []string{contract.BootstrapGroup, "system:authenticated"},
		Usages:  []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature},
		Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})}}
	w.hub = append(w.hub, r)
	return r
}

// The hub leaves these requests to a person, who decides by user, groups and
// subject. The command is that of the remedy, whatever the Event says.
func TestRequestsForAPerson(t *testing.T) {
	const approve = "wid hub accept --clusters cluster1 --approve-request cluster1-abc --context HUB"
	for reason, want := range map[string]string{"AlreadyJoined": approve, "AnotherAgent": approve, "AnotherKey": approve,
		"SeveralRequests": approve,
		"InvalidRequest":  "kubectl --context HUB describe csr cluster1-abc"} {
		t.Run(reason, func(t *testing.T) {
			w := healthy(t)
			r := w.request(t)
			w.hub = append(w.hub, warning(metav1.NamespaceDefault, "CertificateSigningRequest", r.Name, r.UID, reason,
				"ask a person"))
			report := w.run(t)
			if said := report.Summary(); said.Class != reason || !slices.Equal(said.Remedy.Commands, []string{want}) {
				t.Errorf("%s, %q", said.Class, said.Remedy.Commands)
			}
			lines := strings.Join(strings.Fields(report.String()), " ")
			for _, part := range []string{`user "system:bootstrap:abcdef"`, `CN=system:open-cluster-management:cluster1:agent1`,
				`"` + contract.BootstrapGroup + `" "system:authenticated"`} {
				if !strings.Contains(lines, part) {
					t.Errorf("80 columns cut %s:\n%s", part, report)
				}
			}
		})
	}
}

// Go writes such a time as the year 10000, and then cannot read it.
func TestTimesThatGoCannotReadAreShown(t *testing.T) {
	at := metav1.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
	w := healthy(t)
	w.cluster().Status.Conditions = append(w.cluster().Status.Conditions,
		metav1.Condition{Type: "A", Status: metav1.ConditionTrue, LastTransitionTime: at})
	a := &v1alpha1.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "a"}}
	a.Status.Conditions = []metav1.Condition{{Type: addon.ConditionTokenInfrastructureReady, Status: metav1.ConditionFalse,
		Reason: "Bad", LastTransitionTime: at}}
	report := registration.Run(t.Context(),
		registration.Config{ClusterName: "cluster1", Hub: newClient(t, append(w.hub, a)...)})
	if f := report.Of("cluster"); f.Result != doctor.Pass || !strings.Contains(f.Message, "cannot be read") ||
		!strings.Contains(f.Message, "10000-01-01") {
		t.Errorf("the cluster: %+v", f)
	}
	if f := report.Of("addons"); f.Result != doctor.Fail || !strings.Contains(f.Message, "Bad") {
		t.Errorf("the add-ons: %+v", f)
	}
}
