package controllers

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	tokenutil "k8s.io/cluster-bootstrap/token/util"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/kubeevent"
)

// Cleaner deletes a token in the second in which it expires. It deletes a
// Secret only if type and name are a token's. Like Kubernetes, it deletes
// malformed tokens when they expire. Until then it reports them. It reports a
// malformed expiration and does not delete the token.
type Cleaner struct {
	// Client reads and deletes Secrets.
	Client client.Client
	// Events records faults for the operator. Nil records none.
	Events events.EventRecorder
}

// SetupWithManager adds the [Cleaner] to the manager.
func (c *Cleaner) SetupWithManager(mgr ctrl.Manager) error {
	isToken := predicate.NewPredicateFuncs(func(o client.Object) bool {
		secret, ok := o.(*corev1.Secret)
		return ok && secret.Namespace == metav1.NamespaceSystem && secret.Type == bootstrapapi.SecretTypeBootstrapToken
	})
	return ctrl.NewControllerManagedBy(mgr).Named("bootstrap-cleaner").For(&corev1.Secret{},
		builder.WithPredicates(isToken)).Complete(c)
}

// Reconcile implements [reconcile.Reconciler]. It runs again when the token
// expires.
func (c *Cleaner) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var secret corev1.Secret
	if err := c.Client.Get(ctx, req.NamespacedName, &secret); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if secret.Namespace != metav1.NamespaceSystem || secret.Type != bootstrapapi.SecretTypeBootstrapToken ||
		secret.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	c.report(&secret)
	if id, ok := strings.CutPrefix(secret.Name, bootstrapapi.BootstrapTokenSecretPrefix); !ok ||
		!tokenutil.IsValidBootstrapTokenID(id) {
		return ctrl.Result{}, nil
	}
	expires, err := bootstrap.ExpiryOf(secret.Data)
	if err != nil || expires.IsZero() {
		return ctrl.Result{}, nil //nolint:nilerr // reported
	}
	if left := time.Until(expires); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	// A token survives if it was extended or created again since the read.
	err = c.Client.Delete(ctx, &secret, client.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion})
	if apierrors.IsNotFound(err) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, err
}

// report records faults that need an edit.
func (c *Cleaner) report(secret *corev1.Secret) {
	config, err := bootstrap.ParseSecret(secret)
	switch {
	case err != nil:
		kubeevent.Record(c.Events, secret, corev1.EventTypeWarning, "MalformedToken", "Clean", err.Error())
	case config.MalformedGroups:
		kubeevent.Record(c.Events, secret, corev1.EventTypeWarning, "MalformedGroups", "Clean",
			"a token cannot grant these groups, so it does not authenticate; correct or delete it")
	}
	if _, err := bootstrap.ExpiryOf(secret.Data); err != nil {
		kubeevent.Record(c.Events, secret, corev1.EventTypeWarning, "MalformedExpiration", "Clean",
			err.Error()+": the token counts as expired; correct or delete it")
	}
}
