package bootstrap_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/token/jws"
	tokenutil "k8s.io/cluster-bootstrap/token/util"
	"k8s.io/cluster-bootstrap/util/secrets"

	"github.com/workloadid/workloadid/bootstrap"
)

const wellKnown = "abc123.0123456789abcdef"

func parse(t testing.TB, s string) bootstrap.Token {
	t.Helper()
	token, err := bootstrap.ParseToken(s)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestTokens(t *testing.T) {
	token := parse(t, wellKnown)
	if token.ID() != "abc123" || token.Reveal() != wellKnown || token.IsZero() {
		t.Errorf("got %v", token)
	}
	for _, bad := range []string{"", ".", "abc123", "abc123.", "abc123.0123456789abcde", "abc123.0123456789abcdef0",
		"ABC123.0123456789abcdef",
		"abc123.0123456789ABCDEF", "abc123:0123456789abcdef", "abc12.0123456789abcdef", wellKnown + "\n", " " + wellKnown,
		"abc123.0123456789abcdeé", "abc123.0123456789.bcdef"} {
		if _, err := bootstrap.ParseToken(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		} else if len(bad) > 10 && strings.Contains(err.Error(), bad[7:]) {
			t.Errorf("the error repeats the secret: %v", err)
		}
	}
	seen := map[string]bool{}
	for range 100 {
		generated, err := bootstrap.GenerateToken()
		if err != nil || !tokenutil.IsValidBootstrapToken(generated.Reveal()) || seen[generated.Reveal()] {
			t.Fatalf("generated %v, %v", generated, err)
		}
		seen[generated.Reveal()] = true
	}
	encoded, err := json.Marshal(map[string]any{"t": token, "p": &token})
	printed := fmt.Sprintf("%v %+v %#v %s %q %x", token, &token, struct{ T bootstrap.Token }{token}, token, token, token) +
		string(encoded)
	if err != nil || strings.Contains(printed, "0123456789") ||
		strings.Contains(printed, fmt.Sprintf("%x", "0123456789abcdef")) {
		t.Errorf("the secret shows: %s", printed)
	}
	if !token.Equal(parse(t, wellKnown)) || token.Equal(bootstrap.Token{}) {
		t.Error("Equal")
	}
}

func TestTokenUnmarshalText(t *testing.T) {
	var config struct{ Token bootstrap.Token }
	if err := json.Unmarshal([]byte(`{"token":"`+wellKnown+`"}`), &config); err != nil ||
		config.Token.Reveal() != wellKnown {
		t.Fatalf("got %v, %v", config, err)
	}
	redacted, err := config.Token.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"redacted": string(redacted), "empty": "",
		"upper case": "XYZ789.FEDCBA9876543210", "no dot": "xyz789fedcba9876543210"} {
		t.Run(name, func(t *testing.T) {
			err := config.Token.UnmarshalText([]byte(text))
			if err == nil || strings.Contains(strings.ToLower(err.Error()), "fedcba9876543210") ||
				config.Token.Reveal() != wellKnown {
				t.Errorf("got %v, %v", config, err)
			}
		})
	}
}

// What we sign Kubernetes verifies, and the other way round, to the byte.
func TestSignaturesAreThoseOfKubernetes(t *testing.T) {
	token := parse(t, wellKnown)
	for _, size := range []int{0, 1, 2, 3, 767, 768, 769, 1700, 10000} {
		content := strings.Repeat("kubeconfig ", size)[:size]
		want, err := jws.ComputeDetachedSignature(content, "abc123", "0123456789abcdef")
		if err != nil {
			t.Fatal(err)
		}
		if got := bootstrap.Sign([]byte(content), token); got != want {
			t.Errorf("%d bytes: %s instead of %s", size, got, want)
		}
		if err := bootstrap.Verify([]byte(content), want, token); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

// The zero Token has an empty key, which is no secret. It signs and verifies
// nothing.
func TestZeroTokenProvesNothing(t *testing.T) {
	none, content := bootstrap.Token{}, []byte("payload")
	mac := hmac.New(sha256.New, nil)
	header := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","kid":""}`))
	mac.Write([]byte(header + "." + base64.RawURLEncoding.EncodeToString(content)))
	forged := header + ".." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	for _, signature := range []string{forged, bootstrap.Sign(content, none)} {
		if err := bootstrap.Verify(content, signature, none); !errors.Is(err, bootstrap.ErrSignature) {
			t.Errorf("%q: %v", signature, err)
		}
	}
}

func TestSignaturesThatAreRefused(t *testing.T) {
	token, content := parse(t, wellKnown), []byte("payload")
	good := bootstrap.Sign(content, token)
	header, signature, _ := strings.Cut(good, "..")
	other := bootstrap.Sign(content, parse(t, "abc123.fedcba9876543210"))
	for name, bad := range map[string]string{
		"empty":             "",
		"another token's":   other,
		"another ID":        bootstrap.Sign(content, parse(t, "xyz789.0123456789abcdef")),
		"other content":     bootstrap.Sign([]byte("payloae"), token),
		"alg none":          "eyJhbGciOiJub25lIiwia2lkIjoiYWJjMTIzIn0..",
		"alg HS512":         "eyJhbGciOiJIUzUxMiIsImtpZCI6ImFiYzEyMyJ9.." + signature,
		"header in a blank": " " + good,
		"attached":          header + ".cGF5bG9hZA." + signature,
		"cut":               good[:len(good)-1],
		"longer":            good + "A",
		"padded":            good + "=",
		"last bits changed": good[:len(good)-1] + string(good[len(good)-1]+1),
		"one dot":           header + "." + signature,
	} {
		if err := bootstrap.Verify(content, bad, token); !errors.Is(err, bootstrap.ErrSignature) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzVerify(f *testing.F) {
	content := []byte("payload")
	token := parse(f, wellKnown)
	f.Add(bootstrap.Sign(content, token))
	f.Add("eyJhbGciOiJub25lIn0..")
	f.Fuzz(func(t *testing.T, s string) {
		if bootstrap.Verify(content, s, token) == nil && s != bootstrap.Sign(content, token) {
			t.Errorf("%q was accepted", s)
		}
	})
}

func FuzzToken(f *testing.F) {
	f.Add(wellKnown)
	f.Add("ABC123.0123456789abcdef")
	f.Fuzz(func(t *testing.T, s string) {
		if _, err := bootstrap.ParseToken(s); (err == nil) != tokenutil.IsValidBootstrapToken(s) {
			t.Errorf("%q: %v, Kubernetes says %t", s, err, tokenutil.IsValidBootstrapToken(s))
		}
	})
}

func TestSecrets(t *testing.T) {
	expires := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	config := bootstrap.TokenConfig{Token: parse(t, wellKnown), Description: "for CI", Expires: expires,
		Usages: []string{"authentication", "custom", "signing"}, Groups: []string{"system:bootstrappers:workers"}}
	secret, err := config.Secret()
	if err != nil {
		t.Fatal(err)
	}
	if id, ok := secrets.ParseName(secret.Name); !ok || id != "abc123" ||
		secrets.GetData(secret, bootstrapapi.BootstrapTokenSecretKey) != "0123456789abcdef" {
		t.Errorf("Kubernetes reads the ID %q, %t", id, ok)
	}
	if groups, err := secrets.GetGroups(secret); err != nil || !slices.Contains(groups, "system:bootstrappers:workers") ||
		secrets.HasExpired(secret, time.Now()) {
		t.Errorf("Kubernetes reads groups %v, %v", groups, err)
	}
	back, err := bootstrap.ParseSecret(secret)
	if err != nil || !back.Token.Equal(config.Token) || back.Description != "for CI" || !back.Expires.Equal(expires) ||
		!slices.Equal(back.Usages, config.Usages) || !slices.Equal(back.Groups, config.Groups) {
		t.Errorf("comes back as %+v, %v", back, err)
	}
	if back.User() != "system:bootstrap:abc123" || !back.Allows("signing") || back.Allows("other") ||
		!back.Expired(expires) || back.Expired(expires.Add(-time.Second)) {
		t.Errorf("got %+v", back)
	}
}

func TestSecretsThatAreRefused(t *testing.T) {
	good := func() *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-abc123"},
			Type: bootstrapapi.SecretTypeBootstrapToken,
			Data: map[string][]byte{"token-id": []byte("abc123"), "token-secret": []byte("0123456789abcdef"),
				"usage-bootstrap-signing": []byte("true")}}
	}
	for name, change := range map[string]func(*corev1.Secret){
		"type":        func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque },
		"name":        func(s *corev1.Secret) { s.Name = "bootstrap-token-xyz789" },
		"no prefix":   func(s *corev1.Secret) { s.Name = "abc123" },
		"ID":          func(s *corev1.Secret) { s.Data["token-id"] = []byte("ABC123") },
		"no secret":   func(s *corev1.Secret) { delete(s.Data, "token-secret") },
		"nil data":    func(s *corev1.Secret) { s.Data = nil },
		"other token": func(s *corev1.Secret) { s.Data["token-secret"] = []byte("0123456789ABCDEF") },
	} {
		s := good()
		change(s)
		if c, err := bootstrap.ParseSecret(s); err == nil {
			t.Errorf("%s: accepted as %+v", name, c)
		} else if strings.Contains(strings.ToLower(err.Error()), "0123456789abcdef") {
			t.Errorf("%s: the error holds the secret: %v", name, err)
		}
	}
	for text, want := range map[string]bool{"true": true, "True": false, "1": false, "": false, "true ": false} {
		s := good()
		s.Data["usage-bootstrap-signing"] = []byte(text)
		if c, err := bootstrap.ParseSecret(s); err != nil || c.Allows("signing") != want {
			t.Errorf("usage %q: %+v, %v", text, c, err)
		}
	}
	s := good()
	s.Data["expiration"] = []byte("tomorrow")
	if c, err := bootstrap.ParseSecret(s); err != nil || !c.Expired(time.Now()) || !c.MalformedExpiration ||
		!secrets.HasExpired(s, time.Now()) {
		t.Errorf("an expiration that cannot be parsed: %+v, %v", c, err)
	}
	for name, c := range map[string]bootstrap.TokenConfig{
		"no token": {},
		"group": {Token: parse(t, wellKnown), Usages: []string{"authentication"},
			Groups: []string{"system:masters"}},
		"group without its usage": {Token: parse(t, wellKnown), Groups: []string{"system:bootstrappers:a"}},
		"usage":                   {Token: parse(t, wellKnown), Usages: []string{"a/b"}},
		"malformed groups":        {Token: parse(t, wellKnown), Usages: []string{"authentication"}, MalformedGroups: true},
		"year 10000": {Token: parse(t, wellKnown), Usages: []string{"signing"},
			Expires: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		if s, err := c.Secret(); err == nil {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// A token expires when it does in Kubernetes. The zero time of Go is past
// there, and never means no expiry.
func TestExpirationIsThatOfKubernetes(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, text := range []string{"", "soon", "0001-01-01T00:00:00Z", "0001-01-01T02:00:00+02:00",
		"0000-12-31T19:00:00-05:00", "0001-01-01T00:00:00.5Z",
		"0000-01-01T00:00:00Z", "0001-01-01T00:00:01Z", "1970-01-01T00:00:00Z", "2029-12-31T23:59:59Z",
		"2030-01-01T00:00:00Z", "2030-01-01T00:00:01Z",
		"2030-01-01T01:00:00+02:00", "9999-12-31T23:59:59Z", " 2031-01-01T00:00:00Z", "2031-01-01"} {
		t.Run(text, func(t *testing.T) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-abc123"},
				Type: bootstrapapi.SecretTypeBootstrapToken, Data: map[string][]byte{
					"token-id": []byte("abc123"), "token-secret": []byte("0123456789abcdef"), "expiration": []byte(text),
					"usage-bootstrap-signing": []byte("true")}}
			for range 2 { // as it was written, and written again by us
				config, err := bootstrap.ParseSecret(secret)
				if err != nil {
					t.Fatal(err)
				}
				left, expired := secrets.GetExpiration(secret, now)
				if config.Expired(now) != expired || !expired && !config.Expires.IsZero() && config.Expires.Sub(now) != left ||
					config.Expires.IsZero() != (text == "") {
					t.Errorf("expires %s, Kubernetes says %t in %s", config.Expires, expired, left)
				}
				if secret, err = config.Secret(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// A token has the groups that Kubernetes gives it; where Kubernetes refuses
// some, the rest of the token still counts.
func TestGroupsAreThoseOfKubernetes(t *testing.T) {
	for _, text := range []string{"", "system:bootstrappers:a",
		"system:bootstrappers:a,system:bootstrappers:b,system:bootstrappers:a",
		"system:bootstrappers:b,system:bootstrappers:a:b,system:bootstrappers:a-b,system:bootstrappers:a",
		"system:bootstrappers:a,", ",", " ", "system:bootstrappers:a,system:masters", "hunter2-in-the-wrong-key"} {
		config := bootstrap.TokenConfig{Token: parse(t, wellKnown), Usages: []string{"authentication"}}
		secret, err := config.Secret()
		if err != nil {
			t.Fatal(err)
		}
		secret.Data["auth-extra-groups"], secret.Data["auth-groups"] = []byte(text), []byte("system:bootstrappers:old")
		ours, err := bootstrap.ParseSecret(secret)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		theirs, err := secrets.GetGroups(secret)
		if ours.MalformedGroups != (err != nil) ||
			err == nil && !slices.Equal(append([]string{bootstrapapi.BootstrapDefaultGroup}, ours.Groups...), theirs) {
			t.Errorf("%q: %+v, Kubernetes says %v, %v", text, ours, theirs, err)
		}
	}
}

func TestPins(t *testing.T) {
	digits := strings.Repeat("0aF9", 16)
	for _, s := range []string{"sha256:" + digits, "SHA256:" + strings.ToUpper(digits)} {
		if p, err := bootstrap.ParsePins(s); err != nil || p[0].String() != "sha256:"+strings.ToLower(digits) {
			t.Errorf("%q: %v, %v", s, p, err)
		}
	}
	for _, s := range []string{"", "sha256:", digits, "sha1:" + digits, "sha256:" + digits[1:], "sha256:" + digits + "0",
		"sha256:" + digits[1:] + "g", "sha256 " + digits} {
		if _, err := bootstrap.ParsePins(s); err == nil {
			t.Errorf("%q was accepted", s)
		}
	}
	for _, token := range []string{"abcdef.0123456789abcdef", " abcdef.0123456789abcdef'"} {
		if _, err := bootstrap.ParsePins(token); err == nil || strings.Contains(err.Error(), "0123456789abcdef") {
			t.Errorf("a token in place of a pin: %v", err)
		}
	}
}

func FuzzPin(f *testing.F) {
	f.Add("sha256:" + strings.Repeat("0aF9", 16))
	f.Add("sha1:00")
	f.Fuzz(func(t *testing.T, s string) {
		if p, err := bootstrap.ParsePins(s); err == nil && !strings.EqualFold(p[0].String(), s) {
			t.Errorf("%q comes back as %s", s, p)
		}
	})
}

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
		"clusters: [{name: '', cluster: {server: http://a}}]":                                                   "https://",
		"clusters: [{name: '', cluster: {server: 'https://u:p@a'}}]":                                            "https://",
		"clusters: [{name: '', cluster: {server: 'https://a?x'}}]":                                              "https://",
		"clusters: [{name: '', cluster: {server: https://a, insecure-skip-tls-verify: true}}]":                  "insecure-skip-tls-verify",
		"clusters: [{name: '', cluster: {server: https://a, certificate-authority: /etc/passwd}}]":              "/etc/passwd",
		"clusters: [{name: '', cluster: {server: https://a, proxy-url: http://evil}}]":                          "proxy",
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

func FuzzSecret(f *testing.F) {
	f.Add("abc123", "0123456789abcdef", "2030-01-01T00:00:00Z", "system:bootstrappers:a", "true")
	f.Add("abc123", "0123456789abcdef", "0001-01-01T00:00:00+00:00",
		"system:bootstrappers:b,system:bootstrappers:a", "true")
	f.Fuzz(func(t *testing.T, id, secret, expiration, groups, usage string) {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id},
			Type: bootstrapapi.SecretTypeBootstrapToken, Data: map[string][]byte{
				"token-id": []byte(id), "token-secret": []byte(secret), "expiration": []byte(expiration),
				"auth-extra-groups": []byte(groups), "usage-bootstrap-signing": []byte(usage)}}
		c, err := bootstrap.ParseSecret(s)
		if err != nil {
			return
		}
		if !tokenutil.IsValidBootstrapToken(c.Token.Reveal()) || c.Allows("signing") != (usage == "true") ||
			c.Expired(time.Now()) != secrets.HasExpired(s, time.Now()) {
			t.Errorf("%+v", c)
		}
	})
}
