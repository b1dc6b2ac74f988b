package bootstrap_test

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/workloadid/workloadid/bootstrap"
)

func TestClusterInfo(t *testing.T) {
	info := &bootstrap.ClusterInfo{Server: "https://10.0.0.1:6443", CAData: newCA(t).pem}
	encoded, err := info.Encode()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := clientcmd.Load(encoded)
	if err != nil || len(theirs.Clusters) != 1 || theirs.Clusters[""].Server != info.Server ||
		string(theirs.Clusters[""].CertificateAuthorityData) != string(info.CAData) {
		t.Errorf("client-go reads %+v, %v", theirs, err)
	}
	written, err := clientcmd.Write(*theirs)
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range [][]byte{encoded, written} {
		if back, err := bootstrap.ParseClusterInfo(content); err != nil || back.Server != info.Server ||
			string(back.CAData) != string(info.CAData) {
			t.Errorf("comes back as %+v, %v", back, err)
		}
	}
	named :=
		"clusters: [{name: other, cluster: {server: https://wrong}}, {name: mine, cluster: {server: https://right}}]\n" +
			"contexts: [{name: c, context: {cluster: mine}}]\ncurrent-context: c\n"
	if back, err := bootstrap.ParseClusterInfo([]byte(named)); err != nil || back.Server != "https://right" {
		t.Errorf("the current context's cluster: %+v, %v", back, err)
	}
	command, err := info.JoinCommand(parse(t, wellKnown))
	if err != nil ||
		!strings.HasPrefix(command,
			"kubeadm join 10.0.0.1:6443 --token "+wellKnown+" --discovery-token-ca-cert-hash sha256:") {
		t.Errorf("%s, %v", command, err)
	}
}

// What is published holds certificates and nothing else, and what we write we
// read.
func TestCertificateAuthorityData(t *testing.T) {
	authority := newCA(t)
	der, err := x509.MarshalECPrivateKey(authority.key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key := string(authority.pem), string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
	for name, tc := range map[string]struct{ data, want string }{
		"a private key behind":          {certificate + key, `"EC PRIVATE KEY"`},
		"a private key before":          {key + certificate, `"EC PRIVATE KEY"`},
		"a private key that is cut off": {certificate + key[:len(key)-10], "2 PEM blocks, but 1 certificates"},
		"a private key of bad base64": {strings.Replace(key, "\n", "\n!", 1) + certificate,
			"2 PEM blocks, but 1 certificates"},
		"a certificate with headers": {strings.Replace(certificate, "-\n", "-\na: b\n\n", 1), `"CERTIFICATE"`},
		"no certificate":             {"garbage", "no PEM certificate"},
	} {
		info := &bootstrap.ClusterInfo{Server: "https://a", CAData: []byte(tc.data)}
		_, errEncode := info.Encode()
		_,
			errParse := bootstrap.ParseClusterInfo(
			fmt.Appendf(nil, "clusters: [{name: '', cluster: {server: https://a, certificate-authority-data: %s}}]",
				base64.StdEncoding.EncodeToString(info.CAData)))
		for _, err := range []error{errEncode, errParse} {
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "!") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	encoded,
		err := (&bootstrap.ClusterInfo{Server: "https://a",
		CAData: []byte("a comment\n" + certificate + "the end\n")}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	if back, err := bootstrap.ParseClusterInfo(encoded); err != nil || string(back.CAData) != certificate {
		t.Errorf("certificates with text between them come back as %+v, %v", back, err)
	}
}

// Servers are those that a shell and kubeadm cannot misread.
func TestServers(t *testing.T) {
	authority := newCA(t)
	for server, want := range map[string]string{
		"https://10.0.0.1:6443": "10.0.0.1:6443", "https://[fd00::1]": `"[fd00::1]:443"`,
		"https://[fd00::1]:6443/":  `"[fd00::1]:6443"`,
		"https://api.example.com.": "api.example.com.:443", "HTTPS://My_Host": "My_Host:443",
	} {
		command, err := (&bootstrap.ClusterInfo{Server: server, CAData: authority.pem}).JoinCommand(parse(t, wellKnown))
		if err != nil || command != "kubeadm join "+want+" --token "+wellKnown+" --discovery-token-ca-cert-hash "+
			bootstrap.PinOf(authority.cert).String() {
			t.Errorf("%q: %q, %v", server, command, err)
		}
	}
	for _, server := range []string{"", "a", "https://", "http://a", "https:a", "https://10.0.0.1;reboot",
		"https://$(reboot)", "https://a&&curl$IFS'b'>x", "https://`a`",
		"https://a|b", "https://-a", "https://a..b", "https://10.0.0.256", "https://10.0.0", "https://host:",
		"https://host:0", "https://host:99999", "https://host:x", "https://::1",
		"https://[fe80::1%25eth0]", "https://[fe80::1%25$(reboot)]", "https://a?", "https://a?b", "https://a#", "https://a b",
		"https://é", "https://" + strings.Repeat("a", 254),
		"https://user:hunter2@a", "https://user:hunter2 @a", "https://user@a"} {
		info := &bootstrap.ClusterInfo{Server: server, CAData: authority.pem}
		command, errJoin := info.JoinCommand(parse(t, wellKnown))
		_, errEncode := info.Encode()
		if errJoin == nil || errEncode == nil || strings.Contains(errEncode.Error(), "hunter2") {
			t.Errorf("%q: %q, %v, %v", server, command, errJoin, errEncode)
		}
	}
	// clients can use it, kubeadm cannot
	prefixed := &bootstrap.ClusterInfo{Server: "https://a/clusters/b", CAData: authority.pem}
	if _, err := prefixed.Encode(); err != nil {
		t.Error(err)
	}
	if command, err := prefixed.JoinCommand(parse(t, wellKnown)); err == nil ||
		!strings.Contains(err.Error(), "without a path") {
		t.Errorf("%q, %v", command, err)
	}
	if command,
		err := (&bootstrap.ClusterInfo{Server: "https://a", CAData: authority.pem}).JoinCommand(
		bootstrap.Token{}); err == nil {
		t.Errorf("without a token: %q", command)
	}
	if command, err := (&bootstrap.ClusterInfo{Server: "https://a"}).JoinCommand(parse(t, wellKnown)); err == nil ||
		!strings.Contains(err.Error(), "set certificate-authority-data") {
		t.Errorf("without a certificate authority: %q, %v", command, err)
	}
}

// aliased is a document in which few bytes stand for many.
const aliased = "big: &a \"0123456789\"\nall: [*a,*a,*a]\nclusters: [{name: '', cluster: {server: https://a}}]\n"

func TestClusterInfoDoesNotExpand(t *testing.T) {
	for _, content := range []string{aliased, strings.ReplaceAll(aliased, "\n", "\u2028"), "? &a x\n: *a\n",
		"\ufeff&a [*a]", "{\"a\":&a [],\"b\":*a}", "a: &a {b: c}\n<<: *a\n"} {
		if info, err := bootstrap.ParseClusterInfo([]byte(content)); err == nil ||
			!strings.Contains(err.Error(), "anchors and aliases") {
			t.Errorf("%q: %+v, %v", content, info, err)
		}
	}
	for _, text := range []string{"R&D", "& alone", "* alone", "a*b & c*d", "a&b * c&d"} {
		content := "clusters: [{name: '', cluster: {server: https://a}}]\ncomment: " + fmt.Sprintf("%q", text)
		if _, err := bootstrap.ParseClusterInfo([]byte(content)); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestClusterInfoThatIsRefused(t *testing.T) {
	for content, want := range map[string]string{
		"":             "no cluster",
		"<html>":       "not a kubeconfig",
		"kind: Secret": `"Secret"`,
		"clusters: [{name: a, cluster: {server: https://a}}]":                                                   "no unnamed cluster",
		"clusters: [{name: '', cluster: {server: 'https://u:p@a'}}]":                                            "https://",
		"clusters: [{name: '', cluster: {server: 'https://a?x'}}]":                                              "https://",
		"clusters: [{name: '', cluster: {server: https://a, certificate-authority-data: bm90IFBFTQ==}}]":        "no PEM certificate",
		"clusters: [{name: '', cluster: {server: https://a}}]\nusers: [{name: u, user: {token: secret-token}}]": `user, "u"`,
		"clusters: [{name: '', cluster: {server: https://a}}]\nusers: [{name: u, user: {exec: {command: rm}}}]": `user, "u"`,
		strings.Repeat(" ", 1<<20+1): "larger than",
	} {
		if info, err := bootstrap.ParseClusterInfo([]byte(content)); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "secret-token") {
			t.Errorf("%.100q: %+v, %v", content, info, err)
		}
	}
}

// What client-go refuses for its names, kind or apiVersion we refuse, and
// nothing that it accepts.
func TestClusterInfoErrorsNameTheValueAndTheRemedy(t *testing.T) {
	const clusters = "clusters: [{name: prod, cluster: {server: 'https://10.0.0.1:6443'}}]\n"
	of := func(cluster string) string { return "clusters: [{name: '', cluster: {" + cluster + "}}]" }
	for name, row := range map[string]struct {
		content string
		want    []string
	}{
		"IPv6 without brackets": {of("server: 'https://2001:db8::19e:6443'"),
			[]string{`"https://2001:db8::19e:6443"`, "brackets"}},
		"IPv6 without brackets and port": {of("server: 'https://fd00::1'"), []string{`"https://fd00::1"`, "brackets"}},
		"server of another scheme":       {of("server: 'http://10.0.0.1'"), []string{`"http://10.0.0.1"`, "https://"}},
		"port out of range": {of("server: 'https://10.0.0.1:99999'"),
			[]string{`"https://10.0.0.1:99999"`, "65535"}},
		"port that is a word": {of("server: 'https://10.0.0.1:https'"),
			[]string{`"https://10.0.0.1:https"`, "65535"}},
		"context does not exist": {clusters +
			"contexts: [{name: other, context: {cluster: prod}}]\ncurrent-context: admin@prod",
			[]string{"current-context", `"admin@prod"`, `"other"`}},
		"no current context": {clusters, []string{"current-context", `"prod"`}},
		"context of a missing cluster": {clusters + "contexts: [{name: c, context: {cluster: gone}}]\ncurrent-context: c",
			[]string{`"c"`, `"gone"`, `"prod"`}},
		"proxy": {of("server: 'https://10.0.0.1', proxy-url: 'http://user:hunter2@proxy.example:3128'"),
			[]string{"proxy-url", "proxy.example:3128", "HTTPS_PROXY"}},
		"local CA file": {of("server: 'https://10.0.0.1', certificate-authority: /etc/ca.crt"),
			[]string{`"/etc/ca.crt"`, "certificate-authority-data"}},
		"insecure": {of("server: 'https://10.0.0.1', insecure-skip-tls-verify: true"),
			[]string{"insecure-skip-tls-verify", "certificate-authority-data"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := bootstrap.ParseClusterInfo([]byte(row.content))
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range row.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %s", err, want)
				}
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("shows a password: %v", err)
			}
		})
	}
}

func TestClusterInfoIsThatOfKubernetes(t *testing.T) {
	const one = "clusters: [{name: '', cluster: {server: https://a}}]\n"
	for name, content := range map[string]string{
		"no apiVersion":             one,
		"v1":                        "apiVersion: v1\nkind: Config\n" + one,
		"v1 without a kind":         "apiVersion: v1\n" + one,
		"v2":                        "apiVersion: v2\nkind: Config\n" + one,
		"v2 without a kind":         "apiVersion: v2\n" + one,
		"a group":                   "apiVersion: client.config/v1\nkind: Config\n" + one,
		"a number":                  "apiVersion: 1\n" + one,
		"another kind":              "apiVersion: v1\nkind: Secret\n" + one,
		"two unnamed clusters":      "clusters: [{name: '', cluster: {server: https://a}}, {cluster: {server: https://b}}]",
		"two clusters of one name":  "clusters: [{name: '', cluster: {server: https://a}}, {name: b, cluster: {server: https://b}}, {name: b, cluster: {server: https://c}}]",
		"two contexts of one name":  one + "contexts: [{name: c, context: {cluster: ''}}, {name: c, context: {cluster: b}}]",
		"clusters of several names": "clusters: [{name: '', cluster: {server: https://a}}, {name: b, cluster: {server: https://b}}]",
		"a context as a cluster":    "clusters: [{name: b, cluster: {server: https://a}}]\ncontexts: [{name: b, context: {cluster: b}}]\ncurrent-context: b",
	} {
		t.Run(name, func(t *testing.T) {
			ours, err := bootstrap.ParseClusterInfo([]byte(content))
			_, errTheirs := clientcmd.Load([]byte(content))
			if (err == nil) != (errTheirs == nil) {
				t.Errorf("got %+v, %v; client-go says %v", ours, err, errTheirs)
			}
		})
	}
}

func FuzzClusterInfo(f *testing.F) {
	f.Add([]byte("clusters: [{name: '', cluster: {server: https://a}}]"))
	f.Add([]byte(`{"clusters":[{"name":"","cluster":{"server":"https://a"}}],"users":[{}]}`))
	f.Add([]byte(aliased))
	f.Fuzz(func(t *testing.T, content []byte) {
		info, err := bootstrap.ParseClusterInfo(content)
		if err == nil && len(info.Server)+len(info.CAData)+len(info.TLSServerName) > len(content) {
			t.Errorf("%q gives more than it has: %+v", content, info)
		}
		if err == nil && !strings.HasPrefix(info.Server, "https://") &&
			!strings.HasPrefix(strings.ToLower(info.Server), "https://") {
			t.Errorf("%q gives server %q", content, info.Server)
		}
	})
}
