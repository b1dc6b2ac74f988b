package doctor

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/transport"
)

const (
	infoPath = "/api/v1/namespaces/" + bootstrap.ConfigMapNamespace + "/configmaps/" + bootstrap.ConfigMapName
	// maxInfo is more than a ConfigMap's limit of 1 MiB, since JSON quotes it.
	maxInfo = 4 << 20
)

// answer is what came of a request, as far as it came.
type answer struct {
	status int
	body   []byte
	chain  []*x509.Certificate
	clock  serverClock
}

// ask sends one request over connections of its own and reads a bounded answer. No redirect is followed.
func (b *bootstrapping) ask(ctx context.Context, config *tls.Config, method, address, bearer string, content []byte) (a answer,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	defer waiting(ctx, "the server "+hostOf(address))()
	t := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableKeepAlives: true,
		MaxResponseHeaderBytes: 64 << 10}
	transport.UseProxy(t, nil)
	client := &http.Client{Transport: t, CheckRedirect: lastResponse}
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(content))
	if err != nil {
		return a, err
	}
	req.Header.Set("Accept", "application/json")
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
		req.Header.Set("Content-Type", "application/json")
	}
	asked := b.Now()
	resp, err := client.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close() //nolint:errcheck // read as far as it is of use
	a.status, a.clock = resp.StatusCode, readDate(resp.Header, asked, b.Now().Sub(asked))
	a.body, err = io.ReadAll(io.LimitReader(resp.Body, maxInfo+1))
	if err == nil && len(a.body) > maxInfo {
		err = fmt.Errorf("the answer is larger than %d bytes", maxInfo)
	}
	if resp.TLS != nil {
		a.chain = resp.TLS.PeerCertificates
	}
	return a, err
}

func lastResponse(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// stranger asks without credentials and without verifying the server: the signature and the pins decide about trust.
func (b *bootstrapping) stranger(ctx context.Context, path string) (status int, body []byte, err error) {
	insecure := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, ServerName: b.ServerName} //nolint:gosec // see above
	a, err := b.ask(ctx, insecure, http.MethodGet, b.url+path, "", nil)
	if a.chain != nil {
		b.chain = a.chain
	}
	if a.clock.answered {
		b.clock = a.clock
	}
	return a.status, a.body, err
}

// read gets cluster-info as a stranger does.
func (b *bootstrapping) read(ctx context.Context) (status int, body []byte, data map[string]string, err error) {
	status, body, err = b.stranger(ctx, infoPath)
	if err != nil || status != http.StatusOK {
		return status, body, nil, err
	}
	var configMap corev1.ConfigMap
	if json.Unmarshal(body, &configMap) == nil && configMap.Kind == "ConfigMap" {
		data = configMap.Data
		if data == nil {
			data = map[string]string{}
		}
	}
	return status, body, data, nil
}

func (b *bootstrapping) checkServer(ctx context.Context) Finding {
	f := b.judgeServer(ctx)
	if proxy := b.proxy(); proxy != "" && (f.Class == "B4" || f.Class == "B5") {
		f = f.with(differs("asked through the proxy", proxy, "no proxy: put the server into NO_PROXY"))
	}
	return b.doubtAddress(f)
}

// proxy is what the environment puts in between.
func (b *bootstrapping) proxy() string {
	t := &http.Transport{}
	transport.UseProxy(t, nil)
	req, err := http.NewRequest(http.MethodGet, b.url, nil) //nolint:noctx // is not sent
	if err != nil {
		return ""
	}
	if u, err := t.Proxy(req); err == nil && u != nil {
		return u.Host
	}
	return ""
}

func (b *bootstrapping) judgeServer(ctx context.Context) Finding {
	status, body, data, err := b.read(ctx)
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return fail("B5", "correct the port: API servers mostly listen on 6443 or 443",
			"%s does not speak TLS: that is no API server", shown(b.url))
	case ctx.Err() != nil:
		return unknown("the server has not answered yet", "allow more time, a minute at most")
	case err != nil:
		return fail("B4", "correct the address, or open the way to it: curl -k "+shown(b.url)+"/version",
			"the server cannot be reached: %s", transport.Message(err))
	case status != http.StatusOK:
		return b.judgeStatus(ctx, status, body)
	case data == nil:
		return fail("B5", "name the API server itself: curl -k "+shown(b.url)+infoPath,
			"the answer is not a ConfigMap: that is no API server")
	case data[bootstrap.KubeConfigKey] == "":
		return fail("B10", publishInfo, "cluster-info has no kubeconfig: whatever created it has not finished").
			with(differs("data", "no key kubeconfig", "a kubeconfig with the server and its certificate authority"))
	}
	b.served = data
	return pass("strangers can read cluster-info, %s", count(len(signers(data)), "signature", "signatures"))
}

const (
	publishInfo = "kubeadm init phase bootstrap-token, on a control plane node, or: wid bootstrap publish"
	allowInfo   = "kubeadm init phase bootstrap-token, on a control plane node, or: wid bootstrap publish, or:\n" +
		"kubectl create role -n kube-public kubeadm:bootstrap-signer-clusterinfo --verb=get --resource=configmaps " +
		"--resource-name=cluster-info\n" +
		"kubectl create rolebinding -n kube-public kubeadm:bootstrap-signer-clusterinfo " +
		"--role=kubeadm:bootstrap-signer-clusterinfo --user=system:anonymous"
	discoveryFile = "hand the machine a discovery file instead: kubeadm join --discovery-file, wid bootstrap discover " +
		"--discovery-file"
)

// judgeStatus tells the refusals of an API server from those of something in front of it.
func (b *bootstrapping) judgeStatus(ctx context.Context, status int, body []byte) Finding {
	answered := Field{Name: "status", Observed: fmt.Sprint(status), Expected: "200", Differs: true}
	said, isKube := kubeStatus(body)
	switch {
	case status == http.StatusTooManyRequests || status >= http.StatusInternalServerError:
		f := unknown(fmt.Sprintf("the server answers %d: it is starting or overloaded", status), "try again in a minute")
		f.StatusCode = status
		return f
	case !isKube:
		return fail("B5", "name the API server itself: curl -ki "+shown(b.url)+infoPath,
			"something that is no API server answers %d: a proxy, a load balancer or another service", status).with(answered)
	case status == http.StatusUnauthorized:
		return b.judgeUnauthorized(ctx).with(answered)
	case status == http.StatusForbidden:
		return fail("B8", allowInfo, "403: anonymous requests may not read cluster-info, the RoleBinding is missing").
			with(answered, same("message", said.Message))
	case status == http.StatusNotFound:
		return fail("B9", publishInfo+"\non managed clusters, where there is none: "+discoveryFile,
			"404: there is no cluster-info in kube-public").with(answered, same("message", said.Message))
	}
	return fail("B5", "name the API server itself", "the API server answers %d", status).
		with(answered, same("message", said.Message))
}

// judgeUnauthorized looks at another path: with conditions, anonymous requests get through to some.
func (b *bootstrapping) judgeUnauthorized(ctx context.Context) Finding {
	status, _, err := b.stranger(ctx, "/version")
	switch {
	case err != nil:
		return fail("B6", discoveryFile, "401: anonymous requests are refused; whether all are could not be seen: %s",
			transport.Message(err))
	case status == http.StatusUnauthorized:
		return fail("B6", discoveryFile+"\nor allow anonymous requests to "+infoPath+" alone: AuthenticationConfiguration, "+
			"anonymous.conditions",
			"401: the API server takes no anonymous requests (--anonymous-auth=false), or none to this path and /version").
			with(same("/version", fmt.Sprint(status)))
	}
	return fail("B7", "add this path to anonymous.conditions in the AuthenticationConfiguration of the API server:\n- "+
		"path: "+infoPath,
		"401: anonymous requests are taken, but not to cluster-info: the AuthenticationConfiguration lists other paths").
		with(same("/version", fmt.Sprint(status)))
}

// kubeStatus is what an API server says of a refusal.
func kubeStatus(body []byte) (status metav1.Status, ok bool) {
	err := json.Unmarshal(body, &status)
	return status, err == nil && status.Kind == "Status"
}
