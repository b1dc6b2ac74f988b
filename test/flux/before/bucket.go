package before

import (
	"context"
	"fmt"

	"github.com/fluxcd/pkg/auth"
	"github.com/fluxcd/pkg/auth/aws"
	"github.com/fluxcd/pkg/cache"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// BucketReconciler lists buckets with static credentials.
type BucketReconciler struct {
	client.Client
	TokenCache *cache.TokenCache
	AWS        aws.Provider
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
	credentials, err := r.credentials(ctx, obj)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("credentials for the bucket: %w", err)
	}
	err = r.List(ctx, obj.Spec.BucketName, *credentials.AccessKeyId, *credentials.SecretAccessKey, *credentials.SessionToken)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("list the bucket: %w", err)
	}
	return reconcile.Result{RequeueAfter: obj.GetRequeueAfter()}, nil
}

func (r *BucketReconciler) reconcileDelete(ctx context.Context, obj *sourcev1.Bucket) (reconcile.Result, error) {
	r.TokenCache.DeleteEventsForObject(sourcev1.BucketKind, obj.Name, obj.Namespace, cache.OperationReconcile)
	controllerutil.RemoveFinalizer(obj, sourcev1.SourceFinalizer)
	return reconcile.Result{}, r.Update(ctx, obj)
}

func (r *BucketReconciler) credentials(ctx context.Context, obj *sourcev1.Bucket) (*aws.Credentials, error) {
	if obj.Spec.Provider != aws.ProviderName {
		return nil, fmt.Errorf("provider %q is not supported", obj.Spec.Provider)
	}
	opts := []auth.Option{
		auth.WithClient(r.Client),
		auth.WithServiceAccountNamespace(obj.Namespace),
		auth.WithSTSRegion(obj.Spec.Region),
	}
	if obj.Spec.ServiceAccountName != "" {
		opts = append(opts, auth.WithServiceAccountName(obj.Spec.ServiceAccountName))
	}
	if obj.Spec.STS != nil {
		opts = append(opts, auth.WithSTSEndpoint(obj.Spec.STS.Endpoint))
	}
	if r.TokenCache != nil {
		involved := cache.InvolvedObject{Kind: sourcev1.BucketKind, Name: obj.Name, Namespace: obj.Namespace, Operation: cache.OperationReconcile}
		opts = append(opts, auth.WithCache(*r.TokenCache, involved))
	}
	token, err := auth.GetAccessToken(ctx, r.AWS, opts...)
	if err != nil {
		return nil, err
	}
	credentials, ok := token.(*aws.Credentials)
	if !ok {
		return nil, fmt.Errorf("unexpected token %T", token)
	}
	return credentials, nil
}
