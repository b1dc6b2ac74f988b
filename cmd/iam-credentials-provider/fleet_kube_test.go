package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/podidentity"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/podscenario"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
)

var fleetPods = flag.Int("fleet.pods", 1000, "number of pods of BenchmarkFleet, at least 100")

// fleet is many pods of 100 namespaces. Each namespace has one ServiceAccount
// and one IAMBinding.
type fleet struct {
	*environment
	tokens []string
	http   http.Client
	retry  atomic.Int64
}

const (
	fleetNamespaces = 100
	fleetParallel   = 64
)

// each calls work for 0 to n-1.
func each(b *testing.B, n int, work func(ctx context.Context, i int) error) {
	b.Helper()
	g, ctx := errgroup.WithContext(b.Context())
	g.SetLimit(fleetParallel)
	for i := range n {
		g.Go(func() error { return work(ctx, i) })
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
}

func fleetNamespace(i int) string { return fmt.Sprintf("fleet-%d", i%fleetNamespaces) }

// create makes the namespaces, the pods and their tokens.
func (f *fleet) create(b *testing.B) {
	b.Helper()
	const role = "arn:aws:iam::123456789012:role/fleet"
	f.Cloud.AWS().SetRole(role, cloudtest.Trust{Principals: []string{"arn:aws:iam::123456789012:root"}, TagSession: true})
	list := &v1alpha1.IAMRoleAllowList{ObjectMeta: metav1.ObjectMeta{Name: "cluster"},
		Spec: v1alpha1.IAMRoleAllowListSpec{
			Rules: []v1alpha1.AllowRule{{Namespaces: []string{"default", "fleet-*"}, Roles: []string{role}}}}}
	if err := f.Admin.Create(b.Context(), list); err != nil {
		b.Fatal(err)
	}
	kubetest.Eventually(b, "the policy knows the list", func() bool {
		return f.Admin.Create(b.Context(), podscenario.Binding("default", "app", role), client.DryRunAll) == nil
	})
	each(b, fleetNamespaces, func(ctx context.Context, i int) error {
		meta := metav1.ObjectMeta{Namespace: fleetNamespace(i), Name: "app"}
		for _, o := range []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: meta.Namespace}},
			&corev1.ServiceAccount{ObjectMeta: meta}} {
			if err := f.Admin.Create(ctx, o); err != nil {
				return err
			}
		}
		return f.Admin.Create(ctx, podscenario.Binding(meta.Namespace, "app", role))
	})
	f.tokens = make([]string, *fleetPods)
	each(b, *fleetPods, func(ctx context.Context, i int) error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fleetNamespace(i), Name: fmt.Sprintf("pod-%d", i)},
			Spec: corev1.PodSpec{ServiceAccountName: "app", Containers: []corev1.Container{{Name: "app", Image: "x"}}}}
		if err := f.Admin.Create(ctx, pod); err != nil {
			return err
		}
		var err error
		f.tokens[i], err = podscenario.RequestToken(ctx, f.Admin, pod.Namespace, "app", pod, podscenario.Audience)
		return err
	})
}

// ask gets the credentials of a pod, and retries as the sidecar does.
func (f *fleet) ask(ctx context.Context, i int) error {
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, f.ServerURL()+podidentity.Path, http.NoBody)
		if err != nil {
			return err
		}
		request.Header.Set("Authorization", "Bearer "+f.tokens[i])
		response, err := f.http.Do(request)
		if err != nil {
			return err
		}
		answer, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode == http.StatusOK {
			return err
		}
		if response.StatusCode != http.StatusServiceUnavailable {
			return fmt.Errorf("%s: %s", response.Status, answer)
		}
		f.retry.Add(1)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func heap() float64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse)
}

// resident returns the memory of this process and its peak, in MiB.
func resident(b *testing.B) (now, peak float64) {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Log(err) // not Linux
		return 0, 0
	}
	for line := range strings.Lines(string(status)) {
		_, _ = fmt.Sscanf(line, "VmRSS: %f kB", &now)
		_, _ = fmt.Sscanf(line, "VmHWM: %f kB", &peak)
	}
	return now / 1024, peak / 1024
}

// BenchmarkFleet measures how long a server without credentials takes to serve
// all pods, and its memory. One process holds the server, the webhook, the
// simulated AWS and the pods' tokens, so the resident memory is an upper bound.
func BenchmarkFleet(b *testing.B) {
	w, _ := install(b)
	w.server.pods = 2 * *fleetPods
	ca, err := os.ReadFile(filepath.Join(w.Dir, "ca.crt"))
	if err != nil {
		b.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	f := &fleet{environment: w,
		http: http.Client{Transport: &http.Transport{DisableKeepAlives: true,
			TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}}
	ctx, cancel := context.WithCancel(b.Context())
	serve := w.RunServer
	w.RunServer = func(ctx context.Context, kube *rest.Config) error {
		err := serve(ctx, kube)
		if ctx.Err() == nil {
			b.Errorf("the server ended: %v", err)
		}
		return err
	}
	defer w.Wait()
	defer cancel()
	play(ctx, b, w.Start)
	f.create(b)
	kubetest.Eventually(b, "the server serves", func() bool { return f.ask(ctx, 0) == nil })
	before := heap()
	idle, _ := resident(b)
	for round := range 2 {
		start := time.Now()
		each(b, *fleetPods, f.ask)
		b.ReportMetric(time.Since(start).Seconds(), []string{"s/first", "s/cached"}[round])
	}
	after := heap()
	load, peak := resident(b)
	b.ReportMetric((after-before)/1024/float64(*fleetPods), "KiB/pod")
	b.ReportMetric(idle, "MiB-before")
	b.ReportMetric(load, "MiB-after")
	b.ReportMetric(peak, "MiB-peak")
	b.ReportMetric(float64(f.retry.Load()), "retries")
	b.ReportMetric(0, "ns/op")
}
