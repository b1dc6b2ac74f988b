package relay

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/workloadid/workloadid/internal/connlimit"
)

const (
	// maxBodies bounds the bodies that are in memory at a time: one bound for
	// all requests with certificates, one for all with tokens.
	maxBodies = 64 << 20
	// maxShare bounds the bodies of one payer. It holds the largest body.
	maxShare = 4 << 20
)

// errFull means that a body or a request does not fit into its budget.
var errFull = errors.New("the budget is used up")

// budget counts what payers hold, such as the bytes of bodies in memory. It is safe for concurrent use.
type budget struct {
	most, share int64 // of all payers, and of one

	mu   sync.Mutex
	all  int64
	each map[string]int64 // by payer
}

func newBudget(most, share int64) *budget {
	return &budget{most: most, share: share, each: map[string]int64{}}
}

// reserve never waits: a client that waits holds its stream and its goroutine.
func (b *budget) reserve(payer string, size int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all+size > b.most || b.each[payer]+size > b.share {
		return false
	}
	b.all += size
	b.each[payer] += size
	return true
}

func (b *budget) release(payer string, size int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all -= size
	if b.each[payer] -= size; b.each[payer] == 0 {
		delete(b.each, payer)
	}
}

// charged is a body that is charged to its payer as it arrives: a length that a client only announces takes no memory.
type charged struct {
	io.Reader
	budget *budget
	payer  string
	held   int64
}

func (c *charged) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if !c.budget.reserve(c.payer, int64(n)) {
		return 0, errFull
	}
	c.held += int64(n)
	return n, err
}

func (c *charged) release() { c.budget.release(c.payer, c.held) }

// payer returns the cluster of a certificate, or else the address of the client.
func payer(req *http.Request) string {
	if presented := req.TLS.PeerCertificates; len(presented) > 0 {
		return clusterOf(presented[0].Subject.CommonName)
	}
	return connlimit.Network(req.RemoteAddr)
}

// clusterOf returns the cluster in the user name of an agent or an add-on. The hub reserves the cluster name "cluster".
func clusterOf(user string) string {
	name := strings.TrimPrefix(strings.TrimPrefix(user, agentPrefix), "cluster:")
	cluster, _, _ := strings.Cut(name, ":")
	return cluster
}
