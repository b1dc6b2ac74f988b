package aws_test

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sts"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cache"
)

// Reconciler finds out who each tenant is in AWS. Its objects are ConfigMaps that name a ServiceAccount and a region.
type Reconciler struct {
	client.Client
	AWS        *aws.Provider     // one for the whole controller
	Tokens     *cache.TokenCache // one for the whole controller
	Options    []auth.Option     // for all objects, such as auth.WithSettings
	HTTPClient sts.HTTPClient    // nil, but for tests with authtest.Cloud
}

func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var obj corev1.ConfigMap
	if err := r.Get(ctx, req.NamespacedName, &obj); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	opts := append([]auth.Option{
		auth.WithClient(r.Client), // for a default ServiceAccount
		auth.WithCache(r.Tokens, cache.InvolvedObject{Kind: "ConfigMap", Namespace: obj.Namespace, Name: obj.Name, Operation: "reconcile"}),
		auth.WithSTSRegion(obj.Data["region"]),
	}, r.Options...)
	if name := obj.Data["serviceAccountName"]; name != "" {
		opts = append(opts, auth.WithServiceAccount(client.ObjectKey{Namespace: obj.Namespace, Name: name}, r.Client))
	}
	credentials := r.AWS.NewCredentialsProvider(opts...)

	service := sts.New(sts.Options{Region: obj.Data["region"], Credentials: credentials, HTTPClient: r.HTTPClient})
	who, err := service.GetCallerIdentity(ctx, nil)
	switch {
	case errors.Is(err, auth.ErrMisconfigured), errors.Is(err, auth.ErrDenied):
		// Until somebody edits a ServiceAccount or a trust policy, which this controller does not watch.
		return ctrl.Result{RequeueAfter: 5 * time.Minute}, r.report(ctx, &obj, err.Error())
	case err != nil && auth.RetryAfter(err) > 0:
		return ctrl.Result{RequeueAfter: auth.RetryAfter(err)}, nil
	case err != nil:
		return ctrl.Result{}, err // again, with back-off
	}
	return ctrl.Result{RequeueAfter: time.Hour}, r.report(ctx, &obj, *who.Arn)
}
