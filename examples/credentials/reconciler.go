// Package credentials gets six credentials of one ServiceAccount in one
// reconciler. docs/credentials.md shows it.
package credentials

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/cause"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/cache"
)

// Reconciler gets the credentials of the ServiceAccount that a ConfigMap names.
// Each provider is one value for the whole controller.
type Reconciler struct {
	client.Client
	AWS     *aws.Provider
	Azure   *azure.Provider
	Google  *gcp.Provider
	OAuth   *exchange.Provider
	Tokens  *cache.TokenCache
	Events  events.EventRecorder
	Options []auth.Option // for all objects: auth.WithSettings; in tests auth.WithHTTPClient
	Use     func(context.Context, *Credentials) error
}

// Credentials belong to one ServiceAccount. The fields for SDKs and clients
// renew themselves.
type Credentials struct {
	AWS, Azure, Google, OAuth auth.Token
	ECR                       *auth.ArtifactRegistryCredentials
	EKS                       *kubernetes.Clientset
}

// CredentialsOf asks for one credential after the other. The first that is
// missing ends it, and each that was found stays in the cache.
func (r *Reconciler) CredentialsOf(ctx context.Context, obj *corev1.ConfigMap) (c *Credentials, err error) {
	options := func(more ...auth.Option) []auth.Option {
		return slices.Concat([]auth.Option{
			auth.WithServiceAccount(client.ObjectKey{Namespace: obj.Namespace, Name: obj.Data["serviceAccountName"]}, r.Client),
			auth.WithCache(r.Tokens,
				cache.InvolvedObject{Kind: "ConfigMap", Namespace: obj.Namespace, Name: obj.Name,
					Operation: cache.OperationReconcile}),
		}, r.Options, more)
	}
	c = &Credentials{}
	if c.AWS, err = auth.GetAccessToken(ctx, r.AWS, options(auth.WithSTSRegion(obj.Data["region"]))...); err != nil {
		return nil, err
	}
	if c.Azure, err = auth.GetAccessToken(ctx, r.Azure,
		options(auth.WithScopes("https://vault.azure.net/.default"))...); err != nil {
		return nil, err
	}
	if c.Google, err = auth.GetAccessToken(ctx, r.Google, options()...); err != nil {
		return nil, err
	}
	if c.OAuth, err = auth.GetAccessToken(ctx, r.OAuth, options(auth.WithScopes("reports.read"))...); err != nil {
		return nil, err
	}
	if c.ECR, err = auth.GetArtifactRegistryCredentials(ctx, r.AWS, obj.Data["repository"], options()...); err != nil {
		return nil, err
	}
	// auth.GetRESTConfig returns the parts of this configuration.
	config, err := auth.GetClusterConfig(ctx, r.AWS, options(auth.WithClusterResource(obj.Data["cluster"]))...)
	if err != nil {
		return nil, err
	}
	c.EKS, err = kubernetes.NewForConfig(config)
	return c, err
}

// Reconcile hands the credentials on. Errors of each of them mean the same.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var obj corev1.ConfigMap
	if err := r.Get(ctx, req.NamespacedName, &obj); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	credentials, err := r.CredentialsOf(ctx, &obj)
	if err == nil {
		err = r.Use(ctx, credentials)
	}
	switch {
	case errors.Is(err, auth.ErrMisconfigured), errors.Is(err, auth.ErrDenied):
		// Someone has to edit a ServiceAccount, or what a cloud trusts. The
		// error names both.
		r.Events.Eventf(&obj, nil, corev1.EventTypeWarning, "CredentialUnavailable", "GetCredentials", "%s",
			cause.ConditionOf(err, "", 0).Message) // an Event takes 1 KiB
		return ctrl.Result{RequeueAfter: 5 * time.Minute}, nil
	case auth.RetryAfter(err) > 0: // always so for auth.ErrThrottled
		return ctrl.Result{RequeueAfter: auth.RetryAfter(err)}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("credentials of %q: %w", req, err) // controller-runtime backs off
	}
	return ctrl.Result{RequeueAfter: time.Hour}, nil
}
