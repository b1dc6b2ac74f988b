package joincmd

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/install"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/manifests"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/ocm/addon/v1alpha1"
)

// joinOf returns a join of cluster1, which the hub has accepted, with the flag
// unless that is "-", and what it prints.
func joinOf(t *testing.T, flag string) (*join, *cobra.Command, *bytes.Buffer) {
	t.Helper()
	j, cmd, out := &join{accepted: true, options: manifests.AgentOptions{Namespace: agent.DefaultNamespace,
		Cluster: "cluster1"}}, &cobra.Command{},
		&bytes.Buffer{}
	cmd.SetOut(out)
	cmd.SetErr(out)
	cmd.Flags().StringVar(&j.options.AddOnAuthType, install.AddOnAuthFlag, "", "")
	if flag != "-" {
		if err := cmd.Flags().Set(install.AddOnAuthFlag, flag); err != nil {
			t.Fatal(err)
		}
	}
	return j, cmd, out
}

// hubWith returns a hub that serves one version, with an add-on for each driver
// of cluster1: "none" for an add-on without items.
func hubWith(t *testing.T, version schema.GroupVersion, drivers []string) client.Client {
	t.Helper()
	scheme, mapper := runtime.NewScheme(), meta.NewDefaultRESTMapper(nil)
	mapper.Add(version.WithKind("ManagedClusterAddOn"), meta.RESTScopeNamespace)
	api, err := addon.Discover(mapper)
	if err = errors.Join(err, addon.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	b := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper)
	for i, driver := range append(drivers, "token") {
		o := api.New()
		o.SetNamespace("cluster1")
		o.SetName(fmt.Sprintf("a%d", i))
		items := []ocm.Registration{{Type: ocm.CustomSigner, SignerName: "example.com/signer"},
			{Type: ocm.KubeClient, Driver: driver}}
		if i == len(drivers) {
			o.SetNamespace("cluster10")
		}
		if driver == "none" {
			items = nil
		}
		switch o := o.(type) {
		case *v1alpha1.ManagedClusterAddOn:
			o.Status.SetItems(items)
		case *addon.ManagedClusterAddOn:
			o.Status.SetItems(items)
		}
		b = b.WithObjects(o)
	}
	return b.Build()
}

// Add-ons keep the auth type by which the agent before has registered them,
// unless the flag says otherwise.
func TestJoinKeepsTheAuthTypeOfAddOns(t *testing.T) {
	const warns, refuses = "wid: warning: ", "pass --addon-kubeclient-registration-auth"
	for name, row := range map[string]struct {
		drivers []string
		flag    string
		want    string // auth type
		says    string
	}{
		"no add-ons": {nil, "-", "", ""},
		"tokens": {[]string{"token", "token"}, "-", "token",
			`The add-ons of cluster "cluster1" keep the auth type "token"`},
		"certificates":                   {[]string{"csr", "csr"}, "-", "csr", `keep the auth type "csr"`},
		"an agent that declares nothing": {[]string{""}, "-", "csr", `keep the auth type "csr"`},
		"an add-on without items":        {[]string{"none"}, "-", "csr", `keep the auth type "csr"`},
		"both": {[]string{"token", "csr", "token"}, "-", "",
			refuses +
				`: the add-ons of cluster "cluster1" have several auth types, and one agent has one. With token these get a new credential: ["a1"]. With csr these: ["a0" "a2"]`},
		"both, csr": {[]string{"token", "csr"}, "csr", "csr",
			warns + `the tokens of these add-ons end, since --addon-kubeclient-registration-auth is not token: ["a0"]`},
		"tokens, no auth type": {[]string{"token"}, "", "", warns + `the tokens of these add-ons end`},
		"certificates, csr":    {[]string{"csr"}, "csr", "csr", ""},
	} {
		for _, version := range []schema.GroupVersion{v1alpha1.GroupVersion, addon.GroupVersion} {
			t.Run(name+", "+version.Version, func(t *testing.T) {
				j, cmd, out := joinOf(t, row.flag)
				names, err := addOnsOf(t.Context(), hubWith(t, version, row.drivers), "cluster1")
				if err = j.keepAddOnAuth(cmd, names, err); err != nil {
					fmt.Fprint(out, err)
				}
				if j.options.AddOnAuthType != row.want || !strings.Contains(out.String(), row.says) ||
					(row.says == "") != (out.Len() == 0) ||
					(err != nil) != strings.HasPrefix(row.says, refuses) || err != nil && !errors.As(err, new(*cli.UsageError)) {
					t.Errorf("auth type %q, says %q, %v", j.options.AddOnAuthType, out, err)
				}
			})
		}
	}
}

// Where the add-ons cannot be read, the flag decides. Only the verified hub is
// asked, whatever address the Secret holds.
func TestJoinRequiresTheAuthTypeOfAddOnsThatItCannotRead(t *testing.T) {
	answer := http.StatusForbidden
	hub := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(answer)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"message":"answer %d"}`,
			answer, answer)
	}))
	defer hub.Close()
	kubeconfig := func(user string) string {
		return `{apiVersion: v1, kind: Config, clusters: [{name: h, cluster: {server: "https://elsewhere.invalid"}}], users: [{name: u, user: ` + user + `}]}`
	}
	for name, row := range map[string]struct {
		code       int
		kubeconfig string // "" for no Secret
		flag       string
		fails      bool
		says       string
	}{
		"no Secret":     {flag: "-"},
		"forbidden":     {http.StatusForbidden, kubeconfig("{token: t}"), "-", true, "answers 403"},
		"expired":       {http.StatusUnauthorized, kubeconfig("{token: t}"), "-", true, "answers 401"},
		"a program":     {0, kubeconfig("{exec: {command: aws}}"), "-", true, `exec "aws"`},
		"no kubeconfig": {0, "x", "-", true, "it is not a kubeconfig"},
		"forbidden, csr": {http.StatusForbidden, kubeconfig("{token: t}"), "csr", false,
			"it is not known whether add-ons"},
		"forbidden, token": {http.StatusForbidden, kubeconfig("{token: t}"), "token", false, ""},
		"a program, none":  {0, kubeconfig("{exec: {command: aws}}"), "", false, "it is not known whether add-ons"},
		"no user, no flag set": {0,
			`{apiVersion: v1, kind: Config, clusters: [{name: h, cluster: {server: "https://elsewhere.invalid"}}]}`, "-", true,
			"it holds no user"},
	} {
		t.Run(name, func(t *testing.T) {
			answer = row.code
			j, cmd, out := joinOf(t, row.flag)
			j.options.Hub = &bootstrap.ClusterInfo{Server: hub.URL,
				CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hub.Certificate().Raw})}
			b := fake.NewClientBuilder()
			if row.kubeconfig != "" {
				b = b.WithObjects(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agent.DefaultNamespace,
					Name: ocm.HubKubeconfigSecret},
					Data: map[string][]byte{registration.SecretKeyKubeconfig: []byte(row.kubeconfig)}})
			}
			local := b.Build()
			err := j.addOnAuth(t.Context(), cmd, local)
			if err != nil {
				fmt.Fprint(out, err)
			}
			if (err != nil) != row.fails || err != nil && !errors.As(err, new(*cli.UsageError)) ||
				!strings.Contains(out.String(), row.says) || (row.says == "") != (out.Len() == 0) {
				t.Errorf("says %q, %v", out, err)
			}
			j.accepted = false
			if err := j.addOnAuth(t.Context(), cmd, local); err != nil {
				t.Errorf("of a cluster that is not accepted: %v", err)
			}
		})
	}
}
