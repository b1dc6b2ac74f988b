package main

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/bootstrap/tokens"
	"github.com/workloadid/workloadid/internal/testing/controlplane"
	"github.com/workloadid/workloadid/internal/testing/scenario"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/token"
)

const (
	cluster, neighbour = "cluster1", "cluster2"
	// namespace is the namespace of registration.HubManifest.
	namespace = "open-cluster-management-hub"
	// hubAccount is the ServiceAccount of registration.HubManifest.
	hubAccount = "registration-controller-sa"
	// agentAccount is the ServiceAccount of registration.AgentManifest.
	agentAccount = "registration-agent"
	// tokenLifetime is how long the bootstrap credential is valid.
	tokenLifetime = 15 * time.Minute
	// certificateLifetime is what the agent asks for.
	certificateLifetime = time.Hour
)

func (d *demo) steps() []func(context.Context) error {
	d.hubDriver, d.driver, d.account = newCSR, csr.New(csr.Options{Lifetime: certificateLifetime}), agentAccount
	return slices.Concat(
		[]func(context.Context) error{d.startControlPlanes, d.setUpHub, d.startControllers, d.startHub, d.setUpCluster, d.startAgent, d.appears,
			d.asks, d.accept, d.approves, d.stores, d.joins, d.ownNamespace, d.neighboursNamespace},
		d.addOnSteps(), []func(context.Context) error{d.revoke})
}

// start starts both control planes. The flags are those of the hub's API server.
func (d *demo) start(ctx context.Context, flags ...controlplane.Flag) (err error) {
	d.Say("Starting two control planes…")
	assets, err := controlplane.Assets(ctx, os.Stderr)
	if err != nil {
		return err
	}
	if d.hub, err = controlplane.Start(assets, flags...); err != nil {
		return err
	}
	d.Defer(d.hub.Stop)
	if err := ctx.Err(); err != nil {
		return err
	}
	if d.managed, err = controlplane.Start(assets); err != nil {
		return err
	}
	d.Defer(d.managed.Stop)
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	d.local = d.managed.Client()
	d.admin, err = client.New(d.hub.Config(), client.Options{Scheme: scheme})
	return err
}

func (d *demo) startControlPlanes(ctx context.Context) (err error) {
	d.Say("A cluster joins a hub by certificate, and an add-on by token. Everything below is real: API servers, etcd, RBAC, certificates and tokens.")
	tokens, err := token.New(token.Options{ExpirationSeconds: addOnLifetime})
	if err != nil {
		return err
	}
	d.addOnDriver = tokens
	if err := d.start(ctx); err != nil {
		return err
	}
	d.Step("Two control planes run.")
	d.Detail("hub", "%s", d.hub.IssuerURL())
	d.Detail("cluster", "%s", d.managed.IssuerURL())
	return nil
}

// startControllers follows the CustomResourceDefinitions: the garbage collector looks for new kinds every 30 s only.
func (d *demo) startControllers(context.Context) error {
	stop, err := d.hub.ControllerManager("csrsigning", "garbage-collector-controller")
	if err != nil {
		return err
	}
	d.Defer(func() error { stop(); return nil })
	d.Step("kube-controller-manager starts on the hub. It signs certificates, and removes objects whose owner is gone.")
	return nil
}

func (d *demo) setUpHub(ctx context.Context) error {
	manifests, what := []string{ocm.CRD, registration.HubManifest, registration.BootstrapManifest}, "the kind ManagedCluster"
	kinds := []client.ObjectList{&ocm.ManagedClusterList{}}
	if d.addOnDriver != nil {
		manifests, what = append(manifests, addon.CRD, registration.TokenManifest), "the kinds ManagedCluster and ManagedClusterAddOn"
		kinds = append(kinds, &addon.ManagedClusterAddOnList{})
	}
	count, err := scenario.Apply(ctx, d.admin, manifests...)
	if err != nil {
		return err
	}
	for _, kind := range kinds {
		if err := scenario.Wait(ctx, fmt.Sprintf("the hub does not serve %T", kind), func(ctx context.Context) (bool, error) { return true, d.admin.List(ctx, kind) }); err != nil {
			return err
		}
	}
	d.Step("The manifests of the hub are applied: %s, RBAC, and the policies that guard acceptance.", what)
	d.Detail("objects", "%d", count)
	return nil
}

func (d *demo) startHub(ctx context.Context) error {
	config, err := configOf(ctx, d.hub, namespace, hubAccount)
	if err != nil {
		return err
	}
	// The last right that the manifest gives, so the others are in force too.
	if err := d.hub.WaitAllowed(authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:" + namespace + ":" + hubAccount,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Group: "coordination.k8s.io", Resource: "leases", Verb: "create"}}); err != nil {
		return err
	}
	d.Go("hub controller", func() error { return runHub(ctx, config, d.hubDriver, d.addOnDriver != nil) })
	d.Step("The hub controller starts with the rights of its own ServiceAccount.")
	d.Detail("account", "%s/%s", namespace, hubAccount)
	return nil
}

func (d *demo) setUpCluster(ctx context.Context) error {
	created, err := tokens.Manager{Client: d.admin}.Create(ctx, bootstrap.TokenConfig{Usages: []string{bootstrap.UsageAuthentication},
		Groups: []string{registration.BootstrapGroup}, Expires: time.Now().Add(tokenLifetime)})
	if err != nil {
		return err
	}
	d.token = created.Token
	manifests := []string{strings.ReplaceAll(registration.AgentManifest, agentAccount, d.account)}
	if d.addOnDriver != nil {
		manifests = append(manifests, registration.AgentAddOnManifest)
	}
	if _, err := scenario.Apply(ctx, d.local, manifests...); err != nil {
		return err
	}
	kubeconfig, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"hub": {Server: d.hub.Config().Host, CertificateAuthorityData: d.hub.Config().CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"bootstrap": {Token: d.token.Reveal()}},
		Contexts:       map[string]*clientcmdapi.Context{"hub": {Cluster: "hub", AuthInfo: "bootstrap"}},
		CurrentContext: "hub",
	})
	if err != nil {
		return err
	}
	if err := d.local.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: agent.DefaultNamespace, Name: agent.DefaultBootstrapSecret},
		Data:       map[string][]byte{"kubeconfig": kubeconfig},
	}); err != nil {
		return err
	}
	d.Step("The manifests of the agent are applied to the managed cluster, and a Secret with the bootstrap credential.")
	d.Detail("Secret", "%s", agent.DefaultBootstrapSecret)
	d.Detail("credential", "bootstrap token %q, valid for %.0f minutes", d.token.ID(), tokenLifetime.Minutes())
	d.Detail("group", "%s", registration.BootstrapGroup)
	return nil
}

func (d *demo) startAgent(ctx context.Context) error {
	config, err := configOf(ctx, d.managed, agent.DefaultNamespace, d.account)
	if err != nil {
		return err
	}
	mgr, joining, err := newAgent(config, d.driver, d.addOnDriver)
	if err != nil {
		return err
	}
	d.agent = joining
	d.Go("agent", func() error { return mgr.Start(ctx) })
	d.Step("The agent starts on the managed cluster. On the hub it has nothing but the bootstrap credential.")
	return nil
}

func (d *demo) appears(ctx context.Context) error {
	found := &ocm.ManagedCluster{}
	err := scenario.Wait(ctx, "the agent creates no ManagedCluster", func(ctx context.Context) (bool, error) {
		return true, d.admin.Get(ctx, client.ObjectKey{Name: cluster}, found)
	})
	if err != nil {
		return err
	}
	d.Step("ManagedCluster %q appears on the hub. An administrator has to accept it.", cluster)
	d.Detail("accepted", "%t", found.Spec.HubAcceptsClient)
	return nil
}

// request returns the only CertificateSigningRequest of the cluster.
func (d *demo) request(ctx context.Context) (*certificatesv1.CertificateSigningRequest, error) {
	var list certificatesv1.CertificateSigningRequestList
	if err := d.admin.List(ctx, &list, client.MatchingLabels{ocm.ClusterNameLabel: cluster}); err != nil {
		return nil, err
	}
	if len(list.Items) != 1 {
		return nil, fmt.Errorf("%d CertificateSigningRequests", len(list.Items))
	}
	return &list.Items[0], nil
}

func (d *demo) asks(ctx context.Context) error {
	var asked *certificatesv1.CertificateSigningRequest
	err := scenario.Wait(ctx, "the agent asks for no certificate", func(ctx context.Context) (_ bool, err error) {
		asked, err = d.request(ctx)
		return true, err
	})
	if err != nil {
		return err
	}
	block, _ := pem.Decode(asked.Spec.Request)
	if block == nil {
		return errors.New("the request is no PEM block")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return err
	}
	d.Step("The agent makes a key, keeps it, and asks for a certificate. The request waits.")
	d.Detail("request", "%s", asked.Name)
	d.Detail("asked by", "%s", asked.Spec.Username)
	d.Detail("asked for", "%s", request.Subject.CommonName)
	return nil
}

func (d *demo) setAccepted(ctx context.Context, cluster string, accepted bool) error {
	patch := fmt.Appendf(nil, `{"spec":{"hubAcceptsClient":%t}}`, accepted)
	return d.admin.Patch(ctx, &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}}, client.RawPatch("application/merge-patch+json", patch))
}

func (d *demo) accept(ctx context.Context) error {
	d.accepted = time.Now()
	if err := d.setAccepted(ctx, cluster, true); err != nil {
		return err
	}
	if err := d.awaitBindings(ctx, cluster); err != nil {
		return err
	}
	d.Step("An administrator accepts the cluster: hubAcceptsClient is true. The hub makes a namespace and RBAC for it.")
	d.Detail("namespace", "%s", cluster)
	d.Detail("ClusterRole", "%s", registration.ClusterRoleName(cluster))
	return nil
}

// awaitBindings waits for the last thing that the hub grants.
func (d *demo) awaitBindings(ctx context.Context, cluster string) error {
	return scenario.Wait(ctx, "the hub grants nothing", func(ctx context.Context) (bool, error) {
		var bindings rbacv1.RoleBindingList
		err := d.admin.List(ctx, &bindings, client.InNamespace(cluster))
		return len(bindings.Items) == 2, err
	})
}

func (d *demo) approves(ctx context.Context) error {
	var signed *certificatesv1.CertificateSigningRequest
	err := scenario.Wait(ctx, "the request is not signed", func(ctx context.Context) (_ bool, err error) {
		signed, err = d.request(ctx)
		return err == nil && len(signed.Status.Certificate) > 0, err
	})
	if err != nil {
		return err
	}
	d.Step("The hub approves the request, and kube-controller-manager signs it.")
	for _, c := range signed.Status.Conditions {
		d.Detail(string(c.Type), "%s", c.Message)
	}
	return nil
}

func (d *demo) stores(ctx context.Context) error {
	secret := &corev1.Secret{}
	err := scenario.Wait(ctx, "the agent stores no certificate", func(ctx context.Context) (bool, error) {
		err := d.local.Get(ctx, client.ObjectKey{Namespace: agent.DefaultNamespace, Name: ocm.HubKubeconfigSecret}, secret)
		return len(secret.Data["tls.crt"]) > 0, err
	})
	if err != nil {
		return err
	}
	took := time.Since(d.accepted)
	block, _ := pem.Decode(secret.Data["tls.crt"])
	if block == nil {
		return errors.New("the stored certificate is not PEM")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return err
	}
	d.Step("The agent stores its certificate, %s after acceptance, and uses it from now on.", took.Round(10*time.Millisecond))
	d.Detail("Secret", "%s", secret.Name)
	d.Detail("user (CN)", "%s", certificate.Subject.CommonName)
	for _, group := range certificate.Subject.Organization {
		d.Detail("group (O)", "%s", group)
	}
	d.Detail("expires", "%s, renewed at 80 %% of its lifetime", certificate.NotAfter.UTC().Format("2006-01-02 15:04:05 MST"))
	return nil
}

func (d *demo) joins(ctx context.Context) error {
	conditions := []string{ocm.ConditionHubAccepted, ocm.ConditionJoined, ocm.ConditionAvailable}
	found := &ocm.ManagedCluster{}
	err := scenario.Wait(ctx, "the cluster does not become available", func(ctx context.Context) (bool, error) {
		if err := d.admin.Get(ctx, client.ObjectKey{Name: cluster}, found); err != nil {
			return false, err
		}
		for _, c := range conditions {
			if !meta.IsStatusConditionTrue(found.Status.Conditions, c) {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	d.Step("The cluster has joined, and its agent keeps a Lease alive. These conditions of the ManagedCluster are true:")
	for _, c := range conditions {
		d.Detail("", "%s", c)
	}
	return nil
}

// lease reads the Lease in the namespace of a cluster as the agent of the first one.
func (d *demo) lease(ctx context.Context, cluster string) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	return lease, d.own.Get(ctx, client.ObjectKey{Namespace: cluster, Name: ocm.LeaseName}, lease)
}

func (d *demo) ownNamespace(ctx context.Context) error {
	config, err := d.agent.HubConfig(ctx)
	if err != nil {
		return err
	}
	if d.own, err = client.New(config, client.Options{}); err != nil {
		return err
	}
	lease, err := d.lease(ctx, cluster)
	if err != nil {
		return err
	}
	d.Step("With its own credential the agent reads the Lease in its own namespace: allowed.")
	d.Detail("Lease", "%s/%s", lease.Namespace, lease.Name)
	d.Detail("renewed", "%s", lease.Spec.RenewTime.UTC().Format("2006-01-02 15:04:05 MST"))
	return nil
}

func (d *demo) neighboursNamespace(ctx context.Context) error {
	other := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: neighbour}, Spec: ocm.ManagedClusterSpec{HubAcceptsClient: true}}
	if err := d.admin.Create(ctx, other); err != nil {
		return err
	}
	if err := d.awaitBindings(ctx, neighbour); err != nil {
		return err
	}
	_, err := d.lease(ctx, neighbour)
	if !apierrors.IsForbidden(err) {
		return errors.Join(fmt.Errorf("the agent of %q is not forbidden to read in the namespace of %q", cluster, neighbour), err)
	}
	d.Step("The same in the namespace of its neighbour %q: forbidden.", neighbour)
	d.Detail("answer", "%s", err)
	return nil
}

func (d *demo) revoke(ctx context.Context) error {
	return d.deny(ctx, "The certificate has not expired, but allows nothing.")
}

// deny waits until the agent is forbidden what it was allowed. The note says why that is remarkable.
func (d *demo) deny(ctx context.Context, note string) error {
	if err := d.setAccepted(ctx, cluster, false); err != nil {
		return err
	}
	var refused error
	err := scenario.Wait(ctx, "the hub revokes nothing", func(ctx context.Context) (bool, error) {
		_, refused = d.lease(ctx, cluster)
		return apierrors.IsForbidden(refused), nil
	})
	if err != nil {
		return err
	}
	denied, err := d.refusal(ctx, cluster, ocm.ReasonHubDenied)
	if err != nil {
		return err
	}
	d.Step("The administrator denies the cluster: hubAcceptsClient is false. The hub removes its RBAC. %s", note)
	d.Detail("condition", "%s is %s: %s", denied.Type, denied.Status, denied.Reason)
	d.Detail("answer", "%s", refused)
	return nil
}

// refusal waits for the condition with which the hub refuses a cluster.
func (d *demo) refusal(ctx context.Context, cluster, reason string) (refused *metav1.Condition, err error) {
	err = scenario.Wait(ctx, fmt.Sprintf("the hub does not report %s", reason), func(ctx context.Context) (bool, error) {
		found := &ocm.ManagedCluster{}
		err := d.admin.Get(ctx, client.ObjectKey{Name: cluster}, found)
		refused = meta.FindStatusCondition(found.Status.Conditions, ocm.ConditionHubAccepted)
		return refused != nil && refused.Status == metav1.ConditionFalse && refused.Reason == reason, err
	})
	return refused, err
}

// configOf returns the configuration of a ServiceAccount.
func configOf(ctx context.Context, cluster *controlplane.Cluster, namespace, name string) (*rest.Config, error) {
	request := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := cluster.Client().SubResource("token").Create(ctx, account, request); err != nil {
		return nil, err
	}
	config := rest.AnonymousClientConfig(cluster.Config())
	config.BearerToken = request.Status.Token
	return config, nil
}
