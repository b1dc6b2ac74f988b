package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/podscenario"
)

// rotation has two replicas of the rotator, with a clock, and the kubelet's
// part.
type rotation struct {
	*environment
	replicas  []*rotator
	clock     time.Time
	revisions int
}

func newRotation(t *testing.T, w *environment) *rotation {
	t.Helper()
	r := &rotation{environment: w}
	for range 2 {
		kube, err := w.ConfigOf(t.Context(), podscenario.CertificatesAccount)
		if err != nil {
			t.Fatal(err)
		}
		replica := &rotator{options: certificateOptions{
			namespace: namespace, ips: []net.IP{net.IPv4(127, 0, 0, 1)},
			now: func() time.Time { return r.clock }}}
		if replica.client, err = client.New(kube, client.Options{Scheme: w.Admin.Scheme()}); err != nil {
			t.Fatal(err)
		}
		r.replicas = append(r.replicas, replica)
	}
	w.server.certs, w.webhook.certs = filepath.Join(w.Dir, name), filepath.Join(w.Dir, webhookName)
	w.server.serverCA = filepath.Join(w.server.certs, "ca.crt")
	w.webhook.serverCA = filepath.Join(w.webhook.certs, "ca.crt")
	return r
}

// at has both replicas rotate at once, until no write of one is refused because
// of the other, then updates the mounted Secrets.
func (r *rotation) at(t *testing.T, clock time.Time) {
	t.Helper()
	r.clock = clock
	var running sync.WaitGroup
	for _, replica := range r.replicas {
		running.Go(func() {
			for {
				err := replica.rotate(t.Context())
				if err == nil {
					return
				}
				if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
					t.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
	for secret, dir := range map[string]string{name: r.server.certs, webhookName: r.webhook.certs} {
		r.mount(t, secret, dir)
	}
}

// mount writes the files of a Secret as the kubelet does: it moves a symbolic
// link to a new folder.
func (r *rotation) mount(t *testing.T, secret, dir string) {
	t.Helper()
	r.revisions++
	revision := "..revision-" + strconv.Itoa(r.revisions)
	data := r.secret(t, secret).Data
	err := os.MkdirAll(filepath.Join(dir, revision), 0o700)
	for file, content := range data {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, revision, file), content, 0o600))
		if _, missing := os.Lstat(filepath.Join(dir, file)); missing != nil {
			err = errors.Join(err, os.Symlink(filepath.Join("..data", file), filepath.Join(dir, file)))
		}
	}
	if err := errors.Join(err, os.Symlink(revision, filepath.Join(dir, "..tmp")),
		os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data"))); err != nil {
		t.Fatal(err)
	}
}

func (r *rotation) secret(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	s := &corev1.Secret{}
	if err := r.Admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, s); err != nil {
		t.Fatal(err)
	}
	return s
}

// serving waits until server and webhook present the certificates of the
// Secrets, and returns that of the server.
func (r *rotation) serving(t *testing.T) *x509.Certificate {
	t.Helper()
	var found *x509.Certificate
	for secret, address := range map[string]string{name: r.Server, webhookName: r.Webhook} {
		want := leaf(t, r.secret(t, secret).Data[corev1.TLSCertKey])
		kubetest.Eventually(t, "the new certificate of "+secret+" is presented", func() bool {
			dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // compared below
			conn, err := dialer.DialContext(t.Context(), "tcp", address)
			if err != nil {
				return false
			}
			defer conn.Close()                                                        //nolint:errcheck // nothing was written
			return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].Equal(want) //nolint:forcetypeassert // of a tls.Dialer
		})
		if secret == name {
			found = want
		}
	}
	r.showsExpiry(t, found)
	return found
}

func (r *rotation) showsExpiry(t *testing.T, served *x509.Certificate) {
	t.Helper()
	const gauge = "podidentity_server_certificate_expiry_timestamp_seconds"
	want := fmt.Sprintf(
		"# HELP %[1]s When the certificate of the server expires, in seconds since 1970.\n# TYPE %[1]s gauge\n%[1]s %[2]d\n",
		gauge, served.NotAfter.Unix())
	//nolint:forcetypeassert // a registry
	if err := testutil.GatherAndCompare(r.server.registerer.(prometheus.Gatherer), strings.NewReader(want),
		gauge); err != nil {
		t.Error(err)
	}
}

func (r *rotation) registered(t *testing.T) *admissionregistrationv1.MutatingWebhookConfiguration {
	t.Helper()
	registration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := r.Admin.Get(t.Context(), client.ObjectKey{Name: webhookName}, registration); err != nil {
		t.Fatal(err)
	}
	return registration
}

// load creates pods until stop. Each refusal fails the test.
type load struct {
	admitted atomic.Int64
	over     atomic.Bool
	running  sync.WaitGroup
}

func startLoad(t *testing.T, w *environment) *load {
	t.Helper()
	l := &load{}
	for range 2 {
		l.running.Go(func() {
			for !l.over.Load() {
				pod, err := podscenario.NewPod("next")
				if err == nil {
					err = w.Admin.Create(t.Context(), pod, client.DryRunAll)
				}
				if err != nil || len(pod.Spec.InitContainers) == 0 {
					t.Errorf("got %d init containers and error %v, want the sidecar", len(pod.Spec.InitContainers), err)
				}
				l.admitted.Add(1)
			}
		})
	}
	return l
}

// more waits for further pods.
func (l *load) more(t *testing.T) {
	t.Helper()
	const enough = 100
	admitted := l.admitted.Load()
	kubetest.Eventually(t, "there is load", func() bool { return l.admitted.Load() > admitted+enough })
}

func (l *load) stop() {
	l.over.Store(true)
	l.running.Wait()
}

// Serving certificates rotate, and then the CA, between two replicas. No
// admission of a pod fails, and the sidecar of before trusts the server. The
// server's own TestCertificateRotatesUnderLoad has the requests of sidecars.
func TestRotationUnderLoad(t *testing.T) {
	w, _ := install(t)
	r := newRotation(t, w)
	now := time.Now()
	// The first CA has a tenth of its lifetime left in ten minutes.
	born := now.Add(-caLifetime * 9 / 10).Add(10 * time.Minute)
	r.at(t, born)
	r.at(t, now.Add(-61*day))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	play(ctx, t, w.Start, w.Allow)
	r.at(t, now.Add(-61*day)) // the API server learns the CA
	play(ctx, t, w.Bind, w.Inject, w.AwaitCredentials)
	before := r.serving(t)
	l := startLoad(t, w)
	defer l.stop()
	l.more(t)

	r.at(t, now)
	renewed := r.serving(t)
	if renewed.Equal(before) || renewed.Issuer.String() != before.Issuer.String() {
		t.Errorf("the certificate of %s by %q, after that of %s by %q", renewed.NotBefore, renewed.Issuer, before.NotBefore,
			before.Issuer)
	}
	l.more(t)

	r.at(t, now.Add(11*time.Minute))
	if next := r.serving(t); next.Issuer.String() == before.Issuer.String() {
		t.Errorf("the CA has not rotated: %q", next.Issuer)
	}
	l.more(t)
	answer, err := w.Ask(t.Context())
	if want := string(r.secret(t, name).Data["ca.crt"]); err != nil || answer.CABundle != want ||
		strings.Count(want, "BEGIN") != 2 {
		t.Errorf("got %s with the CAs %q and error %v, want two CAs as in the Secret: %q", answer, answer.CABundle, err, want)
	}

	// A changed bundle makes the API server open new connections to the
	// webhook.
	registration := r.registered(t)
	bundle := &registration.Webhooks[0].ClientConfig.CABundle
	if !bytes.Equal(*bundle, r.secret(t, webhookName).Data["ca.crt"]) {
		t.Error("caBundle is not the bundle that pods get")
	}
	*bundle = append(*bundle, *bundle...)
	if err := w.Admin.Update(t.Context(), registration); err != nil {
		t.Fatal(err)
	}
	l.more(t)
	l.stop()
	t.Logf("%d admissions", l.admitted.Load())
	cancel()
	w.Wait()
}
