package csr

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/internal/renewal"
	"github.com/workloadid/workloadid/registration/ocm"
)

// Keys of the Secret.
const (
	certFile = "tls.crt"
	keyFile  = "tls.key"
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
	if !sameSubject(pair.Leaf.Subject, subject) {
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
	return &metav1.Condition{Type: ocm.ConditionCertificateRotated, Status: metav1.ConditionTrue,
		Reason: "ClientCertificateUpdated",
		Message: fmt.Sprintf("The client certificate of %q is valid from %s to %s.", c.leaf.Subject.CommonName,
			c.leaf.NotBefore.Format(time.RFC3339), c.leaf.NotAfter.Format(time.RFC3339))}
}

// renewAt counts from the start of the validity. It subtracts the time by which
// the agent's clock was behind the hub's when the certificate was received.
func (c *certificate) renewAt(r receipt, now time.Time) time.Time {
	start := c.leaf.NotBefore.Add(-max(0, r.hub.Sub(r.agent)))
	return renewal.At(c.leaf.Raw, start, c.leaf.NotAfter.Sub(c.leaf.NotBefore), r.agent, now, 0)
}

// receipt holds the time when the certificate was received: by the agent's
// clock, and by the hub's as far as the agent knows it. It is part of the
// driver's state.
type receipt struct{ agent, hub time.Time }

const (
	receivedState = "received"
	approvedState = "approved"
	keyState      = "key"
)

// receiptOf returns zero times if the state was lost or edited.
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

// parseKey returns nil for content that newKey did not write, such as an edited
// Secret.
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
