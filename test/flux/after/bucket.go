package after

import (
	"context"
	"fmt"
	"net/http"

	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cache/metrics"
)

// BucketReconciler lists buckets with static credentials.
type BucketReconciler struct {
	client.Client
	TokenCache *cache.TokenCache
	Metrics    *metrics.Metrics
	Settings   *auth.Settings
	AWS        *aws.Provider
	HTTPClient *http.Client // nil outside tests
	List       func(ctx context.Context, bucket, accessKeyID, secretAccessKey, sessionToken string) error
}

// Reconcile implements reconcile.Reconciler.
func (r *BucketReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	obj := &sourcev1.Bucket{}
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
	token, err := r.credentials(ctx, obj)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("credentials for the bucket: %w", err)
	}
	credentials := token.Credentials()
	err = r.List(ctx, obj.Spec.BucketName, credentials.AccessKeyID, credentials.SecretAccessKey, credentials.SessionToken)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("list the bucket: %w", err)
	}
	return reconcile.Result{RequeueAfter: obj.GetRequeueAfter()}, nil
}

func (r *BucketReconciler) reconcileDelete(ctx context.Context, obj *sourcev1.Bucket) (reconcile.Result, error) {
	r.Metrics.DeleteEventsForObject(sourcev1.BucketKind, obj.Name, obj.Namespace, cache.OperationReconcile)
	controllerutil.RemoveFinalizer(obj, sourcev1.SourceFinalizer)
	return reconcile.Result{}, r.Update(ctx, obj)
}

func (r *BucketReconciler) credentials(ctx context.Context, obj *sourcev1.Bucket) (*aws.Token, error) {
	if obj.Spec.Provider != aws.ProviderName {
		return nil, fmt.Errorf("provider %q is not supported", obj.Spec.Provider)
	}
	opts := []auth.Option{
		auth.WithClient(r.Client),
		auth.WithSettings(r.Settings),
		auth.WithHTTPClient(r.HTTPClient),
		auth.WithSTSRegion(obj.Spec.Region),
	}
	if obj.Spec.ServiceAccountName != "" {
		key := client.ObjectKey{Namespace: obj.Namespace, Name: obj.Spec.ServiceAccountName}
		opts = append(opts, auth.WithServiceAccount(key, r.Client))
	}
	if obj.Spec.STS != nil {
		opts = append(opts, auth.WithSTSEndpoint(obj.Spec.STS.Endpoint))
	}
	involved := cache.InvolvedObject{Kind: sourcev1.BucketKind, Name: obj.Name, Namespace: obj.Namespace, Operation: cache.OperationReconcile}
	opts = append(opts, auth.WithCache(r.TokenCache, involved))
	token, err := auth.GetAccessToken(ctx, r.AWS, opts...)
	if err != nil {
		return nil, err
	}
	return aws.FromToken(token)
}
