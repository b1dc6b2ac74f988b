package registration_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/workloadid/workloadid/registration"
)

func bytesOf(pairs ...string) map[string][]byte {
	m := map[string][]byte{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = []byte(pairs[i+1])
	}
	return m
}

func keys(m map[string][]byte) string { return strings.Join(slices.Sorted(maps.Keys(m)), " ") }

func TestUnpack(t *testing.T) {
	own := bytesOf("cluster-name", "c1", "agent-name", "a1", "auth-type", "csr", "kubeconfig", "k", "tls.key", "secret", "state.csr.key", "1", "state.token.uid", "2")
	for name, row := range map[string]struct {
		driver        string
		data          map[string][]byte
		stored, state string
	}{
		"own":               {"csr", own, "agent-name cluster-name kubeconfig tls.key", "key"},
		"another driver's":  {"token", own, "agent-name cluster-name", "uid"},
		"prefix of a name":  {"cs", own, "agent-name cluster-name", ""},
		"no auth type":      {"csr", bytesOf("kubeconfig", "k"), "kubeconfig", ""},
		"nothing is stored": {"csr", nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			stored, state := registration.Unpack(row.driver, row.data)
			if keys(stored) != row.stored || keys(state) != row.state {
				t.Errorf("stored %q, state %q", keys(stored), keys(state))
			}
			for key := range stored {
				stored[key][0] = 'X'
			}
			if string(own["tls.key"]) != "secret" {
				t.Error("the Secret was changed through the copy")
			}
		})
	}
}

func TestPack(t *testing.T) {
	data := bytesOf("cluster-name", "c1", "agent-name", "a1", "auth-type", "token", "kubeconfig", "k", "token", "t", "state.token.uid", "1", "state.csr.key", "2")
	credential := func(files ...string) registration.Step {
		return registration.Step{Credential: &registration.Credential{User: &clientcmdapi.AuthInfo{}, Files: bytesOf(files...)}}
	}
	for name, row := range map[string]struct {
		step registration.Step
		want string // the keys, or a part of the error
	}{
		"nothing new keeps the credential, and drops the state of both": {registration.Step{}, "agent-name auth-type cluster-name kubeconfig token"},
		"state":                {registration.Step{State: bytesOf("key", "3")}, "agent-name auth-type cluster-name kubeconfig state.csr.key token"},
		"credential":           {credential("tls.crt", "c", "tls.key", "k"), "agent-name auth-type cluster-name tls.crt tls.key"},
		"file over the names":  {credential("agent-name", "other"), `"agent-name"`},
		"file over kubeconfig": {credential("kubeconfig", "other"), `"kubeconfig"`},
		"file over auth type":  {credential("auth-type", "other"), `"auth-type"`},
		"file as a state":      {credential("state.token.uid", "other"), `"state.token.uid"`},
		"file with a path":     {credential("../x", "other"), `"../x"`},
		"state with a path":    {registration.Step{State: bytesOf("../x", "3")}, `"../x"`},
	} {
		t.Run(name, func(t *testing.T) {
			before := maps.Clone(data)
			got, err := registration.Pack("csr", data, row.step)
			if err != nil && !strings.Contains(err.Error(), row.want) || err == nil && keys(got) != row.want {
				t.Errorf("%q, %v", keys(got), err)
			}
			if !maps.EqualFunc(before, data, slices.Equal) {
				t.Error("the data was changed in place")
			}
			if row.step.Credential != nil && err == nil && string(got["auth-type"]) != "csr" {
				t.Errorf("auth type %q", got["auth-type"])
			}
		})
	}
}

const userOf = "apiVersion: v1\nkind: Config\nusers: [{name: agent, user: %s}]\n"

func TestCheckStored(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	certificate, key := clientCertificate(t, start, start.Add(time.Hour))
	_, otherKey := clientCertificate(t, start, start.Add(time.Hour))
	token := func(claims string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
	}
	files := "{client-certificate: tls.crt, client-key: tls.key}"
	for name, row := range map[string]struct {
		user  string
		files map[string][]byte
		at    time.Duration
		says  string // "" is accepted
	}{
		"certificate":                {user: files, files: bytesOf("tls.crt", certificate, "tls.key", key)},
		"certificate, at expiry":     {user: files, files: bytesOf("tls.crt", certificate, "tls.key", key), at: time.Hour, says: "expired at 2026-01-01T01:00:00Z"},
		"certificate, not yet valid": {user: files, files: bytesOf("tls.crt", certificate, "tls.key", key), at: -time.Second, says: "valid from"},
		"certificate, another key":   {user: files, files: bytesOf("tls.crt", certificate, "tls.key", otherKey), says: "does not match"},
		"certificate without key":    {user: files, files: bytesOf("tls.crt", certificate), says: "cannot be used"},
		"token":                      {user: "{tokenFile: token}", files: bytesOf("token", token(fmt.Sprintf(`{"exp":%d}`, start.Unix()+60)))},
		"token, expired":             {user: "{tokenFile: token}", files: bytesOf("token", token(fmt.Sprintf(`{"exp":%d}`, start.Unix()))), says: "expired at"},
		"token that is no JWT":       {user: "{token: opaque}"},
		"program":                    {user: "{exec: {apiVersion: client.authentication.k8s.io/v1, command: aws}}"},
		"no credential":              {user: "{}", says: "no credential"},
		"file is missing":            {user: "{tokenFile: token}", says: "no credential"},
	} {
		t.Run(name, func(t *testing.T) {
			stored := bytesOf("kubeconfig", fmt.Sprintf(userOf, row.user))
			maps.Copy(stored, row.files)
			err := registration.CheckStored(stored, start.Add(row.at))
			if row.says == "" && err != nil || row.says != "" && (err == nil || !strings.Contains(err.Error(), row.says)) {
				t.Errorf("got %v, want %q", err, row.says)
			}
		})
	}
	if err := registration.CheckStored(nil, start); err == nil {
		t.Error("an empty Secret is accepted")
	}
}

func clientCertificate(t *testing.T, from, to time.Time) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "agent"}, NotBefore: from, NotAfter: to}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}))
}
