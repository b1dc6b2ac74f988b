package credentials

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Whoever reads a ServiceAccount with other certificates, or other rights, does
// not share credentials of another user.
func TestClusterKey(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key := func(c rest.Config) string {
		login, err := loginOf(&c)
		if err != nil {
			t.Fatal(err)
		}
		return login
	}
	seen := map[string]string{}
	for name, c := range map[string]rest.Config{
		"host":              {Host: "https://one"},
		"another host":      {Host: "https://two"},
		"path":              {Host: "https://one", APIPath: "/x"},
		"user":              {Host: "https://one", Username: "u"},
		"password":          {Host: "https://one", Password: "x"},
		"token":             {Host: "https://one", BearerToken: "x"},
		"password, line":    {Host: "https://one", Password: "x\n"},
		"certificate":       {Host: "https://one", TLSClientConfig: rest.TLSClientConfig{CertData: []byte("x")}},
		"key":               {Host: "https://one", TLSClientConfig: rest.TLSClientConfig{KeyData: []byte("x")}},
		"authority":         {Host: "https://one", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("x")}},
		"not verified":      {Host: "https://one", TLSClientConfig: rest.TLSClientConfig{Insecure: true}},
		"name":              {Host: "https://one", TLSClientConfig: rest.TLSClientConfig{ServerName: "x"}},
		"authority in file": {Host: "https://one", TLSClientConfig: rest.TLSClientConfig{CAFile: file("ca", "in file")}},
		"cert in file":      {Host: "https://one", TLSClientConfig: rest.TLSClientConfig{CertFile: file("cert", "in file")}},
		"key in file":       {Host: "https://one", TLSClientConfig: rest.TLSClientConfig{KeyFile: file("key", "in file")}},
		"token in file":     {Host: "https://one", BearerTokenFile: "x", BearerToken: "one"},
		"another":           {Host: "https://one", BearerTokenFile: "x", BearerToken: "two"},
		"JWT in file":       {Host: "https://one", BearerTokenFile: "x", BearerToken: jwtOf("https://issuer", "jane", 1)},
		"another user's":    {Host: "https://one", BearerTokenFile: "x", BearerToken: jwtOf("https://issuer", "joe", 1)},
		"another issuer's":  {Host: "https://one", BearerTokenFile: "x", BearerToken: jwtOf("https://other", "jane", 1)},
		"no subject":        {Host: "https://one", BearerTokenFile: "x", BearerToken: jwtOf("https://issuer", "", 1)},
		"no subject, later": {Host: "https://one", BearerTokenFile: "x", BearerToken: jwtOf("https://issuer", "", 2)},
		"impersonation":     {Host: "https://one", Impersonate: rest.ImpersonationConfig{UserName: "x"}},
		"plugin":            {Host: "https://one", ExecProvider: &clientcmdapi.ExecConfig{Command: "x"}},
		"plugin, argument":  {Host: "https://one", ExecProvider: &clientcmdapi.ExecConfig{Command: "x", Args: []string{"y"}}},
		"plugin, variable": {Host: "https://one",
			ExecProvider: &clientcmdapi.ExecConfig{Command: "x", Env: []clientcmdapi.ExecEnvVar{{Name: "a", Value: "b"}}}},
	} {
		k := key(c)
		if seen[k] != "" {
			t.Errorf("%s has the key of %s", name, seen[k])
		}
		seen[k] = name
	}
	for _, tls := range []rest.TLSClientConfig{{CAFile: filepath.Join(dir, "ca")}, {CertFile: filepath.Join(dir, "cert")},
		{KeyFile: filepath.Join(dir, "key")}} {
		before := key(rest.Config{TLSClientConfig: tls})
		for _, name := range []string{"ca", "cert", "key"} {
			file(name, "y")
		}
		if key(rest.Config{TLSClientConfig: tls}) == before {
			t.Errorf("the content of %+v does not count", tls)
		}
		for _, name := range []string{"ca", "cert", "key"} {
			file(name, "x")
		}
	}
	if later := (rest.Config{Host: "https://one", BearerTokenFile: "x",
		BearerToken: jwtOf("https://issuer", "jane", 2) + "\n"}); seen[key(later)] != "JWT in file" {
		t.Error("a token that is replaced every hour counts")
	}
}

// jwtOf returns an unsigned token.
func jwtOf(issuer, subject string, expiry int) string {
	claims := fmt.Sprintf(`{"iss":%q,"sub":%q,"exp":%d}`, issuer, subject, expiry)
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

// The client that has read one ServiceAccount does not pass it off as another.
func TestPinnedReadsOneServiceAccount(t *testing.T) {
	own := client.ObjectKey{Namespace: "tenant-a", Name: "app"}
	p := &pinned{key: own, sa: corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app"}}}
	var sa corev1.ServiceAccount
	if err := p.Get(context.Background(), own, &sa); err != nil || sa.Name != "app" {
		t.Errorf("%+v, %v", sa, err)
	}
	for _, key := range []client.ObjectKey{{Namespace: "tenant-b", Name: "app"},
		{Namespace: "tenant-a", Name: "other"}, {}} {
		var sa corev1.ServiceAccount
		if err := p.Get(context.Background(), key, &sa); err == nil || sa.Name != "" {
			t.Errorf("%s: %+v, %v", key, sa, err)
		}
	}
	p.err = errors.New("away")
	if err := p.Get(context.Background(), own, &sa); err == nil {
		t.Error("the error is gone")
	}
}
