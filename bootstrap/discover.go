package bootstrap

import (
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

// WithPins has Discover accept the cluster only if one of its certificate authorities is pinned, and trust the pinned ones
// alone.
func WithPins(pins PinSet) DiscoverOption { return func(d *discovery) { d.pins = pins } }

// WithoutPins has Discover trust whoever knows the token's secret. That includes everyone else who was given the same
// token.
func WithoutPins() DiscoverOption { return func(d *discovery) { d.unpinned = true } }

// WithTimeout bounds the whole discovery, 5 minutes by default.
func WithTimeout(t time.Duration) DiscoverOption { return func(d *discovery) { d.timeout = t } }

// WithProgress is told what the discovery waits for whenever that changes.
func WithProgress(report func(waitingFor string)) DiscoverOption {
	return func(d *discovery) { d.report = report }
}

type discovery struct {
	server   string
	token    Token
	pins     PinSet
	unpinned bool
	timeout  time.Duration
	interval time.Duration
	report   func(string)
	waiting  string
	distrust bool // a signature was wrong once
}

// waitError is something that waiting can mend.
type waitError struct{ waitingFor, causes string }

func (e *waitError) Error() string { return e.waitingFor }

// Discover finds out how to reach a cluster from an address ("host", "host:port" or an https URL) and a token with the usage
// "signing":
//
//  1. cluster-info is read without verifying the server and without credentials, until it is signed with the token.
//  2. The signature is verified. A wrong one is read again once, since it may lag behind a change; then it is final.
//  3. With pins, one of the certificate authorities has to be pinned, and cluster-info is read again over a connection that
//     trusts the pinned ones alone. It has to be the same.
//
// It waits for what comes up by itself: the server, its permissions, the ConfigMap, the signature. Permanent mistakes fail
// at once, and malformed arguments before any packet is sent. When the time runs out, the error says what was waited for
// and why that may be.
func Discover(ctx context.Context, server string, token Token, opts ...DiscoverOption) (*ClusterInfo, error) {
	d := &discovery{token: token, timeout: defaultTimeout, interval: minInterval, report: func(string) {}}
	for _, opt := range opts {
		opt(d)
	}
	if err := d.check(server); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	var last *waitError
	for {
		info, err := d.try(ctx)
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
		if !d.sleep(ctx, last) {
			return nil, fmt.Errorf("discover cluster at %s: %w while waiting: %s; %s", d.server, ctx.Err(), last.waitingFor, last.causes)
		}
	}
}

func (d *discovery) check(server string) error {
	if d.token.IsZero() {
		return errors.New("discover: there is no token; use ParseToken")
	}
	if len(d.pins) == 0 && !d.unpinned {
		return errors.New("discover: there are no pins; pass WithPins, or WithoutPins to trust whoever knows the token")
	}
	if !strings.Contains(server, "://") {
		server = "https://" + server
	}
	u, err := serverURL(server)
	if err != nil {
		return fmt.Errorf("discover: %w", err)
	}
	d.server = "https://" + u.Host + strings.TrimSuffix(u.Path, "/")
	return nil
}

// sleep reports a new state and returns false when the time is up.
func (d *discovery) sleep(ctx context.Context, w *waitError) bool {
	if w.waitingFor != d.waiting {
		d.waiting = w.waitingFor
		d.report(w.waitingFor)
	}
	jitter := 1 + 0.2*(rand.Float64()-0.5) //nolint:gosec // spreads load, keeps no secret
	timer := time.NewTimer(time.Duration(float64(d.interval) * jitter))
	defer timer.Stop()
	d.interval = min(2*d.interval, maxInterval)
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (d *discovery) try(ctx context.Context) (*ClusterInfo, error) {
	// The signature decides about trust, not the connection.
	insecure := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true} //nolint:gosec // see above
	data, err := d.get(ctx, insecure)
	if err != nil {
		return nil, err
	}
	content := data[KubeConfigKey]
	if err := d.verify(data); err != nil {
		return nil, err
	}
	info, err := ParseClusterInfo([]byte(content))
	if err != nil {
		return nil, fmt.Errorf("discover cluster at %s: its cluster-info is refused: %w", d.server, err)
	}
	if len(d.pins) == 0 {
		return info, nil
	}
	return info, d.confirm(ctx, info, content)
}

func (d *discovery) verify(data map[string]string) error {
	jws := data[SignaturePrefix+d.token.id]
	switch {
	case data[KubeConfigKey] == "":
		return &waitError{"cluster-info has no kubeconfig yet", "the cluster has not published it: run kubeadm init phase bootstrap-token or a publisher"}
	case jws == "" && signed(data):
		return &waitError{fmt.Sprintf("cluster-info is not signed for the token ID %q, but for others", d.token.id),
			"the token has expired, was deleted, or lacks the usage signing: create a new one"}
	case jws == "":
		return &waitError{"cluster-info has no signatures at all",
			"the signer is not running (bootstrapsigner of kube-controller-manager), or no token has the usage signing"}
	}
	if err := Verify([]byte(data[KubeConfigKey]), jws, d.token); err != nil {
		if d.distrust {
			return fmt.Errorf("discover cluster at %s: %w: the token is that of another cluster, or somebody is in between", d.server, err)
		}
		d.distrust = true
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

// confirm reads cluster-info again over a connection that trusts the pinned certificates alone.
func (d *discovery) confirm(ctx context.Context, info *ClusterInfo, content string) error {
	certificates, err := info.Certificates()
	if err != nil {
		return err
	}
	pinned := d.pins.Pinned(certificates)
	if len(pinned) == 0 {
		have, _ := info.Pins() // they parsed a moment ago
		return fmt.Errorf("discover cluster at %s: none of its certificate authorities is pinned; it has %v; "+
			"pass one of these as the pin if you can confirm it in another way", d.server, have)
	}
	roots := x509.NewCertPool()
	for _, c := range pinned {
		roots.AddCert(c)
	}
	data, err := d.get(ctx, &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: info.TLSServerName})
	if err != nil {
		return err
	}
	if data[KubeConfigKey] != content {
		return fmt.Errorf("discover cluster at %s: cluster-info differs over the verified connection: somebody is in between, or it has just changed", d.server)
	}
	return nil
}

// get reads the data of cluster-info, without credentials.
func (d *discovery) get(ctx context.Context, config *tls.Config) (map[string]string, error) {
	status, body, err := fetch(ctx, d.server+clusterInfoPath, config, refuseRedirects, maxConfigMap)
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
		return nil, fmt.Errorf("discover cluster at %s: it answers with HTTP %d, which an API server would not", d.server, status)
	}
	var configMap corev1.ConfigMap
	if err := json.Unmarshal(body, &configMap); err != nil {
		return nil, fmt.Errorf("discover cluster at %s: the answer is not a ConfigMap: is that an API server?", d.server)
	}
	return configMap.Data, nil
}

// unreachable tells certificates that are not trusted from servers that may come up.
func unreachable(err error) error {
	var invalid *tls.CertificateVerificationError
	if errors.As(err, &invalid) {
		return fmt.Errorf("the server's certificate is not from a pinned authority: %w", err)
	}
	var refused *redirectError
	if errors.As(err, &refused) {
		return err
	}
	return &waitError{fmt.Sprintf("the server cannot be reached: %v", err), "it is down, or the address is wrong, or something in between blocks it"}
}
