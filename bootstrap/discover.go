package bootstrap

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"

	"github.com/workloadid/workloadid/internal/pause"
	"github.com/workloadid/workloadid/internal/redact"
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

// ErrPins means that the pins do not prove the cluster. None of its CAs is
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

// WithTimeout bounds the whole discovery, 5 minutes by default. It must be positive.
func WithTimeout(t time.Duration) DiscoverOption { return func(d *discovery) { d.timeout = t } }

// WithTokenPatience bounds the wait while cluster-info is signed for other
// tokens only. Discover then fails, at its first look after that time, with the
// cause NotSignedForToken. A new token is signed for within seconds. The
// default 0 waits until the timeout.
func WithTokenPatience(patience time.Duration) DiscoverOption {
	return func(d *discovery) { d.patience = patience }
}

// WithFinalCauses ends the discovery at an address at the first of these
// causes, which [Discover] else waits for to pass.
func WithFinalCauses(causes ...Cause) DiscoverOption {
	return func(d *discovery) { d.final = causes }
}

// WithServerName makes [Discover] check the server's certificate against this
// DNS name or IP address. The default is the host of each address. A tunnel
// needs it, because no certificate names its address. The caller must know the
// name, because a name from cluster-info proves nothing.
func WithServerName(name string) DiscoverOption { return func(d *discovery) { d.serverName = name } }

// WithProgress calls report whenever the discovery waits for something else, on
// the goroutine of [Discover]. With several addresses the text begins with the
// address, and an address that failed for good is reported too. Nil: no
// reports.
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
	name   string // that the server's certificate must have; never empty
}

// attempt is the discovery at one address.
type attempt struct {
	*discovery
	endpoint
	interval time.Duration
	states   chan<- state
	waiting  string
	distrust bool      // a signature was wrong once
	unsigned time.Time // since when other tokens alone have a signature
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
// After the timeout, it names for each address the last reason and its likely
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

// race runs one attempt per address and waits for all of them. The first success cancels the others.
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

func (a *attempt) run(ctx context.Context) (*ClusterInfo, *AddressError) {
	var last *AddressError
	for {
		info, err := a.try(ctx)
		if err == nil {
			return info, nil
		}
		err.Address = a.server
		if err.likely == "" || a.givesUpToken(err.Cause) || slices.Contains(a.final, err.Cause) {
			return nil, err
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		if ended := a.sleep(ctx, last); ended != nil {
			last.Err = fmt.Errorf("%w while waiting: %w", ended, last.Err)
			return nil, last
		}
	}
}

func (a *attempt) givesUpToken(cause Cause) bool {
	switch {
	case cause != CauseNotSignedForToken:
		a.unsigned = time.Time{}
	case a.unsigned.IsZero():
		a.unsigned = time.Now()
	}
	return a.patience > 0 && !a.unsigned.IsZero() && time.Since(a.unsigned) >= a.patience
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

// sleep reports a new state. It returns the error of ctx after the timeout.
func (a *attempt) sleep(ctx context.Context, w *AddressError) error {
	if waiting := w.Err.Error(); waiting != a.waiting {
		a.waiting = waiting
		a.states <- state{a.server, waiting}
	}
	interval := a.interval
	a.interval = min(2*interval, maxInterval)
	return pause.For(ctx, spread(interval))
}

func (a *attempt) try(ctx context.Context) (*ClusterInfo, *AddressError) {
	// The signature decides about trust, not the connection.
	insecure := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, ServerName: a.serverName} //nolint:gosec // see above
	data, err := a.get(ctx, insecure)
	if err != nil {
		return nil, err
	}
	content := data[bootstrapapi.KubeConfigKey]
	if err := a.verify(data); err != nil {
		return nil, err
	}
	info, malformed := ParseClusterInfo([]byte(content))
	if malformed != nil {
		return nil, final(CauseClusterInfoMalformed, "its cluster-info is refused: %w", malformed)
	}
	if len(a.pins) == 0 {
		return info, nil
	}
	if err := a.confirm(ctx, info, content); err != nil {
		return nil, err
	}
	return info, nil
}

func (a *attempt) verify(data map[string]string) *AddressError {
	jws := data[bootstrapapi.JWSSignatureKeyPrefix+a.token.id]
	switch {
	case data[bootstrapapi.KubeConfigKey] == "":
		return waiting(CauseNotPublished, "cluster-info has no kubeconfig yet", "the cluster has not published it yet")
	case jws == "" && signed(data):
		return waiting(CauseNotSignedForToken, fmt.Sprintf("cluster-info is not signed for the token ID %q, but for others", a.token.id),
			"the token is expired, deleted, mistyped, or without the usage signing: create a new one")
	case jws == "":
		return waiting(CauseNotSigned, "cluster-info has no signatures at all",
			"the signer is not running (bootstrapsigner of kube-controller-manager), or no token has the usage signing")
	}
	if err := Verify([]byte(data[bootstrapapi.KubeConfigKey]), jws, a.token); err != nil {
		if a.distrust {
			return final(CauseSignatureWrong, "%w: the token is mistyped, or belongs to another cluster", err)
		}
		a.distrust = true
		return waiting(CauseSignatureWrong, "the signature of cluster-info does not fit; reading it once more", "it may lag behind a change")
	}
	return nil
}

func signed(data map[string]string) bool {
	for key := range data {
		if strings.HasPrefix(key, bootstrapapi.JWSSignatureKeyPrefix) {
			return true
		}
	}
	return false
}

// confirm reads cluster-info again over a connection that trusts only the
// pinned certificates. The caller supplies the server's name, because the
// content is not trusted yet. Any holder of a certificate of the CA, such as a
// kubelet, could put its own name there.
func (a *attempt) confirm(ctx context.Context, info *ClusterInfo, content string) *AddressError {
	certificates, malformed := info.Certificates()
	if malformed != nil {
		return final(CauseClusterInfoMalformed, "%w", malformed)
	}
	pinned := a.pins.pinned(certificates)
	if len(pinned) == 0 {
		have, _ := info.Pins() // they parsed a moment ago
		err := final(CauseCANotPinned, "%w: none of its certificate authorities is pinned; it has %v; "+
			"pass one of these as the pin if you can confirm it in another way", ErrPins, have)
		err.CAs = certificates
		return err
	}
	data, err := a.get(ctx, a.pinnedTLS(pinned, certificates))
	if err != nil {
		return err
	}
	if data[bootstrapapi.KubeConfigKey] != content {
		return final(CauseContentDiffers, "%w: cluster-info differs over the verified connection: an attacker is in between, or it has just changed", ErrPins)
	}
	return nil
}

// pinnedTLS trusts only chains to a pinned CA. The unpinned CAs of cluster-info
// serve as intermediates, because an API server may send its leaf alone.
// crypto/tls takes intermediates from the server only, so VerifyConnection does
// what it would do.
func (a *attempt) pinnedTLS(pinned, all []*x509.Certificate) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: a.name,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies
		VerifyConnection: func(s tls.ConnectionState) error {
			_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{
				DNSName: a.name, Roots: poolOf(pinned),
				Intermediates: poolOf(slices.Concat(s.PeerCertificates[1:], all)),
			})
			if err != nil {
				return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
			}
			return nil
		},
	}
}

// get reads the data of cluster-info, without credentials.
func (a *attempt) get(ctx context.Context, config *tls.Config) (map[string]string, *AddressError) {
	status, body, err := fetch(ctx, a.server+clusterInfoPath, config, refuseRedirects, maxConfigMap)
	if err != nil {
		return nil, unreachable(err)
	}
	var refusal metav1.Status
	of := func(cause Cause) Cause { // a proxy in front of an API server refuses in another form
		if json.Unmarshal(body, &refusal) != nil || refusal.Kind != "Status" {
			return CauseNotAnAPIServer
		}
		return cause
	}
	switch {
	case status == http.StatusTooManyRequests || status >= http.StatusInternalServerError:
		return nil, waiting(CauseServerStarting, fmt.Sprintf("the server answers with HTTP %d", status), "it is starting or overloaded")
	case status == http.StatusUnauthorized:
		return nil, waiting(of(CauseAnonymousRefused), "the server refuses anonymous requests (401)", "anonymous access is off: use a discovery file, or allow it for cluster-info")
	case status == http.StatusForbidden:
		return nil, waiting(of(CauseAnonymousForbidden), "anonymous requests may not read cluster-info (403)",
			"the RoleBinding for system:anonymous in kube-public is missing")
	case status == http.StatusNotFound:
		return nil, waiting(of(CauseNotPublished), "there is no cluster-info (404)", "the cluster has not published it yet")
	case status != http.StatusOK:
		return nil, waiting(CauseNotAnAPIServer, fmt.Sprintf("the server answers with HTTP %d", status),
			"an API server does not: the address is wrong, or something in between answers until the cluster is up")
	}
	var configMap corev1.ConfigMap
	if err := json.Unmarshal(body, &configMap); err != nil {
		return nil, final(CauseNotAnAPIServer, "the answer is not a ConfigMap: is that an API server?")
	}
	return configMap.Data, nil
}

// unreachable separates untrusted certificates from servers that may come up.
func unreachable(err error) *AddressError {
	var invalid *tls.CertificateVerificationError
	if errors.As(err, &invalid) {
		return untrusted(invalid)
	}
	var refused *redirectError
	if errors.As(err, &refused) {
		return final(CauseNotAnAPIServer, "%w", err)
	}
	cause := CauseServerUnreachable
	var notTLS tls.RecordHeaderError
	if errors.As(err, &notTLS) || errors.Is(err, http.ErrSchemeMismatch) {
		cause = CauseNotAnAPIServer
	}
	return waiting(cause, fmt.Sprintf("the server cannot be reached: %.600s", err), "it is down, or the address is wrong, or something in between blocks it")
}

// untrusted describes the fault of a server's certificate. Its text is untrusted.
func untrusted(err *tls.CertificateVerificationError) *AddressError {
	reason := redact.Text(err.Err.Error())
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &name):
		return final(CauseCertificateForAnotherName, "%w: the server's certificate is for another name: %s; use an address that the certificate names, or one of its names as the server name", ErrPins, reason)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return waiting(CauseCertificateNotValidNow, "the server's certificate is not valid at the time of this machine: "+reason,
			"the clock of this machine is wrong, or the server's certificate has to be renewed")
	}
	return final(CauseCertificateOfAnotherCA, "%w: the server's certificate is not from a pinned authority: %s", ErrPins, reason)
}
