package bootstrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
)

const (
	clusterInfoPath = "/api/v1/namespaces/" + metav1.NamespacePublic + "/configmaps/" + bootstrapapi.ConfigMapClusterInfo

	defaultTimeout        = 5 * time.Minute
	defaultRequestTimeout = 10 * time.Second
	minInterval           = time.Second
	maxInterval           = 5 * time.Second
	maxConfigMap          = 4 << 20
)

// DiscoverOption configures [Discover].
type DiscoverOption func(*discovery)

// ErrPins means that the pins do not prove the cluster. No CA of the cluster is
// pinned, the server's certificate has another CA or name, or the verified
// answer differs from the signed one.
var ErrPins = errors.New("the cluster is not proved to be the one that the pins name")

// WithPins makes [Discover] accept the cluster only if one of its CAs is
// pinned. The discovery trusts only the pinned CAs; the others may only
// complete a chain to a pinned one. The returned [ClusterInfo] holds all CAs
// that the cluster names.
func WithPins(pins PinSet) DiscoverOption { return func(d *discovery) { d.pins = pins } }

// WithoutPins makes [Discover] trust the signature alone. Any other holder of
// the token can then impersonate the cluster.
func WithoutPins() DiscoverOption { return func(d *discovery) { d.unpinned = true } }

// WithTimeout bounds the whole discovery, 5 minutes by default. It must be
// positive.
func WithTimeout(t time.Duration) DiscoverOption { return func(d *discovery) { d.timeout = t } }

// WithTokenPatience bounds the wait while cluster-info is signed for other
// tokens only. At its first read after this time, Discover fails with the cause
// NotSignedForToken. A signer signs for a new token within seconds. The default
// 0 waits until the timeout.
func WithTokenPatience(patience time.Duration) DiscoverOption {
	return func(d *discovery) { d.patience = patience }
}

// WithFinalCauses ends the discovery at an address at the first of these
// causes. Otherwise [Discover] waits for them to pass.
func WithFinalCauses(causes ...Cause) DiscoverOption {
	return func(d *discovery) { d.final = causes }
}

// WithServerName makes [Discover] check the server's certificate against this
// DNS name or IP address. The default is the host of each address. A tunnel
// needs it, because no certificate names its address. The caller must know the
// name, because a name from cluster-info proves nothing.
func WithServerName(name string) DiscoverOption { return func(d *discovery) { d.serverName = name } }

// WithProgress calls report whenever the discovery waits for something else, on
// the goroutine of [Discover]. With several addresses, the text begins with the
// address, and report also receives an address that failed for good. Nil
// reports nothing.
func WithProgress(report func(waitingFor string)) DiscoverOption {
	return func(d *discovery) { d.report = report }
}

// discovery is the part that all addresses share.
type discovery struct {
	servers    []endpoint
	serverName string // empty: the host of the server
	token      Token
	pins       PinSet
	unpinned   bool
	timeout    time.Duration
	interval   time.Duration
	report     func(string)
	patience   time.Duration // 0: waits for a signature until the timeout
	final      []Cause
}

// endpoint is an address to ask.
type endpoint struct {
	server string // https URL
	name   string // the name that the server's certificate must have; never empty
}

// state is the reason why an attempt waits.
type state struct{ server, waitingFor string }

// result is the outcome of an attempt.
type result struct {
	info *ClusterInfo
	err  *AddressError
}

// Discover finds out how to reach a cluster. It takes addresses ("host",
// "host:port" or an https URL without user, query and fragment) and a token
// with the usage "signing":
//
//  1. It reads cluster-info without credentials from an unverified server,
//     until cluster-info is signed with the token.
//  2. It verifies the signature. It reads a wrong one once more, because it may
//     lag behind a change. Then the failure is final.
//  3. With pins, one of the CAs must be pinned. Discover reads cluster-info
//     again over a connection that trusts only chains to a pinned CA, and only
//     for the host of the address (see [WithServerName]). The content must be
//     the same.
//
// Discover asks all addresses at the same time, and the first success wins. A
// final failure at one address does not stop the others, so a forged answer
// cannot keep the machine from joining.
//
// Discover waits for conditions that pass: a missing server, permission,
// ConfigMap or signature, and a slow clock. It waits after every status but
// 200, because a proxy may answer until its server is up. Permanent mistakes
// fail at once. Malformed arguments fail before any packet is sent.
//
// A failed discovery is a [DiscoveryError] with a typed cause for each address.
// After the timeout, it names the last reason of each address with its likely
// causes, and wraps the context's error. [ErrSignature] and [ErrPins] mean that
// an address belongs to another cluster, or that an attacker is in between. No
// error holds the token's secret.
//
// Write access to the ConfigMap kube-public/cluster-info decides what Discover
// trusts, because the cluster signs its content.
func Discover(ctx context.Context, servers []string, token Token, opts ...DiscoverOption) (*ClusterInfo, error) {
	d := &discovery{token: token, timeout: defaultTimeout, interval: minInterval}
	for _, opt := range opts {
		opt(d)
	}
	if err := d.check(servers); err != nil {
		return nil, fmt.Errorf("discover: %w", err)
	}
	return d.race(ctx)
}

// race runs one attempt per address and waits for all of them. The first
// success cancels the others.
func (d *discovery) race(ctx context.Context) (*ClusterInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	states, results := make(chan state), make(chan result)
	for _, e := range d.servers {
		a := &attempt{discovery: d, endpoint: e, interval: d.interval, states: states}
		go func() {
			info, err := a.run(ctx)
			results <- result{info, err}
		}()
	}
	var found *ClusterInfo
	failed := &DiscoveryError{}
	for left := len(d.servers); left > 0; {
		select {
		case s := <-states:
			if found == nil {
				d.reportState(s)
			}
		case r := <-results:
			left--
			if r.err == nil {
				found = cmp.Or(found, r.info)
				cancel()
				continue
			}
			failed.Addresses = append(failed.Addresses, r.err)
			if left > 0 && ctx.Err() == nil {
				d.reportState(state{r.err.Address, "given up: " + r.err.text()})
			}
		}
	}
	if found != nil {
		return found, nil
	}
	return nil, failed
}

func (d *discovery) reportState(s state) {
	text := s.waitingFor
	if len(d.servers) > 1 {
		text = s.server + ": " + text
	}
	if d.report != nil {
		d.report(text)
	}
}

func (d *discovery) check(servers []string) error {
	switch {
	case len(servers) == 0:
		return errors.New("there is no address of the cluster")
	case d.token.IsZero():
		return errors.New("there is no token")
	case len(d.pins) == 0 && !d.unpinned:
		return errors.New("there are no pins; give the hash of the cluster's CA, or trust every holder of the token")
	case d.timeout <= 0:
		return fmt.Errorf("the timeout has to be more than 0, not %s", d.timeout)
	case d.serverName != "" && !validHost(d.serverName):
		return fmt.Errorf("the server name has to be a DNS name or an IP address, not %.200q", d.serverName)
	}
	for _, server := range servers {
		if !strings.Contains(server, "://") {
			server = "https://" + server
		}
		u, err := serverURL(server)
		if err != nil {
			return err
		}
		d.servers = append(d.servers, endpoint{
			server: "https://" + u.Host + strings.TrimSuffix(u.EscapedPath(), "/"),
			name:   cmp.Or(d.serverName, u.Hostname()),
		})
	}
	return nil
}
