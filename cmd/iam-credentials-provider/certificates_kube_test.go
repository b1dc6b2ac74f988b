package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/time/rate"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/workloadid/workloadid/internal/testing/podscenario"
)

// rotation has two replicas of the rotator, with a clock, and the kubelet's
// part.
type rotation struct {
	*environment
	replicas  []*rotator
	skews     [2]time.Duration // of the clocks of the replicas
	clock     time.Time        // of the API server
	revisions int
}

func newRotation(t *testing.T, w *environment) *rotation {
	t.Helper()
	r := &rotation{environment: w}
	for i := range r.skews {
		kube, err := w.ConfigOf(t.Context(), podscenario.CertificatesAccount)
		if err != nil {
			t.Fatal(err)
		}
		kube.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(request *http.Request) (*http.Response, error) {
				answer, err := next.RoundTrip(request)
				if err == nil {
					answer.Header.Set("Date", r.clock.UTC().Format(http.TimeFormat))
				}
				return answer, err
			})
		})
		replica := &rotator{options: certificateOptions{
			namespace: namespace, ips: []net.IP{net.IPv4(127, 0, 0, 1)}, now: func() time.Time {
				return r.clock.Add(r.skews[i])
			}}}
		kube.Wrap(replica.compareClocks)
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
		await(t, "the new certificate of "+secret, func() bool {
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

// load asks the server and creates pods until stop. Each failure fails the
// test.
type load struct {
	issued, admitted atomic.Int64
	over             atomic.Bool
	running          sync.WaitGroup
}

func startLoad(t *testing.T, w *environment) *load {
	t.Helper()
	l := &load{}
	below := rate.NewLimiter(40, 200) // the limits of the server for a namespace
	ask := func() {
		if err := below.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if status, answer, err := w.Ask(t.Context(), w.ServerURL()); err != nil || status != http.StatusOK {
			t.Errorf("%s, %v", answer, err)
		}
		l.issued.Add(1)
	}
	admit := func() {
		pod, err := podscenario.NewPod("next")
		if err == nil {
			err = w.Admin.Create(t.Context(), pod, client.DryRunAll)
		}
		if err != nil || len(pod.Spec.InitContainers) == 0 {
			t.Errorf("%d init containers, %v", len(pod.Spec.InitContainers), err)
		}
		l.admitted.Add(1)
	}
	for _, work := range []func(){ask, ask, admit, admit} {
		l.running.Go(func() {
			for !l.over.Load() {
				work()
			}
		})
	}
	return l
}

// more waits for further requests of both kinds.
func (l *load) more(t *testing.T) {
	t.Helper()
	const enough = 100
	issued, admitted := l.issued.Load(), l.admitted.Load()
	await(t, "there is load", func() bool {
		return l.issued.Load() > issued+enough && l.admitted.Load() > admitted+enough
	})
}

func (l *load) stop() {
	l.over.Store(true)
	l.running.Wait()
}

// handedOut returns the CAs in an answer of the server.
func (r *rotation) handedOut(t *testing.T) string {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.secret(t, name).Data["ca.crt"])
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.ServerURL()+"/v1/credentials", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+r.Token)
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	var answer struct{ CABundle string }
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	return answer.CABundle
}

// A replica whose clock differs from that of the API server writes nothing, and
// says why it is not ready.
func TestReplicaWithAnotherClock(t *testing.T) {
	w, _ := install(t)
	r := newRotation(t, w)
	now := time.Now()
	r.at(t, now)
	before := r.state(t)
	for name, test := range map[string]struct {
		skew time.Duration
		want string
	}{
		"eleven years ahead":  {11 * 365 * day, "96360h"},
		"six minutes behind":  {-6 * time.Minute, "6m"},
		"four minutes ahead":  {4 * time.Minute, ""},
		"four minutes behind": {-4 * time.Minute, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r.skews[0] = test.skew
			err := r.replicas[0].try(t.Context())
			if ready := r.replicas[0].ready(nil); !errors.Is(ready, err) {
				t.Errorf("ready: %v, want %v", ready, err)
			}
			if test.want == "" && err != nil ||
				test.want != "" && (err == nil || !strings.Contains(err.Error(), "clock") ||
					!strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if after := r.state(t); after != before {
				t.Errorf("it wrote: %s, before %s", after, before)
			}
		})
	}
}

// state returns the versions of all that the program writes.
func (r *rotation) state(t *testing.T) (versions string) {
	t.Helper()
	for _, secret := range []string{caSecret, name, webhookName} {
		versions += r.secret(t, secret).ResourceVersion + " "
	}
	return versions
}

// After the Secret of the CAs is gone, clients trust the former CA while the
// kubelet still has to mount the new certificates.
func TestCAOutlivesItsSecret(t *testing.T) {
	w, _ := install(t)
	r := newRotation(t, w)
	now := time.Now()
	r.at(t, now.Add(-time.Hour))
	former := r.secret(t, name).Data["ca.crt"]
	if err := w.Admin.Delete(t.Context(), r.secret(t, caSecret)); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {10 * time.Second, true}, {4 * time.Minute, true}, {6 * time.Minute, false}} {
		r.at(t, now.Add(test.after))
		for _, secret := range []string{name, webhookName} {
			if got := r.secret(t, secret).Data["ca.crt"]; bytes.Contains(got, former) != test.want || bytes.Equal(got, former) {
				t.Errorf("after %s the former CA is in ca.crt of %s: %t", test.after, secret, !test.want)
			}
		}
	}
}

// Serving certificates rotate, and then the CA, between two replicas. No
// request of a sidecar and no admission of a pod fails.
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
	play(ctx, t, w.Bind, w.Inject, w.serves)
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
	got, want := r.handedOut(t), string(r.secret(t, name).Data["ca.crt"])
	if got != want || strings.Count(got, "BEGIN") != 2 {
		t.Errorf("the answer hands out %q, want two CAs as in the Secret: %q", got, want)
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
	t.Logf("%d requests and %d admissions", l.issued.Load(), l.admitted.Load())
	cancel()
	w.Wait()
}
