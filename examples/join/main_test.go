package main

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/bootstrap/controllers"
	"github.com/workloadid/workloadid/bootstrap/tokens"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m).Run()) }

// A machine that knows an address, a token and a pin obtains a certificate from
// the cluster.
func TestJoin(t *testing.T) {
	cluster := kubetest.StartNew(t)
	cluster.ControllerManager(t, "bootstrapsigner", "csrapproving", "csrsigning")
	info := &bootstrap.ClusterInfo{Server: "https://" + strings.TrimPrefix(cluster.Config().Host, "https://"),
		CAData: cluster.Config().CAData}
	if err := controllers.Publish(t.Context(), cluster.Client(), info); err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{"system:node-bootstrapper",
		"system:certificates.k8s.io:certificatesigningrequests:nodeclient"} {
		if err := cluster.Client().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "join-"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind,
				Name: bootstrapapi.BootstrapDefaultGroup}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, part := range []string{"", "nodeclient"} {
		cluster.Await(t, authorizationv1.SubjectAccessReviewSpec{User: "system:bootstrap:abcdef",
			Groups: []string{bootstrapapi.BootstrapDefaultGroup},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Group: "certificates.k8s.io",
				Resource: "certificatesigningrequests", Subresource: part, Verb: "create"}})
	}
	created, err := tokens.Manager{Client: cluster.Client()}.Create(t.Context(),
		bootstrap.TokenConfig{Usages: []string{bootstrap.UsageSigning, bootstrap.UsageAuthentication}})
	if err != nil {
		t.Fatal(err)
	}
	pins, err := info.Pins()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubelet.conf")
	if err := run(t.Context(),
		[]string{"--server", info.Server, "--token", created.Token.Reveal(), "--ca-cert-hash", pins[0].String(),
			"--node-name", "n1", "-f", path}); err != nil {
		t.Fatal(err)
	}
	if stat, err := os.Stat(path); err != nil || stat.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", stat, err)
	}
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(config.AuthInfos["default"].ClientCertificateData)
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil || certificate.Subject.CommonName != "system:node:n1" ||
		certificate.Subject.Organization[0] != "system:nodes" {
		t.Errorf("certificate of %v, %v", certificate.Subject, err)
	}
}

func TestMistakes(t *testing.T) {
	for want, args := range map[string][]string{
		"<id>.<secret>":       nil,
		"--node-name":         {"--token", "abc123.0123456789abcdef"},
		"no pins":             {"--token", "abc123.0123456789abcdef", "--node-name", "n", "--server", "127.0.0.1:1"},
		"hexadecimal digits>": {"--token", "abc123.0123456789abcdef", "--node-name", "n", "--ca-cert-hash", "x"},
	} {
		if err := run(t.Context(), args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", args, err)
		}
	}
}
