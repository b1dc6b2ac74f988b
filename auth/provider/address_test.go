package provider_test

import (
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth/provider"
)

func TestParseClusterAddress(t *testing.T) {
	for address, want := range map[string]string{
		"https://h:6443":              "https://h:6443",
		"https://H.Example":           "https://h.example:443",
		"https://api.example.com:443": "https://api.example.com:443",
		"HTTPS://api.example.com/":    "https://api.example.com:443",
		"api.example.com:6443":        "https://api.example.com:6443",
		"https://1.2.3.4":             "https://1.2.3.4:443",
		"https://1.2.3.4:6443":        "https://1.2.3.4:6443",
		"https://[2001:DB8::1]:6443":  "https://[2001:db8::1]:6443",
		"https://[2001:db8::1]":       "https://[2001:db8::1]:443",
		"https://2001:db8:0:0::1":     "https://[2001:db8::1]:443",
		"2001:db8::1":                 "https://[2001:db8::1]:443",
		"https://h/k8s/clusters/c-1/": "https://h:443/k8s/clusters/c-1",
	} {
		got, err := provider.ParseClusterAddress(address)
		if err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", address, got, err, want)
		}
		if again, err := provider.ParseClusterAddress(got); err != nil || again != got {
			t.Errorf("%q is not stable: %q, %v", got, again, err)
		}
	}
	for _, address := range []string{"", "https://", "http://h", "ftp://h", "https://u@h", "https://u:p@h", "https://h?x",
		"https://h?", "https://h#f", "https://h#",
		"https://h:", "https://h:0", "https://h:65536", "https://h:x", "https://h:0443", "https://h\\evil", "https://h%00",
		"https://h h", "https://-h", "https://h..x",
		"https://[fe80::1%25eth0]", "https://0.0.0.0", "https://[::]", "https://h/../x", "https://h//x", "https:///x", "//h",
		"https://[1.2.3.4]x", "https://exämple.com"} {
		if got, err := provider.ParseClusterAddress(address); err == nil {
			t.Errorf("%q is accepted as %q", address, got)
		}
	}
}

func FuzzParseClusterAddress(f *testing.F) {
	for _, seed := range []string{"https://h:6443", "https://[::1]:6443", "2001:db8::1", "https://u@h", "https://H/k8s/"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, address string) {
		got, err := provider.ParseClusterAddress(address)
		if err != nil {
			return
		}
		u, err := url.Parse(got)
		if err != nil || u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Port() == "" ||
			got != strings.ToLower(got) && u.Path == "" {
			t.Errorf("%q gave %q", address, got)
		}
		if _, _, err := net.SplitHostPort(u.Host); err != nil {
			t.Errorf("%q gave %q: %v", address, got, err)
		}
		if again, err := provider.ParseClusterAddress(got); err != nil || again != got {
			t.Errorf("%q is not stable: %q, %v", got, again, err)
		}
	})
}

func TestRegistryHost(t *testing.T) {
	for repository, want := range map[string]string{
		"ghcr.io/a/b": "ghcr.io", "GHCR.io:443/a": "ghcr.io", "ghcr.io:443": "ghcr.io", "h:5000/a:443": "h:5000",
		"h:8443":         "h:8443",
		"ghcr.io:0443/a": "", "ghcr.io:443:443": "", "ghcr.io:/a": "", ":443": "",
	} {
		if got, err := provider.RegistryHost(repository); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v", repository, got, err)
		}
	}
}

func FuzzRegistryHost(f *testing.F) {
	for _, seed := range []string{"ghcr.io/a/b", "localhost:5000/x", "A.example", "u@h/x", "oci://h/x", "h:/x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, repository string) {
		host, err := provider.RegistryHost(repository)
		if err != nil {
			return
		}
		u, err := url.Parse("https://" + host)
		if err != nil || u.Host != host || host == "" || host != strings.ToLower(host) ||
			!strings.HasPrefix(strings.ToLower(repository), host) {
			t.Errorf("%q gave %q", repository, host)
		}
	})
}
