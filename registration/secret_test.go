package registration_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

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
	own := bytesOf("cluster-name", "c1", "agent-name", "a1", "auth-type", "csr", "kubeconfig", "k", "tls.key", "secret",
		"state.csr.key", "1", "state.token.uid", "2")
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
	data := bytesOf("cluster-name", "c1", "agent-name", "a1", "auth-type", "token", "kubeconfig", "k", "token", "t",
		"state.token.uid", "1", "state.csr.key", "2")
	credential := func(files ...string) registration.Step {
		return registration.Step{Credential: &registration.Credential{User: &clientcmdapi.AuthInfo{},
			Files: bytesOf(files...)}}
	}
	for name, row := range map[string]struct {
		step registration.Step
		want string // the keys, or a part of the error
	}{
		"nothing new keeps the credential, and drops the state of both": {registration.Step{},
			"agent-name auth-type cluster-name kubeconfig token"},
		"state": {registration.Step{State: bytesOf("key", "3")},
			"agent-name auth-type cluster-name kubeconfig state.csr.key token"},
		"credential": {credential("tls.crt", "c", "tls.key", "k"),
			"agent-name auth-type cluster-name tls.crt tls.key"},
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
				t.Errorf("packed %q, %v", keys(got), err)
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
