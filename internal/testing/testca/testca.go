// Package testca makes CAs and serving certificates for tests.
package testca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"
)

// CA is a certificate authority.
type CA struct {
	Certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// New makes a CA.
func New(t testing.TB, name string) *CA {
	t.Helper()
	return create(t, nil, &x509.Certificate{Subject: pkix.Name{CommonName: name},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
}

// PEM returns the certificate of the CA.
func (c *CA) PEM() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate.Raw}))
}

// Issue makes a serving certificate for 127.0.0.1.
func (c *CA) Issue(t testing.TB) tls.Certificate {
	t.Helper()
	leaf := create(t, c, &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	return tls.Certificate{Certificate: [][]byte{leaf.Certificate.Raw}, PrivateKey: leaf.key, Leaf: leaf.Certificate}
}

// create signs a certificate. Without a parent it is self-signed.
func create(t testing.TB, parent *CA, template *x509.Certificate) *CA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template.SerialNumber = big.NewInt(now.UnixNano())
	template.NotBefore, template.NotAfter = now.Add(-time.Hour), now.Add(time.Hour)
	if parent == nil {
		parent = &CA{template, key}
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent.Certificate, key.Public(), parent.key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return &CA{certificate, key}
}
