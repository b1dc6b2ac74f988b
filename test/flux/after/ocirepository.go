package after

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/google/go-containerregistry/pkg/authn"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cache/metrics"
)

// OCIRepositoryReconciler pulls artifacts.
type OCIRepositoryReconciler struct {
	client.Client
	TokenCache *cache.TokenCache
	Metrics    *metrics.Metrics
	Settings   *auth.Settings
	AWS        *aws.Provider
	HTTPClient *http.Client // nil outside tests
	Pull       func(ctx context.Context, repository string, authenticator authn.Authenticator) error
}

// Reconcile implements reconcile.Reconciler.
func (r *OCIRepositoryReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	obj := &sourcev1.OCIRepository{}
	if err := r.Get(ctx, req.NamespacedName, obj); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !obj.DeletionTimestamp.IsZero() {
		return r.reconcileDelete(ctx, obj)
	}
	if controllerutil.AddFinalizer(obj, sourcev1.SourceFinalizer) {
		if err := r.Update(ctx, obj); err != nil {
			return reconcile.Result{}, err
		}
	}
	repository := strings.TrimPrefix(obj.Spec.URL, sourcev1.OCIRepositoryPrefix)
	authenticator, err := r.authenticator(ctx, obj, repository)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("credentials for the registry: %w", err)
	}
	if err := r.Pull(ctx, repository, authenticator); err != nil {
		return reconcile.Result{}, fmt.Errorf("pull the artifact: %w", err)
	}
	return reconcile.Result{RequeueAfter: obj.GetRequeueAfter()}, nil
}

func (r *OCIRepositoryReconciler) reconcileDelete(ctx context.Context, obj *sourcev1.OCIRepository) (reconcile.Result, error) {
	r.Metrics.DeleteEventsForObject(sourcev1.OCIRepositoryKind, obj.Name, obj.Namespace, cache.OperationReconcile)
	controllerutil.RemoveFinalizer(obj, sourcev1.SourceFinalizer)
	return reconcile.Result{}, r.Update(ctx, obj)
}

func (r *OCIRepositoryReconciler) authenticator(ctx context.Context, obj *sourcev1.OCIRepository, repository string) (authn.Authenticator, error) {
	switch obj.Spec.Provider {
	case "", sourcev1.GenericOCIProvider:
		return authn.Anonymous, nil
	case sourcev1.AmazonOCIProvider:
	default:
		return nil, fmt.Errorf("provider %q is not supported", obj.Spec.Provider)
	}
	opts := []auth.Option{
		auth.WithClient(r.Client),
		auth.WithSettings(r.Settings),
		auth.WithHTTPClient(r.HTTPClient),
	}
	if obj.Spec.ServiceAccountName != "" {
		key := client.ObjectKey{Namespace: obj.Namespace, Name: obj.Spec.ServiceAccountName}
		opts = append(opts, auth.WithServiceAccount(key, r.Client))
	}
	involved := cache.InvolvedObject{Kind: sourcev1.OCIRepositoryKind, Name: obj.Name, Namespace: obj.Namespace, Operation: cache.OperationReconcile}
	opts = append(opts, auth.WithCache(r.TokenCache, involved))
	return auth.GetArtifactRegistryCredentials(ctx, r.AWS, repository, opts...)
}
