package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/cause"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cache/metrics"
)

// label marks the ConfigMaps that the controller reconciles.
const label = "workloadid.example/identity"

// Reconciler writes into each ConfigMap who its ServiceAccount is in AWS. The
// ConfigMap names the ServiceAccount and a region.
type Reconciler struct {
	client.Client
	AWS        *aws.Provider        // one for the whole controller
	Tokens     *cache.TokenCache    // one for the whole controller
	Metrics    *metrics.Metrics     // the observer of Tokens
	Events     events.EventRecorder // tells people what is wrong
	Options    []auth.Option        // for all objects, such as auth.WithSettings
	HTTPClient sts.HTTPClient       // nil, except in tests with cloudtest.Cloud
}

// TenantClient returns an AWS client that acts as the ServiceAccount that the
// object names.
func (r *Reconciler) TenantClient(ctx context.Context, obj *corev1.ConfigMap) (*sts.Client, error) {
	account := client.ObjectKey{Namespace: obj.Namespace, Name: obj.Data["serviceAccountName"]}
	owner := cache.InvolvedObject{Kind: "ConfigMap", Namespace: obj.Namespace, Name: obj.Name,
		Operation: cache.OperationReconcile}
	region := obj.Data["region"]
	opts := append([]auth.Option{
		auth.WithServiceAccount(account, r.Client),
		auth.WithCache(r.Tokens, owner),
		auth.WithSTSRegion(region),
	}, r.Options...)
	credentials, err := r.AWS.GetCredentialsProvider(ctx, opts...)
	if err != nil {
		return nil, err
	}
	return sts.New(sts.Options{Region: region, Credentials: credentials, HTTPClient: r.HTTPClient}), nil
}

// Reconcile asks AWS for the identity and stores it.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var obj corev1.ConfigMap
	if err := r.Get(ctx, req.NamespacedName, &obj); err != nil {
		if apierrors.IsNotFound(err) {
			r.Metrics.DeleteEventsForObject("ConfigMap", req.Name, req.Namespace, "reconcile")
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	identity, err := r.identity(ctx, &obj)
	switch {
	case errors.Is(err, auth.ErrMisconfigured), errors.Is(err, auth.ErrDenied):
		// Someone has to edit a ServiceAccount or a trust policy. The
		// controller watches neither.
		r.Events.Eventf(&obj, nil, corev1.EventTypeWarning, "IdentityUnavailable", "GetIdentity", "%s",
			cause.ConditionOf(err, "", 0).Message) // an Event takes 1 KiB
		return ctrl.Result{RequeueAfter: 5 * time.Minute}, nil
	case err != nil && auth.RetryAfter(err) > 0:
		return ctrl.Result{RequeueAfter: auth.RetryAfter(err)}, nil
	case err != nil:
		return ctrl.Result{}, err // controller-runtime backs off
	}
	return ctrl.Result{RequeueAfter: time.Hour}, r.store(ctx, &obj, identity)
}

func (r *Reconciler) identity(ctx context.Context, obj *corev1.ConfigMap) (string, error) {
	tenant, err := r.TenantClient(ctx, obj)
	if err != nil {
		return "", err
	}
	caller, err := tenant.GetCallerIdentity(ctx, nil)
	if err != nil {
		return "", err
	}
	return *caller.Arn, nil
}

// store patches the ConfigMap only if the identity changed.
func (r *Reconciler) store(ctx context.Context, obj *corev1.ConfigMap, identity string) error {
	if obj.Data["identity"] == identity {
		return nil
	}
	patch := client.MergeFrom(obj.DeepCopy())
	obj.Data["identity"] = identity
	return r.Patch(ctx, obj, patch)
}

// stripConfigMap lets the manager keep what Reconcile reads. Never update a
// ConfigMap from it: store patches one key.
func stripConfigMap(obj any) (any, error) {
	c, ok := obj.(*corev1.ConfigMap)
	if !ok {
		return obj, nil
	}
	kept := &corev1.ConfigMap{Data: map[string]string{},
		ObjectMeta: metav1.ObjectMeta{Name: c.Name, Namespace: c.Namespace, UID: c.UID,
			ResourceVersion: c.ResourceVersion, Labels: map[string]string{label: c.Labels[label]}}}
	for _, key := range []string{"serviceAccountName", "region", "identity"} {
		if value, ok := c.Data[key]; ok {
			// Tenants fill whole objects. No role, region or name is as long.
			kept.Data[key] = strings.Clone(value[:min(len(value), 2000)])
		}
	}
	return kept, nil
}

// SetupWithManager registers the reconciler for the ConfigMaps with the label.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	labelled := predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()[label] != "" })
	return ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}, builder.WithPredicates(labelled)).Complete(r)
}
