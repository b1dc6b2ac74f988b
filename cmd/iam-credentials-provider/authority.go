package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"
)

// Lifetimes. A new CA is published when the newest one has half of its lifetime
// left, and the oldest one signs until it has a tenth left. So each CA is
// published for four years before it signs.
const (
	caLifetime      = 10 * 365 * 24 * time.Hour
	servingLifetime = 90 * 24 * time.Hour
	clockSkew       = time.Hour
	// mountDelay is the time after which all pods present a new certificate of
	// a Secret. The kubelet takes two minutes at most.
	mountDelay = 5 * time.Minute
)

// authority holds the CAs, the oldest first.
type authority []tls.Certificate

// maintain drops expired CAs from the data of a Secret, and adds a new one in
// time. Each value holds a certificate and its key. An expired CA stays until
// its successor is older than all serving certificates, so a clock that jumps
// ahead costs no key.
func maintain(data map[string][]byte, now time.Time, domain string) (authority, error) {
	cas, succeeded := map[string]tls.Certificate{}, false
	for _, file := range slices.Sorted(maps.Keys(data)) {
		ca, err := tls.X509KeyPair(data[file], data[file])
		if err != nil || !ca.Leaf.IsCA {
			return nil,
				fmt.Errorf(
					"%q holds no CA with its key: restore the Secret from a backup, or delete it to make a new CA and restart all pods with a sidecar", file)
		}
		cas[file] = ca
		succeeded = succeeded || now.Before(ca.Leaf.NotAfter) && now.Sub(ca.Leaf.NotBefore) > servingLifetime
	}
	for file, ca := range cas {
		if succeeded && now.After(ca.Leaf.NotAfter) {
			delete(data, file)
			delete(cas, file)
		}
	}
	all := authority(slices.SortedFunc(maps.Values(cas), func(a, b tls.Certificate) int {
		return a.Leaf.NotAfter.Compare(b.Leaf.NotAfter)
	}))
	if len(all) > 0 && all[len(all)-1].Leaf.NotAfter.Sub(now) > caLifetime/2 {
		return all, nil
	}
	return all.extend(data, now, domain)
}

// extend adds a CA that signs only for a domain.
func (a authority) extend(data map[string][]byte, now time.Time, domain string) (authority, error) {
	day := now.UTC().Format(time.DateOnly)
	certificate, key, err := sign(&x509.Certificate{
		Subject:   pkix.Name{CommonName: "iam-credentials-ca " + day},
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(caLifetime),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
		PermittedDNSDomainsCritical: true, PermittedDNSDomains: []string{domain},
	}, nil)
	if err != nil {
		return nil, err
	}
	ca, err := tls.X509KeyPair(certificate, key)
	data["ca-"+day+".pem"] = slices.Concat(certificate, key)
	return append(a, ca), err
}

// signer is the oldest CA that has more than a tenth of its lifetime left.
func (a authority) signer(now time.Time) *tls.Certificate {
	for i := range a {
		if a[i].Leaf.NotAfter.Sub(now) > caLifetime/10 {
			return &a[i]
		}
	}
	return &a[len(a)-1]
}

// bundle returns the certificates of all CAs as PEM.
func (a authority) bundle() []byte {
	var all bytes.Buffer
	for _, ca := range a {
		all.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Leaf.Raw}))
	}
	return all.Bytes()
}

// isCurrent reports whether a serving certificate is of the current signer and
// needs no renewal yet.
func (a authority) isCurrent(certificate, key []byte, host string, now time.Time) bool {
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil || pair.Leaf.NotAfter.Sub(now) <= servingLifetime/3 {
		return false
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.signer(now).Leaf)
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: now})
	return err == nil
}

// issue returns a serving certificate and its key as PEM.
func (a authority) issue(host string, ips []net.IP, now time.Time) (certificate, key []byte, err error) {
	return sign(&x509.Certificate{
		Subject:  pkix.Name{CommonName: host},
		DNSNames: []string{host}, IPAddresses: ips,
		NotBefore: now.Add(-clockSkew), NotAfter: now.Add(servingLifetime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.signer(now))
}

// sign makes a key and its certificate as PEM. Without a parent the certificate
// is self-signed.
func sign(template *x509.Certificate, parent *tls.Certificate) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if parent == nil {
		parent = &tls.Certificate{Leaf: template, PrivateKey: private}
	}
	public, err := x509.CreateCertificate(rand.Reader, template, parent.Leaf, private.Public(), parent.PrivateKey)
	if err != nil {
		return nil, nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: public}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), err
}
