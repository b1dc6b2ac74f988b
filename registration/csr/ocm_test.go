package csr_test

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/workloadid/workloadid/internal/testing/document"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

const (
	ocmAddOnUser = "system:open-cluster-management:cluster:cluster1:addon:search:agent:search"
	ocmAddOnHost = "search.addon.open-cluster-management.io"
)

// addOnRequest returns the request of a user for a certificate of the add-on
// search.
func addOnRequest(t testing.TB, template x509.CertificateRequest, user string,
	groups ...string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	request := from(labeled("cluster1", encode(t, &template, ecKey(t))), user, groups...)
	request.Labels[addon.NameLabel] = "search"
	return request
}

// An agent of Open Cluster Management names the add-on twice, asks for one
// group, and adds a DNS name. It declares the driver alone.
func TestAddOnRequestsOfOCMsAgent(t *testing.T) {
	item := func(driver, user string, groups ...string) ocm.Registration {
		return ocm.Registration{Type: ocm.KubeClient, Driver: driver, Subject: ocm.Subject{User: user, Groups: groups}}
	}
	byDriver, hosts := item("csr", ""), []string{ocmAddOnHost}
	subject := func(groups ...string) pkix.Name {
		return pkix.Name{CommonName: ocmAddOnUser, Organization: groups}
	}
	one := subject(addOnGroup)
	critical := pkix.Extension{Id: csr.SANExtension(ocmAddOnHost).Id, Critical: true,
		Value: csr.SANExtension(ocmAddOnHost).Value}
	for name, c := range map[string]struct {
		template x509.CertificateRequest
		item     ocm.Registration
		want     string // of the event; "" means approved
	}{
		"as it asks":           {x509.CertificateRequest{Subject: one, DNSNames: hosts}, byDriver, ""},
		"without the DNS name": {x509.CertificateRequest{Subject: one}, byDriver, ""},
		"no driver declared":   {x509.CertificateRequest{Subject: one, DNSNames: hosts}, item("", ""), ""},
		"user declared": {x509.CertificateRequest{Subject: one, DNSNames: hosts},
			item("csr", ocmAddOnUser), ""},
		"both groups declared": {x509.CertificateRequest{Subject: subject(addOnGroup, allSearch),
			DNSNames: hosts}, item("csr", ocmAddOnUser, allSearch, addOnGroup), ""},
		"groups declared, and one missing": {x509.CertificateRequest{Subject: one, DNSNames: hosts},
			item("csr", "", addOnGroup, allSearch), "SubjectMismatch"},
		"another user declared": {x509.CertificateRequest{Subject: one, DNSNames: hosts}, item("csr", addOnUser),
			"SubjectMismatch"},
		"driver token declared": {x509.CertificateRequest{Subject: one, DNSNames: hosts}, item("token", ""),
			"OtherDriver"},
		"the common group alone": {x509.CertificateRequest{Subject: subject(allSearch), DNSNames: hosts}, byDriver,
			"SubjectNotDefault"},
		"a third group, as older managers": {
			x509.CertificateRequest{Subject: subject(addOnGroup, allSearch, "system:authenticated"), DNSNames: hosts}, byDriver,
			"manager of the add-on"},
		"DNS name of another add-on": {x509.CertificateRequest{Subject: one,
			DNSNames: []string{"work.addon.open-cluster-management.io"}}, byDriver, "InvalidRequest"},
		"DNS name in upper case": {x509.CertificateRequest{Subject: one,
			DNSNames: []string{strings.ToUpper(ocmAddOnHost)}}, byDriver, "InvalidRequest"},
		"the user as DNS name": {x509.CertificateRequest{Subject: one, DNSNames: []string{ocmAddOnUser}},
			byDriver, "InvalidRequest"},
		"two DNS names": {x509.CertificateRequest{Subject: one,
			DNSNames: []string{ocmAddOnHost, "hub.example"}}, byDriver, "InvalidRequest"},
		"the DNS name twice": {x509.CertificateRequest{Subject: one,
			DNSNames: []string{ocmAddOnHost, ocmAddOnHost}}, byDriver, "InvalidRequest"},
		"an IP address beside the DNS name": {x509.CertificateRequest{Subject: one, DNSNames: hosts,
			IPAddresses: []net.IP{{10, 0, 0, 1}}}, byDriver, "InvalidRequest"},
		"another extension beside it": {x509.CertificateRequest{Subject: one, DNSNames: hosts,
			ExtraExtensions: []pkix.Extension{{Id: []int{2, 5, 29, 19}, Value: []byte{0x30, 3, 1, 1, 0xff}}}}, byDriver,
			"InvalidRequest"},
		"a critical DNS name": {x509.CertificateRequest{Subject: one, ExtraExtensions: []pkix.Extension{critical}}, byDriver,
			"InvalidRequest"},
	} {
		t.Run(name, func(t *testing.T) {
			request := addOnRequest(t, c.template, registration.AgentUser("cluster1", "agent1"),
				registration.ClusterGroup("cluster1"))
			approved, event, _ := newApprover(t, addon.GroupVersion, request, accepted("cluster1"),
				searchAddOn(c.item)).reconcile(t)
			if approved != (c.want == "") || !strings.Contains(event, c.want) {
				t.Errorf("approved %t: %s", approved, event)
			}
		})
	}
}

// A left-over certificate of another agent of the cluster gets no certificates
// of add-ons.
func TestAddOnRequestOfAnAgentThatIsNotRecorded(t *testing.T) {
	own := requestOf(t, "own", "agent1", bootstrapUser)
	aws := recordFor(t, own)
	aws.Annotations[ocm.AuthTypeAnnotation] = registration.AuthTypeAWS
	for name, c := range map[string]struct {
		role  *rbacv1.ClusterRole
		agent string
		want  string
	}{
		"the recorded agent": {recordFor(t, own), "agent1", ""},
		"another agent": {recordFor(t, own), "agent2",
			`AnotherAgent cluster "cluster1" is accepted for the agent "agent1"`},
		"no agent is recorded":             {record("cluster1", "csr"), "agent2", ""},
		"no record":                        {nil, "agent2", ""},
		"the cluster uses IAM roles since": {aws, "agent2", ""},
	} {
		t.Run(name, func(t *testing.T) {
			request := addOnRequest(t,
				x509.CertificateRequest{Subject: pkix.Name{CommonName: addOnUser, Organization: []string{addOnGroup}}},
				registration.AgentUser("cluster1", c.agent), registration.ClusterGroup("cluster1"))
			a := newApprover(t, addon.GroupVersion, request, accepted("cluster1"),
				searchAddOn(ocm.Registration{Type: ocm.KubeClient}))
			if c.role != nil {
				regtest.Must(t, a.client.Create(t.Context(), c.role))
			}
			approved, event, again := a.reconcile(t)
			if approved != (c.want == "") || again == approved || !strings.Contains(event, c.want) {
				t.Errorf("approved %t, checked again %t: %s", approved, again, event)
			}
		})
	}
}

// The command of a refusal precedes what kubeevent cuts.
func TestLongRefusalKeepsItsCommand(t *testing.T) {
	rival := requestOf(t, strings.Repeat("\u2028", 84), "agent2", bootstrapUser)
	own := requestOf(t, "csr1", "agent1", bootstrapUser)
	h := newHub(t, own, rival, accepted("cluster1"), record("cluster1", "csr"))
	h.reconcile(t)
	if event := h.event(); !strings.HasPrefix(event, "Warning SeveralRequests ") ||
		!strings.Contains(event, "--approve-request csr1") {
		t.Errorf("Event %q, want SeveralRequests with --approve-request csr1", event)
	}
}

// docs/registration-reference.md explains each reason of a refusal, and no
// other.
func TestDocumentationOfRefusals(t *testing.T) {
	var inCode []string
	for _, file := range []string{"hub.go", "addonhub.go"} {
		code, err := os.ReadFile(file)
		regtest.Must(t, err)
		for _, m := range regexp.MustCompile(`(?:notYet|refusal\.New)\("(\w+)"|reason, differs :?= "(\w+)"`).FindAllSubmatch(
			code, -1) {
			inCode = append(inCode, string(m[1])+string(m[2]))
		}
	}
	var explained []string
	for _, row := range document.Read(t, "docs/registration-reference.md").Rows("Event of a request") {
		explained = append(explained, document.Names(row[0])...)
	}
	slices.Sort(inCode)
	slices.Sort(explained)
	if inCode = slices.Compact(inCode); len(inCode) < 15 || !slices.Equal(explained, inCode) {
		t.Errorf("the code has %q, the table explains %q", inCode, explained)
	}
}

// Whatever alternative names a request has, an accepted one has none, or the
// one DNS name of its add-on.
func FuzzAddOnRequest(f *testing.F) {
	key := ecKey(f)
	f.Add("search", csr.SANExtension(ocmAddOnHost).Value, false)
	f.Add("search", csr.SANExtension("hub.example").Value, false)
	f.Add("search", []byte{}, true)
	f.Fuzz(func(t *testing.T, name string, value []byte, critical bool) {
		subject := registration.AddOnSubject("cluster1", name, "agent1")
		template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: subject.User, Organization: subject.Groups},
			ExtraExtensions: []pkix.Extension{{Id: []int{2, 5, 29, 17}, Critical: critical, Value: value}}}
		der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
		if err != nil {
			return // no such name can be encoded
		}
		request := from(labeled("cluster1", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})), "u",
			registration.ClusterGroup("cluster1"))
		got, err := csr.AddOnRequest(request, "cluster1", name)
		if err != nil {
			return
		}
		parsed := parse(t, request)
		hosts := []string{name + ".addon.open-cluster-management.io"}
		if got.User != parsed.Subject.CommonName || len(parsed.Extensions) > 1 || !slices.Equal(parsed.DNSNames, hosts) ||
			len(parsed.IPAddresses)+len(parsed.EmailAddresses)+len(parsed.URIs) > 0 {
			t.Errorf("accepted as %+v, the subject is %+v with %q", got, parsed.Subject, parsed.DNSNames)
		}
	})
}
