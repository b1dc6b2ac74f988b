package doctor_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/olddoctor"
)

// echoing is an API server that refuses everything and repeats what it was sent, changed.
func echoing(t *testing.T, code int, change func(authorization string) string) *rest.Config {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		status(rw, code, "you sent "+change(r.Header.Get("Authorization")))
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: pemOf(server)}}
}

func pemOf(server *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

// plugin prints a new token each time it is run.
func plugin(t *testing.T) *api.ExecConfig {
	t.Helper()
	path := filepath.Join(t.TempDir(), "login")
	script := "#!/bin/sh\nn=$(cat \"$0.n\" 2>/dev/null || echo 0); n=$((n+1)); echo $n >\"$0.n\"\n" +
		`echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"'$(printf $n | sha256sum | cut -c1-40)'"}}'` + "\n"
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil { //nolint:gosec // is run
		t.Fatal(err)
	}
	return &api.ExecConfig{APIVersion: "client.authentication.k8s.io/v1", Command: path, InteractiveMode: api.NeverExecInteractiveMode}
}

// printed are the beginnings of what the plugin prints, which have nothing in common.
func printed() (tokens []string) {
	for n := range 200 {
		sum := sha256.Sum256([]byte(strconv.Itoa(n)))
		tokens = append(tokens, hex.EncodeToString(sum[:])[:20])
	}
	return tokens
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

const (
	wrapSecret = "made-by-a-wrapper-0123456789"
	password   = "hunter2-pass1"
)

// logins are the ways in which a config has its clients log in, each with what no report may hold.
func logins() map[string]struct {
	use     func(t *testing.T, c *rest.Config)
	secrets []string
} {
	pair := "joe:" + password
	basic := base64.StdEncoding.EncodeToString([]byte(pair))
	return map[string]struct {
		use     func(t *testing.T, c *rest.Config)
		secrets []string
	}{
		"exec plugin": {func(t *testing.T, c *rest.Config) { c.ExecProvider = plugin(t) }, printed()},
		"wrapper": {func(_ *testing.T, c *rest.Config) {
			c.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(r *http.Request) (*http.Response, error) {
					r = r.Clone(r.Context())
					r.Header.Set("Authorization", "Bearer "+wrapSecret)
					return next.RoundTrip(r)
				})
			})
		}, []string{wrapSecret[:18], wrapSecret[8:]}},
		"token": {func(_ *testing.T, c *rest.Config) { c.BearerToken = wrapSecret }, []string{wrapSecret[:18], wrapSecret[8:]}},
		"token file": {func(t *testing.T, c *rest.Config) {
			c.BearerTokenFile = filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(c.BearerTokenFile, []byte(wrapSecret+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, []string{wrapSecret[:18], wrapSecret[8:]}},
		"password":       {func(_ *testing.T, c *rest.Config) { c.Username, c.Password = "joe", password }, []string{password[:9], basic[:12], pair}},
		"short password": {func(_ *testing.T, c *rest.Config) { c.Username, c.Password = "system-user-0", "pa55" }, []string{"0:pa55", base64.StdEncoding.EncodeToString([]byte("system-user-0:pa55"))[:12]}},
	}
}

// echoes are what a server makes of the header that it repeats.
func echoes() map[string]func(string) string {
	plain := func(header string) string {
		pair, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(header, "Basic "))
		if err != nil {
			return header
		}
		return string(pair)
	}
	return map[string]func(string) string{
		"as it is": func(header string) string { return header },
		"decoded":  plain,
		"late":     func(header string) string { return strings.Repeat("x", 250) + plain(header) },
		"escaped":  func(header string) string { return url.QueryEscape(plain(header)) },
		"base64": func(header string) string {
			return base64.StdEncoding.EncodeToString([]byte(strings.TrimPrefix(plain(header), "Bearer ")))
		},
	}
}

// decoded returns everything that a text holds in base64.
func decoded(text string) string {
	var all strings.Builder
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return !strings.ContainsRune(base64Alphabet, r) }) {
		content, _ := base64.RawStdEncoding.DecodeString(word)
		all.Write(content)
		all.WriteByte('\n')
	}
	return all.String()
}

const base64Alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

func everythingIn(t *testing.T, r *doctor.Report) string {
	t.Helper()
	encoded, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return r.String() + r.Condition("Ready", 1).Message + string(encoded)
}

// Whatever a kubeconfig's user logs in with, no API server gets it into a report: of no doctor, as text, JSON or condition.
func TestEchoedLogins(t *testing.T) {
	for login, tt := range logins() {
		for echo, change := range echoes() {
			for _, code := range []int{http.StatusForbidden, http.StatusUnauthorized} {
				t.Run(fmt.Sprintf("%s, %s, %d", login, echo, code), func(t *testing.T) {
					t.Parallel()
					config := echoing(t, code, change)
					tt.use(t, config)
					for doctor, report := range echoed(t, config) {
						text := everythingIn(t, report)
						if !strings.Contains(text, "you sent ") && code == http.StatusForbidden {
							t.Errorf("%s: the server's words are not there:\n%s", doctor, report)
						}
						for _, secret := range tt.secrets {
							if strings.Contains(text+decoded(text), secret) {
								t.Errorf("%s: %q is in the report:\n%s", doctor, secret, report)
							}
						}
					}
				})
			}
		}
	}
}

// echoed are the reports of all doctors on a cluster.
func echoed(t *testing.T, config *rest.Config) map[string]*doctor.Report {
	t.Helper()
	doctor.WatchCredentials(config)
	given, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(given.CloseIdleConnections)
	w := newWorld(t, "aws")
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, authenticationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	if w.config.Client, err = client.New(config, client.Options{Scheme: scheme, HTTPClient: given, Mapper: mapper()}); err != nil {
		t.Fatal(err)
	}
	looking, err := client.New(config, client.Options{Scheme: scheme, HTTPClient: given}) // looks kinds up, without a context
	if err != nil {
		t.Fatal(err)
	}
	_ = looking.List(t.Context(), &corev1.PodList{})
	w.config.RESTConfig, w.config.Pod = config, client.ObjectKey{Namespace: "tenant-a", Name: "p"}
	hub := newHubWorld(t)
	hub.config.Hub, hub.config.Spoke, hub.config.HubRESTConfig, hub.config.SpokeRESTConfig = w.config.Client, w.config.Client, config, config
	boot := newBootWorld(t)
	boot.config.Client, boot.config.RESTConfig, boot.login = w.config.Client, config, http.StatusUnauthorized
	return map[string]*doctor.Report{"Run": w.run(), "RunEnrolment": hub.run(), "RunBootstrap": boot.run()}
}

func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for kind, scope := range map[string]meta.RESTScope{"v1 ServiceAccount": meta.RESTScopeNamespace, "v1 Pod": meta.RESTScopeNamespace,
		"v1 Secret": meta.RESTScopeNamespace, "authentication.k8s.io/v1 SelfSubjectReview": meta.RESTScopeRoot,
		"cluster.open-cluster-management.io/v1 ManagedCluster": meta.RESTScopeRoot, "operator.open-cluster-management.io/v1 Klusterlet": meta.RESTScopeRoot,
		"certificates.k8s.io/v1 CertificateSigningRequest": meta.RESTScopeRoot} {
		version, name, _ := strings.Cut(kind, " ")
		m.Add(schema.FromAPIVersionAndKind(version, name), scope)
	}
	return m
}

// A short password is not looked for in ordinary text: the report would become unreadable, and the gap would tell it.
func TestShortPasswordLeavesTextAlone(t *testing.T) {
	for _, short := range []string{"a", "role", "token", "pods"} {
		w := newWorld(t, "aws")
		w.config.RESTConfig = w.api()
		w.config.RESTConfig.Username, w.config.RESTConfig.Password = "joe", short
		if text := everythingIn(t, w.run()); strings.Contains(text, "[redacted]") {
			t.Errorf("%q: %s", short, text)
		}
	}
}

// A config whose plugin nobody watches is asked for what the plugin makes.
func TestUnwatchedPlugin(t *testing.T) {
	config := echoing(t, http.StatusForbidden, func(header string) string { return header })
	config.ExecProvider = plugin(t)
	given, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(given.CloseIdleConnections)
	w := newWorld(t, "aws")
	if w.config.Client, err = client.New(config, client.Options{HTTPClient: given, Mapper: mapper()}); err != nil {
		t.Fatal(err)
	}
	w.config.RESTConfig = config
	if text := everythingIn(t, w.run()); strings.Contains(text, printed()[1]) || !strings.Contains(text, "you sent Bearer [redacted]") {
		t.Error(text)
	}
}
