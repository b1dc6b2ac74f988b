package csr

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/binary"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

const (
	requestBlock = "CERTIFICATE REQUEST"
	// maxRequest bounds a request in bytes. One with the largest key has about 3,000.
	maxRequest = 16 << 10
	// maxRSABits bounds the time that a signature takes, as crypto/tls does. It grows with the square of the bits.
	maxRSABits = 8192
)

// target describes the certificate that an agent needs. Registrations differ in nothing else.
type target struct {
	prefix   string // of the name of the CertificateSigningRequest
	labels   map[string]string
	signer   string
	subject  pkix.Name
	declare  *ocm.Registration // of an add-on's kubeClient item
	approval string            // what to do on the hub if the request waits
}

func targetOf(in registration.Input) (target, error) {
	if err := errors.Join(registration.CheckClusterName(in.Cluster), regname.CheckAgentName(in.Agent)); err != nil {
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
		approval: "Accept the cluster on the hub, or approve the request.",
	}, nil
}

// agentSubject returns the user and the groups of a cluster's agent.
func agentSubject(cluster, agent string) pkix.Name {
	return pkix.Name{CommonName: registration.AgentUser(cluster, agent),
		Organization: []string{registration.ClusterGroup(cluster), regname.ManagedClustersGroup}}
}

// sameSubject reports whether a parsed subject has exactly the user and the groups of want, in any order, and nothing else.
func sameSubject(parsed, want pkix.Name) bool {
	return parsed.CommonName == want.CommonName && len(parsed.Names) == 1+len(want.Organization)+len(want.OrganizationalUnit) &&
		sameValues(parsed.Organization, want.Organization) && sameValues(parsed.OrganizationalUnit, want.OrganizationalUnit)
}

func sameValues(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// name returns the name of the target's CertificateSigningRequest for a key. It is a hash of all that the request says, so an agent
// that restarts finds the request that it made.
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
		_ = binary.Write(hash, binary.BigEndian, uint64(len(part))) // a hash takes all writes
		hash.Write(part)
	}
	return t.prefix + hex.EncodeToString(hash.Sum(nil)[:16]), nil
}

// request returns the CertificateSigningRequest for a key. Only RSA keys encipher, so an EC key does not ask for that usage.
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

// Request describes the certificate of a cluster's agent. Cluster and Agent are DNS labels. Key is the SHA-256 of the public key in hex.
type Request struct{ Cluster, Agent, Key string }

// User returns the user name in the certificate.
func (r Request) User() string { return registration.AgentUser(r.Cluster, r.Agent) }

// ParseRequest reads a CertificateSigningRequest. It accepts only a request for the certificate of one agent of the cluster in its
// label. It does not check the requester, csr.Spec.Username: any user may write any request.
func ParseRequest(csr *certificatesv1.CertificateSigningRequest) (Request, error) {
	parsed, err := parse(csr, "")
	if err != nil {
		return Request{}, err
	}
	request, err := parseSubject(csr.Labels[ocm.ClusterNameLabel], parsed.Subject)
	if err == nil {
		request.Key = fmt.Sprintf("%x", sha256.Sum256(parsed.RawSubjectPublicKeyInfo))
	}
	return request, err
}

// parse reads a request for a client certificate of the hub, and refuses requests for anything else. A signer could copy alternative names
// and other extensions to the certificate, so it allows none but the DNS name host, if that is not "".
func parse(csr *certificatesv1.CertificateSigningRequest, host string) (none *x509.CertificateRequest, err error) {
	if csr.Spec.SignerName != certificatesv1.KubeAPIServerClientSignerName {
		return none, fmt.Errorf("the signer is %.100q: use %q", csr.Spec.SignerName, certificatesv1.KubeAPIServerClientSignerName)
	}
	if err := checkUsages(csr.Spec.Usages); err != nil {
		return none, err
	}
	parsed, err := parsePEM(csr.Spec.Request)
	if err != nil {
		return none, err
	}
	for i, e := range parsed.Extensions {
		if want := sanExtension(host); i > 0 || host == "" || !e.Id.Equal(want.Id) || e.Critical || !bytes.Equal(e.Value, want.Value) {
			return none, fmt.Errorf("the request has the extension %s: remove alternative names and other extensions", e.Id)
		}
	}
	return parsed, nil
}

// sanExtension returns the alternative name of a request for one DNS name, as crypto/x509 encodes it.
func sanExtension(host string) pkix.Extension {
	value, _ := asn1.Marshal([]asn1.RawValue{{Class: asn1.ClassContextSpecific, Tag: 2, Bytes: []byte(host)}}) // raw values have an encoding
	return pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: value}
}

// checkUsages requires client authentication and a digital signature. Agents of Open Cluster Management ask for key
// encipherment with EC keys too; it has no effect.
func checkUsages(usages []certificatesv1.KeyUsage) error {
	rest := slices.DeleteFunc(slices.Clone(usages), func(u certificatesv1.KeyUsage) bool { return u == certificatesv1.UsageKeyEncipherment })
	slices.Sort(rest)
	if want := []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature}; !slices.Equal(rest, want) {
		return fmt.Errorf("the usages are %.200q: use %q, and %q if the key is RSA", usages, want, certificatesv1.UsageKeyEncipherment)
	}
	return nil
}

// parsePEM bounds the request and its key before it verifies the signature, because any bootstrap user may send them.
func parsePEM(request []byte) (*x509.CertificateRequest, error) {
	if len(request) > maxRequest {
		return nil, fmt.Errorf("the request has %d bytes: use at most %d bytes", len(request), maxRequest)
	}
	block, rest := pem.Decode(request)
	if block == nil || block.Type != requestBlock || len(block.Headers) > 0 || len(bytes.TrimSpace(rest)) > 0 {
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
	return fmt.Errorf("the key of type %T is of a kind or size that is not allowed: use ECDSA P-256 or more, or RSA with 2048 to %d bits", key, maxRSABits)
}

// parseSubject compares whole names: cluster1 does not match the subject of cluster10.
func parseSubject(cluster string, subject pkix.Name) (Request, error) {
	if err := registration.CheckClusterName(cluster); err != nil {
		return Request{}, fmt.Errorf("label %s: %w", ocm.ClusterNameLabel, err)
	}
	agent, ok := strings.CutPrefix(subject.CommonName, registration.AgentUser(cluster, ""))
	if !ok {
		return Request{}, fmt.Errorf("the common name %.200q is no agent of cluster %q, which the label %s names", subject.CommonName, cluster, ocm.ClusterNameLabel)
	}
	if err := regname.CheckAgentName(agent); err != nil {
		return Request{}, fmt.Errorf("common name %.200q: %w", subject.CommonName, err)
	}
	want := agentSubject(cluster, agent)
	alone := want
	alone.Organization = want.Organization[:1] // RBAC goes by the cluster's group, so some agents leave out the common one
	if !sameSubject(subject, want) && !sameSubject(subject, alone) {
		return Request{}, fmt.Errorf("the subject %.500q does not have exactly the common name %q, the organization %q and optionally %q",
			subject, want.CommonName, want.Organization[0], want.Organization[1])
	}
	return Request{Cluster: cluster, Agent: agent}, nil
}

func getRole(ctx context.Context, c client.Reader, cluster string) (*rbacv1.ClusterRole, error) {
	role := &rbacv1.ClusterRole{}
	name := registration.ClusterRoleName(cluster)
	if err := c.Get(ctx, client.ObjectKey{Name: name}, role); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("get ClusterRole %q: %w", name, err)
	}
	return role, nil
}

// recordIn returns the agent that a cluster is accepted for, with the key of its approved first request. Agent is "" if none is recorded.
func recordIn(role *rbacv1.ClusterRole, cluster string) Request {
	return Request{Cluster: cluster, Agent: role.Annotations[regname.AgentAnnotation], Key: role.Annotations[regname.AgentKeyAnnotation]}
}

// record fails if the role has changed since it was read.
func record(ctx context.Context, c client.Client, role *rbacv1.ClusterRole, request Request) error {
	role = role.DeepCopy()
	metav1.SetMetaDataAnnotation(&role.ObjectMeta, regname.AgentAnnotation, request.Agent)
	metav1.SetMetaDataAnnotation(&role.ObjectMeta, regname.AgentKeyAnnotation, request.Key)
	if err := c.Update(ctx, role); err != nil {
		return fmt.Errorf("record the agent %q in ClusterRole %q: %w", request.Agent, role.Name, err)
	}
	return nil
}

// Replaces returns the agent that the approval of a request would replace, "" if it replaces none.
func Replaces(ctx context.Context, c client.Reader, csr *certificatesv1.CertificateSigningRequest) (agent string, err error) {
	request, err := ParseRequest(csr)
	if err != nil {
		return "", fmt.Errorf("CertificateSigningRequest %q: %w", csr.Name, err)
	}
	role, err := getRole(ctx, c, request.Cluster)
	if err != nil {
		return "", err
	}
	if recorded := recordIn(role, request.Cluster); recorded != request {
		return recorded.Agent, nil
	}
	return "", nil
}

// Approve approves a request on behalf of an administrator; the message names the command. From then on the hub approves only
// requests of this agent, and no longer of the agent in the cluster's ClusterRole. Replacing that agent needs the right to write the
// ClusterRole. If the ClusterRole names no agent or does not exist yet, the hub finds the approved request and records its agent.
func Approve(ctx context.Context, c client.Client, csr *certificatesv1.CertificateSigningRequest, message string) error {
	request, err := ParseRequest(csr)
	if err != nil {
		return fmt.Errorf("approve CertificateSigningRequest %q: %w", csr.Name, err)
	}
	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { return replaceAgent(ctx, c, request) }); err != nil {
		return err
	}
	return approve(ctx, c, csr, message)
}

func replaceAgent(ctx context.Context, c client.Client, request Request) error {
	role, err := getRole(ctx, c, request.Cluster)
	if err != nil {
		return err
	}
	// A denied cluster's role has no auth type.
	authType, recorded := role.Annotations[regname.AuthTypeAnnotation], recordIn(role, request.Cluster)
	if cmp.Or(authType, registration.AuthTypeCSR) != registration.AuthTypeCSR || role.ResourceVersion == "" || recorded == request {
		return nil
	}
	if err = record(ctx, c, role, request); apierrors.IsForbidden(err) && cmp.Or(recorded.Agent, request.Agent) == request.Agent {
		return nil
	}
	return err
}

func approve(ctx context.Context, c client.Client, csr *certificatesv1.CertificateSigningRequest, message string) error {
	approved := csr.DeepCopy()
	approved.Status.Conditions = append(approved.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "ClusterRegistration", Message: message})
	if err := c.SubResource("approval").Update(ctx, approved); err != nil {
		return fmt.Errorf("approve CertificateSigningRequest %q: %w", csr.Name, err)
	}
	return nil
}

// decision returns the condition that ends the wait for an approval or a signature, or nil.
func decision(csr *certificatesv1.CertificateSigningRequest, types ...certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequestCondition {
	for i := range csr.Status.Conditions {
		if slices.Contains(types, csr.Status.Conditions[i].Type) {
			return &csr.Status.Conditions[i]
		}
	}
	return nil
}
