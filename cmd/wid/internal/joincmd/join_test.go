package joincmd

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
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

// The hub answers 401 to an expired credential. Only an administrator can then
// inform it.
func TestUnjoinWithAnExpiredCredential(t *testing.T) {
	hub := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		_,
			_ = fmt.Fprint(w,
			`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401,"message":"Unauthorized"}`)
	}))
	defer hub.Close()
	config := clientcmdapi.NewConfig()
	config.CurrentContext, config.Contexts["c"] = "c", &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "x"}
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: hub.URL,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hub.Certificate().Raw})}
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
	err = withdraw(t.Context(), NewUnjoin(), local, "shop", &install.ClusterARNs{}, false)
	if err == nil || cli.ExitCode(t.Context(), err) != cli.ExitUnavailable ||
		!strings.Contains(err.Error(), "wid hub deny --clusters shop") || !strings.Contains(err.Error(), "--force") {
		t.Errorf("it says %v", err)
	}
}
