package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/ocm/addon/v1alpha1"
)

var (
	kubeClient   = ocm.Registration{Type: ocm.KubeClient}
	customSigner = ocm.Registration{Type: ocm.CustomSigner, SignerName: "example.com/signer",
		Subject: ocm.Subject{Groups: []string{"g"}, OrganizationUnits: []string{"o"}}}
)

// Both items of an add-on are registered, with the names of either version of
// the API.
func TestAddOnsRegister(t *testing.T) {
	for _, version := range []schema.GroupVersion{v1alpha1.GroupVersion, addon.GroupVersion} {
		t.Run(version.Version, func(t *testing.T) {
			w := newAddOnEnvironment(t, version)
			w.create("a", kubeClient, customSigner)
			w.mustReconcile("a")
			items := w.status("a").Items
			if items[0].Driver != "token" || items[0].Subject.User != "token:cluster1:a" ||
				items[1].Subject.User != "csr:cluster1:a" ||
				items[1].Subject.OrganizationUnits[0] != "o" || items[1].SignerName != "example.com/signer" ||
				items[1].Driver != "" {
				t.Errorf("declared %+v", items)
			}
			if w.keys("a-hub-kubeconfig") != nil {
				t.Error("there is a Secret before it has something to hold")
			}
			if after := w.mustReconcile("a"); after != 0 {
				t.Errorf("it comes back after %s", after)
			}
			if got := w.keys("a-hub-kubeconfig"); !slices.Equal(got,
				[]string{"agent-name", "auth-type", "cluster-name", "expiry", "kubeconfig", "token"}) {
				t.Errorf("the Secret of the kubeClient item has %q", got)
			}
			if got := w.keys("a-example.com-signer-client-cert"); !slices.Equal(got, []string{"auth-type", "csr", "expiry"}) {
				t.Errorf("the Secret of the customSigner item has %q", got)
			}
			secret := w.secretIn(addOnNamespace, "a-hub-kubeconfig")
			if got := string(secret.Data["kubeconfig"]); !strings.Contains(got, "https://hub.example.com:6443") ||
				!strings.Contains(got, "tokenFile: token") {
				t.Errorf("kubeconfig %s", got)
			}
			if string(secret.Data["agent-name"]) != string(w.secret().Data["agent-name"]) ||
				w.driver.in.Agent != string(secret.Data["agent-name"]) {
				t.Errorf("agent-name %q", secret.Data["agent-name"])
			}
			for _, c := range []string{"AddonTokenRefreshed", ocm.ConditionCertificateRotated} {
				if w.condition("a", c).Status != metav1.ConditionTrue {
					t.Errorf("condition %s: %+v", c, w.condition("a", c))
				}
			}
			if c := w.condition("a", ocm.ConditionRegistrationAccepted); c.Type != "" {
				t.Errorf("condition %+v", c)
			}
		})
	}
}

func TestAddOnsRefuseAnItem(t *testing.T) {
	taken := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: addOnNamespace, Name: "a-hub-kubeconfig"},
		Data: map[string][]byte{"mine": nil}}
	resource := schema.GroupResource{Resource: "secrets"}
	item := func(signer string) ocm.Registration {
		return ocm.Registration{Type: ocm.CustomSigner, SignerName: signer}
	}
	for name, row := range map[string]struct {
		items        []ocm.Registration
		prepare      func(*addOnEnvironment)
		reason, says string
	}{
		"a second kubeClient item": {items: []ocm.Registration{kubeClient, kubeClient}, reason: "DuplicateItem",
			says: `"a-hub-kubeconfig"`},
		"two signers with one Secret": {items: []ocm.Registration{item("a.b/c-d"), item("a.b-c/d")},
			reason: "DuplicateItem", says: "a-a.b-c-d-client-cert"},
		"a type of a newer hub": {items: []ocm.Registration{{Type: "other"}}, reason: "UnknownType",
			says: `"other"`},
		"a customSigner item without body": {items: []ocm.Registration{item("")}, reason: "NoSigner", says: "signerName"},
		"a signer in upper case": {items: []ocm.Registration{item("a.example/Signer")}, reason: "InvalidName",
			says: "lower case"},
		"a signer with a long name": {items: []ocm.Registration{item("a.example/" + strings.Repeat("a", 240))},
			reason: "InvalidName", says: "253"},
		"no driver for custom signers": {items: []ocm.Registration{customSigner}, prepare: func(w *addOnEnvironment) {
			w.addOnOptions.CustomSigner = nil
			w.restart()
		}, reason: "UnknownDriver", says: "example.com/signer"},
		"the namespace kube-system": {items: []ocm.Registration{kubeClient}, prepare: func(w *addOnEnvironment) {
			w.namespace("a", "kube-system")
		}, reason: "NamespaceRefused", says: `"kube-system"`},
		"the agent's own namespace": {items: []ocm.Registration{kubeClient}, prepare: func(w *addOnEnvironment) {
			w.namespace("a", agentNamespace)
		}, reason: "NamespaceRefused", says: agentNamespace},
		"a namespace that is a path": {items: []ocm.Registration{kubeClient}, prepare: func(w *addOnEnvironment) {
			w.namespace("a", "../x")
		}, reason: "NamespaceRefused", says: `"../x"`},
		"a Secret of another owner": {items: []ocm.Registration{kubeClient}, prepare: func(w *addOnEnvironment) {
			w.put(taken)
		}, reason: "SecretTaken", says: `/a-hub-kubeconfig"`},
		"a namespace without Role": {items: []ocm.Registration{kubeClient}, prepare: func(w *addOnEnvironment) {
			w.failIn("other", "get", apierrors.NewForbidden(resource, "", nil))
		}, reason: "NamespaceUnusable", says: `"other"`},
		"a namespace that is not there": {items: []ocm.Registration{kubeClient}, prepare: func(w *addOnEnvironment) {
			w.failIn("other", "create", apierrors.NewNotFound(resource, "other"))
		}, reason: "NamespaceUnusable", says: `"other"`},
		"a namespace that is being deleted": {items: []ocm.Registration{kubeClient}, prepare: func(w *addOnEnvironment) {
			w.failIn("other", "create", apierrors.NewForbidden(resource, "", nil))
		}, reason: "NamespaceUnusable", says: `"other"`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newAddOnEnvironment(t)
			w.create("a", row.items...)
			if row.prepare != nil {
				row.prepare(w)
			}
			w.mustReconcile("a")
			w.mustReconcile("a")
			c := w.condition("a", "RegistrationAccepted")
			if c.Status != metav1.ConditionFalse || c.Reason != row.reason || !strings.Contains(c.Message, row.says) {
				t.Errorf("condition %+v", c)
			}
			if first := w.condition("a", "AddonTokenRefreshed"); row.reason == "DuplicateItem" &&
				row.items[0].Type == ocm.KubeClient && first.Status != metav1.ConditionTrue {
				t.Errorf("the first item: %+v", first)
			}
			if row.reason == "SecretTaken" && !slices.Equal(w.keys("a-hub-kubeconfig"), []string{"mine"}) {
				t.Errorf("the Secret of another owner has %q", w.keys("a-hub-kubeconfig"))
			}
			w.writes = nil
			after := w.mustReconcile("a")
			if len(w.writes) > 0 {
				t.Errorf("said again: %q", w.writes)
			}
			if wait := row.reason == "NamespaceUnusable" || row.reason == "SecretTaken"; wait != (after == 30*time.Second) {
				t.Errorf("it comes back after %s", after)
			}
			w.localErr = nil
			w.change("a", func(s *addon.Status) { s.Items = nil })
			w.mustReconcile("a")
			if got := w.condition("a", "RegistrationAccepted"); got.Status != metav1.ConditionTrue {
				t.Errorf("mended, the condition is %+v", got)
			}
		})
	}
}

// Items beyond the limit cost nothing. Those before it are registered all the
// same.
func TestAddOnsLimitTheItemsOfOneAddOn(t *testing.T) {
	w := newAddOnEnvironment(t)
	items := make([]ocm.Registration, 33)
	for i := range items {
		items[i] = ocm.Registration{Type: ocm.CustomSigner, SignerName: fmt.Sprintf("example.com/s%d", i)}
	}
	w.create("a", items[:32]...)
	w.create("b", items...)
	for addOn, want := range map[string]string{"a": "", "b": "TooManyItems"} {
		w.mustReconcile(addOn)
		w.mustReconcile(addOn)
		if got := w.condition(addOn, "RegistrationAccepted"); got.Reason != want {
			t.Errorf("condition %+v, want %q", got, want)
		}
		secrets := &corev1.SecretList{}
		if err := w.local.List(t.Context(), secrets, client.InNamespace(addOnNamespace),
			client.MatchingLabels{addon.NameLabel: addOn}); err != nil || len(secrets.Items) != 32 {
			t.Errorf("add-on %q: %d Secrets, %v", addOn, len(secrets.Items), err)
		}
	}
}

// The agent's own driver decides, and the hub of v1alpha1 has room for one.
func TestAddOnsOverwriteTheDriverOfAnotherAgent(t *testing.T) {
	other := ocm.Registration{Type: ocm.KubeClient, Driver: "csr", Subject: ocm.Subject{User: "u", Groups: []string{"g"}}}
	for _, version := range []schema.GroupVersion{v1alpha1.GroupVersion, addon.GroupVersion} {
		t.Run(version.Version, func(t *testing.T) {
			w := newAddOnEnvironment(t, version)
			w.register("a", other, other)
			if got := w.status("a").Items; got[0].Driver != "token" || got[0].Subject.User != "token:cluster1:a" ||
				got[1].Subject.User != "u" {
				t.Errorf("declared %+v", got)
			}
			w.writes = nil
			w.mustReconcile("a")
			if len(w.writes) > 0 {
				t.Errorf("declared again: %q", w.writes)
			}
			w.addOnOptions.KubeClient = w.signer
			w.restart()
			w.mustReconcile("a")
			w.mustReconcile("a")
			if got := w.condition("a", "AddonTokenRefreshed"); got.Type != "" {
				t.Errorf("the refused item keeps the condition of the token: %+v", got)
			}
		})
	}
}

// eagerDriver declares once, and stores that it has. It acts when it sees the
// declaration on the hub.
type eagerDriver struct{ seen []string }

// A driver is not called again before the hub has its declaration.
func TestAddOnsDeclareBeforeTheNextCall(t *testing.T) {
	w := newAddOnEnvironment(t)
	driver := &eagerDriver{}
	w.addOnOptions.KubeClient = driver
	w.restart()
	w.create("a", kubeClient)
	if after := w.mustReconcile("a"); after != 0 || w.status("a").Items[0].Subject.User != "u" ||
		!slices.Equal(driver.seen, []string{""}) {
		t.Errorf("back after %s, declared %+v, the driver saw %q", after, w.status("a").Items, driver.seen)
	}
	w.mustReconcile("a")
	if !slices.Equal(driver.seen, []string{"", "csr"}) {
		t.Errorf("the driver saw %q", driver.seen)
	}
}

// The old credential stays until the new one is there. Then the keys of the
// other driver go, and the condition that keeps the hub from removing the
// ServiceAccount.
func TestAddOnsSwitchDrivers(t *testing.T) {
	w := newAddOnEnvironment(t)
	w.register("a", kubeClient)
	w.change("a", func(s *addon.Status) {
		meta.SetStatusCondition(&s.Conditions,
			metav1.Condition{Type: "TokenRefreshed", Status: metav1.ConditionTrue, Reason: "AddonTokenRefreshed"})
	})
	csr := &addOnDriver{name: "csr", condition: ocm.ConditionCertificateRotated, hold: true}
	w.addOnOptions.KubeClient = csr
	w.restart()
	w.mustReconcile("a")
	w.mustReconcile("a")
	if got := w.status("a").Items[0]; got.Driver != "csr" || len(w.keys("a-hub-kubeconfig")) != 6 ||
		w.condition("a", "TokenRefreshed").Type == "" || w.condition("a", "AddonTokenRefreshed").Type == "" {
		t.Errorf("while it waits: %+v, keys %q, %+v", got, w.keys("a-hub-kubeconfig"), w.status("a").Conditions)
	}
	if len(csr.in.Stored["token"]) > 0 {
		t.Error("a driver sees the credential of another one")
	}
	csr.hold = false
	w.mustReconcile("a")
	if got := w.keys("a-hub-kubeconfig"); !slices.Equal(got,
		[]string{"agent-name", "auth-type", "cluster-name", "csr", "expiry", "kubeconfig"}) {
		t.Errorf("the Secret has %q", got)
	}
	for _, c := range []string{"TokenRefreshed", "AddonTokenRefreshed"} {
		if w.condition("a", c).Type != "" {
			t.Errorf("condition %s is left", c)
		}
	}
	w.addOnOptions.KubeClient = w.driver
	w.restart()
	w.driver.hold = true
	w.mustReconcile("a")
	if got := w.condition("a", "AddonTokenRefreshed"); got.Status != metav1.ConditionFalse ||
		!slices.Contains(w.keys("a-hub-kubeconfig"), "csr") {
		t.Errorf("on the way back: %+v, keys %q", got, w.keys("a-hub-kubeconfig"))
	}
	w.driver.hold = false
	w.mustReconcile("a")
	if got := w.keys("a-hub-kubeconfig"); !slices.Contains(got, "token") || slices.Contains(got, "csr") ||
		w.condition("a", "AddonTokenRefreshed").Status != metav1.ConditionTrue {
		t.Errorf("the Secret has %q", got)
	}
}

// All items of one driver write one condition type.
func TestAddOnsCombineConditions(t *testing.T) {
	w := newAddOnEnvironment(t)
	w.addOnOptions.KubeClient = &addOnDriver{name: "csr", condition: ocm.ConditionCertificateRotated}
	w.signer.hold = true
	w.restart()
	w.register("a", kubeClient, customSigner)
	if got := w.condition("a", ocm.ConditionCertificateRotated); got.Status != metav1.ConditionFalse ||
		got.Reason != "NotIssued" {
		t.Errorf("one of two is not issued: %+v", got)
	}
	w.signer.hold = false
	w.mustReconcile("a")
	if got := w.condition("a", ocm.ConditionCertificateRotated); got.Status != metav1.ConditionTrue {
		t.Errorf("both are issued: %+v", got)
	}
}

func TestAddOnsSteadyStateWritesNothing(t *testing.T) {
	w := newAddOnEnvironment(t)
	w.driver.life = time.Hour
	w.register("a", kubeClient, customSigner)
	w.writes = nil
	for range 3 {
		if after := w.mustReconcile("a"); after != time.Hour {
			t.Errorf("it comes back after %s", after)
		}
	}
	if len(w.writes) > 0 {
		t.Errorf("writes %q", w.writes)
	}
	w.now = w.now.Add(time.Hour)
	w.mustReconcile("a")
	const want = `# HELP registration_agent_addon_credentials_total Credentials of add-ons, by driver and result: issued, refreshed, or failed for each call of the driver that failed.
# TYPE registration_agent_addon_credentials_total counter
registration_agent_addon_credentials_total{cluster="cluster1",driver="csr",result="issued"} 1
registration_agent_addon_credentials_total{cluster="cluster1",driver="token",result="issued"} 1
registration_agent_addon_credentials_total{cluster="cluster1",driver="token",result="refreshed"} 1
`
	if err := testutil.GatherAndCompare(w.registry, strings.NewReader(want),
		"registration_agent_addon_credentials_total"); err != nil {
		t.Error(err)
	}
}

func TestAddOnsLeaveHostedOnesAlone(t *testing.T) {
	w := newAddOnEnvironment(t)
	w.create("a", kubeClient)
	o := w.get("a")
	o.SetAnnotations(map[string]string{"addon.open-cluster-management.io/hosting-cluster-name": "hosting"})
	regtest.Must(t, w.hub.Update(t.Context(), o))
	if after := w.mustReconcile("a"); after != 0 || len(w.writes) > 0 {
		t.Errorf("back after %s, writes %q", after, w.writes)
	}
}

func TestAddOnsFollowTheHubsAddress(t *testing.T) {
	w := newAddOnEnvironment(t)
	w.register("a", kubeClient, customSigner)
	w.writeBootstrap(bootstrapKubeconfig("https://moved.example.com:6443"))
	w.agentEnvironment.mustReconcile()
	w.writes = nil
	w.mustReconcile("a")
	if got := string(w.secretIn(addOnNamespace, "a-hub-kubeconfig").Data["kubeconfig"]); !strings.Contains(got,
		"https://moved.example.com:6443") || w.driver.issued != 1 {
		t.Errorf("%d tokens, want 1; kubeconfig %s", w.driver.issued, got)
	}
	if !slices.Equal(w.writes, []string{"local update *v1.Secret"}) ||
		w.built[len(w.built)-1].Host != "https://moved.example.com:6443" {
		t.Errorf("writes %q to %q", w.writes, w.built[len(w.built)-1].Host)
	}
}

// A server refuses the old credential from the second it expires.
func TestAddOnsUseTheRenewedCredential(t *testing.T) {
	w := newAddOnEnvironment(t)
	w.register("a", kubeClient)
	clients := len(w.built)
	w.mustReconcile("a")
	if len(w.built) != clients {
		t.Error("the client is made anew at each reconcile")
	}
	w.edit(func(d map[string][]byte) { d["shared"] = []byte("token-renewed") })
	w.agentEnvironment.mustReconcile()
	w.mustReconcile("a")
	if got := w.built[len(w.built)-1].BearerToken; len(w.built) != clients+2 || got != "token-renewed" {
		t.Errorf("%d clients more, want 2; the last one has %q, want \"token-renewed\"", len(w.built)-clients, got)
	}
}

func TestAddOnsRefuseANameWithADot(t *testing.T) {
	w := newAddOnEnvironment(t)
	w.register("a.b", kubeClient)
	if got := w.condition("a.b", "RegistrationAccepted"); got.Reason != "InvalidName" ||
		!strings.Contains(got.Message, `"a.b"`) {
		t.Errorf("condition %+v", got)
	}
}

// The hub must not be asked with a credential that it refuses.
func TestAddOnsWaitWhileTheClusterHasNoAccess(t *testing.T) {
	w := newAddOnEnvironment(t)
	w.create("a", kubeClient)
	own := string(w.secret().Data["shared"])
	w.refused[own] = forbidden()
	w.agentEnvironment.mustReconcile()
	if after := w.mustReconcile("a"); after != 30*time.Second || len(w.writes) > 0 {
		t.Errorf("without access it comes back after %s, writes %q", after, w.writes)
	}
	delete(w.refused, own)
	w.agentEnvironment.mustReconcile()
	w.mustReconcile("a")
	if got := w.status("a").Items[0].Driver; got != "token" {
		t.Errorf("declared %q", got)
	}
}

// A hub without add-ons gets some, and loses them. Nothing is removed for that.
func TestAddOnsDiscoverTheAPI(t *testing.T) {
	w := newAddOnEnvironment(t)
	w.mapper.serve()
	for range 3 {
		w.mustReconcile("a")
		w.now = w.now.Add(time.Minute)
	}
	if got := w.seen(); len(got) != 1 || !strings.Contains(got[0], "serves no add-ons") {
		t.Errorf("Events %q", got)
	}
	w.mapper.serve(v1alpha1.GroupVersion)
	w.register("a", kubeClient)
	if got := w.status("a").Items[0]; got.Driver != "token" || w.keys("a-hub-kubeconfig") == nil {
		t.Fatalf("registered %+v", got)
	}
	hub := w.hub
	watching, ok := hub.(client.WithWatch)
	if !ok {
		t.Fatal("no WithWatch")
	}
	w.hub = interceptor.NewClient(watching,
		interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if _, ok := o.(*v1alpha1.ManagedClusterAddOn); ok {
				return apierrors.NewGenericServerResponse(404, "GET", schema.GroupResource{}, "", "404 page not found", 0, true)
			}
			return c.Get(ctx, key, o, opts...)
		}})
	w.restart()
	w.mustReconcile("a")
	if w.keys("a-hub-kubeconfig") == nil {
		t.Error("the Secret was removed with the API")
	}
	w.mapper.serve(addon.GroupVersion)
	w.create("b", kubeClient)
	w.mustReconcile("b")
	if got := w.status("b").Items[0].Driver; got != "token" {
		t.Errorf("in the newer version: %q", got)
	}
}

// A driver that fails for one item does not keep the others from their
// credentials.
func TestAddOnsReportADriverThatFails(t *testing.T) {
	w := newAddOnEnvironment(t)
	w.driver.fail = errors.New("refused with Bearer abcdefghijklmnop")
	w.create("a", kubeClient, customSigner)
	for range 3 {
		if _, err := w.reconcile("a"); !errors.Is(err, w.driver.fail) {
			t.Errorf("got %v", err)
		}
	}
	if w.keys("a-example.com-signer-client-cert") == nil {
		t.Error("the other item has no credential")
	}
	got := w.seen()
	if len(got) != 1 || !strings.Contains(got[0], `add-on "a"`) || !strings.Contains(got[0], `driver "token"`) ||
		strings.Contains(got[0], "abcdefghijklmnop") {
		t.Errorf("Events %q", got)
	}
	if n, err := testutil.GatherAndCount(w.registry, "registration_agent_addon_credentials_total"); err != nil || n != 2 {
		t.Errorf("%d counters, %v, want 2", n, err)
	}
}

func TestAddOnsStopADriverThatNeverSettles(t *testing.T) {
	w := newAddOnEnvironment(t)
	driver := &restlessDriver{}
	w.addOnOptions.KubeClient = driver
	w.restart()
	w.create("a", kubeClient)
	if _, err := w.reconcile("a"); err == nil || !strings.Contains(err.Error(), `driver "restless"`) || driver.calls > 8 {
		t.Errorf("%d calls, want at most 8 and an error of the driver: %v", driver.calls, err)
	}
}

func TestNewAddOnsRefuses(t *testing.T) {
	w := newAddOnEnvironment(t)
	for name, row := range map[string]struct {
		change func(*agent.AddOnOptions)
		want   string
	}{
		"no agent":  {func(o *agent.AddOnOptions) { o.Agent = nil }, "AddOnOptions.Agent"},
		"no driver": {func(o *agent.AddOnOptions) { o.KubeClient = nil }, "AddOnOptions.KubeClient"},
		"a driver without a name": {func(o *agent.AddOnOptions) {
			o.CustomSigner = fixedDriver{}
		}, `the driver name "" is not a DNS label`},
		"a name that is no label": {func(o *agent.AddOnOptions) { o.KubeClient = fixedDriver{name: "A/b"} }, `"A/b"`},
		"the agent's namespace":   {func(o *agent.AddOnOptions) { o.Namespace = agentNamespace }, agentNamespace},
		"metrics twice":           {func(*agent.AddOnOptions) {}, "metrics"},
	} {
		t.Run(name, func(t *testing.T) {
			opts := w.addOnOptions
			row.change(&opts)
			if _, err := agent.NewAddOns(opts); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want %q", err, row.want)
			}
		})
	}
}
