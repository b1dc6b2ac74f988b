package bootstrap_test

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/reporttest"
)

// fault is a mistake in a cluster that could be joined otherwise.
type fault struct {
	name  string
	spoil func(w *environment)
	// check and class are those of the headline, says is a part of its message.
	check, class, says string
}

func TestFaults(t *testing.T) {
	var all []fault
	for _, list := range [][]fault{argumentFaults(), serverFaults(), secretFaults(), signatureFaults(), trustFaults()} {
		all = append(all, list...)
	}
	for _, f := range all {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			w := newEnvironment(t)
			f.spoil(w)
			want := reporttest.Want{Check: f.check, Class: f.class, Says: f.says}
			if f.class == "ServerStarting" {
				want.Result = doctor.Unknown
			}
			reporttest.Headline(t, w.run(), want, secretHalf)
			if f.check == "args" && w.asked.Load() != 0 {
				t.Errorf("%d requests before the arguments were checked", w.asked.Load())
			}
		})
	}
}

func argumentFaults() []fault {
	pin := func(change func(pin string) string) func(*environment) {
		return func(w *environment) { w.config.Pins = append(w.config.Pins, change(w.ca.pin())) }
	}
	token := func(text string) func(*environment) { return func(w *environment) { w.config.Token = text } }
	server := func(text string) func(*environment) { return func(w *environment) { w.config.Server = text } }
	return []fault{
		{"no server", func(w *environment) { w.config.Server, w.withoutAdmin = "", true }, "args", "ArgumentMalformed", "there is no server"},
		{"server over http", server("http://10.0.0.1:6443"), "discovery", "ArgumentMalformed", "https://<host>"},
		{"server with a password", server("https://user:" + secretHalf + "@10.0.0.1:6443"), "discovery", "ArgumentMalformed", "without a user name"},
		{"token as the server", server(wholeToken), "args", "ArgumentMalformed", "a token in the place of the server"},
		{"token as the server, with a port", server(wholeToken + ":6443"), "args", "ArgumentMalformed", "a token in the place of the server"},
		{"token as the server, as a URL", server("https://" + wholeToken + "/"), "args", "ArgumentMalformed", "a token in the place of the server"},
		{"token as a pin with a prefix", pin(func(string) string { return "sha256:" + wholeToken }), "args", "ArgumentMalformed", "malformed: "},
		{"token as a pin", pin(func(string) string { return wholeToken }), "args", "ArgumentMalformed", "malformed: "},
		{"server name with a port", func(w *environment) { w.config.ServerName = "api:6443" }, "discovery", "ArgumentMalformed", "the server name has to be"},
		{"token with a colon", token(tokenID + ":" + secretHalf), "args", "ArgumentMalformed", "with a dot between them"},
		{"the secret half alone", token(secretHalf), "args", "ArgumentMalformed", "with a dot between them"},
		{"token in upper case", token(strings.ToUpper(tokenID) + "." + secretHalf), "args", "ArgumentMalformed", "lower-case"},
		{"token that was cut", token(wholeToken[:20]), "args", "ArgumentMalformed", "16 lower-case"},
		{"pin without a prefix", pin(func(p string) string { return strings.TrimPrefix(p, "sha256:") }), "args", "ArgumentMalformed", "malformed: "},
		{"pin that was cut", pin(func(p string) string { return p[:60] }), "args", "ArgumentMalformed", "malformed: "},
		{"fingerprint with colons", pin(func(string) string { return "AB:CD:" + strings.Repeat("00:", 29) + "EF" }), "args", "ArgumentMalformed", "malformed: "},
		{"pin with a blank", pin(func(p string) string { return p + "\n" }), "args", "ArgumentMalformed", "malformed: "},
		{"pin of another hash", pin(func(string) string { return "sha1:abc" }), "args", "ArgumentMalformed", "malformed: "},
	}
}

func serverFaults() []fault {
	const server = "discovery"
	refuse := func(code int, message string) func(*environment) {
		return func(w *environment) {
			w.answer = func(rw http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path == infoPath {
					status(rw, code, message)
				}
				return r.URL.Path == infoPath
			}
		}
	}
	always := func(answer http.HandlerFunc) func(*environment) {
		return func(w *environment) {
			w.answer = func(rw http.ResponseWriter, r *http.Request) bool { answer(rw, r); return true }
		}
	}
	return []fault{
		{"no server listens", func(w *environment) { w.config.Server = "127.0.0.1:1" }, server, "ServerUnreachable", "cannot be reached"},
		{"no TLS", func(w *environment) {
			plain := httptest.NewServer(http.NotFoundHandler())
			w.t.Cleanup(plain.Close)
			w.config.Server = strings.TrimPrefix(plain.URL, "http://")
		}, server, "NotAnAPIServer", ""},
		{"redirect", always(func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, "https://login.example/", http.StatusFound)
		}), server, "NotAnAPIServer", ""},
		{"a web server", always(func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte("<html>")) }), server, "NotAnAPIServer", "not a ConfigMap"},
		{"a web server without the page", always(http.NotFound), server, "NotAnAPIServer", ""},
		{"a proxy that wants a login", always(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusForbidden) }), server, "NotAnAPIServer", ""},
		{"anonymous access off", always(func(rw http.ResponseWriter, _ *http.Request) { status(rw, http.StatusUnauthorized, "Unauthorized") }), server, "AnonymousRefused", "refuses anonymous requests"},
		{"RoleBinding removed, as an administrator sees it", func(w *environment) { w.unsigned(); w.forbidden = true }, "cluster", "AnonymousForbidden", "RoleBinding is missing"},
		{"RoleBinding removed", refuse(http.StatusForbidden, `configmaps "cluster-info" is forbidden: User "system:anonymous" cannot get resource "configmaps" in API group "" in the namespace "kube-public"`), server, "AnonymousForbidden", "may not read cluster-info"},
		{"no cluster-info", refuse(http.StatusNotFound, `configmaps "cluster-info" not found`), server, "NotPublished", "there is no cluster-info"},
		{"no kubeconfig in it", func(w *environment) { delete(w.data, "kubeconfig") }, "cluster", "NotPublished", "no cluster-info with a kubeconfig"},
		{"nothing in it", func(w *environment) { w.data = nil }, server, "NotPublished", "no kubeconfig"},
		{"server overloaded", refuse(http.StatusTooManyRequests, "slow down"), server, "ServerStarting", "429"},
		{"answer without end", always(func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write(make([]byte, 2<<20)) }), server, "NotAnAPIServer", "not a ConfigMap"},
		{"server starting", always(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusServiceUnavailable) }), server, "ServerStarting", "503"},
	}
}

func secretFaults() []fault {
	const check = "cluster"
	token := func(change func(*bootstrap.TokenConfig)) func(*environment) {
		return func(w *environment) { w.unsigned(); w.tokenOf(change) }
	}
	secret := func(change func(*corev1.Secret)) func(*environment) {
		return func(w *environment) { w.unsigned(); change(w.secret) }
	}
	return []fault{
		{"deleted", func(w *environment) { w.unsigned(); w.secret = nil }, check, "TokenUnusable", "There is no token abcdef"},
		{"being deleted", secret(func(s *corev1.Secret) {
			now := metav1.Now()
			s.DeletionTimestamp, s.Finalizers = &now, []string{"example.com/keep"}
		}), check, "TokenUnusable", "There is no token abcdef"},
		{"of another type", secret(func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }), check, "TokenUnusable", "the type is"},
		{"name and ID differ", secret(func(s *corev1.Secret) { s.Data["token-id"] = []byte("fedcba") }), check, "TokenUnusable", "token-id"},
		{"another secret half", secret(func(s *corev1.Secret) { s.Data["token-secret"] = []byte("aaaaaaaaaaaaaaaa") }), check, "TokenUnusable", "another secret half"},
		{"expired", token(func(c *bootstrap.TokenConfig) { c.Expires = time.Now().Add(-time.Hour) }), check, "TokenUnusable", "has expired"},
		{"malformed expiration", secret(func(s *corev1.Secret) { s.Data["expiration"] = []byte("tomorrow") }), check, "TokenUnusable", "expiration is malformed"},
		{"no signing usage", secret(func(s *corev1.Secret) { s.Data["usage-bootstrap-signing"] = []byte("yes") }), check, "TokenUnusable", "may not sign"},
		{"no authentication usage", token(func(c *bootstrap.TokenConfig) { c.Usages, c.Groups = []string{bootstrap.UsageSigning}, nil }), check, "TokenUnusable", "does not log in"},
		{"malformed group", secret(func(s *corev1.Secret) { s.Data["auth-extra-groups"] = []byte("system:masters") }), check, "TokenUnusable", "does not log in"},
	}
}

func signatureFaults() []fault {
	const check = "discovery"
	alone := func(spoil func(w *environment)) func(*environment) {
		return func(w *environment) {
			w.withoutAdmin = true
			spoil(w)
		}
	}
	other := func(w *environment) {
		w.data["jws-kubeconfig-fedcba"] = w.data["jws-kubeconfig-"+tokenID]
		delete(w.data, "jws-kubeconfig-"+tokenID)
	}
	tamper := func(w *environment) {
		w.data = map[string]string{"kubeconfig": strings.Replace(w.data["kubeconfig"], "https://127", "https://128", 1), "jws-kubeconfig-" + tokenID: w.data["jws-kubeconfig-"+tokenID]}
	}
	return []fault{
		{"signed for others", alone(other), check, "NotSignedForToken", "but for others"},
		{"signed for others only, though the token is good", other, "cluster", "NotSigned", "not signed with the token"},
		{"not signed", alone(func(w *environment) { delete(w.data, "jws-kubeconfig-"+tokenID) }), check, "NotSigned", "no signatures at all"},
		{"empty signature", alone(func(w *environment) { w.data["jws-kubeconfig-"+tokenID] = "" }), check, "NotSignedForToken", "but for others"},
		{"wrong secret half", alone(func(w *environment) { w.config.Token = tokenID + ".aaaaaaaaaaaaaaaa" }), check, "SignatureWrong", "mistyped, or belongs to another"},
		{"changed after signing", alone(tamper), check, "SignatureWrong", "mistyped, or belongs to another"},
		{"attacker in between", tamper, check, "SignatureWrong", "mistyped, or belongs to another"},
		{"another algorithm", alone(func(w *environment) { w.data["jws-kubeconfig-"+tokenID] = "eyJhbGciOiJub25lIn0.." }), check, "SignatureWrong", "mistyped, or belongs to another"},
	}
}

func trustFaults() []fault {
	const pins, tls, cluster = "discovery", "discovery", "cluster"
	hash := func(c *x509.Certificate) string {
		sum := sha256.Sum256(c.Raw)
		return "sha256:" + hex.EncodeToString(sum[:])
	}
	info := func(change func(w *environment, info *bootstrap.ClusterInfo)) func(*environment) {
		return func(w *environment) {
			i := &bootstrap.ClusterInfo{Server: w.server.URL, CAData: w.ca.pem}
			change(w, i)
			w.publish(i)
		}
	}
	return []fault{
		{"pin of another cluster", func(w *environment) { w.config.Pins = []string{newAuthority(w.t).pin()} }, pins, "CANotPinned", "is pinned"},
		{"hash of the certificate", func(w *environment) { w.config.Pins = []string{hash(w.ca.cert)} }, pins, "CANotPinned", "is pinned"},
		{"no certificate authority", info(func(_ *environment, i *bootstrap.ClusterInfo) { i.CAData = nil }), pins, "CANotPinned", "is pinned"},
		{"credentials in cluster-info", func(w *environment) {
			w.publishRaw(w.data["kubeconfig"] + "\nusers:\n- name: admin\n  user: {token: " + secretHalf + "}\n")
		}, cluster, "ClusterInfoMalformed", "must not hold credentials"},
		{"something else than a kubeconfig", func(w *environment) { w.publishRaw("[") }, cluster, "ClusterInfoMalformed", "not a kubeconfig"},
		{"certificate of another authority", func(w *environment) { w.use(newAuthority(w.t).issue(w.t, nil)) }, tls, "CertificateOfAnotherCA", "not from a pinned authority"},
		{"certificate for another name", func(w *environment) {
			w.use(w.ca.issue(w.t, func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(10, 0, 0, 1)} }))
		}, tls, "CertificateForAnotherName", "another name"},
		{"certificate has expired", func(w *environment) {
			w.use(w.ca.issue(w.t, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }))
		}, tls, "CertificateNotValidNow", "not valid at the time"},
		{"other content later", func(w *environment) {
			n := 0
			other := map[string]string{"kubeconfig": strings.Replace(w.data["kubeconfig"], "https://127.0.0.1", "https://10.0.0.1", 1)}
			w.answer = func(rw http.ResponseWriter, r *http.Request) bool {
				n++
				if n > 1 && r.URL.Path == infoPath {
					_ = json.NewEncoder(rw).Encode(map[string]any{"kind": "ConfigMap", "data": other})
				}
				return n > 1 && r.URL.Path == infoPath
			}
		}, tls, "ContentDiffers", "differs over the verified connection"},
	}
}
