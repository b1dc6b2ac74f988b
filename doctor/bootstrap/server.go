package bootstrap

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/kube"
	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/internal/transport"
)

const (
	infoPath  = "/api/v1/namespaces/" + bootstrap.ConfigMapNamespace + "/configmaps/" + bootstrap.ConfigMapName
	maxBody   = 1 << 20
	maxHeader = 64 << 10
)

// ask sends one request over a connection of its own and reads a bounded answer. It follows no redirect.
func (e *examination) ask(ctx context.Context, config *tls.Config, method, address, bearer, content string) (status int, body []byte, err error) {
	t := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeader}
	transport.UseProxy(t, nil)
	req, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(content))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Accept", "application/json")
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
		req.Header.Set("Content-Type", "application/json")
	}
	asked := e.Now()
	resp, err := (&http.Client{Transport: t, CheckRedirect: lastResponse}).Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // read as far as it counts
	if ahead, known := kube.Ahead(resp.Header, asked, e.Now()); known && ahead.Abs() > kube.MaxSkew {
		e.ahead = ahead
	}
	if resp.TLS != nil {
		e.chain = resp.TLS.PeerCertificates
	}
	body, err = io.ReadAll(http.MaxBytesReader(nil, resp.Body, maxBody))
	return resp.StatusCode, body, err
}

func lastResponse(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// anonymous asks without credentials and without verifying the server: signature and pins decide about trust.
func (e *examination) anonymous(ctx context.Context, path string) (status int, body []byte, err error) {
	insecure := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, ServerName: e.ServerName} //nolint:gosec // as above
	return e.ask(ctx, insecure, http.MethodGet, e.url+path, "", "")
}

// read gets cluster-info as a joining machine does. The result is nil if the answer is not a ConfigMap.
func (e *examination) read(ctx context.Context) (status int, body []byte, info *corev1.ConfigMap, err error) {
	if status, body, err = e.anonymous(ctx, infoPath); err != nil || status != http.StatusOK {
		return status, body, nil, err
	}
	if json.Unmarshal(body, &info) != nil || info == nil || info.Kind != "ConfigMap" {
		info = nil
	}
	return status, body, info, nil
}

func (e *examination) look() string {
	return "curl -ki " + shell.Word(e.url+infoPath, "https://HOST:PORT"+infoPath)
}

func (e *examination) checkServer(ctx context.Context) doctor.Finding {
	status, body, info, err := e.read(ctx)
	var notTLS tls.RecordHeaderError
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &notTLS), errors.Is(err, http.ErrSchemeMismatch):
		return e.notKube("The server does not speak TLS, so it is not an API server.")
	case errors.As(err, &tooLarge):
		return e.notKube("The answer of the server is larger than 1 MiB, so it is not cluster-info.")
	case err != nil:
		return doctor.Failed("ServerUnreachable", doctor.Do("Correct the address, or open the network path to it:", e.look()),
			"The server gives no answer: %s.", transport.Message(err))
	case status != http.StatusOK:
		f := e.judgeStatus(ctx, status, body)
		f.StatusCode = status
		return f
	case info == nil:
		return e.notKube("The answer of the server is not a ConfigMap, so it is not an API server.")
	case info.Data[bootstrap.KubeConfigKey] == "":
		return doctor.Failed("NotPublished", publish(), "cluster-info holds no kubeconfig.")
	}
	e.served = info.Data
	return doctor.Passed("Anonymous clients can read cluster-info, with %s.", kube.Count(len(signers(e.served)), "signature"))
}

func (e *examination) notKube(message string) doctor.Finding {
	return doctor.Failed("NotAnAPIServer", doctor.Do("Correct address and port. API servers mostly listen on 6443 or 443, and have no path:", e.look()), "%s", message)
}

func publish() doctor.Remedy {
	return doctor.Do("On a control plane node of that cluster:", "kubeadm init phase bootstrap-token")
}

// judgeStatus tells the refusals of an API server from those of a proxy in front of it.
func (e *examination) judgeStatus(ctx context.Context, status int, body []byte) doctor.Finding {
	var said metav1.Status
	isKube := json.Unmarshal(body, &said) == nil && said.Kind == "Status"
	switch {
	case status == http.StatusTooManyRequests || status >= http.StatusInternalServerError:
		return doctor.Unclear(doctor.Do("Try again in a minute."), "The server is starting or overloaded (HTTP %d).", status)
	case !isKube || strings.Count(e.url, "/") > 2: // anonymous clients get 403 for unknown paths
		return e.notKube("Something other than an API server answers, such as a proxy or a load balancer.")
	case status == http.StatusUnauthorized:
		return e.unauthorized(ctx)
	case status == http.StatusForbidden:
		return doctor.Failed("NotPublished", doctor.Do("In that cluster:",
			"kubectl create role -n kube-public kubeadm:bootstrap-signer-clusterinfo --verb=get --resource=configmaps --resource-name=cluster-info",
			"kubectl create rolebinding -n kube-public kubeadm:bootstrap-signer-clusterinfo --role=kubeadm:bootstrap-signer-clusterinfo --user=system:anonymous"),
			"Anonymous clients may not read cluster-info, because its RoleBinding is missing.")
	case status == http.StatusNotFound:
		return doctor.Failed("NotPublished", publish(), "There is no cluster-info in the namespace kube-public.")
	}
	return e.notKube("The API server refuses the request for cluster-info.")
}

// unauthorized looks at another path, since an API server may allow anonymous requests to some paths only.
func (e *examination) unauthorized(ctx context.Context) doctor.Finding {
	if status, _, err := e.anonymous(ctx, "/version"); err == nil && status != http.StatusUnauthorized {
		return doctor.Failed("AnonymousRefused", doctor.Do("Add the path to anonymous.conditions in the AuthenticationConfiguration of the API server:", "- path: "+infoPath),
			"The API server allows anonymous requests, but not to cluster-info.")
	}
	return doctor.Failed("AnonymousRefused", doctor.Do("Use a discovery file instead of a token:", "wid bootstrap discover --discovery-file FILE"),
		"The API server allows no anonymous requests.")
}

// signers returns the IDs of the tokens that cluster-info is signed with.
func signers(data map[string]string) (ids []string) {
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if id, ok := strings.CutPrefix(key, bootstrap.SignaturePrefix); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

func (e *examination) checkClock(context.Context) doctor.Finding {
	if e.ahead != 0 {
		return kube.Off("ClockSkew", "the server", e.ahead)
	}
	return doctor.Passed("This machine's clock agrees with the server's, as far as that tells the time.")
}
