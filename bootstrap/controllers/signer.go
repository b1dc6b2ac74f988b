package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/kubeevent"
)

// Signer maintains the signatures in cluster-info: one for each valid token
// with the usage "signing", and no others. As in Kubernetes, a token with
// malformed groups signs too. Signer writes once for any number of changed
// tokens, and only if a signature changes.
type Signer struct {
	// Client reads Secrets and ConfigMaps and updates cluster-info.
	Client client.Client
	// Events records faults for the operator. Nil records none.
	Events events.EventRecorder
}

// maxConfigMap is the largest size of a ConfigMap, in bytes.
const maxConfigMap = 1 << 20

var clusterInfoKey = client.ObjectKey{Namespace: metav1.NamespacePublic, Name: bootstrapapi.ConfigMapClusterInfo}

// SetupWithManager adds the [Signer] to the manager.
func (s *Signer) SetupWithManager(mgr ctrl.Manager) error {
	isClusterInfo := predicate.NewPredicateFuncs(func(o client.Object) bool {
		return client.ObjectKeyFromObject(o) == clusterInfoKey
	})
	isToken := predicate.NewPredicateFuncs(func(o client.Object) bool {
		secret, ok := o.(*corev1.Secret)
		return ok && secret.Namespace == metav1.NamespaceSystem && secret.Type == bootstrapapi.SecretTypeBootstrapToken
	})
	toClusterInfo := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: clusterInfoKey}}
	})
	return ctrl.NewControllerManagedBy(mgr).Named("bootstrap-signer").
		For(&corev1.ConfigMap{}, builder.WithPredicates(isClusterInfo)).
		Watches(&corev1.Secret{}, toClusterInfo, builder.WithPredicates(isToken)).
		Complete(s)
}

// Reconcile implements [reconcile.Reconciler]. It runs again when the next
// token expires.
func (s *Signer) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if req.NamespacedName != clusterInfoKey {
		return ctrl.Result{}, nil
	}
	var configMap corev1.ConfigMap
	if err := s.Client.Get(ctx, clusterInfoKey, &configMap); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	var secrets corev1.SecretList
	if err := s.Client.List(ctx, &secrets, client.InNamespace(metav1.NamespaceSystem)); err != nil {
		return ctrl.Result{}, err
	}
	tokens, next := s.signing(ctx, secrets.Items)
	result := ctrl.Result{RequeueAfter: next}
	signed := withSignatures(&configMap, tokens)
	if maps.Equal(signed.data, configMap.Data) {
		return result, nil
	}
	if signed.dropped > 0 {
		kubeevent.Record(s.Events, &configMap, corev1.EventTypeWarning, "TooManyTokens", "Sign",
			fmt.Sprintf(
				"cluster-info is full: %d of %d tokens are not signed; delete tokens, or other data of the ConfigMap, that are not needed", signed.dropped, len(tokens)))
	}
	configMap.Data = signed.data
	// The resource version makes the update fail after a concurrent change. The
	// retry reads the change.
	if err := s.Client.Update(ctx, &configMap); err != nil {
		return ctrl.Result{}, err
	}
	return result, nil
}

// signing returns the tokens that sign, the longest valid first, and the time
// until the first of them expires.
func (s *Signer) signing(ctx context.Context,
	secrets []corev1.Secret) (tokens []*bootstrap.TokenConfig, next time.Duration) {
	now := time.Now()
	for i := range secrets {
		secret := &secrets[i]
		if secret.Type != bootstrapapi.SecretTypeBootstrapToken || secret.DeletionTimestamp != nil {
			continue
		}
		c, err := bootstrap.ParseSecret(secret)
		if err != nil {
			log.FromContext(ctx).V(1).Info("ignored", "reason", err.Error())
			continue
		}
		if !c.Allows(bootstrap.UsageSigning) || c.Expired(now) {
			continue
		}
		tokens = append(tokens, c)
		if left := c.Expires.Sub(now); !c.Expires.IsZero() && (next == 0 || left < next) {
			next = left
		}
	}
	slices.SortFunc(tokens, func(a, b *bootstrap.TokenConfig) int {
		if a.Expires.IsZero() != b.Expires.IsZero() {
			if a.Expires.IsZero() {
				return -1
			}
			return 1
		}
		if c := b.Expires.Compare(a.Expires); c != 0 {
			return c
		}
		return strings.Compare(a.Token.ID(), b.Token.ID())
	})
	return tokens, next
}

type signatures struct {
	data    map[string]string
	dropped int // tokens whose signature does not fit
}

// withSignatures returns the data with as many of the required signatures as
// fit beside the rest, and no others.
func withSignatures(configMap *corev1.ConfigMap, tokens []*bootstrap.TokenConfig) signatures {
	data := configMap.Data
	result := signatures{data: make(map[string]string, len(data)+len(tokens))}
	size := 0
	for key, value := range configMap.BinaryData {
		size += len(key) + len(value)
	}
	for key, value := range data {
		if !strings.HasPrefix(key, bootstrapapi.JWSSignatureKeyPrefix) {
			result.data[key] = value
			size += len(key) + len(value)
		}
	}
	kubeconfig, ok := data[bootstrapapi.KubeConfigKey]
	if !ok {
		return result
	}
	for i, c := range tokens {
		key := bootstrapapi.JWSSignatureKeyPrefix + c.Token.ID()
		jws := bootstrap.Sign([]byte(kubeconfig), c.Token)
		if size += len(key) + len(jws); size > maxConfigMap {
			result.dropped = len(tokens) - i
			break
		}
		result.data[key] = jws
	}
	return result
}

var errNoInfo = errors.New("publish: there is no cluster information")
