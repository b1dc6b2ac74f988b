package bootstrap

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/internal/redact"
)

// Where a cluster publishes its ClusterInfo: the namespace and the name of the ConfigMap, the key of the kubeconfig in it,
// and how the keys of the signatures begin.
const (
	ConfigMapNamespace = "kube-public"
	ConfigMapName      = "cluster-info"
	KubeConfigKey      = "kubeconfig"
	SignaturePrefix    = "jws-kubeconfig-"
)

const (
	clusterInfoPath = "/api/v1/namespaces/" + ConfigMapNamespace + "/configmaps/" + ConfigMapName

	defaultTimeout        = 5 * time.Minute
	defaultRequestTimeout = 10 * time.Second
	minInterval           = time.Second
	maxInterval           = 5 * time.Second
	maxConfigMap          = 4 << 20
)

// DiscoverOption configures Discover.
type DiscoverOption func(*discovery)

// ErrPins means that the cluster is not the one that the pins name, or that this cannot be proved: none of its certificate
// authorities is pinned, the server's certificate is not from a pinned one or for another name, or the verified answer is
// another one than that which was signed.
var ErrPins = errors.New("the cluster is not proved to be the one that the pins name")

// WithPins has Discover accept the cluster only if one of its certificate authorities is pinned. The discovery trusts the
// pinned ones alone; the ClusterInfo that it returns has all that the cluster names.
func WithPins(pins PinSet) DiscoverOption { return func(d *discovery) { d.pins = pins } }

// WithoutPins has Discover trust whoever knows the token's secret. That includes everyone else who was given the same
// token.
func WithoutPins() DiscoverOption { return func(d *discovery) { d.unpinned = true } }

// WithTimeout bounds the whole discovery, 5 minutes by default. It has to be more than 0.
func WithTimeout(t time.Duration) DiscoverOption { return func(d *discovery) { d.timeout = t } }

// WithServerName has Discover check the certificate of a pinned authority against this DNS name or IP address instead of the
// host of each address, for addresses that no certificate names, such as that of a tunnel. Empty: the host. The
// caller has to know the name: one that the cluster-info gives would prove nothing.
func WithServerName(name string) DiscoverOption { return func(d *discovery) { d.serverName = name } }

// WithProgress calls report with what the discovery waits for whenever that changes, on the goroutine of Discover. With several
// addresses the text begins with the address, and an address that is given up is reported too. Nil: nothing is reported.
func WithProgress(report func(waitingFor string)) DiscoverOption {
	return func(d *discovery) { d.report = report }
}

// discovery is what all addresses have in common.
type discovery struct {
	servers    []string // https URLs
	serverName string   // empty: the host of the server
	token      Token
	pins       PinSet
	unpinned   bool
	timeout    time.Duration
	interval   time.Duration
	report     func(string)
}

// attempt is the discovery at one address.
type attempt struct {
	*discovery
	server   string
	interval time.Duration
	states   chan<- state
	waiting  string
	distrust bool // a signature was wrong once
}

// state is what an attempt waits for.
type state struct{ server, waitingFor string }

// result is the end of an attempt.
type result struct {
	server string
	info   *ClusterInfo
	err    error
}

// waitError is something that waiting can mend.
type waitError struct{ waitingFor, causes string }

func (e *waitError) Error() string { return e.waitingFor }

// Discover finds out how to reach a cluster from its addresses ("host", "host:port" or an https URL, without a user, a query
// or a fragment) and a token with the usage "signing":
//
//  1. cluster-info is read without verifying the server and without credentials, until it is signed with the token.
//  2. The signature is verified. A wrong one is read again once, since it may lag behind a change; then it is final.
//  3. With pins, one of the certificate authorities has to be pinned, and cluster-info is read again over a connection that
//     trusts the pinned ones alone, and only for the host of the address (see WithServerName). It has to be the same.
//
// All addresses are asked at the same time, and the first that passes wins. An address that fails for good does not end the
// discovery at the others: a forged answer at one address cannot keep the machine from joining.
//
// It waits for what comes up by itself: the server, its permissions, the ConfigMap, the signature, a clock that is behind. Any
// status but 200 may come from a proxy whose server is not up yet. Permanent mistakes fail at once, and malformed arguments
// before any packet is sent. When the time runs out, the error says for each address what was waited for and why that may be,
// and wraps the context's. ErrSignature and ErrPins mean that an address is that of another cluster, or that somebody is in
// between. No error holds the token's secret.
//
// Whoever may write the ConfigMap kube-public/cluster-info says whom Discover trusts, since the cluster signs what is there.
func Discover(ctx context.Context, servers []string, token Token, opts ...DiscoverOption) (*ClusterInfo, error) {
	d := &discovery{token: token, timeout: defaultTimeout, interval: minInterval}
	for _, opt := range opts {
		opt(d)
	}
	if err := d.check(servers); err != nil {
		return nil, fmt.Errorf("discover: %w", err)
	}
	info, err := d.race(ctx)
	if err != nil {
		return nil, fmt.Errorf("discover cluster at %w", err)
	}
	return info, nil
}

// race runs an attempt for each address and returns when all have ended. The first success ends the others.
func (d *discovery) race(ctx context.Context) (*ClusterInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	states, results := make(chan state), make(chan result)
	for _, server := range d.servers {
		a := &attempt{discovery: d, server: server, interval: d.interval, states: states}
		go func() {
			info, err := a.run(ctx)
			results <- result{server, info, err}
		}()
	}
	var found *ClusterInfo
	var failed error
	for left := len(d.servers); left > 0; {
		select {
		case s := <-states:
			if found == nil {
				d.tell(s)
			}
		case r := <-results:
			left--
			if r.err == nil {
				found = cmp.Or(found, r.info)
				cancel()
				continue
			}
			failed = inOneLine(failed, fmt.Errorf("%s: %w", r.server, r.err))
			if left > 0 && ctx.Err() == nil {
				d.tell(state{r.server, "given up: " + r.err.Error()})
			}
		}
	}
	if found != nil {
		return found, nil
	}
	return nil, failed
}

func (d *discovery) tell(s state) {
	text := s.waitingFor
	if len(d.servers) > 1 {
		text = s.server + ": " + text
	}
	if d.report != nil {
		d.report(text)
	}
}

func inOneLine(err, next error) error {
	if err == nil {
		return next
	}
	return fmt.Errorf("%w; %w", err, next)
}

func (a *attempt) run(ctx context.Context) (*ClusterInfo, error) {
	var last *waitError
	for {
		info, err := a.try(ctx)
		if err == nil {
			return info, nil
		}
		var wait *waitError
		if !errors.As(err, &wait) {
			return nil, err
		}
		if ctx.Err() == nil || last == nil {
			last = wait
		}
		if !a.sleep(ctx, last) {
			return nil, fmt.Errorf("%w while waiting: %s; %s", ctx.Err(), last.waitingFor, last.causes)
		}
	}
}

func (d *discovery) check(servers []string) error {
	switch {
	case len(servers) == 0:
		return errors.New("there is no address of the cluster")
	case d.token.IsZero():
		return errors.New("there is no token; use ParseToken")
	case len(d.pins) == 0 && !d.unpinned:
		return errors.New("there are no pins; pass WithPins, or WithoutPins to trust whoever knows the token")
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
		d.servers = append(d.servers, "https://"+u.Host+strings.TrimSuffix(u.EscapedPath(), "/"))
	}
	return nil
}

// sleep reports a new state and returns false when the time is up.
func (a *attempt) sleep(ctx context.Context, w *waitError) bool {
	if w.waitingFor != a.waiting {
		a.waiting = w.waitingFor
		a.states <- state{a.server, w.waitingFor}
	}
	jitter := 1 + 0.2*(rand.Float64()-0.5) //nolint:gosec // spreads load, keeps no secret
	timer := time.NewTimer(time.Duration(float64(a.interval) * jitter))
	defer timer.Stop()
	a.interval = min(2*a.interval, maxInterval)
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (a *attempt) try(ctx context.Context) (*ClusterInfo, error) {
	// The signature decides about trust, not the connection.
	insecure := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, ServerName: a.serverName} //nolint:gosec // see above
	data, err := a.get(ctx, insecure)
	if err != nil {
		return nil, err
	}
	content := data[KubeConfigKey]
	if err := a.verify(data); err != nil {
		return nil, err
	}
	info, err := ParseClusterInfo([]byte(content))
	if err != nil {
		return nil, fmt.Errorf("its cluster-info is refused: %w", err)
	}
	if len(a.pins) == 0 {
		return info, nil
	}
	if err := a.confirm(ctx, info, content); err != nil {
		return nil, err
	}
	return info, nil
}

func (a *attempt) verify(data map[string]string) error {
	jws := data[SignaturePrefix+a.token.id]
	switch {
	case data[KubeConfigKey] == "":
		return &waitError{"cluster-info has no kubeconfig yet", "the cluster has not published it: run kubeadm init phase bootstrap-token or a publisher"}
	case jws == "" && signed(data):
		return &waitError{fmt.Sprintf("cluster-info is not signed for the token ID %q, but for others", a.token.id),
			"the token has expired, was deleted, or lacks the usage signing: create a new one"}
	case jws == "":
		return &waitError{"cluster-info has no signatures at all",
			"the signer is not running (bootstrapsigner of kube-controller-manager), or no token has the usage signing"}
	}
	if err := Verify([]byte(data[KubeConfigKey]), jws, a.token); err != nil {
		if a.distrust {
			return fmt.Errorf("%w: the token is that of another cluster, or somebody is in between", err)
		}
		a.distrust = true
		return &waitError{"the signature of cluster-info does not fit; reading it once more", "it may lag behind a change"}
	}
	return nil
}

func signed(data map[string]string) bool {
	for key := range data {
		if strings.HasPrefix(key, SignaturePrefix) {
			return true
		}
	}
	return false
}

// confirm reads cluster-info again over a connection that trusts the pinned certificates alone. The name that the server has
// to prove comes from the caller: the content is not trusted yet, and everybody who has some certificate of the cluster's
// authority, such as a kubelet's, could have it name himself.
func (a *attempt) confirm(ctx context.Context, info *ClusterInfo, content string) error {
	certificates, err := info.Certificates()
	if err != nil {
		return err
	}
	pinned := a.pins.Pinned(certificates)
	if len(pinned) == 0 {
		have, _ := info.Pins() // they parsed a moment ago
		return fmt.Errorf("%w: none of its certificate authorities is pinned; it has %v; "+
			"pass one of these as the pin if you can confirm it in another way", ErrPins, have)
	}
	data, err := a.get(ctx, &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: poolOf(pinned), ServerName: a.serverName})
	if err != nil {
		return err
	}
	if data[KubeConfigKey] != content {
		return fmt.Errorf("%w: cluster-info differs over the verified connection: somebody is in between, or it has just changed", ErrPins)
	}
	return nil
}

// get reads the data of cluster-info, without credentials.
func (a *attempt) get(ctx context.Context, config *tls.Config) (map[string]string, error) {
	status, body, err := fetch(ctx, a.server+clusterInfoPath, config, refuseRedirects, maxConfigMap)
	if err != nil {
		return nil, unreachable(err)
	}
	switch {
	case status == http.StatusUnauthorized:
		return nil, &waitError{"the server refuses anonymous requests (401)", "anonymous access is off: use a discovery file, or allow it for cluster-info"}
	case status == http.StatusForbidden:
		return nil, &waitError{"anonymous requests may not read cluster-info (403)",
			"the RoleBinding for system:anonymous in kube-public is missing: run kubeadm init phase bootstrap-token or a publisher"}
	case status == http.StatusNotFound:
		return nil, &waitError{"there is no cluster-info (404)", "the cluster has not published it: run kubeadm init phase bootstrap-token or a publisher"}
	case status == http.StatusTooManyRequests || status >= http.StatusInternalServerError:
		return nil, &waitError{fmt.Sprintf("the server answers with HTTP %d", status), "it is starting or overloaded"}
	case status != http.StatusOK:
		return nil, &waitError{fmt.Sprintf("the server answers with HTTP %d", status),
			"an API server does not: the address is wrong, or something in between answers until the cluster is up"}
	}
	var configMap corev1.ConfigMap
	if err := json.Unmarshal(body, &configMap); err != nil {
		return nil, errors.New("the answer is not a ConfigMap: is that an API server?")
	}
	return configMap.Data, nil
}

// unreachable tells certificates that are not trusted from servers that may come up.
func unreachable(err error) error {
	var invalid *tls.CertificateVerificationError
	if errors.As(err, &invalid) {
		return untrusted(invalid)
	}
	var refused *redirectError
	if errors.As(err, &refused) {
		return err
	}
	return &waitError{fmt.Sprintf("the server cannot be reached: %.600s", err), "it is down, or the address is wrong, or something in between blocks it"}
}

// untrusted tells what is wrong with a server's certificate, whose text is a stranger's.
func untrusted(err *tls.CertificateVerificationError) error {
	reason := redact.Text(err.Err.Error())
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &name):
		return fmt.Errorf("%w: the server's certificate is for another name: %s; use an address that the certificate names, or WithServerName "+
			"if you know its name", ErrPins, reason)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return &waitError{"the server's certificate is not valid at the time of this machine: " + reason,
			"the clock of this machine is wrong, or the server's certificate has to be renewed"}
	}
	return fmt.Errorf("%w: the server's certificate is not from a pinned authority: %s", ErrPins, reason)
}
