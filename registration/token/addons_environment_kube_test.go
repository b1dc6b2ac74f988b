package token_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/token"
)

// addOnEnvironment is a hub and a managed cluster on two API servers, with the
// shipped RBAC. The hub accepts clusters by csr, and registers add-ons by csr
// and by token. Agents run the AddOns.
type addOnEnvironment struct {
	*regtest.Environment
	said                                   *regtest.Recorder // by the hub
	stopClusters, stopTokens, stopApprover func()
}

func newAddOnEnvironment(t *testing.T) *addOnEnvironment {
	t.Helper()
	return newAddOnEnvironmentWith(t, kubetest.Start(t), addon.CRD())
}

func newAddOnEnvironmentWith(t *testing.T, hub *kubetest.Cluster, crd string) *addOnEnvironment {
	t.Helper()
	w := &addOnEnvironment{Environment: regtest.NewWith(t, hub, kubetest.StartSecond(t)), said: &regtest.Recorder{}}
	w.ServeAddOns(crd)
	w.Hub.ControllerManager(t, "csrsigning", "garbage-collector-controller")
	w.runClusters()
	w.runTokens()
	w.runApprover()
	return w
}

func (w *addOnEnvironment) runClusters(change ...func(*hub.Options)) {
	w.T.Helper()
	w.stopClusters = w.RunHub(func(mgr ctrl.Manager) (hub.Options, error) {
		driver,
			err := csr.NewHubDriver(csr.HubDriverOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(),
			BootstrapUsers: []string{regtest.BootstrapUser}})
		options := hub.Options{Drivers: []registration.HubDriver{driver}, Default: registration.AuthTypeCSR, Recorder: w.said}
		for _, f := range change {
			f(&options)
		}
		return options, err
	})
}

const addOnWorkers = 8

func (w *addOnEnvironment) runTokens() {
	w.T.Helper()
	w.stopTokens = w.RunControllers(regtest.Tokens(addOnWorkers))
}

func (w *addOnEnvironment) runApprover() {
	w.T.Helper()
	w.stopApprover = w.RunControllers(regtest.Approver(w.said))
}

// addOnMember is a managed cluster that has joined by csr.
type addOnMember struct {
	*regtest.Member
	ahead atomic.Int64 // of the agent's clock
	stop  func()
}

func (w *addOnEnvironment) join(name string) *addOnMember {
	w.T.Helper()
	return w.joinBy(name, w.Hub.Config())
}

// joinBy joins at another address of the hub.
func (w *addOnEnvironment) joinBy(name string, address *rest.Config) *addOnMember {
	w.T.Helper()
	m := &addOnMember{Member: w.NewMember(name, "registration-agent"), stop: func() {}}
	m.WriteBootstrap(address.Host, address.CAData)
	m.process()
	m.Until("the cluster shows up", func() bool { return m.Cluster(name).Name != "" })
	w.SetAccepted(name, true)
	m.Until("the cluster joins", m.Joined)
	return m
}

// process is a new process of the agent.
func (m *addOnMember) process() {
	m.T.Helper()
	m.Start(agent.Options{Driver: csr.New(csr.Options{}), Now: func() time.Time {
		return time.Now().Add(time.Duration(m.ahead.Load()))
	}})
}

// run is a new process with the AddOns.
func (m *addOnMember) run(kubeClient registration.Driver) {
	m.T.Helper()
	m.stop()
	m.process()
	m.stop = m.RunAddOns(agent.AddOnOptions{KubeClient: kubeClient, CustomSigner: csr.New(csr.Options{})}, addOnWorkers)
}

func (m *addOnMember) set(ahead time.Duration) { m.ahead.Store(int64(ahead)) }

func (m *addOnMember) clock() time.Duration { return time.Duration(m.ahead.Load()) }

// secret returns the Secret of the kubeClient item.
func (m *addOnMember) secret(addOn string) *corev1.Secret {
	m.T.Helper()
	return m.AddOnSecret(addOn + "-hub-kubeconfig")
}

// count counts requests of the agent on the hub.
func (m *addOnMember) count(accept func(kubetest.Request) bool) (n int) {
	m.T.Helper()
	for _, r := range m.Hub.Audit(m.T, m.User()) {
		if accept(r) {
			n++
		}
	}
	return n
}

// tokenRequests counts those for an add-on.
func (m *addOnMember) tokenRequests(addOn string) int {
	m.T.Helper()
	return m.count(func(r kubetest.Request) bool {
		return r.Verb == "create" && r.Subresource == "token" && r.Namespace == m.Name && r.Name == m.Name+"-"+addOn+"-agent"
	})
}

// requests counts the CertificateSigningRequests of an add-on.
func (m *addOnMember) requests(addOn string) int {
	m.T.Helper()
	var list certificatesv1.CertificateSigningRequestList
	regtest.Must(m.T,
		m.Admin.List(m.T.Context(), &list, client.MatchingLabels{ocm.ClusterNameLabel: m.Name, addon.NameLabel: addOn}))
	return len(list.Items)
}

// infrastructureOf returns what an add-on has on the hub.
func (m *addOnMember) infrastructureOf(addOn string) []string {
	m.T.Helper()
	all := slices.DeleteFunc(there(m.T, m.Admin, m.Name), func(s string) bool {
		return !strings.Contains(s, addOn+"-token-role") && !strings.Contains(s, addOn+"-agent")
	})
	slices.Sort(all)
	return all
}

// account returns the ServiceAccount of an add-on.
func (m *addOnMember) account(addOn string) *corev1.ServiceAccount {
	m.T.Helper()
	account := &corev1.ServiceAccount{}
	account.Namespace, account.Name = m.Name, m.Name+"-"+addOn+"-agent"
	regtest.Must(m.T, client.IgnoreNotFound(m.Admin.Get(m.T.Context(), client.ObjectKeyFromObject(account), account)))
	return account
}

func newToken(t testing.TB, seconds int64) *token.Driver {
	t.Helper()
	driver, err := token.New(token.Options{ExpirationSeconds: seconds})
	regtest.Must(t, err)
	return driver
}

var (
	kubeClientItem = ocm.Registration{Type: ocm.KubeClient}
	signerItem     = ocm.Registration{Type: ocm.CustomSigner, SignerName: signerName,
		Subject: ocm.Subject{User: "addon1-client", Groups: []string{"example:addon1"}}}
)

const (
	signerName   = "example.com/addon-signer"
	signerSecret = "-example.com-addon-signer-client-cert"
)

// signer approves and signs all requests for signerName, as the controller of
// an add-on does.
type signer struct {
	ca  *x509.Certificate
	key *ecdsa.PrivateKey
}

func (w *addOnEnvironment) runSigner() *signer {
	w.T.Helper()
	t := w.T
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	regtest.Must(t, err)
	s := &signer{key: key, ca: &x509.Certificate{SerialNumber: big.NewInt(1),
		Subject: pkix.Name{CommonName: "addon-signer"}, IsCA: true,
		BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}}
	admin, ctx := regtest.NewClient(t, w.Hub.Config()), t.Context()
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			var list certificatesv1.CertificateSigningRequestList
			if err := admin.List(ctx, &list); err == nil {
				for i := range list.Items {
					if r := &list.Items[i]; r.Spec.SignerName == signerName && len(r.Status.Certificate) == 0 {
						s.sign(t, admin, r)
					}
				}
			}
			<-tick.C
		}
	}()
	t.Cleanup(func() { <-done }) // ctx has ended before
	return s
}

func (s *signer) sign(t *testing.T, admin client.Client, request *certificatesv1.CertificateSigningRequest) {
	t.Helper()
	block, _ := pem.Decode(request.Spec.Request)
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Error(err)
		return
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: parsed.Subject,
		NotBefore: time.Now().Add(-time.Minute),
		NotAfter:  time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, s.ca, parsed.PublicKey, s.key)
	if err != nil {
		t.Error(err)
		return
	}
	if len(request.Status.Conditions) == 0 {
		request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
			{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"}}
		if err := admin.SubResource("approval").Update(t.Context(), request); err != nil {
			return // the next turn
		}
	}
	request.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	_ = admin.Status().Update(t.Context(), request) // else the next turn
}

// expectSigned expects a certificate of the signer with the item's subject in
// the Secret, which has no kubeconfig.
func (m *addOnMember) expectSigned(s *signer, addOn string) {
	m.T.Helper()
	var secret *corev1.Secret
	kubetest.Eventually(m.T, "the custom signer's certificate is stored", func() bool {
		secret = m.AddOnSecret(addOn + signerSecret)
		return len(secret.Data["tls.crt"]) > 0
	})
	if got := regtest.Keys(secret); !slices.Equal(got, []string{"auth-type", "tls.crt", "tls.key"}) {
		m.T.Errorf("keys %q", got)
	}
	block, _ := pem.Decode(secret.Data["tls.crt"])
	leaf, err := x509.ParseCertificate(block.Bytes)
	regtest.Must(m.T, err)
	if err := leaf.CheckSignatureFrom(s.authority(m.T)); err != nil || leaf.Subject.CommonName != "addon1-client" ||
		!slices.Equal(leaf.Subject.Organization, []string{"example:addon1"}) {
		m.T.Errorf("subject %q, %v", leaf.Subject, err)
	}
}

// authority returns the signer's own certificate.
func (s *signer) authority(t *testing.T) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, s.ca, s.ca, s.key.Public(), s.key)
	regtest.Must(t, err)
	ca, err := x509.ParseCertificate(der)
	regtest.Must(t, err)
	return ca
}
