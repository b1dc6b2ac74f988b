package plugin_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	kubeletv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/plugin"
)

var end = time.Date(2030, 1, 2, 3, 4, 5, 678, time.FixedZone("", 3600))

// jwtOf returns a token with the given claims and an invalid signature.
func jwtOf(claims string) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"RS256"}`)) + "." + encode([]byte(claims)) + "." + encode([]byte("signature"))
}

func TestServiceAccountOf(t *testing.T) {
	sa,
		err := plugin.ServiceAccountOf(
		jwtOf(`{"sub":"system:serviceaccount:tenant-a:app","kubernetes.io":{"serviceaccount":{"uid":"u"}}}`)+
			"\n", map[string]string{"a": "b"})
	if err != nil || sa.Namespace != "tenant-a" || sa.Name != "app" || sa.UID != "u" || sa.Annotations["a"] != "b" {
		t.Errorf("got %+v, %v, want the UID and the annotation of tenant-a/app", sa, err)
	}
	for _, token := range []string{"", "x", "a.b.c", jwtOf(`{}`), jwtOf(`{"sub":"system:node:n"}`),
		jwtOf(`{"sub":"tenant-a:app"}`), jwtOf(`{"sub":"system:serviceaccount:a"}`),
		jwtOf(`{"sub":"system:serviceaccount::b"}`), jwtOf(`{"sub":"system:serviceaccount:a:b:c"}`), jwtOf(`[]`),
		strings.Repeat("x", 1<<20)} {
		_, err := plugin.ServiceAccountOf(token, nil)
		if !errors.Is(err, auth.ErrMisconfigured) ||
			token != "" && len(token) > 20 && strings.Contains(err.Error(), token[:20]) {
			t.Errorf("%.50q: %v", token, err)
		}
	}
}

func TestExecInfo(t *testing.T) {
	info,
		err := plugin.ParseExecInfo(
		`{"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential","spec":{"interactive":true,
		"cluster":{"server":"https://c:6443","certificate-authority-data":"Y2E=",
		"proxy-url":"http://p:3128","config":{"a":1}}}}`)
	if err != nil || info.Cluster == nil || info.Cluster.Server != "https://c:6443" ||
		string(info.Cluster.CAData) != "ca" ||
		info.Cluster.ProxyURL != "http://p:3128" || string(info.Cluster.Config) != `{"a":1}` {
		t.Fatalf("got %+v, %v, want the whole cluster", info, err)
	}
	answer, err := info.Encode("token", end)
	const want = `{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1beta1","spec":{"interactive":false},"status":{"expirationTimestamp":"2030-01-02T02:04:05Z","token":"token"}}` + "\n"
	if err != nil || string(answer) != want {
		t.Errorf("got %s, %v, want %s", answer, err, want)
	}
	if answer, err := info.Encode("token", time.Time{}); err != nil ||
		strings.Contains(string(answer), "expirationTimestamp") {
		t.Errorf("no end: %s, %v", answer, err)
	}
	if info, err := plugin.ParseExecInfo(""); err != nil || info.APIVersion != "client.authentication.k8s.io/v1" ||
		info.Cluster != nil {
		t.Errorf("called by a person: %+v, %v", info, err)
	}
	large := `{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential"}` + strings.Repeat(" ", 1<<20)
	if _, err := plugin.ParseExecInfo(large); !errors.Is(err, auth.ErrMisconfigured) {
		t.Errorf("got %v for more than 1 MiB, want ErrMisconfigured", err)
	}
}

func TestReadDockerServer(t *testing.T) {
	for in, want := range map[string]string{
		"ghcr.io": "ghcr.io", "https://index.docker.io/v1/\n": "index.docker.io",
		" Registry.Example:5000 ": "registry.example:5000", "r.example/a/b": "r.example",
		"": "", "http://r.example": "", "oci://r.example": "", "a b": "", "u:p@r.example": "", "r.example?x": "",
		"https://": "",
	} {
		got, err := plugin.ReadDockerServer(t.Context(), strings.NewReader(in))
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v, want %q", in, got, err, want)
		}
	}
}

func TestGitRequest(t *testing.T) {
	for in, want := range map[string]string{
		"protocol=https\nhost=h.example\npath=a/b\nusername=u\npassword=p\n": "https://h.example/a/b",
		"protocol=https\nhost=h.example:8443\n\nhost=evil.example":           "https://h.example:8443/",
		"protocol=https\r\nhost=h.example\r\n\r\n":                           "",
		"protocol=https\nhost=h.example\r\n":                                 "",
		"url=https://h.example/a%20b\n":                                      "https://h.example/a%20b",
		"protocol=https\nhost=a\nhost=b\n":                                   "https://b/",
		"protocol=https\n":                                                   "",
		"host=h\n":                                                           "",
		"hello":                                                              "",
		"protocol=https\nhost=u:p@h.example\n":                               "",
		"protocol=https\nhost=h.example/x\n":                                 "",
		"protocol=https\nhost=h.example#x\n":                                 "",
		"protocol=https\nhost=h.ex\rample\n":                                 "",
		"protocol=https\nhost=h.example\nunknown\r=x\n":                      "",
		"protocol=https\nhost=h.example\npath=a\rb\n":                        "",
		"protocol=https\nhost=h.example?\n":                                  "",
	} {
		r, err := plugin.ReadGitRequest(t.Context(), strings.NewReader(in))
		got := ""
		if err == nil {
			u, urlErr := r.URL()
			if err = urlErr; err == nil {
				got = u.String()
			}
		}
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v, want %q", in, got, err, want)
		}
	}
}

// git's request ends with an empty line, even if the pipe stays open.
func TestGitRequestEndsWithAnEmptyLine(t *testing.T) {
	in, out := io.Pipe()
	defer out.Close() //nolint:errcheck // never fails
	go func() { _, _ = io.WriteString(out, "protocol=https\nhost=h\n\n") }()
	if r, err := plugin.ReadGitRequest(t.Context(), in); err != nil || r.Host != "h" {
		t.Errorf("got %+v, %v, want the host h", r, err)
	}
	if _, err := plugin.ReadGitRequest(t.Context(), endless{}); !errors.Is(err, auth.ErrMisconfigured) ||
		!strings.Contains(err.Error(), "more than") {
		t.Errorf("endless: %v", err)
	}
}

func TestGitCredentials(t *testing.T) {
	for name, tc := range map[string]struct {
		request    string
		credential plugin.GitCredential
		want       string
	}{
		"password": {"", plugin.GitCredential{Username: "u", Password: "p", Expires: end},
			"username=u\npassword=p\npassword_expiry_utc=1893549845\n"},
		"bearer": {"capability[]=authtype\n", plugin.GitCredential{BearerToken: "t", Expires: end},
			"capability[]=authtype\nauthtype=Bearer\ncredential=t\nephemeral=1\npassword_expiry_utc=1893549845\n"},
		"bearer, git before 2.46": {"", plugin.GitCredential{BearerToken: "t", Expires: end},
			"username=oauth2\npassword=t\npassword_expiry_utc=1893549845\n"},
		"no end":      {"", plugin.GitCredential{Username: "u", Password: "p"}, "username=u\npassword=p\n"},
		"nothing":     {"", plugin.GitCredential{Username: "u", Expires: end}, ""},
		"a line more": {"", plugin.GitCredential{Username: "u\nquit=1", Password: "p"}, ""},
	} {
		r, err := plugin.ReadGitRequest(t.Context(), strings.NewReader(tc.request+"protocol=https\nhost=h\n"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.Encode(tc.credential)
		if string(got) != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, tc.want)
		}
	}
}

func TestProcessCredentials(t *testing.T) {
	got, err := plugin.ProcessCredentials{AccessKeyID: "i", SecretAccessKey: "s", SessionToken: "t", AccountID: "1",
		Expires: end}.Encode()
	if want := `{"Version":1,"AccessKeyId":"i","SecretAccessKey":"s","SessionToken":"t","Expiration":"2030-01-02T02:04:05Z","AccountId":"1"}` + "\n"; err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	got, err = plugin.ProcessCredentials{AccessKeyID: "i", SecretAccessKey: "s"}.Encode()
	if want := `{"Version":1,"AccessKeyId":"i","SecretAccessKey":"s"}` + "\n"; err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

func TestKubelet(t *testing.T) {
	for image, host := range map[string]string{
		"r.example/a/b":                       "r.example",
		"r.example:5000/a/b:v1":               "r.example:5000",
		"R.example:443/a:v1@sha256:012345678": "R.example:443",
		"r.example:5000":                      "r.example:5000",
		"https://r.example/a":                 "",
	} {
		content, err := plugin.EncodeKubeletResponse(&kubeletv1.CredentialProviderRequest{Image: image}, "u", "p",
			time.Now().Add(time.Hour))
		if host == "" && err != nil {
			continue
		}
		var r kubeletv1.CredentialProviderResponse
		if err != nil || json.Unmarshal(content, &r) != nil || len(r.Auth) != 1 || r.Auth[host].Password != "p" ||
			r.CacheKeyType != kubeletv1.RegistryPluginCacheKeyType {
			t.Errorf("%s: got %v by %q, %v, want the password of %s by Registry", image, r.Auth, r.CacheKeyType, err, host)
		}
	}
	request := &kubeletv1.CredentialProviderRequest{Image: "r.example/a"}
	for life, want := range map[time.Duration]time.Duration{-time.Hour: 0, 10 * time.Minute: 8 * time.Minute,
		12 * time.Hour: time.Hour} {
		content, err := plugin.EncodeKubeletResponse(request, "u", "p", time.Now().Add(life))
		var r kubeletv1.CredentialProviderResponse
		if err != nil || json.Unmarshal(content, &r) != nil || r.CacheDuration.Duration > want ||
			r.CacheDuration.Duration < want-2*time.Second {
			t.Errorf("%s: got %v, %v, want %s", life, r.CacheDuration, err, want)
		}
	}
}

// The kubelet finds credentials for the image as it is written only.
func TestKubeletPort(t *testing.T) {
	for image, want := range map[string]string{"r.example:443/a:v1": "r.example:443", "r.example/a": "r.example"} {
		request := &kubeletv1.CredentialProviderRequest{Image: image}
		content, err := plugin.EncodeKubeletResponse(request, "u", "p", end)
		var r kubeletv1.CredentialProviderResponse
		if err != nil || json.Unmarshal(content, &r) != nil || r.Auth[want].Password != "p" {
			t.Errorf("%s: for %v, %v", image, r.Auth, err)
		}
	}
}

// An empty credential is an error, never an answer.
func TestNothingToHandOut(t *testing.T) {
	for name, encode := range map[string]func() ([]byte, error){
		"exec":   func() ([]byte, error) { return (&plugin.ExecInfo{}).Encode("", end) },
		"docker": func() ([]byte, error) { return plugin.EncodeDockerCredentials("h", "u", "") },
		"git": func() ([]byte, error) {
			return (&plugin.GitRequest{}).Encode(plugin.GitCredential{})
		},
		"process": func() ([]byte, error) {
			return plugin.ProcessCredentials{AccessKeyID: "i"}.Encode()
		},
		"kubelet": func() ([]byte, error) {
			return plugin.EncodeKubeletResponse(&kubeletv1.CredentialProviderRequest{Image: "h/a"}, "u", "", end)
		},
	} {
		if answer, err := encode(); !errors.Is(err, auth.ErrUnavailable) || len(answer) != 0 {
			t.Errorf("%s: got %q, %v, want ErrUnavailable", name, answer, err)
		}
	}
}

// For every request, the URL has the host of the request, no user, and nothing
// that cuts the host short.
func FuzzGitRequest(f *testing.F) {
	for _, s := range []string{"protocol=https\nhost=h.example\npath=a/b\n", "url=https://u@h/x?y\n",
		"protocol=https\nhost=h@evil\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		r, err := plugin.ReadGitRequest(t.Context(), strings.NewReader(in))
		if err != nil {
			return
		}
		u, err := r.URL()
		if err == nil && (u.Host != r.Host || u.User != nil || u.Scheme == "" || strings.ContainsAny(u.Host, "/?#@\\ \n")) {
			t.Errorf("%q becomes %+v", in, u)
		}
	})
}

func FuzzKubeletRequest(f *testing.F) {
	f.Add(
		`{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderRequest","image":"r.example/a:v1"}`)
	f.Fuzz(func(t *testing.T, in string) {
		r, err := plugin.ReadKubeletRequest(t.Context(), strings.NewReader(in))
		if err != nil {
			return
		}
		content, err := plugin.EncodeKubeletResponse(r, "u", "p", time.Time{})
		if err != nil {
			return
		}
		var response kubeletv1.CredentialProviderResponse
		if err := json.Unmarshal(content, &response); err != nil {
			t.Fatal(err)
		}
		for host := range response.Auth {
			if host == "" || !strings.HasPrefix(r.Image, host) || strings.ContainsAny(host, "/@*? ") {
				t.Errorf("%q has the host %q", r.Image, host)
			}
		}
	})
}

// With another server name, any serving certificate of the cluster's CA
// receives the token: a kubelet's, through a proxy. GetConfig of package
// clusterprofile refuses the same.
func TestExecInfoThatWeakensTLS(t *testing.T) {
	for _, setting := range []string{`"insecure-skip-tls-verify":true`, `"tls-server-name":"node-1"`} {
		_,
			err := plugin.ParseExecInfo(
			`{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"cluster":{
			"server":"https://u:hunter2@h.example","proxy-url":"http://p:3128",` + setting + `}}}`)
		name, _, _ := strings.Cut(strings.Trim(setting, `"`), `"`)
		if !errors.Is(err, auth.ErrMisconfigured) || !strings.Contains(fmt.Sprint(err), name) ||
			strings.Contains(fmt.Sprint(err), "hunter2") {
			t.Errorf("%s: got %v", setting, err)
		}
	}
}

// Passwords in addresses, which are mistakes, are not repeated in messages.
func TestPasswordsInAddresses(t *testing.T) {
	r, err := plugin.ReadGitRequest(t.Context(), strings.NewReader("protocol=https\nhost=u:hunter2@h.example\n"))
	if err != nil {
		t.Fatal(err)
	}
	_, gitErr := r.URL()
	_, dockerErr := plugin.ReadDockerServer(t.Context(), strings.NewReader("https://u:hunter2@h.example"))
	_, slashErr := plugin.ReadDockerServer(t.Context(), strings.NewReader("https://u:hunter2/@h.example"))
	_,
		execErr := plugin.ParseExecInfo(
		`{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"cluster":{"server":"https://u:hunter2@h.example","insecure-skip-tls-verify":true}}}`)
	for _, err := range []error{gitErr, dockerErr, slashErr, execErr} {
		if !errors.Is(err, auth.ErrMisconfigured) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("got %v", err)
		}
	}
}

func FuzzDockerServer(f *testing.F) {
	for _, s := range []string{"r.example", "https://r.example/v2/", "u:p@r.example", "[::1]:5000", "r.example:443"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		host, err := plugin.ReadDockerServer(t.Context(), strings.NewReader(in))
		if (err == nil) != (host != "") || strings.ContainsAny(host, "/@*?# \n\x00") {
			t.Errorf("%q has the host %q, %v", in, host, err)
		}
	})
}

// For every request, the answer has a known version.
func FuzzExecInfo(f *testing.F) {
	for _, s := range []string{"", "null",
		`{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"cluster":{"server":"https://x"}}}`,
		strings.Repeat("[", 20000)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		info, err := plugin.ParseExecInfo(in)
		if (err == nil) != (info != nil) ||
			err == nil && !strings.HasPrefix(info.APIVersion, "client.authentication.k8s.io/v1") {
			t.Errorf("%q becomes %+v, %v", in, info, err)
		}
	})
}

// endless is a standard input that gives the same for ever.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
