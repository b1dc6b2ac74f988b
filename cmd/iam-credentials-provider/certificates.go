package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
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

// Names in the manifests. A Service and the Secret with its certificate have
// the same name.
const (
	webhookName = "iam-credentials-webhook" // also of the MutatingWebhookConfiguration
	caSecret    = "iam-credentials-ca"
)

// Pauses between two rotations, of which almost all change nothing.
const (
	rotateAfter = 10 * time.Second
	retryAfter  = time.Second
)

// maxSkew is the largest clock skew to the API server with which the program
// writes.
const maxSkew = 5 * time.Minute

type certificateOptions struct {
	common
	namespace string
	ips       []net.IP         // in tests
	now       func() time.Time // in tests
}

func runCertificates(ctx context.Context, kube *rest.Config, o certificateOptions) error {
	r := &rotator{options: o}
	kube = rest.CopyConfig(kube)
	kube.Wrap(r.compareClocks)
	mgr, err := newManager(kube, o.common, ctrl.Options{})
	if err != nil {
		return err
	}
	r.client, err = client.New(mgr.GetConfig(),
		client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return err
	}
	if err := errors.Join(mgr.Add(manager.RunnableFunc(r.run)), mgr.AddReadyzCheck("certificates", r.ready)); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// rotator makes the CA and the certificates of both Services, and registers the
// CA with the API server. Replicas write with the resourceVersion that they
// have read, so they need no leader.
type rotator struct {
	client  client.Client
	options certificateOptions
	skew    atomic.Int64          // of this clock to the API server's at its last answer, in nanoseconds
	last    atomic.Pointer[error] // of the last rotation
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// compareClocks reads the Date of each answer of the API server. It is for
// rest.Config.Wrap.
func (r *rotator) compareClocks(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		answer, err := next.RoundTrip(request)
		if err != nil {
			return nil, err
		}
		if date, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
			r.skew.Store(int64(r.options.now().Sub(date)))
		}
		return answer, nil
	})
}

func (r *rotator) run(ctx context.Context) error {
	for {
		pause := rotateAfter
		err := r.try(ctx)
		if err != nil {
			pause = retryAfter
		}
		// of another replica
		if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			ctrl.Log.WithName("certificates").Error(err, "rotate")
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

// try rotates, and keeps the error for ready.
func (r *rotator) try(ctx context.Context) error {
	err := r.rotate(ctx)
	r.last.Store(&err)
	return err
}

func (r *rotator) ready(*http.Request) error {
	if last := r.last.Load(); last != nil {
		return *last
	}
	return errors.New("the certificates have not been checked yet")
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
	bundle, err := r.bundle(ctx, cas, now)
	if err != nil {
		return err
	}
	if err := r.register(ctx, bundle); err != nil {
		return err
	}
	return errors.Join(r.issue(ctx, cas, bundle, name, now), r.issue(ctx, cas, bundle, webhookName, now))
}

// bundle returns the CAs that clients have to trust. Former ones are in ca.crt
// only, since their Secret is gone. They stay until both Services present
// certificates of other CAs.
func (r *rotator) bundle(ctx context.Context, cas authority, now time.Time) ([]byte, error) {
	all, replaced, former := cas.bundle(), true, []byte(nil)
	mounted := now.Add(-mountDelay - clockSkew) // from when the certificates are valid that all pods present
	for _, service := range []string{name, webhookName} {
		s := &corev1.Secret{}
		if err := r.client.Get(ctx, client.ObjectKey{Namespace: r.options.namespace, Name: service},
			s); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read Secret %q: %w", service, err)
		}
		replaced = replaced && cas.isCurrent(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey], r.host(service),
			mounted)
		former = append(former, s.Data[corev1.ServiceAccountRootCAKey]...)
	}
	if replaced {
		return all, nil
	}
	for block, rest := pem.Decode(former); block != nil; block, rest = pem.Decode(rest) {
		if ca := pem.EncodeToMemory(block); block.Type == "CERTIFICATE" && !bytes.Contains(all, ca) {
			all = append(all, ca...)
		}
	}
	return all, nil
}

func (r *rotator) host(service string) string { return service + "." + r.options.namespace + ".svc" }

func (r *rotator) issue(ctx context.Context, cas authority, bundle []byte, service string, now time.Time) error {
	host := r.host(service)
	return r.write(ctx, service, corev1.SecretTypeTLS, func(data map[string][]byte) (err error) {
		if !cas.isCurrent(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey], host, now) {
			data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey], err = cas.issue(host, r.options.ips, now)
		}
		data[corev1.ServiceAccountRootCAKey] = bundle
		return err
	})
}

// write creates or changes a Secret after it has read it. So the clocks have
// been compared.
func (r *rotator) write(ctx context.Context, secret string, kind corev1.SecretType,
	change func(map[string][]byte) error) error {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.options.namespace, Name: secret}, Type: kind}
	_, err := controllerutil.CreateOrUpdate(ctx, r.client, s, func() error {
		if s.Data == nil {
			s.Data = map[string][]byte{}
		}
		if skew := time.Duration(r.skew.Load()); skew.Abs() > maxSkew {
			return fmt.Errorf(
				"the clock of this node differs from that of the API server by %s: synchronize both; until then nothing is written",
				skew.Round(time.Minute))
		}
		return change(s.Data)
	})
	if err != nil {
		return fmt.Errorf("write Secret %q: %w", secret, err)
	}
	return nil
}

// register writes the CA into the MutatingWebhookConfiguration. The patch keeps
// fields that this build does not know.
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
	// a conflict if it has changed
	patch := []operation{{"replace", "/metadata/resourceVersion", registration.ResourceVersion}}
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
