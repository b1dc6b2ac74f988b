package csr

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/workloadid/workloadid/internal/agentrequest"
	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/registration"
)

// Keys of the Secret.
const (
	certFile = "tls.crt"
	keyFile  = "tls.key"
)

const (
	renewFraction = 0.80
	maxJitter     = 0.05
	// minInterval separates two renewals, however wrong the agent's clock is. Certificates of less than 40 minutes have less.
	minInterval = 10 * time.Minute
)

// certificate is a client certificate with its key.
type certificate struct {
	certPEM, keyPEM []byte
	leaf            *x509.Certificate
}

// parseCertificate refuses a certificate for another key or another subject.
func parseCertificate(certPEM, keyPEM []byte, subject pkix.Name) (*certificate, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	if !agentrequest.SameSubject(pair.Leaf.Subject, subject) {
		return nil, fmt.Errorf("its subject is %.500q instead of %q", pair.Leaf.Subject, subject)
	}
	return &certificate{certPEM: certPEM, keyPEM: keyPEM, leaf: pair.Leaf}, nil
}

func (c *certificate) credential() *registration.Credential {
	return &registration.Credential{
		User:  &clientcmdapi.AuthInfo{ClientCertificate: certFile, ClientKey: keyFile},
		Files: map[string][]byte{certFile: c.certPEM, keyFile: c.keyPEM},
	}
}

func (c *certificate) condition() *metav1.Condition {
	return &metav1.Condition{Type: regname.ConditionCertificateRotated, Status: metav1.ConditionTrue, Reason: "ClientCertificateUpdated",
		Message: fmt.Sprintf("The client certificate of %q is valid from %s to %s.", c.leaf.Subject.CommonName,
			c.leaf.NotBefore.Format(time.RFC3339), c.leaf.NotAfter.Format(time.RFC3339))}
}

// renewAt returns when to renew: at 75 to 80 % of the validity, by a jitter that the certificate itself determines. If the agent's
// clock was behind the hub's when the certificate came, it renews earlier by the difference. If the clock is ahead, the time since receipt is a bound:
// otherwise each new certificate would be due at once.
func (c *certificate) renewAt(r receipt, now time.Time) time.Time {
	validity := c.leaf.NotAfter.Sub(c.leaf.NotBefore)
	sum := sha256.Sum256(c.leaf.Raw)
	fraction := renewFraction - maxJitter*float64(binary.BigEndian.Uint32(sum[:]))/(1<<32)
	due := c.leaf.NotBefore.Add(time.Duration(fraction * float64(validity))).Add(-max(0, r.hub.Sub(r.agent)))
	bound := r.agent.Add(min(validity/4, minInterval))
	if r.agent.After(now) || due.After(bound) { // a clock that was set back since then says nothing of the time since receipt
		return due
	}
	return bound
}

// receipt holds when the certificate came: by the agent's clock, and by the hub's as far as the agent knows it. It is part of the driver's state.
type receipt struct{ agent, hub time.Time }

const (
	receivedState = "received"
	approvedState = "approved"
	keyState      = "key"
)

// receiptOf returns zero times where the state was lost or edited.
func receiptOf(state map[string][]byte) (r receipt) {
	r.agent, _ = time.Parse(time.RFC3339, string(state[receivedState]))
	r.hub, _ = time.Parse(time.RFC3339, string(state[approvedState]))
	return r
}

func (r receipt) state() map[string][]byte {
	return map[string][]byte{
		receivedState: []byte(r.agent.UTC().Format(time.RFC3339)),
		approvedState: []byte(r.hub.UTC().Format(time.RFC3339)),
	}
}

const keyBlock = "EC PRIVATE KEY"

func newKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: der}), nil
}

// parseKey returns nil for what newKey did not write, such as an edited Secret.
func parseKey(content []byte) *ecdsa.PrivateKey {
	block, _ := pem.Decode(content)
	if block == nil || block.Type != keyBlock {
		return nil
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil
	}
	return key
}
