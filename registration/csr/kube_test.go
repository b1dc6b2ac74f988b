package csr_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/internal/kubetest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(kubetest.Main(m).Run())
}

// hubRules are what the approver needs.
var hubRules = []rbacv1.PolicyRule{
	{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"}, Verbs: []string{"get", "list", "watch"}},
	{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests/approval"}, Verbs: []string{"update"}},
	{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"signers"}, ResourceNames: []string{"kubernetes.io/kube-apiserver-client"}, Verbs: []string{"approve"}},
	{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
	{APIGroups: []string{"cluster.open-cluster-management.io"}, Resources: []string{"managedclusters"}, Verbs: []string{"get", "list", "watch", "patch"}},
	{APIGroups: []string{"rbac.authorization.k8s.io"}, Resources: []string{"clusterroles"}, Verbs: []string{"get"}},
}

// agentRules are what a bootstrap user needs of the driver.
var agentRules = []rbacv1.PolicyRule{{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"}, Verbs: []string{"get", "create"}}}

func installCRD(t *testing.T, cluster *kubetest.Cluster) {
	t.Helper()
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(ocm.CRD), &crd.Object); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Client().Create(t.Context(), crd); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	if err := envtest.WaitForCRDs(cluster.Config(), nil, envtest.CRDInstallOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the CRD is served", func() bool { return admin(t, cluster).List(t.Context(), &ocm.ManagedClusterList{}) == nil })
}

func admin(t *testing.T, cluster *kubetest.Cluster) client.Client {
	return newClient(t, cluster.Config())
}

func newClient(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: scheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// eventually polls a real API server.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !condition(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("within a minute it never happened that %s", what)
		}
	}
}

// refusals records what the approver says, by the name of the request.
type refusals struct{ sync.Map }

func (r *refusals) Eventf(about, _ runtime.Object, kind, _, _, note string, args ...any) {
	if request, ok := about.(*certificatesv1.CertificateSigningRequest); ok && kind == corev1.EventTypeWarning {
		r.Store(request.Name, fmt.Sprintf(note, args...))
	}
}

// runApprover runs the hub's half with exactly its rules.
func runApprover(t *testing.T, cluster *kubetest.Cluster, bootstrapUser, autoUser string) *refusals {
	t.Helper()
	said := &refusals{}
	mgr, err := ctrl.NewManager(cluster.User(t, "csr-hub", "", hubRules...), ctrl.Options{Scheme: scheme(t), Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	driver, err := csr.NewHub(csr.HubOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(),
		BootstrapUsers: []string{bootstrapUser}, AutoApproveUsers: []string{autoUser}, Events: said,
		Now: func() time.Time { return time.Now().Add(time.Hour) }}) // requests seem old: only acceptance itself makes the approver look soon
	if err != nil {
		t.Fatal(err)
	}
	if err := driver.Setup(mgr); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return said
}

// accept does what the hub reconciler does.
func accept(t *testing.T, c client.Client, name string) {
	t.Helper()
	role := record(name, registration.AuthTypeCSR)
	role.Rules = []rbacv1.PolicyRule{{APIGroups: []string{"register.open-cluster-management.io"}, Resources: []string{"managedclusters/clientcertificates"}, ResourceNames: []string{name}, Verbs: []string{"renew"}}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: registration.ClusterGroup(name)}}}
	cluster := &ocm.ManagedCluster{}
	err := errors.Join(c.Create(t.Context(), role), c.Create(t.Context(), binding), c.Get(t.Context(), client.ObjectKey{Name: name}, cluster))
	if err != nil {
		t.Fatal(err)
	}
	base := cluster.DeepCopy()
	cluster.Spec.HubAcceptsClient = true
	if err := c.Patch(t.Context(), cluster, client.MergeFrom(base)); err != nil {
		t.Fatal(err)
	}
	setStatus(t, c, name, condition(ocm.ConditionHubAccepted, metav1.ConditionTrue, ocm.ReasonHubAccepted))
}

func setStatus(t *testing.T, c client.Client, name string, condition metav1.Condition) {
	t.Helper()
	cluster := &ocm.ManagedCluster{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, cluster); err != nil {
		t.Fatal(err)
	}
	base := cluster.DeepCopy()
	condition.Message = "by the test"
	meta.SetStatusCondition(&cluster.Status.Conditions, condition)
	if err := c.Status().Patch(t.Context(), cluster, client.MergeFrom(base)); err != nil {
		t.Fatal(err)
	}
}

// driverLoop is an agent by hand.
type driverLoop struct {
	in   registration.Input
	step registration.Step
}

func (l *driverLoop) next(t *testing.T) {
	t.Helper()
	l.in.Now = time.Now()
	step, err := csr.New(csr.Options{Lifetime: 10 * time.Minute}).Next(t.Context(), l.in)
	if err != nil {
		t.Fatal(err)
	}
	if step.Credential != nil {
		l.in.Stored = step.Credential.Files
	}
	l.in.State, l.step = step.State, step
}

func (l *driverLoop) awaitCertificate(t *testing.T) {
	t.Helper()
	before := string(l.in.Stored["tls.crt"])
	eventually(t, "the certificate comes", func() bool { l.next(t); return string(l.in.Stored["tls.crt"]) != before })
}

func (l *driverLoop) config(cluster *kubetest.Cluster) *rest.Config {
	config := rest.AnonymousClientConfig(cluster.Config())
	config.CertData, config.KeyData = l.in.Stored["tls.crt"], l.in.Stored["tls.key"]
	return config
}

// requests returns those of a cluster.
func requests(t *testing.T, c client.Client, cluster string) []certificatesv1.CertificateSigningRequest {
	t.Helper()
	var list certificatesv1.CertificateSigningRequestList
	if err := c.List(t.Context(), &list, client.MatchingLabels{ocm.ClusterNameLabel: cluster}); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func TestJoinByCertificate(t *testing.T) {
	cluster := kubetest.Start(t)
	installCRD(t, cluster)
	cluster.ControllerManager(t, "csrsigning")
	bootstrap := newClient(t, cluster.User(t, "bootstrap", "", agentRules...))
	auto := newClient(t, cluster.User(t, "auto", "", agentRules...))
	said := runApprover(t, cluster, "bootstrap", "auto")
	c := admin(t, cluster)

	for _, name := range []string{"cluster1", "cluster10"} {
		if err := c.Create(t.Context(), &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	loop := &driverLoop{in: registration.Input{Cluster: "cluster1", Agent: "agent1", Hub: bootstrap}}
	loop.next(t)
	loop.next(t)
	if loop.step.Credential != nil {
		t.Fatal("a certificate before acceptance")
	}
	accept(t, c, "cluster1")
	since := time.Now()
	loop.awaitCertificate(t)
	t.Logf("certificate %s after acceptance", time.Since(since).Round(time.Millisecond))
	if n := len(requests(t, c, "cluster1")); n != 1 {
		t.Errorf("%d requests", n)
	}
	if wait := time.Until(loop.step.At); wait < 6*time.Minute || wait > 7*time.Minute {
		t.Errorf("renews after %s", wait)
	}

	own := newClient(t, loop.config(cluster))
	review := &authenticationv1.SelfSubjectReview{}
	if err := own.Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	groups := slices.Sorted(slices.Values(review.Status.UserInfo.Groups))
	if review.Status.UserInfo.Username != "system:open-cluster-management:cluster1:agent1" ||
		!slices.Equal(groups, []string{"system:authenticated", "system:open-cluster-management:cluster1", "system:open-cluster-management:managed-clusters"}) {
		t.Errorf("authenticated as %+v", review.Status.UserInfo)
	}

	t.Run("the agent renews", func(t *testing.T) {
		setStatus(t, c, "cluster1", condition(ocm.ConditionJoined, metav1.ConditionTrue, "Joined"))
		renewal := &driverLoop{in: loop.in}
		renewal.in.Hub = newClient(t, grantCSR(t, c, cluster, loop.config(cluster)))
		renewal.in.State = nil
		renewal.in.Stored = map[string][]byte{"tls.crt": nil, "tls.key": nil} // due
		renewal.awaitCertificate(t)
		if all := requests(t, c, "cluster1"); len(all) != 2 {
			t.Errorf("%d requests", len(all))
		}
	})
	t.Run("a bootstrap user asks for the joined cluster's certificate", func(t *testing.T) {
		thief := &driverLoop{in: registration.Input{Cluster: "cluster1", Agent: "thief", Hub: bootstrap}}
		isRefused(t, thief, said, "has joined")
	})
	t.Run("cluster1 asks for cluster10's certificate", func(t *testing.T) {
		accept(t, c, "cluster10")
		neighbour := &driverLoop{in: registration.Input{Cluster: "cluster10", Agent: "agent1", Hub: newClient(t, loop.config(cluster))}}
		isRefused(t, neighbour, said, "neither the agent that the request names nor a bootstrap user")
	})
	t.Run("an auto-approved user", func(t *testing.T) {
		if err := c.Create(t.Context(), &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "cluster2"}}); err != nil {
			t.Fatal(err)
		}
		loop := &driverLoop{in: registration.Input{Cluster: "cluster2", Agent: "agent1", Hub: auto}}
		loop.next(t)
		loop.next(t)
		found := &ocm.ManagedCluster{}
		hub, err := csr.NewHub(csr.HubOptions{Client: c, AutoApproveUsers: []string{"auto"}})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the driver approves the cluster", func() bool {
			if err := c.Get(t.Context(), client.ObjectKey{Name: "cluster2"}, found); err != nil {
				t.Fatal(err)
			}
			ok, err := hub.Approves(t.Context(), found, "")
			if err != nil {
				t.Fatal(err)
			}
			return ok
		})
		accept(t, c, "cluster2")
		loop.awaitCertificate(t)
	})
}

// grantCSR lets all agents make requests, as the hub's RBAC does.
func grantCSR(t *testing.T, c client.Client, cluster *kubetest.Cluster, agent *rest.Config) *rest.Config {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "agents-csr"}, Rules: agentRules}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "agents-csr"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "agents-csr"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: registration.ManagedClustersGroup}}}
	if err := errors.Join(c.Create(t.Context(), role), c.Create(t.Context(), binding)); err != nil {
		t.Fatal(err)
	}
	reader := newClient(t, agent)
	eventually(t, "RBAC takes effect", func() bool {
		return apierrors.IsNotFound(reader.Get(t.Context(), client.ObjectKey{Name: "none"}, &certificatesv1.CertificateSigningRequest{}))
	})
	return agent
}

// isRefused makes a request, waits for the judgement, and looks again.
func isRefused(t *testing.T, loop *driverLoop, said *refusals, reason string) {
	t.Helper()
	loop.next(t)
	loop.next(t)
	_, request, _ := strings.Cut(loop.step.Condition.Message, `"`)
	request, _, _ = strings.Cut(request, `"`)
	eventually(t, "the approver says "+reason, func() bool {
		got, _ := said.Load(request)
		text, _ := got.(string)
		return strings.Contains(text, reason)
	})
	loop.next(t)
	expect(t, loop.step, metav1.ConditionFalse, "ClientCertificateNotApproved", request)
	if loop.in.Stored != nil {
		t.Error("it got a certificate")
	}
}

func TestProbe(t *testing.T) {
	cluster := kubetest.Start(t)
	c := cluster.Client()
	left := func(t *testing.T) {
		t.Helper()
		var list certificatesv1.CertificateSigningRequestList
		if err := c.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		for _, item := range list.Items {
			if strings.HasPrefix(item.Name, "workloadid-probe-") {
				t.Errorf("the probe left %s", item.Name)
			}
		}
	}
	t.Run("a hub that does not sign", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := csr.Probe(ctx, c); !errors.Is(err, csr.ErrUnsupported) || !strings.Contains(err.Error(), "csrsigning") {
			t.Errorf("error %v", err)
		}
		left(t)
	})
	t.Run("a hub whose signer fails, as on EKS", func(t *testing.T) {
		failing := interceptor.NewClient(watching(t, cluster), interceptor.Funcs{SubResourceUpdate: func(ctx context.Context, c client.Client, part string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
			if err := c.SubResource(part).Update(ctx, obj, opts...); err != nil {
				return err
			}
			request, ok := obj.(*certificatesv1.CertificateSigningRequest)
			if !ok {
				return errors.New("no request")
			}
			request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
				Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "SignerValidationFailure", Message: "not on this hub"})
			return c.Status().Update(ctx, request)
		}})
		if err := csr.Probe(t.Context(), failing); !errors.Is(err, csr.ErrUnsupported) || !strings.Contains(err.Error(), "SignerValidationFailure") {
			t.Errorf("error %v", err)
		}
		left(t)
	})
	t.Run("a user who may not approve", func(t *testing.T) {
		user := newClient(t, cluster.User(t, "prober", "", rbacv1.PolicyRule{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"}, Verbs: []string{"get", "create", "delete"}}))
		if err := csr.Probe(t.Context(), user); !apierrors.IsForbidden(err) || errors.Is(err, csr.ErrUnsupported) {
			t.Errorf("error %v", err)
		}
		left(t)
	})
	t.Run("a hub that signs", func(t *testing.T) {
		cluster.ControllerManager(t, "csrsigning")
		if err := csr.Probe(t.Context(), c); err != nil {
			t.Error(err)
		}
		left(t)
	})
}

func watching(t *testing.T, cluster *kubetest.Cluster) client.WithWatch {
	t.Helper()
	c, err := client.NewWithWatch(cluster.Config(), client.Options{Scheme: scheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
