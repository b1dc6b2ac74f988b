package relay

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// maxBody is the API server's limit.
	maxBody = 3 << 20
	// bodyTimeout bounds the time that a client may take to send a body.
	bodyTimeout = 30 * time.Second
	// maxStream bounds a request and its answer. The hub checks the rights of a
	// watch only at its start, and serves it for as long as the client asks.
	// The informers of client-go ask for at most ten minutes.
	maxStream = 10 * time.Minute
	// maxIntermediates bounds the signature checks for an anonymous client.
	// With four intermediates, crypto/x509 makes up to 100.
	maxIntermediates = 1
	// agentPrefix starts the user and the groups of all agents and add-ons.
	agentPrefix = "system:open-cluster-management:"
)

// admit refuses a request that must not reach the hub. The certificate of an
// admitted request is an agent's.
func (r *relay) admit(req *http.Request) *refusal {
	if refused := checkForm(req); refused != nil {
		return refused
	}
	presented, authorization := req.TLS.PeerCertificates, req.Header.Values("Authorization")
	switch {
	case len(presented) > 0 && len(authorization) > 0:
		return badRequest("the relay takes a client certificate or an Authorization header, not both: send one of them")
	case len(presented) > 0:
		return r.verify(presented)
	case len(authorization) != 1 || !isBearer(authorization[0]):
		return unauthorized("the relay needs a client certificate of the hub's client CA, or one bearer token")
	}
	return nil
}

// checkForm refuses requests that no agent sends.
func checkForm(req *http.Request) *refusal {
	switch {
	case req.TLS == nil:
		return badRequest("the relay serves TLS only: use https")
	case req.Method == http.MethodConnect || len(req.Header.Values("Upgrade")) > 0:
		return badRequest(
			"the relay forwards no upgraded connections, as exec, attach and port-forward need them: use a route to the hub")
	case impersonates(req.Header):
		return badRequest("the relay forwards no Impersonate-* headers: leave them out")
	case req.URL.RequestURI() != req.RequestURI: // the hub would read another path than the client wrote
		return badRequest("the relay forwards only a path and a query that are encoded in the usual way")
	// A watch would hold the body for hours.
	case req.ContentLength != 0 && (req.Method == http.MethodGet || req.Method == http.MethodHead):
		return badRequest("the relay forwards no body of a GET or HEAD request: leave it out")
	case req.ContentLength > maxBody:
		return tooLarge()
	}
	return nil
}

func impersonates(header http.Header) bool {
	for name := range header {
		if strings.HasPrefix(strings.ToLower(name), "impersonate-") {
			return true
		}
	}
	return false
}

func isBearer(authorization string) bool {
	scheme, token, _ := strings.Cut(authorization, " ")
	return strings.EqualFold(scheme, "bearer") && token != ""
}

// verify verifies a certificate on each request, because it may expire while
// its connection lives.
func (r *relay) verify(presented []*x509.Certificate) *refusal {
	if sent := len(presented) - 1; sent > maxIntermediates { // 400, because another certificate would not help
		return badRequest(
			fmt.Sprintf(
				"the client certificate comes with %d intermediate CAs, and the relay takes %d: add the CA that signed them to the client CAs", sent, maxIntermediates))
	}
	leaf, intermediates := presented[0], x509.NewCertPool()
	for _, c := range presented[1:] {
		intermediates.AddCert(c)
	}
	_,
		err := leaf.Verify(x509.VerifyOptions{Roots: r.opts.ClientCAs, Intermediates: intermediates,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return unauthorized("the client certificate is refused: %.300s", err)
	}
	for _, name := range append([]string{leaf.Subject.CommonName}, leaf.Subject.Organization...) {
		if !isAgentName(name) {
			return newRefusal(http.StatusForbidden, metav1.StatusReasonForbidden,
				"the client certificate names %.100q: the relay serves only users and groups that begin with %q", name, agentPrefix)
		}
	}
	return nil
}

// isAgentName reports whether a user or group is an agent's, and reaches the
// hub in a header unchanged.
func isAgentName(name string) bool {
	invisible := func(c rune) bool { return c <= ' ' || c > '~' }
	return strings.HasPrefix(name, agentPrefix) && !strings.ContainsFunc(name, invisible)
}
