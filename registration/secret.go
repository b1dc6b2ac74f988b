package registration

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/internal/jwt"
	"github.com/workloadid/workloadid/internal/regname"
)

// SecretKeyKubeconfig is the key of the kubeconfig in the agent's Secret. The files that it names are other keys. The Secret holds nothing
// else than them, the names in the credential, the auth type of its driver, and the driver's state.
const SecretKeyKubeconfig = "kubeconfig"

// keyState is the prefix of a driver's state: "state.<driver>.<key>". A driver never sees another driver's state.
const keyState = "state."

func isFile(key string) bool {
	return key != regname.SecretKeyAuthType && !strings.HasPrefix(key, keyState)
}

// Unpack returns Input.Stored and Input.State of the named driver from the data of an agent's Secret. It hides another driver's
// credential and state. Both maps are copies.
func Unpack(driver string, data map[string][]byte) (stored, state map[string][]byte) {
	stored, state = map[string][]byte{}, map[string][]byte{}
	made, ok := data[regname.SecretKeyAuthType]
	foreign := ok && string(made) != driver
	for key, value := range data {
		if name, ok := strings.CutPrefix(key, keyState+driver+"."); ok {
			state[name] = bytes.Clone(value)
		} else if isFile(key) && (!foreign || key == regname.SecretKeyClusterName || key == regname.SecretKeyAgentName) {
			stored[key] = bytes.Clone(value)
		}
	}
	return stored, state
}

// Pack returns the data of an agent's Secret after a Step of the named driver. Without Step.Credential it keeps the stored credential.
// With one it keeps the two names alone, and the caller sets SecretKeyKubeconfig to a kubeconfig with Credential.User. An error names
// a key that the driver may not use.
func Pack(driver string, data map[string][]byte, step Step) (map[string][]byte, error) {
	next := maps.Clone(data)
	if next == nil {
		next = map[string][]byte{}
	}
	maps.DeleteFunc(next, func(key string, _ []byte) bool {
		return strings.HasPrefix(key, keyState) || step.Credential != nil && key != regname.SecretKeyClusterName && key != regname.SecretKeyAgentName
	})
	if step.Credential != nil {
		next[regname.SecretKeyAuthType] = []byte(driver)
		for key, value := range step.Credential.Files {
			if _, taken := next[key]; taken || key == SecretKeyKubeconfig || !isFile(key) || len(validation.IsConfigMapKey(key)) > 0 {
				return nil, fmt.Errorf("driver %q returns a file %.100q, which cannot be a key of its Secret", driver, key)
			}
			next[key] = value
		}
	}
	for name, value := range step.State {
		key := keyState + driver + "." + name
		if problems := validation.IsConfigMapKey(key); len(problems) > 0 {
			return nil, fmt.Errorf("driver %q keeps a state %.100q: %s", driver, name, problems[0])
		}
		next[key] = value
	}
	return next, nil
}

// CheckStored reports why the credential in Input.Stored does not authenticate at a time, as far as the credential itself shows. It asks
// no hub: a revoked credential is accepted. So is a credential that a program gets.
func CheckStored(stored map[string][]byte, now time.Time) error {
	var k clientcmdv1.Config
	if yaml.Unmarshal(stored[SecretKeyKubeconfig], &k) != nil || len(k.AuthInfos) != 1 {
		return fmt.Errorf("the key %q holds no kubeconfig with one user", SecretKeyKubeconfig)
	}
	user := k.AuthInfos[0].AuthInfo
	read := func(inline []byte, file string) []byte {
		if file != "" {
			return stored[file]
		}
		return inline
	}
	certificate, key := read(user.ClientCertificateData, user.ClientCertificate), read(user.ClientKeyData, user.ClientKey)
	token := read([]byte(user.Token), user.TokenFile)
	switch {
	case user.Exec != nil:
		return nil
	case len(certificate) > 0:
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			return fmt.Errorf("the client certificate cannot be used: %w", err)
		}
		return checkTime(now, pair.Leaf.NotBefore, pair.Leaf.NotAfter)
	case len(token) > 0:
		claims, err := jwt.Parse(string(token))
		if err != nil || claims.Expiry.IsZero() {
			return nil //nolint:nilerr // a token that is no JWT does not show when it expires
		}
		return checkTime(now, time.Time{}, claims.Expiry.Time)
	}
	return errors.New("the user of the kubeconfig has no credential")
}

func checkTime(now, from, to time.Time) error {
	switch {
	case now.Before(from):
		return fmt.Errorf("the credential is valid from %s", from.UTC().Format(time.RFC3339))
	case !now.Before(to):
		return fmt.Errorf("the credential expired at %s", to.UTC().Format(time.RFC3339))
	}
	return nil
}
