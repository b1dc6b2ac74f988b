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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	tokenutil "k8s.io/cluster-bootstrap/token/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/bootstrap"
)

// Manager manages the tokens of a cluster. It is safe for concurrent use.
type Manager struct {
	// Client needs create, get, list and delete on the Secrets of kube-system.
	Client client.Client
}

// Create stores a token and returns the stored configuration. Without a Token
// it generates one. It never overwrites a token with the same ID. It refuses a
// token without usages, and an expiry that is past after rounding down to a
// second. If the expiry is past only by the cluster's clock, Create deletes the
// token again and returns an error with both times.
func (m Manager) Create(ctx context.Context, config bootstrap.TokenConfig) (*bootstrap.TokenConfig, error) {
	if config.Token.IsZero() {
		generated, err := bootstrap.GenerateToken()
		if err != nil {
			return nil, err
		}
		config.Token = generated
	}
	if len(config.Usages) == 0 {
		return nil, fmt.Errorf("create bootstrap token: it has no usages; give it %q, %q or both", bootstrap.UsageSigning,
			bootstrap.UsageAuthentication)
	}
	if !config.Expires.IsZero() {
		config.Expires = config.Expires.Truncate(time.Second)
		if !config.Expires.After(time.Now()) {
			return nil, fmt.Errorf("create bootstrap token: the expiry %q is past; tokens expire at whole seconds",
				config.Expires.UTC().Format(time.RFC3339))
		}
	}
	secret, err := config.Secret()
	if err != nil {
		return nil, fmt.Errorf("create bootstrap token: %w", err)
	}
	if err := m.Client.Create(ctx, secret); err != nil {
		if apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("create bootstrap token: there is one with the ID %q already; delete it, or choose another",
				config.Token.ID())
		}
		return nil, fmt.Errorf("create bootstrap token: %w", err)
	}
	if err := checkCreated(config.Expires, secret.CreationTimestamp.Time); err != nil {
		// The cluster may run no cleaner.
		if left := m.Client.Delete(ctx, secret, client.Preconditions{UID: &secret.UID}); client.IgnoreNotFound(left) != nil {
			err = fmt.Errorf("%w; deleting it failed: %w", err, left)
		}
		return nil, fmt.Errorf("create bootstrap token %q: %w", config.Token.ID(), err)
	}
	return &config, nil
}

// Listed is a Secret of the tokens' type.
type Listed struct {
	// Name is the name of the Secret.
	Name string
	// Config is the token. It is nil if the Secret is malformed.
	Config *bootstrap.TokenConfig
	// Err describes the fault of the Secret. With a Config, the token is
	// well-formed but does not authenticate.
	Err error
}

// List returns all Secrets of the tokens' type, sorted by name. A malformed one
// carries its error.
func (m Manager) List(ctx context.Context) ([]Listed, error) {
	var secrets corev1.SecretList
	if err := m.Client.List(ctx, &secrets, client.InNamespace(metav1.NamespaceSystem)); err != nil {
		return nil, fmt.Errorf("list bootstrap tokens: %w", err)
	}
	var list []Listed
	for i := range secrets.Items {
		if secrets.Items[i].Type != bootstrapapi.SecretTypeBootstrapToken {
			continue
		}
		config, err := bootstrap.ParseSecret(&secrets.Items[i])
		if err == nil && config.MalformedGroups {
			err = fmt.Errorf("secret %q: a token cannot grant its groups, so it does not authenticate", secrets.Items[i].Name)
		}
		list = append(list, Listed{Name: secrets.Items[i].Name, Config: config, Err: err})
	}
	slices.SortFunc(list, func(a, b Listed) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// Delete deletes a token, given by its ID or as a whole. The secret of a whole
// token must be right.
func (m Manager) Delete(ctx context.Context, idOrToken string) error {
	secret, err := m.find(ctx, idOrToken)
	if err != nil {
		return fmt.Errorf("delete bootstrap token: %w", err)
	}
	if err := m.Client.Delete(ctx, secret,
		client.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion}); err != nil {
		return fmt.Errorf("delete bootstrap token: %w", err)
	}
	return nil
}

// find returns the Secret of a token.
func (m Manager) find(ctx context.Context, idOrToken string) (*corev1.Secret, error) {
	id := idOrToken
	given, err := bootstrap.ParseToken(idOrToken)
	if err == nil {
		id = given.ID()
	} else if !tokenutil.IsValidBootstrapTokenID(idOrToken) {
		return nil, errors.New("name it by its ID, six lower-case letters and digits, or as <id>.<secret>")
	}
	var secret corev1.Secret
	if err := m.Client.Get(ctx,
		client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: bootstrapapi.BootstrapTokenSecretPrefix + id},
		&secret); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("there is none with the ID %q", id)
		}
		return nil, err
	}
	if secret.Type != bootstrapapi.SecretTypeBootstrapToken {
		return nil, fmt.Errorf("secret %q is not that of a token", secret.Name)
	}
	if given.IsZero() {
		return &secret, nil // the ID suffices to delete a malformed Secret
	}
	config, err := bootstrap.ParseSecret(&secret)
	if err == nil && !config.Token.Equal(given) {
		err = fmt.Errorf("the token with the ID %q has another secret", id)
	}
	return &secret, err
}

// checkCreated fails if the expiry had passed when the API server created the
// object, by the API server's clock. The local clock may be behind it. A zero
// time means that the object never expires, or that the server named no time.
func checkCreated(expires, created time.Time) error {
	if expires.IsZero() || created.IsZero() || created.Before(expires) {
		return nil
	}
	return fmt.Errorf(
		"it expires at %q, but the cluster's clock shows %q: correct the clock of this machine or of the cluster, or choose a later expiry",
		expires.UTC().Format(time.RFC3339), created.UTC().Format(time.RFC3339))
}
