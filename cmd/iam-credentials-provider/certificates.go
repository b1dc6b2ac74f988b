package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Names in the manifests. A Service and the Secret with its certificate have the same name.
const (
	webhookName = "iam-credentials-webhook" // also of the MutatingWebhookConfiguration
	caSecret    = "iam-credentials-ca"
)

// Pauses between two rotations, of which almost all change nothing.
const (
	rotateAfter = 10 * time.Second
	retryAfter  = time.Second
)

type certificateOptions struct {
	common
	namespace string
	ips       []net.IP         // in tests
	now       func() time.Time // in tests
}

// runCertificates rotates until ctx ends.
func runCertificates(ctx context.Context, kube *rest.Config, o certificateOptions) error {
	mgr, err := newManager(kube, o.common, ctrl.Options{})
	if err != nil {
		return err
	}
	direct, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return err
	}
	r := &rotator{client: direct, options: o}
	if err := errors.Join(mgr.Add(manager.RunnableFunc(r.run)), mgr.AddReadyzCheck("certificates", r.ready)); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// rotator makes the CA and the certificates of both Services, and registers the CA with the API server. Replicas write with the
// resourceVersion that they have read, so they need no leader.
type rotator struct {
	client  client.Client
	options certificateOptions
	done    atomic.Bool // by the last rotation
}

func (r *rotator) run(ctx context.Context) error {
	for {
		pause := rotateAfter
		err := r.rotate(ctx)
		if r.done.Store(err == nil); err != nil {
			pause = retryAfter
		}
		if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) { // of another replica
			ctrl.Log.WithName("certificates").Error(err, "rotate")
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

func (r *rotator) ready(*http.Request) error {
	if !r.done.Load() {
		return errors.New("the certificates are not up to date: the log has the reason")
	}
	return nil
}

// rotate registers a new CA before a certificate of it is in use.
func (r *rotator) rotate(ctx context.Context) error {
	now := r.options.now()
	var cas authority
	err := r.write(ctx, caSecret, corev1.SecretTypeOpaque, func(data map[string][]byte) (err error) {
		cas, err = maintain(data, now, r.options.namespace+".svc")
		return err
	})
	if err != nil {
		return err
	}
	if err := r.register(ctx, cas.bundle()); err != nil {
		return err
	}
	return errors.Join(r.issue(ctx, cas, name, now), r.issue(ctx, cas, webhookName, now))
}

// issue keeps the Secret of a Service up to date.
func (r *rotator) issue(ctx context.Context, cas authority, service string, now time.Time) error {
	host := service + "." + r.options.namespace + ".svc"
	return r.write(ctx, service, corev1.SecretTypeTLS, func(data map[string][]byte) (err error) {
		if !cas.isCurrent(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey], host, now) {
			data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey], err = cas.issue(host, r.options.ips, now)
		}
		data[corev1.ServiceAccountRootCAKey] = cas.bundle()
		return err
	})
}

// write creates or changes a Secret.
func (r *rotator) write(ctx context.Context, secret string, kind corev1.SecretType, change func(map[string][]byte) error) error {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.options.namespace, Name: secret}, Type: kind}
	_, err := controllerutil.CreateOrUpdate(ctx, r.client, s, func() error {
		if s.Data == nil {
			s.Data = map[string][]byte{}
		}
		return change(s.Data)
	})
	if err != nil {
		return fmt.Errorf("write Secret %q: %w", secret, err)
	}
	return nil
}

// register writes the CA into the MutatingWebhookConfiguration. The patch keeps fields that this build does not know.
func (r *rotator) register(ctx context.Context, bundle []byte) error {
	registration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := r.client.Get(ctx, client.ObjectKey{Name: webhookName}, registration); err != nil {
		return client.IgnoreNotFound(err) // before it is applied
	}
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	patch := []operation{{"replace", "/metadata/resourceVersion", registration.ResourceVersion}} // a conflict if it has changed
	for i, w := range registration.Webhooks {
		if string(w.ClientConfig.CABundle) != string(bundle) {
			patch = append(patch, operation{"add", fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", i), bundle})
		}
	}
	if len(patch) == 1 {
		return nil
	}
	content, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	return r.client.Patch(ctx, registration, client.RawPatch(types.JSONPatchType, content))
}
