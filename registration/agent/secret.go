package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/kubeconfig"
	"github.com/workloadid/workloadid/registration/ocm"
)

// credentialSecret is the Secret of one registration: the driver's credential
// and the driver's state.
type credentialSecret struct {
	*corev1.Secret
	local   client.Client
	driver  registration.Driver
	cluster string
	agent   string // its name
	bare    bool   // holds files of a credential for another service than the hub's API server, without kubeconfig
}

// read replaces the Secret with the stored one. A missing Secret has no
// resource version.
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

// errSecretChanged means that the Secret has changed since it was read, or that
// a cache lags behind.
var errSecretChanged = errors.New("the Secret has changed")

// write fails with errSecretChanged instead of overwriting a change.
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

// replaceData reports whether it has changed anything.
func (s *credentialSecret) replaceData(data map[string][]byte) bool {
	if maps.EqualFunc(s.Data, data, bytes.Equal) {
		return false
	}
	s.Data = data
	return true
}

// isForeign reports whether another driver made the stored credential.
func (s *credentialSecret) isForeign() bool {
	name, ok := s.Data[ocm.SecretKeyAuthType]
	return ok && string(name) != s.driver.Name()
}

// state returns the driver's state.
func (s *credentialSecret) state() map[string][]byte {
	_, state := registration.Unpack(s.driver.Name(), s.Data)
	return state
}

// store updates the Secret from the step, and reports whether that changes it.
func (s *credentialSecret) store(hub *kubeconfig.Hub, step registration.Step) (bool, error) {
	data, err := registration.Pack(s.driver.Name(), s.Data, step)
	if err != nil || s.bare {
		return err == nil && s.replaceData(data), err
	}
	user, err := storedUser(data)
	if step.Credential != nil {
		if user, err = s.checkUser(step.Credential); err != nil {
			return false, fmt.Errorf("driver %q returns a credential that cannot be used: %w", s.driver.Name(), err)
		}
	}
	if err == nil { // otherwise the driver brings a new one
		data[ocm.SecretKeyClusterName], data[ocm.SecretKeyAgentName] = []byte(s.cluster), []byte(s.agent)
		if data[registration.SecretKeyKubeconfig], err = hub.Compose(user); err != nil {
			return false, err
		}
	}
	return s.replaceData(data), nil
}

// checkUser accepts a user that the agent itself can use after a restart, given
// only the Secret.
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
	_, err := kubeconfig.Inline(user, c.Files)
	return user, err
}

// open returns the configuration of the stored credential, and the part of the
// Secret that the driver may see. Another driver's credential stays in use
// until this driver brings its own.
func (s *credentialSecret) open(ctx context.Context, hub *kubeconfig.Hub) (*rest.Config, map[string][]byte, error) {
	full, _ := registration.Unpack(string(s.Data[ocm.SecretKeyAuthType]), s.Data)
	stored, _ := registration.Unpack(s.driver.Name(), s.Data)
	config, err := s.config(ctx, hub, full)
	if err != nil {
		delete(stored, registration.SecretKeyKubeconfig)
		err = fmt.Errorf("%w (Secret %q: %w)", ErrNotJoined, client.ObjectKeyFromObject(s.Secret), err)
	} else if _, visible := stored[registration.SecretKeyKubeconfig]; visible {
		stored[registration.SecretKeyKubeconfig] = full[registration.SecretKeyKubeconfig]
	}
	return config, stored, err
}

func (s *credentialSecret) config(ctx context.Context, hub *kubeconfig.Hub,
	stored map[string][]byte) (*rest.Config, error) {
	user, err := storedUser(stored)
	if err != nil {
		return nil, err
	}
	if stored[registration.SecretKeyKubeconfig], err = hub.Compose(user); err != nil {
		return nil, err
	}
	if driver, ok := s.driver.(registration.RESTConfigurer); ok && !s.isForeign() {
		config, err := driver.RESTConfig(ctx, stored)
		if err != nil {
			return nil, err
		}
		hub.SetAddress(config)
		return config, nil
	}
	if user, err = kubeconfig.Inline(user, stored); err != nil {
		return nil, err
	}
	config := hub.Config(user)
	_, err = rest.TLSConfigFor(config) // refuses a key that does not match the certificate
	return config, err
}

// storedUser returns the user entry of the stored kubeconfig.
func storedUser(data map[string][]byte) (clientcmdv1.AuthInfo, error) {
	if len(data[registration.SecretKeyKubeconfig]) == 0 {
		return clientcmdv1.AuthInfo{}, fmt.Errorf("there is no key %q", registration.SecretKeyKubeconfig)
	}
	return kubeconfig.User(data[registration.SecretKeyKubeconfig])
}
