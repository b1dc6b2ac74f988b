package csr

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/binary"
	"encoding/hex"
	"encoding/pem"
	"errors"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

// target describes the certificate that an agent needs. Registrations differ in
// nothing else.
type target struct {
	prefix   string // of the name of the CertificateSigningRequest
	labels   map[string]string
	signer   string
	subject  pkix.Name
	declare  *ocm.Registration // of an add-on's kubeClient item
	approval string            // the remedy on the hub if the request waits
}

func targetOf(in registration.Input) (target, error) {
	if err := errors.Join(registration.CheckClusterName(in.Cluster), registration.CheckAgentName(in.Agent)); err != nil {
		return target{}, err
	}
	if in.Addon != "" {
		return addOnTarget(in)
	}
	return target{
		prefix:   in.Cluster + "-",
		labels:   map[string]string{ocm.ClusterNameLabel: in.Cluster},
		signer:   certificatesv1.KubeAPIServerClientSignerName,
		subject:  agentSubject(in.Cluster, in.Agent),
		approval: "Accept the cluster on the hub.",
	}, nil
}

// name returns the name of the target's CertificateSigningRequest for a key. It
// is a hash of the whole content of the request, so a restarted agent finds its
// earlier request.
func (t target) name(key crypto.PublicKey) (string, error) {
	public, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", err
	}
	subject, err := asn1.Marshal(t.subject.ToRDNSequence())
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	for _, part := range [][]byte{public, subject, []byte(t.signer)} {
		_ = binary.Write(hash, binary.BigEndian, uint64(len(part))) // a hash accepts all writes
		hash.Write(part)
	}
	return t.prefix + hex.EncodeToString(hash.Sum(nil)[:16]), nil
}

// request returns the CertificateSigningRequest for a key. Only RSA keys
// encipher, so an EC key does not ask for that usage.
func (t target) request(name string, key *ecdsa.PrivateKey) (*certificatesv1.CertificateSigningRequest, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: t.subject}, key)
	if err != nil {
		return nil, err
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: t.labels},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: requestBlock, Bytes: der}),
			SignerName: t.signer,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}, nil
}
