package doctor_test

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

// bootFault is something that is wrong in a cluster that could be joined otherwise.
type bootFault struct {
	name  string
	spoil func(w *bootWorld)
	// check and class are those of the finding to act on first, says is a part of its message.
	check, class, says string
}

// Every fault of a discovery has a verdict of its own. The recall is of this list.
func TestBootstrapFaults(t *testing.T) {
	all := append(append(argumentFaults(), serverFaults()...), append(append(secretFaults(), signatureFaults()...), trustFaults()...)...)
	recall(t, "bootstrap", all)
}

func (f bootFault) label() (name, class string) { return f.name, f.class }

func (f bootFault) diagnosed(t *testing.T) {
	w := newBootWorld(t)
	f.spoil(w)
	report := w.run()
	first := report.Worst()
	if first == nil || first.ID != f.check || first.Class != f.class || !strings.Contains(first.Message, f.says) || first.Remedy == "" || first.Number != 25 {
		t.Fatalf("begins with %+v instead of %s %s %q:\n%s", first, f.check, f.class, f.says, report)
	}
	want := doctor.Fail
	switch f.class {
	case "B28", "B32": // such a token is good for a discovery
		want = doctor.Warn
	case "":
		want = doctor.Unknown
	}
	if first.Result != want || report.ExitCode() == doctor.ExitPass {
		t.Errorf("%+v instead of %s, exit code %d", first, want, report.ExitCode())
	}
	if f.check == "bootstrap-args" && w.asked.Load() != 0 {
		t.Errorf("%d requests before the arguments were judged", w.asked.Load())
	}
	withoutSecret(t, report)
	forReaders(t, report)
}

// withoutSecret looks for the secret half everywhere in a report.
func withoutSecret(t *testing.T, report *doctor.Report) {
	t.Helper()
	encoded, err := json.Marshal(report)
	if text := fmt.Sprint(report, report.Condition("Ready", 1), string(encoded)); err != nil || strings.Contains(text, bootSecret) {
		t.Errorf("the secret is in the report: %v\n%s", err, text)
	}
}

func argumentFaults() []bootFault {
	pin := func(change func(pin string) string) func(*bootWorld) {
		return func(w *bootWorld) { w.config.Pins = append(w.config.Pins, change(w.ca.pin())) }
	}
	token := func(text string) func(*bootWorld) { return func(w *bootWorld) { w.config.Token = text } }
	server := func(text string) func(*bootWorld) { return func(w *bootWorld) { w.config.Server = text } }
	return []bootFault{
		{"no server", server(""), "bootstrap-args", "B1", "no server"},
		{"server over http", server("http://10.0.0.1:6443"), "bootstrap-args", "B1", "https://<host>"},
		{"server with a password", server("https://user:" + bootSecret + "@10.0.0.1:6443"), "bootstrap-args", "B1", "without a user name"},
		{"token as the server", server(bootToken), "bootstrap-args", "B1", "a token where the server belongs"},
		{"token as the server, with a port", server(bootToken + ":6443"), "bootstrap-args", "B1", "a token where the server belongs"},
		{"token as the server, as a URL", server("https://" + bootToken + "/"), "bootstrap-args", "B1", "a token where the server belongs"},
		{"token as a pin with a prefix", pin(func(string) string { return "sha256:" + bootToken }), "bootstrap-args", "B3", "a token where a pin belongs"},
		{"token as a pin", pin(func(string) string { return bootToken }), "bootstrap-args", "B3", "a token where a pin belongs"},
		{"server name with a port", func(w *bootWorld) { w.config.ServerName = "api:6443" }, "bootstrap-args", "B1", "server name is malformed"},
		{"token with a colon", token(bootID + ":" + bootSecret), "bootstrap-args", "B2", "neither a token"},
		{"the secret half alone", token(bootSecret), "bootstrap-args", "B2", "secret half of a token, perhaps"},
		{"token in upper case", token(strings.ToUpper(bootID) + "." + bootSecret), "bootstrap-args", "B2", "lower-case"},
		{"token that was cut", token(bootToken[:20]), "bootstrap-args", "B2", "16 lower-case"},
		{"pin without a prefix", pin(func(p string) string { return strings.TrimPrefix(p, "sha256:") }), "bootstrap-args", "B3", "prefix sha256:"},
		{"pin that was cut", pin(func(p string) string { return p[:60] }), "bootstrap-args", "B3", "64 hexadecimal digits"},
		{"fingerprint with colons", pin(func(string) string { return "AB:CD:" + strings.Repeat("00:", 29) + "EF" }), "bootstrap-args", "B3", "fingerprint"},
		{"pin with a blank", pin(func(p string) string { return p + "\n" }), "bootstrap-args", "B3", "blanks"},
		{"pin of another hash", pin(func(string) string { return "sha1:abc" }), "bootstrap-args", "B3", "sha256:<64"},
	}
}

func serverFaults() []bootFault {
	const server = "bootstrap-server"
	refuse := func(code int, message string) func(*bootWorld) {
		return func(w *bootWorld) {
			w.answer = func(rw http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path == infoPath {
					status(rw, code, message)
				}
				return r.URL.Path == infoPath
			}
		}
	}
	always := func(answer http.HandlerFunc) func(*bootWorld) {
		return func(w *bootWorld) {
			w.answer = func(rw http.ResponseWriter, r *http.Request) bool { answer(rw, r); return true }
		}
	}
	return []bootFault{
		{"nobody listens", func(w *bootWorld) { w.config.Server = "127.0.0.1:1" }, server, "B4", "cannot be reached"},
		{"no TLS", func(w *bootWorld) {
			plain := httptest.NewServer(http.NotFoundHandler())
			w.t.Cleanup(plain.Close)
			w.config.Server = strings.TrimPrefix(plain.URL, "http://")
		}, server, "B5", "does not speak TLS"},
		{"redirect", always(func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, "https://login.example/", http.StatusFound)
		}), server, "B5", "answers 302"},
		{"a web server", always(func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte("<html>")) }), server, "B5", "not a ConfigMap"},
		{"a web server without the page", always(http.NotFound), server, "B5", "no API server answers 404"},
		{"a proxy that wants a login", always(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusForbidden) }), server, "B5", "no API server answers 403"},
		{"anonymous access off", always(func(rw http.ResponseWriter, _ *http.Request) { status(rw, http.StatusUnauthorized, "Unauthorized") }), server, "B6", "takes no anonymous requests"},
		{"anonymous access to other paths", refuse(http.StatusUnauthorized, "Unauthorized"), server, "B7", "but not to cluster-info"},
		{"RoleBinding removed", refuse(http.StatusForbidden, `configmaps "cluster-info" is forbidden: User "system:anonymous" cannot get resource "configmaps" in API group "" in the namespace "kube-public"`), server, "B8", "RoleBinding is missing"},
		{"no cluster-info", refuse(http.StatusNotFound, `configmaps "cluster-info" not found`), server, "B9", "there is no cluster-info"},
		{"no kubeconfig in it", func(w *bootWorld) { delete(w.data, "kubeconfig") }, server, "B10", "no kubeconfig"},
		{"nothing in it", func(w *bootWorld) { w.data = nil }, server, "B10", "no kubeconfig"},
		{"server overloaded", refuse(http.StatusTooManyRequests, "slow down"), server, "", "429"},
		{"server starting", always(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusServiceUnavailable) }), server, "", "503"},
	}
}

func secretFaults() []bootFault {
	const check = "bootstrap-token"
	token := func(change func(*bootstrap.TokenConfig)) func(*bootWorld) {
		return func(w *bootWorld) { w.tokenOf(change) }
	}
	secret := func(change func(*corev1.Secret)) func(*bootWorld) { return func(w *bootWorld) { change(w.secret) } }
	return []bootFault{
		{"deleted", func(w *bootWorld) { w.secret = nil }, check, "B23", "no token with this ID"},
		{"being deleted", secret(func(s *corev1.Secret) {
			now := metav1.Now()
			s.DeletionTimestamp, s.Finalizers = &now, []string{"example.com/keep"}
		}), check, "B31", "being deleted"},
		{"of another type", secret(func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }), check, "B24", "the type is"},
		{"name and ID differ", secret(func(s *corev1.Secret) { s.Data["token-id"] = []byte("fedcba") }), check, "B24", "token-id"},
		{"another secret half", secret(func(s *corev1.Secret) { s.Data["token-secret"] = []byte("aaaaaaaaaaaaaaaa") }), check, "B29", "another secret half"},
		{"expired", token(func(c *bootstrap.TokenConfig) { c.Expires = time.Now().Add(-time.Hour) }), check, "B25", "has expired"},
		{"malformed expiration", secret(func(s *corev1.Secret) { s.Data["expiration"] = []byte("tomorrow") }), check, "B26", "cannot be parsed"},
		{"no signing usage", secret(func(s *corev1.Secret) { s.Data["usage-bootstrap-signing"] = []byte("yes") }), check, "B27", "may not sign"},
		{"no authentication usage", func(w *bootWorld) {
			w.login = http.StatusUnauthorized
			w.config.Token = bootID // nobody logs in with an ID
			w.tokenOf(func(c *bootstrap.TokenConfig) { c.Usages, c.Groups = []string{bootstrap.UsageSigning}, nil })
		}, check, "B28", "not log in"},
		{"malformed group", func(w *bootWorld) {
			w.config.Token = bootID
			w.secret.Data["auth-extra-groups"] = []byte("system:masters")
		}, check, "B32", "logs nobody in"},
		{"login refused", func(w *bootWorld) { w.login, w.withoutAdmin = http.StatusUnauthorized, true }, "bootstrap-login", "B30", "does not log in"},
	}
}

func signatureFaults() []bootFault {
	const check = "bootstrap-signature"
	alone := func(spoil func(w *bootWorld)) func(*bootWorld) {
		return func(w *bootWorld) {
			w.withoutAdmin = true
			spoil(w)
		}
	}
	other := func(w *bootWorld) {
		w.data["jws-kubeconfig-fedcba"] = w.data["jws-kubeconfig-"+bootID]
		delete(w.data, "jws-kubeconfig-"+bootID)
	}
	tamper := func(w *bootWorld) {
		w.data = map[string]string{"kubeconfig": strings.Replace(w.data["kubeconfig"], "https://127", "https://128", 1), "jws-kubeconfig-" + bootID: w.data["jws-kubeconfig-"+bootID]}
	}
	return []bootFault{
		{"signed for others", alone(other), check, "B12", "for other tokens"},
		{"signed for others only, though the token is good", other, check, "B12", "for other tokens"},
		{"signed for nobody", alone(func(w *bootWorld) { delete(w.data, "jws-kubeconfig-"+bootID) }), check, "B13", "not signed at all"},
		{"empty signature", alone(func(w *bootWorld) { w.data["jws-kubeconfig-"+bootID] = "" }), check, "B14", "is empty"},
		{"wrong secret half", alone(func(w *bootWorld) { w.config.Token = bootID + ".aaaaaaaaaaaaaaaa" }), check, "B15", "does not fit the token"},
		{"somebody changed it", alone(tamper), check, "B15", "does not fit the token"},
		{"somebody is in between", tamper, check, "B15", "the administrator reads another cluster-info"},
		{"another algorithm", alone(func(w *bootWorld) { w.data["jws-kubeconfig-"+bootID] = "eyJhbGciOiJub25lIn0.." }), check, "B15", "does not fit"},
	}
}

func trustFaults() []bootFault {
	const pins, tls = "bootstrap-pins", "bootstrap-tls"
	hash := func(c *x509.Certificate) string {
		sum := sha256.Sum256(c.Raw)
		return "sha256:" + hex.EncodeToString(sum[:])
	}
	info := func(change func(w *bootWorld, info *bootstrap.ClusterInfo)) func(*bootWorld) {
		return func(w *bootWorld) {
			i := &bootstrap.ClusterInfo{Server: w.server.URL, CAData: w.ca.pem}
			change(w, i)
			w.publish(i)
		}
	}
	return []bootFault{
		{"pin of another cluster", func(w *bootWorld) { w.config.Pins = []string{newAuthority(w.t).pin()} }, pins, "B16", "none of the cluster's"},
		{"hash of the certificate", func(w *bootWorld) { w.config.Pins = []string{hash(w.ca.cert)} }, pins, "B17", "whole certificate"},
		{"pin of the server's certificate", func(w *bootWorld) {
			w.config.Pins = []string{bootstrap.PinOf(w.cert.Load().Leaf).String()}
		}, pins, "B17", "server's own certificate"},
		{"no certificate authority", info(func(_ *bootWorld, i *bootstrap.ClusterInfo) { i.CAData = nil }), pins, "B18", "no certificate authority"},
		{"credentials in cluster-info", func(w *bootWorld) {
			w.publishRaw(w.data["kubeconfig"] + "\nusers:\n- name: admin\n  user: {token: " + bootSecret + "}\n")
		}, pins, "B11", "must not hold credentials"},
		{"something else than a kubeconfig", func(w *bootWorld) { w.publishRaw("[") }, pins, "B11", "not a kubeconfig"},
		{"certificate of another authority", func(w *bootWorld) { w.use(newAuthority(w.t).issue(w.t, nil)) }, tls, "B19", "not from a pinned authority"},
		{"certificate for another name", func(w *bootWorld) {
			w.use(w.ca.issue(w.t, func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(10, 0, 0, 1)} }))
		}, tls, "B20", "other names"},
		{"certificate has expired", func(w *bootWorld) {
			w.use(w.ca.issue(w.t, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }))
		}, tls, "B21", "not valid at the time"},
		{"other content later", func(w *bootWorld) {
			n := 0
			other := map[string]string{"kubeconfig": strings.Replace(w.data["kubeconfig"], "https://127.0.0.1", "https://10.0.0.1", 1)}
			w.answer = func(rw http.ResponseWriter, r *http.Request) bool {
				n++
				if n > 1 && r.URL.Path == infoPath {
					_ = json.NewEncoder(rw).Encode(map[string]any{"kind": "ConfigMap", "data": other})
				}
				return n > 1 && r.URL.Path == infoPath
			}
		}, tls, "B22", "another one"},
		{"address that leads nowhere", info(func(_ *bootWorld, i *bootstrap.ClusterInfo) { i.Server = "https://127.0.0.1:1" }), "bootstrap-login", "B33", "does not work from here"},
	}
}
