package bootstrap_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/doctor"
	examine "github.com/workloadid/workloadid/internal/doctor/bootstrap"
)

const (
	tokenID    = "abcdef"
	secretHalf = "0123456789abcdef"
	wholeToken = tokenID + "." + secretHalf
	infoPath   = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
)

// authority signs the certificates of servers.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubernetes"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func (a authority) pin() string { return bootstrap.PinOf(a.cert).String() }

// issue makes a certificate for this machine, changed.
func (a authority) issue(t *testing.T, change func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "server"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	if change != nil {
		change(template)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// environment is a cluster that can be joined, until a fault changes that.
type environment struct {
	t      *testing.T
	ca     authority
	server *httptest.Server
	cert   atomic.Pointer[tls.Certificate]
	// answer replaces the API server's answer, unless it returns false.
	answer func(w http.ResponseWriter, r *http.Request) bool
	data   map[string]string
	asked  atomic.Int64
	config examine.Config
	// secret and own are those that an administrator reads, unless withoutAdmin is set.
	secret       *corev1.Secret
	own          map[string]string
	withoutAdmin bool
	forbidden    bool // anonymous clients have no RoleBinding
}

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	w := &environment{t: t, ca: newAuthority(t)}
	w.use(w.ca.issue(t, nil))
	w.server = httptest.NewUnstartedServer(http.HandlerFunc(w.serve))
	w.server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*w.cert.Load()}}, nil
	}}
	w.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	w.server.StartTLS()
	t.Cleanup(w.server.Close)
	w.publish(&bootstrap.ClusterInfo{Server: w.server.URL, CAData: w.ca.pem})
	w.config = examine.Config{Server: w.server.URL, Token: wholeToken, Pins: []string{w.ca.pin()}}
	w.tokenOf(func(*bootstrap.TokenConfig) {})
	return w
}

func (w *environment) use(c tls.Certificate) { w.cert.Store(&c) }

// publish replaces cluster-info and signs it.
func (w *environment) publish(info *bootstrap.ClusterInfo) {
	content, err := info.Encode()
	if err != nil {
		w.t.Fatal(err)
	}
	w.publishRaw(string(content))
}

func (w *environment) publishRaw(content string) {
	w.data = map[string]string{"kubeconfig": content, "jws-kubeconfig-" + tokenID: bootstrap.Sign([]byte(content), w.parse(wholeToken))}
	w.own = w.data
}

// unsigned is cluster-info after the signer has noticed that a token is no longer valid.
func (w *environment) unsigned() {
	w.data = map[string]string{"kubeconfig": w.data["kubeconfig"]}
	w.own = w.data
}

func (w *environment) parse(token string) bootstrap.Token {
	t, err := bootstrap.ParseToken(token)
	if err != nil {
		w.t.Fatal(err)
	}
	return t
}

// tokenOf replaces the token's Secret.
func (w *environment) tokenOf(change func(*bootstrap.TokenConfig)) {
	c := bootstrap.TokenConfig{Token: w.parse(wholeToken), Expires: time.Now().Add(time.Hour),
		Usages: []string{bootstrap.UsageSigning, bootstrap.UsageAuthentication}, Groups: []string{"system:bootstrappers:workers"}}
	change(&c)
	secret, err := c.Secret()
	if err != nil {
		w.t.Fatal(err)
	}
	w.secret = secret
}

func (w *environment) serve(rw http.ResponseWriter, r *http.Request) {
	w.asked.Add(1)
	rw.Header().Set("Content-Type", "application/json")
	if w.answer != nil && w.answer(rw, r) {
		return
	}
	switch {
	case r.Header.Get("Authorization") != "":
		w.t.Error("the token was sent")
	case r.URL.Path == infoPath:
		_ = json.NewEncoder(rw).Encode(map[string]any{"kind": "ConfigMap", "apiVersion": "v1", "data": w.data})
	default:
		_, _ = rw.Write([]byte(`{"major":"1","minor":"36"}`))
	}
}

// status answers as an API server that refuses.
func status(rw http.ResponseWriter, code int, message string) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(code)
	_ = json.NewEncoder(rw).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code})
}

func (w *environment) run() *doctor.Report {
	w.t.Helper()
	if !w.withoutAdmin && w.config.Client == nil {
		info := &corev1.ConfigMap{Data: w.own}
		info.Namespace, info.Name = "kube-public", "cluster-info"
		objs := []client.Object{info}
		if w.secret != nil {
			objs = append(objs, w.secret)
		}
		w.config.Client = fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objs...).WithInterceptorFuncs(interceptor.Funcs{
			Create: func(_ context.Context, _ client.WithWatch, obj client.Object, _ ...client.CreateOption) error {
				if review, ok := obj.(*authorizationv1.SubjectAccessReview); ok && review.Spec.User == "system:anonymous" && !w.forbidden {
					review.Status.Allowed = true
				}
				return nil
			}}).Build()
	}
	return examine.Run(w.t.Context(), w.config)
}
