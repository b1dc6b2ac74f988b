package bootstrap

import (
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

// attempt is the discovery at one address.
type attempt struct {
	*discovery
	endpoint
	interval time.Duration
	states   chan<- state
	waiting  string
	distrust bool      // a signature was wrong once
	unsigned time.Time // since when only other tokens have a signature
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
	// The signature establishes trust, not the connection.
	insecure := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, //nolint:gosec // see above
		ServerName: a.serverName}
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
		return waiting(CauseNotSignedForToken,
			fmt.Sprintf("cluster-info is not signed for the token ID %q, but for others", a.token.id),
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
		return waiting(CauseSignatureWrong, "the signature of cluster-info does not fit; reading it once more",
			"it may lag behind a change")
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
		return final(CauseContentDiffers,
			"%w: cluster-info differs over the verified connection: an attacker is in between, or it has just changed", ErrPins)
	}
	return nil
}

// pinnedTLS trusts only chains to a pinned CA. The unpinned CAs of cluster-info
// serve as intermediates, because an API server may send its leaf alone.
// crypto/tls accepts intermediates from the server only, so VerifyConnection
// repeats its verification.
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
		return nil, waiting(CauseServerStarting, fmt.Sprintf("the server answers with HTTP %d", status),
			"it is starting or overloaded")
	case status == http.StatusUnauthorized:
		return nil, waiting(of(CauseAnonymousRefused), "the server refuses anonymous requests (401)",
			"anonymous access is off: use a discovery file, or allow it for cluster-info")
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

// unreachable separates untrusted certificates from servers that may start
// later.
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
	return waiting(cause, fmt.Sprintf("the server cannot be reached: %.600s", err),
		"it is down, or the address is wrong, or something in between blocks it")
}

// untrusted describes the fault of a server's certificate. The text comes from
// the server, and is untrusted.
func untrusted(err *tls.CertificateVerificationError) *AddressError {
	reason := redact.Text(err.Err.Error())
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &name):
		return final(CauseCertificateForAnotherName,
			"%w: the server's certificate is for another name: %s; use an address that the certificate names, or one of its names as the server name", ErrPins, reason)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return waiting(CauseCertificateNotValidNow,
			"the server's certificate is not valid at the time of this machine: "+reason,
			"the clock of this machine is wrong, or the server's certificate has to be renewed")
	}
	return final(CauseCertificateOfAnotherCA, "%w: the server's certificate is not from a pinned authority: %s",
		ErrPins, reason)
}
