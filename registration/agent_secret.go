package registration

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Keys of the agent's Secret. All other keys are files of the driver's credential.
const (
	// SecretKeyKubeconfig holds the kubeconfig. The files that it names are other keys.
	SecretKeyKubeconfig = "kubeconfig"
	// SecretKeyClusterName and SecretKeyAgentName hold the names that the credential says.
	SecretKeyClusterName = "cluster-name"
	SecretKeyAgentName   = "agent-name"
	// SecretKeyAuthType holds the auth type of the driver that made the credential. A driver never sees that of another one.
	SecretKeyAuthType = "auth-type"

	// keyState is the prefix of a driver's notes: "state.<driver>.<key>". A driver never sees those of another one.
	keyState = "state."
)

func isFile(key string) bool { return key != SecretKeyAuthType && !strings.HasPrefix(key, keyState) }

// readSecret returns the agent's Secret, without a resource version if there is none.
func (a *Agent) readSecret(ctx context.Context) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: a.opts.Namespace, Name: a.opts.Secret}
	switch err := a.opts.Local.Get(ctx, key, secret); {
	case apierrors.IsNotFound(err):
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	case err != nil:
		return nil, fmt.Errorf("read Secret %q on the managed cluster: %w", key, err)
	}
	if name, ok := secret.Data[SecretKeyClusterName]; ok && string(name) != a.opts.Cluster {
		return nil, fmt.Errorf("the Secret %q is that of cluster %.100q, not of %q: delete it to join under the new name", key, name, a.opts.Cluster)
	}
	return secret, nil
}

// errSecretChanged says that the Secret has changed since it was read, or that a cache lags behind.
var errSecretChanged = errors.New("the Secret has changed")

// writeSecret fails with errSecretChanged rather than overwrite a change.
func (a *Agent) writeSecret(ctx context.Context, secret *corev1.Secret) error {
	write := func() error { return a.opts.Local.Update(ctx, secret) }
	if secret.ResourceVersion == "" {
		write = func() error { return a.opts.Local.Create(ctx, secret) }
	}
	err := write()
	switch {
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err):
		return errSecretChanged
	case err != nil:
		return fmt.Errorf("write Secret %q on the managed cluster: %w", client.ObjectKeyFromObject(secret), err)
	}
	return nil
}

// ensureNames adds the names to the Secret and reports whether it has changed. The agent's name is drawn once: the hub compares renewals
// with it.
func (a *Agent) ensureNames(secret *corev1.Secret) bool {
	data := maps.Clone(secret.Data)
	if data == nil {
		data = map[string][]byte{}
	}
	data[SecretKeyClusterName] = []byte(a.opts.Cluster)
	if CheckAgentName(string(data[SecretKeyAgentName])) != nil {
		const length = 12
		data[SecretKeyAgentName] = []byte(strings.ToLower(rand.Text()[:length]))
	}
	return replaceData(secret, data)
}

// replaceData reports whether anything has changed.
func replaceData(secret *corev1.Secret, data map[string][]byte) bool {
	if maps.EqualFunc(secret.Data, data, bytes.Equal) {
		return false
	}
	secret.Data = data
	return true
}

// state returns the driver's notes.
func (a *Agent) state(secret *corev1.Secret) map[string][]byte {
	state := map[string][]byte{}
	for key, value := range secret.Data {
		if note, ok := strings.CutPrefix(key, a.statePrefix()); ok {
			state[note] = bytes.Clone(value)
		}
	}
	return state
}

func (a *Agent) statePrefix() string { return keyState + a.opts.Driver.Name() + "." }

// storeStep changes the Secret to what the step says, and reports whether that differs.
func (a *Agent) storeStep(hub *agentHub, secret *corev1.Secret, step Step) (bool, error) {
	var data map[string][]byte
	var err error
	if step.Credential != nil {
		data, err = a.newCredential(hub, secret, step.Credential)
	} else {
		data, err = a.keptCredential(hub, secret)
	}
	if err != nil {
		return false, err
	}
	for note, value := range step.State {
		key := a.statePrefix() + note
		if problems := validation.IsConfigMapKey(key); len(problems) > 0 {
			return false, fmt.Errorf("driver %q keeps a note %q: %s", a.opts.Driver.Name(), note, problems[0])
		}
		data[key] = value
	}
	return replaceData(secret, data), nil
}

// keptCredential returns the stored credential with today's address of the hub.
func (a *Agent) keptCredential(hub *agentHub, secret *corev1.Secret) (map[string][]byte, error) {
	data := maps.Clone(secret.Data)
	maps.DeleteFunc(data, func(key string, _ []byte) bool { return strings.HasPrefix(key, keyState) })
	user, err := storedUser(data)
	if err != nil {
		return data, nil //nolint:nilerr // there is none, or it was edited: the driver brings another one
	}
	data[SecretKeyKubeconfig], err = hub.compose(a.opts.Cluster, user)
	return data, err
}

func (a *Agent) newCredential(hub *agentHub, secret *corev1.Secret, c *Credential) (map[string][]byte, error) {
	data := map[string][]byte{SecretKeyAuthType: []byte(a.opts.Driver.Name())}
	for _, name := range []string{SecretKeyClusterName, SecretKeyAgentName} {
		data[name] = secret.Data[name]
	}
	for key, value := range c.Files {
		_, taken := data[key]
		if taken || key == SecretKeyKubeconfig || !isFile(key) || len(validation.IsConfigMapKey(key)) > 0 {
			return nil, fmt.Errorf("driver %q returns a file %q, which cannot be a key of Secret %q", a.opts.Driver.Name(), key, a.opts.Secret)
		}
		data[key] = value
	}
	user, err := a.checkUser(c)
	if err != nil {
		return nil, fmt.Errorf("driver %q returns a credential that cannot be used: %w", a.opts.Driver.Name(), err)
	}
	data[SecretKeyKubeconfig], err = hub.compose(a.opts.Cluster, user)
	return data, err
}

// checkUser accepts what the agent itself can use after a restart, when only the Secret is left.
func (a *Agent) checkUser(c *Credential) (clientcmdv1.AuthInfo, error) {
	if c.User == nil {
		return clientcmdv1.AuthInfo{}, errors.New("it has no user")
	}
	var user clientcmdv1.AuthInfo
	if err := clientcmdv1.Convert_api_AuthInfo_To_v1_AuthInfo(c.User, &user, nil); err != nil {
		return user, err
	}
	if _, ok := a.opts.Driver.(RESTConfigurer); ok {
		return user, nil
	}
	_, err := inline(user, c.Files)
	return user, err
}

// storedUser returns the user entry of the stored kubeconfig.
func storedUser(data map[string][]byte) (clientcmdv1.AuthInfo, error) {
	if len(data[SecretKeyKubeconfig]) == 0 {
		return clientcmdv1.AuthInfo{}, fmt.Errorf("there is no key %q", SecretKeyKubeconfig)
	}
	k, err := parseKubeconfig(data[SecretKeyKubeconfig])
	if err != nil {
		return clientcmdv1.AuthInfo{}, err
	}
	if len(k.AuthInfos) == 0 {
		return clientcmdv1.AuthInfo{}, errors.New("it holds no user")
	}
	return k.AuthInfos[0].AuthInfo, nil
}
