package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/workloadid/workloadid/registration"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// keyState is the prefix of a driver's state: "state.<driver>.<key>". A driver never sees another driver's state.
const keyState = "state."

func isFile(key string) bool {
	return key != registration.SecretKeyAuthType && !strings.HasPrefix(key, keyState)
}

// credentialSecret is the Secret of one registration: what its driver got, and the driver's notes.
type credentialSecret struct {
	*corev1.Secret
	local   client.Client
	driver  registration.Driver
	cluster string
	agent   string // its name
	bare    bool   // holds the files of a credential that is not for the hub's API server, without kubeconfig
}

// read replaces the Secret by the stored one. It has no resource version if there is none.
func (s *credentialSecret) read(ctx context.Context) error {
	key := client.ObjectKeyFromObject(s.Secret)
	switch err := s.local.Get(ctx, key, s.Secret); {
	case apierrors.IsNotFound(err):
		s.Secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	case err != nil:
		return fmt.Errorf("read Secret %q on the managed cluster: %w", key, err)
	}
	return nil
}

// errSecretChanged says that the Secret has changed since it was read, or that a cache lags behind.
var errSecretChanged = errors.New("the Secret has changed")

// write fails with errSecretChanged rather than overwrite a change.
func (s *credentialSecret) write(ctx context.Context) error {
	write := func() error { return s.local.Update(ctx, s.Secret) }
	if s.ResourceVersion == "" {
		write = func() error { return s.local.Create(ctx, s.Secret) }
	}
	err := write()
	switch {
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err):
		return errSecretChanged
	case err != nil:
		return fmt.Errorf("write Secret %q on the managed cluster: %w", client.ObjectKeyFromObject(s.Secret), err)
	}
	return nil
}

// replaceData reports whether anything has changed.
func (s *credentialSecret) replaceData(data map[string][]byte) bool {
	if maps.EqualFunc(s.Data, data, bytes.Equal) {
		return false
	}
	s.Data = data
	return true
}

// isForeign reports whether another driver made the stored credential. It stays in use until this one brings its own.
func (s *credentialSecret) isForeign() bool {
	name, ok := s.Data[registration.SecretKeyAuthType]
	return ok && string(name) != s.driver.Name()
}

// state returns the driver's notes.
func (s *credentialSecret) state() map[string][]byte {
	state := map[string][]byte{}
	for key, value := range s.Data {
		if note, ok := strings.CutPrefix(key, s.statePrefix()); ok {
			state[note] = bytes.Clone(value)
		}
	}
	return state
}

func (s *credentialSecret) statePrefix() string { return keyState + s.driver.Name() + "." }

// store changes the Secret to what the step says, and reports whether that differs.
func (s *credentialSecret) store(hub *agentHub, step registration.Step) (bool, error) {
	var data map[string][]byte
	var err error
	if step.Credential != nil {
		data, err = s.newCredential(hub, step.Credential)
	} else {
		data, err = s.keptCredential(hub)
	}
	if err != nil {
		return false, err
	}
	for note, value := range step.State {
		key := s.statePrefix() + note
		if problems := validation.IsConfigMapKey(key); len(problems) > 0 {
			return false, fmt.Errorf("driver %q keeps a note %q: %s", s.driver.Name(), note, problems[0])
		}
		data[key] = value
	}
	return s.replaceData(data), nil
}

// keptCredential returns the stored credential with today's address of the hub.
func (s *credentialSecret) keptCredential(hub *agentHub) (map[string][]byte, error) {
	data := map[string][]byte{}
	maps.Copy(data, s.Data)
	maps.DeleteFunc(data, func(key string, _ []byte) bool { return strings.HasPrefix(key, keyState) })
	user, err := storedUser(data)
	if err != nil {
		return data, nil //nolint:nilerr // there is none, or it was edited: the driver brings another one
	}
	s.setNames(data)
	data[registration.SecretKeyKubeconfig], err = hub.compose(s.cluster, user)
	return data, err
}

// setNames sets the names that a kubeconfig goes with.
func (s *credentialSecret) setNames(data map[string][]byte) {
	if !s.bare {
		data[registration.SecretKeyClusterName], data[registration.SecretKeyAgentName] = []byte(s.cluster), []byte(s.agent)
	}
}

func (s *credentialSecret) newCredential(hub *agentHub, c *registration.Credential) (map[string][]byte, error) {
	data := map[string][]byte{registration.SecretKeyAuthType: []byte(s.driver.Name())}
	s.setNames(data)
	for key, value := range c.Files {
		_, taken := data[key]
		if taken || key == registration.SecretKeyKubeconfig || !isFile(key) || len(validation.IsConfigMapKey(key)) > 0 {
			return nil, fmt.Errorf("driver %q returns a file %q, which cannot be a key of Secret %q", s.driver.Name(), key, s.Name)
		}
		data[key] = value
	}
	if s.bare {
		return data, nil
	}
	user, err := s.checkUser(c)
	if err != nil {
		return nil, fmt.Errorf("driver %q returns a credential that cannot be used: %w", s.driver.Name(), err)
	}
	data[registration.SecretKeyKubeconfig], err = hub.compose(s.cluster, user)
	return data, err
}

// checkUser accepts what the agent itself can use after a restart, when only the Secret is left.
func (s *credentialSecret) checkUser(c *registration.Credential) (clientcmdv1.AuthInfo, error) {
	if c.User == nil {
		return clientcmdv1.AuthInfo{}, errors.New("it has no user")
	}
	var user clientcmdv1.AuthInfo
	if err := clientcmdv1.Convert_api_AuthInfo_To_v1_AuthInfo(c.User, &user, nil); err != nil {
		return user, err
	}
	if _, ok := s.driver.(registration.RESTConfigurer); ok {
		return user, nil
	}
	_, err := inline(user, c.Files)
	return user, err
}

// open returns the configuration of the stored credential, and what the driver may see of the Secret.
func (s *credentialSecret) open(ctx context.Context, hub *agentHub) (*rest.Config, map[string][]byte, error) {
	stored := map[string][]byte{}
	for key, value := range s.Data {
		if isFile(key) {
			stored[key] = bytes.Clone(value)
		}
	}
	config, err := s.config(ctx, hub, stored)
	if err != nil {
		delete(stored, registration.SecretKeyKubeconfig)
		err = fmt.Errorf("%w (Secret %q: %w)", ErrNotJoined, client.ObjectKeyFromObject(s.Secret), err)
	}
	if s.isForeign() {
		stored = onlyNames(stored)
	}
	return config, stored, err
}

func (s *credentialSecret) config(ctx context.Context, hub *agentHub, stored map[string][]byte) (*rest.Config, error) {
	user, err := storedUser(stored)
	if err != nil {
		return nil, err
	}
	if stored[registration.SecretKeyKubeconfig], err = hub.compose(s.cluster, user); err != nil {
		return nil, err
	}
	if driver, ok := s.driver.(registration.RESTConfigurer); ok && !s.isForeign() {
		config, err := driver.RESTConfig(ctx, stored)
		if err != nil {
			return nil, err
		}
		hub.setAddress(config)
		return config, nil
	}
	if user, err = inline(user, stored); err != nil {
		return nil, err
	}
	config := hub.config(user)
	_, err = rest.TLSConfigFor(config) // refuses a key that is not that of the certificate
	return config, err
}

// onlyNames hides a credential.
func onlyNames(stored map[string][]byte) map[string][]byte {
	maps.DeleteFunc(stored, func(key string, _ []byte) bool {
		return key != registration.SecretKeyClusterName && key != registration.SecretKeyAgentName
	})
	return stored
}

// storedUser returns the user entry of the stored kubeconfig.
func storedUser(data map[string][]byte) (clientcmdv1.AuthInfo, error) {
	if len(data[registration.SecretKeyKubeconfig]) == 0 {
		return clientcmdv1.AuthInfo{}, fmt.Errorf("there is no key %q", registration.SecretKeyKubeconfig)
	}
	k, err := parseKubeconfig(data[registration.SecretKeyKubeconfig])
	if err != nil {
		return clientcmdv1.AuthInfo{}, err
	}
	if len(k.AuthInfos) == 0 {
		return clientcmdv1.AuthInfo{}, errors.New("it holds no user")
	}
	return k.AuthInfos[0].AuthInfo, nil
}
