package joincmd

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/install"
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
	if err := removeAgent(t.Context(), cmd, c, "managed-0", false); err != nil {
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
	err := withdraw(t.Context(), cmd, fake.NewClientBuilder().Build(), "shop", &install.ClusterARNs{}, false)
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
			err = withdraw(t.Context(), cmd, local, "shop", &install.ClusterARNs{}, row.force)
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
	if err := removeAgent(t.Context(), NewUnjoin(), c, "managed-0", true); err != nil {
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

// The Secret of another registration is not touched.
func TestUnjoinRefusesAnotherName(t *testing.T) {
	c := fake.NewClientBuilder().WithObjects(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: agent.DefaultNamespace, Name: ocm.HubKubeconfigSecret},
		Data: map[string][]byte{ocm.SecretKeyClusterName: []byte("managed-0")}}).Build()
	err := withdraw(t.Context(), NewUnjoin(), c, "managed-1", &install.ClusterARNs{}, true)
	expectFailure(t, err, cli.ExitMisconfigured, `registered as "managed-0", not as "managed-1"`)
}
