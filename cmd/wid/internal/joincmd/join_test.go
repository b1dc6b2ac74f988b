package joincmd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/install"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

const (
	eksHub     = "arn:aws:eks:eu-central-1:123456789012:cluster/hub"
	eksManaged = "arn:aws:eks:eu-west-1:222222222222:cluster/shop"
)

// The Secret says which driver made the credential.
func TestUnjoinPicksTheDriver(t *testing.T) {
	local := fake.NewClientBuilder().Build()
	for name, tc := range map[string]struct {
		authType string
		arns     install.ClusterARNs
		want     string
	}{
		"certificate":     {"csr", install.ClusterARNs{}, "there is no Secret"},
		"unknown":         {"mine", install.ClusterARNs{}, "there is no Secret"},
		"AWS":             {"aws-irsa", install.ClusterARNs{Hub: eksHub, Managed: eksManaged}, "there is no Secret"},
		"AWS without ARN": {"aws-irsa", install.ClusterARNs{}, "--eks-hub-cluster-arn is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{Data: map[string][]byte{"kubeconfig": []byte("x"), "auth-type": []byte(tc.authType)}}
			if err := withdrawWith(t.Context(), local, "cluster1", secret, &tc.arns); err == nil ||
				!strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

// A user with rights in the agent's namespace alone takes a cluster out of its
// hub, and learns what stays.
func TestUnjoinWithoutRightsToAddOns(t *testing.T) {
	stored := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agent.DefaultNamespace,
		Name: ocm.HubKubeconfigSecret}}
	c := fake.NewClientBuilder().WithObjects(stored).WithInterceptorFuncs(interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return apierrors.NewForbidden(corev1.Resource("secrets"), "", nil)
		}}).Build()
	var out bytes.Buffer
	cmd := NewUnjoin()
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	if err := removeAgent(t.Context(), cmd, c, agent.DefaultNamespace, "managed-0", false); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(stored), stored); !apierrors.IsNotFound(err) ||
		!strings.Contains(out.String(), ocm.AddOnClusterLabel+"=managed-0") {
		t.Errorf("%v: %s", err, &out)
	}
}

// An agent without a credential cannot tell the hub, and there is nothing to
// withdraw.
func TestUnjoinOfAClusterThatNeverJoined(t *testing.T) {
	var out strings.Builder
	cmd := NewUnjoin()
	cmd.SetErr(&out)
	err := withdraw(t.Context(), cmd, fake.NewClientBuilder().Build(), agent.DefaultNamespace, "shop",
		&install.ClusterARNs{}, false)
	if err != nil || !strings.Contains(out.String(), "no credential of its own yet") ||
		!strings.Contains(out.String(), "wid hub deny --clusters shop") {
		t.Errorf("unjoin says %q, %v", out.String(), err)
	}
}

// What the hub answers decides whether unjoin removes anything: an error that
// ends keeps the agent, unless --force says otherwise.
func TestUnjoinInformsTheHub(t *testing.T) {
	const deny = "wid hub deny --clusters shop"
	for name, row := range map[string]struct {
		code  int // 0: no answer
		force bool
		fails string
		says  string
	}{
		"an expired credential":            {code: http.StatusUnauthorized, fails: deny},
		"an expired credential, forced":    {code: http.StatusUnauthorized, force: true, says: deny},
		"no answer":                        {fails: "--force"},
		"no answer, forced":                {force: true, says: deny},
		"a cluster that has no rights":     {code: http.StatusForbidden, says: deny},
		"an API server that fails":         {code: http.StatusInternalServerError, fails: "--force"},
		"an API server that fails, forced": {code: http.StatusInternalServerError, force: true, says: deny},
	} {
		t.Run(name, func(t *testing.T) {
			hub := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(row.code)
				_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`,
					strings.ReplaceAll(http.StatusText(row.code), " ", ""), row.code)
			}))
			defer hub.Close()
			config := clientcmdapi.NewConfig()
			config.CurrentContext, config.Contexts["c"] = "c", &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
			config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "hunter2"}
			config.Clusters["c"] = &clientcmdapi.Cluster{Server: hub.URL,
				CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hub.Certificate().Raw})}
			if row.code == 0 {
				config.Clusters["c"].Server = "https://127.0.0.1:1"
			}
			kubeconfig, err := clientcmd.Write(*config)
			if err != nil {
				t.Fatal(err)
			}
			secret := func(name string) *corev1.Secret {
				return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agent.DefaultNamespace, Name: name},
					Data: map[string][]byte{"kubeconfig": kubeconfig, "cluster-name": []byte("shop"), "agent-name": []byte("a")}}
			}
			local := fake.NewClientBuilder().WithObjects(secret(ocm.HubKubeconfigSecret),
				secret(agent.DefaultBootstrapSecret)).Build()
			var said bytes.Buffer
			cmd := NewUnjoin()
			cmd.SetErr(&said)
			err = withdraw(t.Context(), cmd, local, agent.DefaultNamespace, "shop", &install.ClusterARNs{}, row.force)
			if row.fails != "" {
				expectFailure(t, err, cli.ExitUnavailable, row.fails)
				expectFailure(t, err, cli.ExitUnavailable, "--force")
			} else if err != nil || !strings.Contains(said.String(), row.says) {
				t.Errorf("got %v, and it says %q, want %q", err, &said, row.says)
			}
			if strings.Contains(fmt.Sprint(err, &said), "hunter2") {
				t.Errorf("the token shows: %v, %s", err, &said)
			}
		})
	}
}

// The Secrets of add-ons end with the cluster. Those of another registration on
// the same cluster stay.
func TestUnjoinRemovesTheSecretsOfItsAddOns(t *testing.T) {
	secret := func(name, cluster string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agent.DefaultAddOnNamespace, Name: name,
			Labels: map[string]string{addon.NameLabel: "search", ocm.AddOnClusterLabel: cluster}}}
	}
	unlabelled := secret("no-add-on", "managed-0")
	delete(unlabelled.Labels, addon.NameLabel)
	c := fake.NewClientBuilder().WithObjects(secret("own", "managed-0"), secret("other", "managed-1"), unlabelled).Build()
	if err := removeAgent(t.Context(), NewUnjoin(), c, agent.DefaultNamespace, "managed-0", true); err != nil {
		t.Fatal(err)
	}
	var left []string
	list := &corev1.SecretList{}
	if err := c.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for _, s := range list.Items {
		left = append(left, s.Name)
	}
	if !slices.Equal(left, []string{"no-add-on", "other"}) {
		t.Errorf("left are %q, want the Secrets that belong to others", left)
	}
}

// A cluster may have one name on two hubs. Each agent keeps the Secrets in its
// namespace of add-ons.
func TestUnjoinLeavesTheAddOnsOfAnotherAgent(t *testing.T) {
	secret := func(namespace string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "search-hub-kubeconfig",
			Labels: map[string]string{addon.NameLabel: "search", ocm.AddOnClusterLabel: "shop"}}}
	}
	c := fake.NewClientBuilder().WithObjects(secret(agent.DefaultAddOnNamespace), secret("second-addon"),
		secret("gone-addon"), secret("monitoring"),
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "second", Name: ocm.AgentName}}).Build()
	if err := removeAgent(t.Context(), NewUnjoin(), c, agent.DefaultNamespace, "shop", true); err != nil {
		t.Fatal(err)
	}
	list := &corev1.SecretList{}
	if err := c.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 || list.Items[0].Namespace != "second-addon" {
		t.Errorf("left are %v, want the Secret of the agent in namespace second", list.Items)
	}
}

// --purge deletes a namespace with all that is in it, so it has to be an
// agent's.
func TestUnjoinRefusesANamespaceWithoutAnAgent(t *testing.T) {
	c := fake.NewClientBuilder().WithObjects(
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "second", Name: ocm.AgentName}}).Build()
	for _, namespace := range []string{agent.DefaultNamespace, "second"} {
		if err := checkInstalled(t.Context(), c, namespace); err != nil {
			t.Errorf("namespace %s: %v", namespace, err)
		}
	}
	expectFailure(t, checkInstalled(t.Context(), c, "production"), cli.ExitUsage,
		`wid join has installed no agent in namespace "production"`)
}

// A second join finds the agent of the namespace. It takes over an agent whose
// hub has moved, or that has not joined yet, and no agent of another hub.
func TestSecondJoinSaysWhatItFinds(t *testing.T) {
	const first = "https://first.example"
	refusal := `the agent in namespace "open-cluster-management-agent" joins this cluster to the hub "` + first + `"`
	const warning = `used the hub "` + first + `", and now uses`
	certFile, keyFile := regtest.ServingCertificate(t, t.TempDir())
	cert, err := os.ReadFile(certFile)
	regtest.Must(t, err)
	key, err := os.ReadFile(keyFile)
	regtest.Must(t, err)
	const byCert = `{client-certificate: tls.crt, client-key: tls.key}`
	for name, row := range map[string]struct {
		hub              int               // the answer to the agent's credential
		user             string            // byCert otherwise
		own, boot        string            // the servers in the Secrets
		data             map[string][]byte // of the agent's Secret
		args             []string
		refused, warning string
	}{
		"nothing":                  {},
		"the same hub":             {own: "same", boot: first},
		"another hub":              {hub: http.StatusUnauthorized, own: first, refused: refusal},
		"the hub at a new address": {hub: http.StatusOK, own: first, warning: warning},
		"a cluster that the hub has denied": {hub: http.StatusForbidden, own: first,
			warning: warning},
		"an agent that has not joined": {hub: http.StatusUnauthorized, boot: first, warning: warning},
		"another hub, a token":         {user: `{token: hunter2}`, hub: http.StatusOK, own: first, refused: refusal},
		"another hub on EKS": {own: first, data: map[string][]byte{ocm.SecretKeyAuthType: []byte("aws-irsa")},
			args: []string{"--eks-hub-cluster-arn=" + eksManaged}, refused: refusal},
		"the hub on EKS at a new address": {own: first, data: map[string][]byte{ocm.SecretKeyAuthType: []byte("aws-irsa")},
			args: []string{"--eks-hub-cluster-arn", eksHub}, warning: warning},
	} {
		t.Run(name, func(t *testing.T) {
			hub, asked := newHub(t, row.hub)
			secret := func(name, server string) *corev1.Secret {
				if server == "same" {
					server = hub.URL
				}
				return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agent.DefaultNamespace, Name: name},
					Data: map[string][]byte{"tls.crt": cert, "tls.key": key, "kubeconfig": fmt.Appendf(nil,
						`{apiVersion: v1, kind: Config, clusters: [{name: h, cluster: {server: %q}}], users: [{name: u, user: %s}]}`,
						server, cmp.Or(row.user, byCert))}}
			}
			b := fake.NewClientBuilder()
			if row.own != "" {
				own := secret(ocm.HubKubeconfigSecret, row.own)
				maps.Copy(own.Data, row.data)
				b = b.WithObjects(own)
			}
			if row.boot != "" {
				b = b.WithObjects(secret(agent.DefaultBootstrapSecret, row.boot))
			}
			j, cmd, out := joinOf(t, "-")
			j.arns.Hub = eksHub
			j.options.Hub = &bootstrap.ClusterInfo{Server: hub.URL,
				CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hub.Certificate().Raw})}
			err := j.checkHubOfAgent(t.Context(), cmd, b.Build(), row.args)
			if row.refused != "" {
				expectFailure(t, err, cli.ExitMisconfigured, row.refused)
			} else if err != nil {
				t.Error(err)
			}
			if !strings.Contains(out.String(), row.warning) || row.warning == "" && out.Len() > 0 {
				t.Errorf("it says %q, want %q", out, row.warning)
			}
			if strings.Contains(fmt.Sprint(err, out, *asked), "hunter2") {
				t.Errorf("the token shows: %v, %s, %q", err, out, *asked)
			}
		})
	}
}

// The Secret of another registration is not touched.
func TestUnjoinRefusesAnotherName(t *testing.T) {
	c := fake.NewClientBuilder().WithObjects(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: agent.DefaultNamespace, Name: ocm.HubKubeconfigSecret},
		Data: map[string][]byte{ocm.SecretKeyClusterName: []byte("managed-0")}}).Build()
	err := withdraw(t.Context(), NewUnjoin(), c, agent.DefaultNamespace, "managed-1", &install.ClusterARNs{}, true)
	expectFailure(t, err, cli.ExitMisconfigured, `registered this cluster as "managed-0" at the hub "", not as "managed-1"`)
}
