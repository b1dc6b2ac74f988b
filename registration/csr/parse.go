package csr

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

const (
	// requestBlock is the type of the PEM block of a request.
	requestBlock = "CERTIFICATE REQUEST"
	// maxRequest bounds a request in bytes. A request with the largest key has
	// about 3,000.
	maxRequest = 16 << 10
	// maxRSABits bounds the time that it takes to check a signature, as
	// crypto/tls does. The time grows with the square of the bits.
	maxRSABits = 8192
)

// Identity identifies an agent and the key of its certificate. Identities
// compare with ==.
type Identity struct {
	// Cluster and Agent are DNS labels.
	Cluster, Agent string
	// Key is the SHA-256 of the public key, in hex.
	Key string
}

// User returns the user name in the agent's certificate.
func (i Identity) User() string { return registration.AgentUser(i.Cluster, i.Agent) }

// Request is a CertificateSigningRequest for the client certificate of one
// agent. Its methods never change it, so they are safe for concurrent use. They
// show the request as it was read.
//
// If the hub's approver leaves a request pending, an Event of the request with
// the action [ocm.ActionApprove] states why.
type Request struct {
	// Identity is the agent that the certificate will name.
	Identity
	// Object is the request that [Parse] read. The API server states the
	// requester in Object.Spec.Username.
	Object *certificatesv1.CertificateSigningRequest
}

// Parse reads a CertificateSigningRequest, and keeps it. It accepts only a
// request for the certificate of one agent of the cluster in its label. The
// error names everything else that the request asks for. Parse does not check
// the requester, because any user may write any request.
func Parse(csr *certificatesv1.CertificateSigningRequest) (*Request, error) {
	parsed, err := parseFor(csr, "")
	if err != nil {
		return nil, err
	}
	identity, err := parseSubject(csr.Labels[ocm.ClusterNameLabel], parsed.Subject)
	if err != nil {
		return nil, err
	}
	identity.Key = fmt.Sprintf("%x", sha256.Sum256(parsed.RawSubjectPublicKeyInfo))
	return &Request{Identity: identity, Object: csr}, nil
}

// IsPending reports whether the request is neither decided nor signed. It is
// false for requests of add-ons.
func (r *Request) IsPending() bool { return isOpen(r.Object) }

// IsRenewal reports whether the agent itself is the requester, with its current
// certificate.
func (r *Request) IsRenewal() bool { return r.Object.Spec.Username == r.User() }

// Refusal returns the condition Denied or Failed, or nil.
func (r *Request) Refusal() *certificatesv1.CertificateSigningRequestCondition {
	return decision(r.Object, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed)
}

// parseFor reads a request for a client certificate of the hub, and refuses any
// other request. A signer could copy alternative names and other extensions to
// the certificate. So parseFor allows only the DNS name host, and none if host
// is "".
func parseFor(csr *certificatesv1.CertificateSigningRequest, host string) (none *x509.CertificateRequest, err error) {
	if csr.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		return none, fmt.Errorf("the signer is %.100q: use %q", csr.Spec.SignerName,
			certificatesv1.KubeAPIServerClientSignerName)
	}
	if err := checkUsages(csr.Spec.Usages); err != nil {
		return none, err
	}
	parsed, err := parsePEM(csr.Spec.Request)
	if err != nil {
		return none, err
	}
	for i, e := range parsed.Extensions {
		if want := sanExtension(host); i > 0 || host == "" || !e.Id.Equal(want.Id) || e.Critical ||
			!bytes.Equal(e.Value, want.Value) {
			return none, fmt.Errorf("the request has the extension %s: remove alternative names and other extensions", e.Id)
		}
	}
	return parsed, nil
}

// sanExtension returns the alternative name of a request for one DNS name, as
// crypto/x509 encodes it.
func sanExtension(host string) pkix.Extension {
	// Raw values always encode.
	value, _ := asn1.Marshal([]asn1.RawValue{{Class: asn1.ClassContextSpecific, Tag: 2, Bytes: []byte(host)}})
	return pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: value}
}

// checkUsages requires client authentication and a digital signature. Agents of
// Open Cluster Management ask for key encipherment with EC keys too; it has no
// effect.
func checkUsages(usages []certificatesv1.KeyUsage) error {
	rest := slices.DeleteFunc(slices.Clone(usages), func(u certificatesv1.KeyUsage) bool {
		return u == certificatesv1.UsageKeyEncipherment
	})
	slices.Sort(rest)
	if want := []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth,
		certificatesv1.UsageDigitalSignature}; !slices.Equal(rest, want) {
		return fmt.Errorf("the usages are %.200q: use %q, and %q if the key is RSA", usages, want,
			certificatesv1.UsageKeyEncipherment)
	}
	return nil
}

// parsePEM bounds the request and its key before it verifies the signature,
// because any bootstrap user may send a request.
func parsePEM(request []byte) (*x509.CertificateRequest, error) {
	if len(request) > maxRequest {
		return nil, fmt.Errorf("the request has %d bytes: use at most %d bytes", len(request), maxRequest)
	}
	block, rest := pem.Decode(request)
	begin := []byte("-----BEGIN " + requestBlock) // pem.Decode skips text in front of it
	if block == nil || !bytes.HasPrefix(bytes.TrimSpace(request), begin) || block.Type != requestBlock ||
		len(block.Headers) > 0 || len(bytes.TrimSpace(rest)) > 0 {
		return nil, fmt.Errorf("the request is not one PEM block of type %q", requestBlock)
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse the request: %w", err)
	}
	if err := checkKey(parsed.PublicKey); err != nil {
		return nil, err
	}
	if err := parsed.CheckSignature(); err != nil {
		return nil, fmt.Errorf("the request is not signed by its own key: %w", err)
	}
	return parsed, nil
}

func checkKey(key crypto.PublicKey) error {
	switch key := key.(type) {
	case *ecdsa.PublicKey:
		if key.Params().BitSize >= 256 {
			return nil
		}
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits >= 2048 && bits <= maxRSABits {
			return nil
		}
	}
	return fmt.Errorf(
		"the key of type %T is of a kind or size that is not allowed: use ECDSA P-256 or more, or RSA with 2048 to %d bits",
		key, maxRSABits)
}

// parseSubject compares whole names: cluster1 does not match the subject of
// cluster10.
func parseSubject(cluster string, subject pkix.Name) (Identity, error) {
	if err := registration.CheckClusterName(cluster); err != nil {
		return Identity{}, fmt.Errorf("label %s: %w", ocm.ClusterNameLabel, err)
	}
	agent, ok := strings.CutPrefix(subject.CommonName, registration.AgentUser(cluster, ""))
	if !ok {
		return Identity{}, fmt.Errorf("the common name %.200q is no agent of cluster %q, which the label %s names",
			subject.CommonName, cluster, ocm.ClusterNameLabel)
	}
	if err := registration.CheckAgentName(agent); err != nil {
		return Identity{}, fmt.Errorf("common name %.200q: %w", subject.CommonName, err)
	}
	want := agentSubject(cluster, agent)
	alone := want
	alone.Organization = want.Organization[:1] // RBAC goes by the cluster's group: some agents omit the common one
	if !sameSubject(subject, want) && !sameSubject(subject, alone) {
		return Identity{},
			fmt.Errorf("the subject %.500q does not have exactly the common name %q, the organization %q and optionally %q",
				subject, want.CommonName, want.Organization[0], want.Organization[1])
	}
	return Identity{Cluster: cluster, Agent: agent}, nil
}

// agentSubject returns the user and the groups of a cluster's agent.
func agentSubject(cluster, agent string) pkix.Name {
	return pkix.Name{CommonName: registration.AgentUser(cluster, agent),
		Organization: []string{registration.ClusterGroup(cluster), ocm.ManagedClustersGroup}}
}

// sameSubject reports whether a parsed subject has exactly the user and the
// groups of want, in any order, and nothing else.
func sameSubject(parsed, want pkix.Name) bool {
	return parsed.CommonName == want.CommonName && len(parsed.Names) == 1+len(want.Organization)+
		len(want.OrganizationalUnit) &&
		sameValues(parsed.Organization, want.Organization) && sameValues(parsed.OrganizationalUnit, want.OrganizationalUnit)
}

// sameValues compares lists in any order.
func sameValues(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
