package relay

import (
	"net/http"
	"strings"

	"github.com/workloadid/workloadid/internal/connlimit"
	"github.com/workloadid/workloadid/internal/quota"
)

const (
	// maxBodies bounds the bodies in memory: once for all requests with
	// certificates, and once for all with tokens.
	maxBodies = 64 << 20
	// maxShare bounds the bodies of one payer. It holds the largest body.
	maxShare = 4 << 20
)

func newBodies() *quota.Budget { return &quota.Budget{Max: maxBodies, Share: maxShare} }

// payer returns the cluster of a certificate, or else the address of the
// client.
func payer(req *http.Request) string {
	if presented := req.TLS.PeerCertificates; len(presented) > 0 {
		return clusterOf(presented[0].Subject.CommonName)
	}
	return connlimit.Network(req.RemoteAddr)
}

// clusterOf returns the cluster in the user name of an agent or an add-on. The
// hub reserves the cluster name "cluster".
func clusterOf(user string) string {
	name := strings.TrimPrefix(strings.TrimPrefix(user, agentPrefix), "cluster:")
	cluster, _, _ := strings.Cut(name, ":")
	return cluster
}
