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

// Reconciler lists buckets, with static credentials, and pulls artifacts.
type Reconciler struct {
	client.Client
	TokenCache *cache.TokenCache
	Metrics    *metrics.Metrics
	Settings   *auth.Settings
	AWS        *aws.Provider
	HTTPClient *http.Client // nil outside tests
	List       func(ctx context.Context, bucket, accessKeyID, secretAccessKey, sessionToken string) error
	Pull       func(ctx context.Context, repository string, authenticator authn.Authenticator) error
}

// ReconcileBucket is a reconcile.Func.
func (r *Reconciler) ReconcileBucket(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	obj := &sourcev1.Bucket{}
	if exists, err := r.begin(ctx, req, obj, sourcev1.BucketKind); err != nil || !exists {
		return reconcile.Result{}, err
	}
	if obj.Spec.Provider != aws.ProviderName {
		return reconcile.Result{}, reconcile.TerminalError(fmt.Errorf("unknown provider %q", obj.Spec.Provider))
	}
	opts := append(r.authOptions(obj, sourcev1.BucketKind, obj.Spec.ServiceAccountName),
		auth.WithSTSRegion(obj.Spec.Region))
	if obj.Spec.STS != nil {
		opts = append(opts, auth.WithSTSEndpoint(obj.Spec.STS.Endpoint))
	}
	token, err := auth.GetAccessToken(ctx, r.AWS, opts...)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("credentials for the bucket: %w", err)
	}
	own, err := aws.FromToken(token)
	if err != nil {
		return reconcile.Result{}, err
	}
	credentials := own.Credentials()
	err = r.List(ctx, obj.Spec.BucketName, credentials.AccessKeyID, credentials.SecretAccessKey, credentials.SessionToken)
	return reconcile.Result{RequeueAfter: obj.GetRequeueAfter()}, err
}

// ReconcileOCIRepository is a reconcile.Func.
func (r *Reconciler) ReconcileOCIRepository(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	obj := &sourcev1.OCIRepository{}
	if exists, err := r.begin(ctx, req, obj, sourcev1.OCIRepositoryKind); err != nil || !exists {
		return reconcile.Result{}, err
	}
	repository := strings.TrimPrefix(obj.Spec.URL, sourcev1.OCIRepositoryPrefix)
	authenticator := authn.Anonymous
	if obj.Spec.Provider == sourcev1.AmazonOCIProvider {
		opts := r.authOptions(obj, sourcev1.OCIRepositoryKind, obj.Spec.ServiceAccountName)
		credentials, err := auth.GetArtifactRegistryCredentials(ctx, r.AWS, repository, opts...)
		if err != nil {
			return reconcile.Result{}, fmt.Errorf("credentials for the registry: %w", err)
		}
		authenticator = credentials
	}
	return reconcile.Result{RequeueAfter: obj.GetRequeueAfter()}, r.Pull(ctx, repository, authenticator)
}

// begin gets the object, and finalizes it if it is deleted.
func (r *Reconciler) begin(ctx context.Context, req reconcile.Request, obj client.Object,
	kind string) (exists bool, err error) {
	if err := r.Get(ctx, req.NamespacedName, obj); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if !obj.GetDeletionTimestamp().IsZero() {
		r.Metrics.DeleteEventsForObject(kind, obj.GetName(), obj.GetNamespace(), cache.OperationReconcile)
		controllerutil.RemoveFinalizer(obj, sourcev1.SourceFinalizer)
		return false, r.Update(ctx, obj)
	}
	if controllerutil.AddFinalizer(obj, sourcev1.SourceFinalizer) {
		return true, r.Update(ctx, obj)
	}
	return true, nil
}

func (r *Reconciler) authOptions(obj client.Object, kind, serviceAccountName string) []auth.Option {
	involvedObject := cache.InvolvedObject{Kind: kind, Name: obj.GetName(), Namespace: obj.GetNamespace(),
		Operation: cache.OperationReconcile}
	opts := []auth.Option{auth.WithClient(r.Client), auth.WithSettings(r.Settings),
		auth.WithCache(r.TokenCache, involvedObject), auth.WithHTTPClient(r.HTTPClient)}
	if serviceAccountName != "" {
		opts = append(opts, auth.WithServiceAccount(client.ObjectKey{Namespace: obj.GetNamespace(), Name: serviceAccountName},
			r.Client))
	}
	return opts
}
