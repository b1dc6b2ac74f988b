// Package tokens manages the bootstrap tokens of a cluster: it creates, lists, extends and deletes their Secrets.
package tokens

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/bootstrap"
)

// Manager manages the tokens of a cluster. It is safe for concurrent use.
type Manager struct {
	// Client needs create, get, list, update and delete on the Secrets of kube-system.
	Client client.Client
	// Now is the clock. Nil: time.Now.
	Now func() time.Time
}

// Create stores a token. A token whose ID is taken is refused, never overwritten; so is one that could not be used: without
// usages, or with an end that is not to come once it is cut to the second. Without a Token a new one is generated. The
// configuration that was stored is returned.
func (m Manager) Create(ctx context.Context, config bootstrap.TokenConfig) (*bootstrap.TokenConfig, error) {
	if config.Token.IsZero() {
		generated, err := bootstrap.GenerateToken()
		if err != nil {
			return nil, err
		}
		config.Token = generated
	}
	if len(config.Usages) == 0 {
		return nil, fmt.Errorf("create bootstrap token: it has no usages; give it %q, %q or both", bootstrap.UsageSigning, bootstrap.UsageAuthentication)
	}
	var err error
	if config.Expires, err = m.end(config.Expires); err != nil {
		return nil, fmt.Errorf("create bootstrap token: %w", err)
	}
	secret, err := config.Secret()
	if err != nil {
		return nil, fmt.Errorf("create bootstrap token: %w", err)
	}
	if err := m.Client.Create(ctx, secret); err != nil {
		if apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("create bootstrap token: there is one with the ID %q already; delete it, or choose another", config.Token.ID())
		}
		return nil, fmt.Errorf("create bootstrap token: %w", err)
	}
	return &config, nil
}

// end cuts an end to the second and refuses one that is past then. Zero means never, before the cut only.
func (m Manager) end(expires time.Time) (time.Time, error) {
	now := time.Now
	if m.Now != nil {
		now = m.Now
	}
	if expires.IsZero() {
		return expires, nil
	}
	expires = expires.Truncate(time.Second)
	if !expires.After(now()) {
		return expires, fmt.Errorf("the end %q is not to come; tokens end at whole seconds", expires.UTC().Format(time.RFC3339))
	}
	return expires, nil
}

// Listed is a token, or the Secret that should be one.
type Listed struct {
	// Name is the name of the Secret.
	Name string
	// Config is the token, nil if the Secret is none.
	Config *bootstrap.TokenConfig
	// Err says what is wrong with the Secret. With a Config, the token is one, but does not authenticate.
	Err error
}

// List returns all Secrets of the type of tokens, sorted by name. Malformed ones are in the list, with their error.
func (m Manager) List(ctx context.Context) ([]Listed, error) {
	var secrets corev1.SecretList
	if err := m.Client.List(ctx, &secrets, client.InNamespace(bootstrap.SecretNamespace)); err != nil {
		return nil, fmt.Errorf("list bootstrap tokens: %w", err)
	}
	var list []Listed
	for i := range secrets.Items {
		if secrets.Items[i].Type != bootstrap.SecretType {
			continue
		}
		config, err := bootstrap.ParseSecret(&secrets.Items[i])
		if err == nil && config.MalformedGroups {
			err = fmt.Errorf("secret %q: its groups are not such as a token can give; it authenticates nobody", secrets.Items[i].Name)
		}
		list = append(list, Listed{Name: secrets.Items[i].Name, Config: config, Err: err})
	}
	slices.SortFunc(list, func(a, b Listed) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// Delete removes a token, named by its ID or as a whole. If it is given as a whole, the secret half has to be right.
func (m Manager) Delete(ctx context.Context, idOrToken string) error {
	secret, _, err := m.find(ctx, idOrToken)
	if err != nil {
		return fmt.Errorf("delete bootstrap token: %w", err)
	}
	if err := m.Client.Delete(ctx, secret, client.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion}); err != nil {
		return fmt.Errorf("delete bootstrap token: %w", err)
	}
	return nil
}

// Extend sets a new end for a token, to the second and to come, zero for none. What else the Secret holds stays, also what
// Create would refuse.
func (m Manager) Extend(ctx context.Context, idOrToken string, expires time.Time) (*bootstrap.TokenConfig, error) {
	expires, err := m.end(expires)
	if err != nil {
		return nil, fmt.Errorf("extend bootstrap token: %w; delete it to end it now", err)
	}
	secret, config, err := m.find(ctx, idOrToken)
	if err != nil {
		return nil, fmt.Errorf("extend bootstrap token: %w", err)
	}
	if config == nil {
		return nil, fmt.Errorf("extend bootstrap token: secret %q is malformed; delete it and create a new one", secret.Name)
	}
	if err := bootstrap.SetExpiration(secret, expires); err != nil {
		return nil, fmt.Errorf("extend bootstrap token: %w", err)
	}
	if err := m.Client.Update(ctx, secret); err != nil {
		return nil, fmt.Errorf("extend bootstrap token: %w", err)
	}
	config.Expires, config.MalformedExpiration = expires, false
	return config, nil
}

// find returns the Secret of a token, and the token unless the Secret is malformed.
func (m Manager) find(ctx context.Context, idOrToken string) (*corev1.Secret, *bootstrap.TokenConfig, error) {
	id := idOrToken
	given, err := bootstrap.ParseToken(idOrToken)
	if err == nil {
		id = given.ID()
	} else if !bootstrap.ValidTokenID(idOrToken) {
		return nil, nil, errors.New("name it by its ID, six lower-case letters and digits, or as <id>.<secret>")
	}
	var secret corev1.Secret
	if err := m.Client.Get(ctx, client.ObjectKey{Namespace: bootstrap.SecretNamespace, Name: bootstrap.SecretNamePrefix + id}, &secret); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil, fmt.Errorf("there is none with the ID %q", id)
		}
		return nil, nil, err
	}
	if secret.Type != bootstrap.SecretType {
		return nil, nil, fmt.Errorf("secret %q is not that of a token", secret.Name)
	}
	config, err := bootstrap.ParseSecret(&secret)
	switch {
	case err != nil && !given.IsZero():
		return nil, nil, err
	case err != nil:
		return &secret, nil, nil //nolint:nilerr // a malformed Secret can be named by its ID, to delete it
	case !given.IsZero() && !config.Token.Equal(given):
		return nil, nil, fmt.Errorf("the token with the ID %q has another secret", id)
	}
	return &secret, config, nil
}
