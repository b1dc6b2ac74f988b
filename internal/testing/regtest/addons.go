package regtest

import (
	"fmt"
	"slices"
	"testing"

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
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/manifests"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/token"
)

// HubUser is the user of the hub's controllers.
const HubUser = "system:serviceaccount:" + HubNamespace + ":" + HubAccount

// ServeAddOns installs the API of add-ons, and the rights of TokenRBAC. It
// returns when the hub goes by both.
func (w *Environment) ServeAddOns(crd string) {
	w.T.Helper()
	w.Apply(w.Admin, crd)
	w.Apply(w.Admin, manifests.TokenRBAC())
	kubetest.Eventually(w.T, "the hub serves add-ons", func() bool {
		w.Admin = NewClient(w.T, w.Hub.Config()) // a client may remember that there are none
		api, err := addon.Discover(w.Admin.RESTMapper())
		return err == nil && w.Admin.List(w.T.Context(), api.NewList()) == nil
	})
	for _, a := range []authorizationv1.ResourceAttributes{
		{Verb: "create", Resource: "serviceaccounts", Subresource: "token", Namespace: "any"},
		{Verb: "get", Group: addon.GroupVersion.Group, Resource: "managedclusteraddons", Namespace: "any"}} {
		w.Hub.Await(w.T, authorizationv1.SubjectAccessReviewSpec{User: HubUser, ResourceAttributes: &a})
	}
	own := NewClient(w.T, WithToken(w.Hub.Config(), w.Token(w.Admin, HubNamespace, HubAccount)))
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: HubNamespace, Name: HubAccount}}
	kubetest.Eventually(w.T, "the policies are in effect", func() bool {
		return apierrors.IsForbidden(own.SubResource("token").Create(w.T.Context(), account,
			&authenticationv1.TokenRequest{}))
	})
}

// Tokens is the hub's half of the driver token.
func Tokens(workers int) func(ctrl.Manager) error {
	return func(mgr ctrl.Manager) error {
		hub, err := token.NewHub(token.HubOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader()})
		if err != nil {
			return err
		}
		return hub.SetupWithManager(mgr, workers)
	}
}

// Approver is the hub's half of the driver csr for add-ons.
func Approver(said events.EventRecorder) func(ctrl.Manager) error {
	return func(mgr ctrl.Manager) error {
		approver,
			err := csr.NewAddOnApprover(csr.AddOnApproverOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(),
			Events: said})
		if err != nil {
			return err
		}
		return approver.SetupWithManager(mgr)
	}
}

// RunAddOns runs the agent and the AddOns in one process, with exactly the
// rights of AgentRBAC and AgentAddOnRBAC, until the whole test ends or stop is
// called.
func (m *Member) RunAddOns(options agent.AddOnOptions, workers int) (stop func()) {
	m.T.Helper()
	m.Apply(m.Local, m.adapt(manifests.AgentAddOnRBAC()))
	m.Managed.Await(m.T,
		authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:" + m.Namespace + ":" + m.Account,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "delete", Resource: "secrets",
				Namespace: m.AddOnNamespace()}})
	options.Agent, options.Namespace = m.Agent, m.AddOnNamespace()
	addOns, err := agent.NewAddOns(options)
	Must(m.T, err)
	m.AddOns = addOns
	return m.Run(func(mgr ctrl.Manager) { Must(m.T, addOns.SetupWithManager(mgr, workers)) })
}

// AddOnNamespace holds the Secrets of add-ons.
func (m *Member) AddOnNamespace() string { return m.Namespace + "-addon" }

// User is the agent's user on the hub, if the cluster has a certificate.
func (m *Member) User() string {
	m.T.Helper()
	return registration.AgentUser(m.Name, string(m.Secret().Data["agent-name"]))
}

// ReconcileAddOn reconciles an add-on once, beside the running manager.
func (m *Member) ReconcileAddOn(addOn string) reconcile.Result {
	m.T.Helper()
	result, err := m.AddOns.Reconcile(m.T.Context(),
		reconcile.Request{NamespacedName: client.ObjectKey{Namespace: m.Name, Name: addOn}})
	Must(m.T, err)
	return result
}

// NewAddOn creates an add-on as its hub controller does.
func (m *Member) NewAddOn(name string, items ...ocm.Registration) {
	m.T.Helper()
	api, err := addon.Discover(m.Admin.RESTMapper())
	Must(m.T, err)
	o := api.New()
	o.SetNamespace(m.Name)
	o.SetName(name)
	Must(m.T, m.Admin.Create(m.T.Context(), o))
	m.PatchAddOn(name, func(s *addon.Status) { s.Items = items })
}

// PatchAddOn changes the status of an add-on as an administrator.
func (m *Member) PatchAddOn(name string, change func(*addon.Status)) {
	m.T.Helper()
	Must(m.T,
		addon.PatchStatus(m.T.Context(), m.Admin, m.AddOn(name), func(s *addon.Status) bool { change(s); return true }))
}

// DeleteAddOn deletes an add-on, in the background as kubectl does.
func (m *Member) DeleteAddOn(name string) {
	m.T.Helper()
	Must(m.T, m.Admin.Delete(m.T.Context(), m.AddOn(name), client.PropagationPolicy(metav1.DeletePropagationBackground)))
}

// AddOn returns an add-on of either version.
func (m *Member) AddOn(name string) client.Object {
	m.T.Helper()
	api, err := addon.Discover(m.Admin.RESTMapper())
	Must(m.T, err)
	o := api.New()
	Must(m.T, m.Admin.Get(m.T.Context(), client.ObjectKey{Namespace: m.Name, Name: name}, o))
	return o
}

// Items returns the items of an add-on.
func (m *Member) Items(name string) []ocm.Registration {
	m.T.Helper()
	return addon.StatusOf(m.AddOn(name)).Items
}

// Condition returns a condition of an add-on, an empty one if it is absent.
func (m *Member) Condition(name, kind string) metav1.Condition {
	m.T.Helper()
	if c := meta.FindStatusCondition(addon.StatusOf(m.AddOn(name)).Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// Says returns status and reason of a condition, such as
// "True/AddonTokenRefreshed".
func (m *Member) Says(name, kind string) string {
	m.T.Helper()
	c := m.Condition(name, kind)
	return string(c.Status) + "/" + c.Reason
}

// AddOnSecret returns a Secret of an add-on, an empty one if there is none.
func (m *Member) AddOnSecret(name string) *corev1.Secret {
	m.T.Helper()
	secret := &corev1.Secret{}
	Must(m.T,
		client.IgnoreNotFound(m.Local.Get(m.T.Context(), client.ObjectKey{Namespace: m.AddOnNamespace(), Name: name},
			secret)))
	return secret
}

// UntilAddOn polls, and logs the add-on if that takes too long.
func (m *Member) UntilAddOn(name, what string, done func() bool) {
	m.T.Helper()
	defer func() {
		if m.T.Failed() {
			m.T.Logf("add-on %q of cluster %q: %+v, keys %q", name, m.Name, addon.StatusOf(m.AddOn(name)),
				Keys(m.AddOnSecret(name+"-hub-kubeconfig")))
		}
	}()
	kubetest.Eventually(m.T, what, done)
}

// Registered waits until the add-on has a credential of a driver.
func (m *Member) Registered(name, driver string) {
	m.T.Helper()
	m.UntilAddOn(name, "add-on "+name+" has its credential", func() bool {
		return string(m.AddOnSecret(name + "-hub-kubeconfig").Data["auth-type"]) == driver
	})
}

// Keys returns the keys of a Secret, without the drivers' notes.
func Keys(secret *corev1.Secret) (keys []string) {
	for key := range secret.Data {
		switch key {
		case "auth-type", "tls.crt", "tls.key", "token", "kubeconfig", "cluster-name", "agent-name", "expiration", "uid":
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// CredentialOf returns the configuration that an add-on makes of its mounted
// Secret.
func CredentialOf(secret *corev1.Secret) (*rest.Config, error) {
	parsed, err := clientcmd.Load(secret.Data["kubeconfig"])
	if err != nil {
		return nil, err
	}
	for _, user := range parsed.AuthInfos {
		user.Token, user.ClientCertificateData, user.ClientKeyData = string(secret.Data[user.TokenFile]),
			secret.Data[user.ClientCertificate], secret.Data[user.ClientKey]
		user.TokenFile, user.ClientCertificate, user.ClientKey = "", "", ""
	}
	config, err := clientcmd.NewDefaultClientConfig(*parsed, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err == nil {
		config.QPS = -1
	}
	return config, err
}

// AddOnClient returns a client with the credential in the Secret of an add-on.
func (m *Member) AddOnClient(name string) client.WithWatch {
	m.T.Helper()
	config, err := CredentialOf(m.AddOnSecret(name + "-hub-kubeconfig"))
	Must(m.T, err)
	return NewClient(m.T, config)
}

// UserOf returns the user that the hub sees.
func UserOf(t *testing.T, c client.Client) authenticationv1.UserInfo {
	t.Helper()
	review := &authenticationv1.SelfSubjectReview{}
	Must(t, c.Create(t.Context(), review))
	return review.Status.UserInfo
}

// Bind lets subjects list ConfigMaps in the cluster's namespace, as the
// controller of an add-on binds its roles.
func (m *Member) Bind(addOn string, users ...string) {
	m.T.Helper()
	m.Apply(m.Admin, fmt.Sprintf(`apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: %[1]s, namespace: %[2]s}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [list]}]
`, addOn, m.Name))
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: m.Name, Name: addOn},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: addOn}}
	for _, user := range users {
		binding.Subjects = append(binding.Subjects,
			rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user})
	}
	Must(m.T, m.Admin.Create(m.T.Context(), binding))
	for _, user := range users {
		m.Hub.Await(m.T, authorizationv1.SubjectAccessReviewSpec{User: user,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "configmaps", Namespace: m.Name}})
	}
}

// ExpectOnlyOwnRights binds a role to the add-on's declared subject. Its
// credential has that right and no other.
func (m *Member) ExpectOnlyOwnRights(addOn string) {
	m.T.Helper()
	t, c, user := m.T, m.AddOnClient(addOn), m.Items(addOn)[0].Subject.User
	if got := UserOf(t, c); got.Username != user {
		t.Errorf("the hub sees %+v instead of %q", got, user)
	}
	list := func(namespace string) error {
		return c.List(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(namespace))
	}
	if err := list(m.Name); !apierrors.IsForbidden(err) {
		t.Errorf("before it is bound: %v", err)
	}
	m.Bind(addOn, user)
	if err := list(m.Name); err != nil {
		t.Errorf("its own right: %v", err)
	}
	named := metav1.ObjectMeta{Namespace: m.Name, Name: addOn}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"namespace":"stolen"}}`))
	own := m.AddOn(addOn)
	copied := own.DeepCopyObject().(client.Object) //nolint:errcheck,forcetypeassert // an object
	for what, err := range map[string]error{
		"configmaps elsewhere": list("default"),
		"configmaps of all":    list(""),
		"secrets":              c.List(t.Context(), &corev1.SecretList{}, client.InNamespace(m.Name)),
		"its add-on":           c.Get(t.Context(), client.ObjectKeyFromObject(own), copied),
		"its add-on's status":  c.Status().Patch(t.Context(), m.AddOn(addOn), patch),
		"the ManagedCluster":   c.Get(t.Context(), client.ObjectKey{Name: m.Name}, &ocm.ManagedCluster{}),
		"the Lease": c.Get(t.Context(), client.ObjectKey{Namespace: m.Name, Name: ocm.LeaseName},
			&coordinationv1.Lease{}),
		"tokens": c.SubResource("token").Create(t.Context(),
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: m.Name, Name: m.Name + "-" + addOn + "-agent"}},
			&authenticationv1.TokenRequest{}),
		"certificates": c.Create(t.Context(),
			&certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "attack-"},
				Spec: certificatesv1.CertificateSigningRequestSpec{Request: []byte("x"),
					SignerName: certificatesv1.KubeAPIServerClientSignerName,
					Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth}}}),
		"roles": c.Create(t.Context(), &rbacv1.Role{ObjectMeta: named}),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
