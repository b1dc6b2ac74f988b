package registration

import (
	"bytes"
	"fmt"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/workloadid/workloadid/registration/ocm"
)

// SecretKeyKubeconfig is the key of the kubeconfig in the agent's Secret. Other
// keys hold the files that the kubeconfig names, the names in the credential,
// the auth type of its driver, and the driver's state. The Secret holds nothing
// else.
const SecretKeyKubeconfig = "kubeconfig"

// keyState is the prefix of a driver's state: "state.<driver>.<key>". A driver
// never sees another driver's state.
const keyState = "state."

func isFile(key string) bool {
	return key != ocm.SecretKeyAuthType && !strings.HasPrefix(key, keyState)
}

// Unpack returns [Input.Stored] and Input.State of the named driver from the
// data of an agent's Secret. It hides another driver's credential and state.
// Both maps are copies.
func Unpack(driver string, data map[string][]byte) (stored, state map[string][]byte) {
	stored, state = map[string][]byte{}, map[string][]byte{}
	made, ok := data[ocm.SecretKeyAuthType]
	foreign := ok && string(made) != driver
	for key, value := range data {
		if name, ok := strings.CutPrefix(key, keyState+driver+"."); ok {
			state[name] = bytes.Clone(value)
		} else if isFile(key) && (!foreign || key == ocm.SecretKeyClusterName || key == ocm.SecretKeyAgentName) {
			stored[key] = bytes.Clone(value)
		}
	}
	return stored, state
}

// Pack returns the data of an agent's Secret after a Step of the named driver.
// Without [Step.Credential] it keeps the stored credential. With one it keeps
// only the two names, and the caller sets [SecretKeyKubeconfig] to a
// kubeconfig with [Credential.User]. An error names a key that the driver may
// not use.
func Pack(driver string, data map[string][]byte, step Step) (map[string][]byte, error) {
	next := maps.Clone(data)
	if next == nil {
		next = map[string][]byte{}
	}
	maps.DeleteFunc(next, func(key string, _ []byte) bool {
		return strings.HasPrefix(key, keyState) ||
			step.Credential != nil && key != ocm.SecretKeyClusterName && key != ocm.SecretKeyAgentName
	})
	if step.Credential != nil {
		next[ocm.SecretKeyAuthType] = []byte(driver)
		for key, value := range step.Credential.Files {
			if _, taken := next[key]; taken || key == SecretKeyKubeconfig || !isFile(key) ||
				len(validation.IsConfigMapKey(key)) > 0 {
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
