package main

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cache/metrics"
	"github.com/workloadid/workloadid/cloudtest"
)

const (
	account = "123456789012"
	role    = "arn:aws:iam::" + account + ":role/tenant"
)

func configMap(namespace, name, serviceAccount string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		Labels: map[string]string{label: "aws"}},
		Data: map[string]string{"serviceAccountName": serviceAccount, "region": "eu-central-1"}}
}

// newReconciler returns a reconciler for the ConfigMap tenant-a/good, whose
// ServiceAccount has a role, and the registry of its metrics.
func newReconciler(t *testing.T, aws *aws.Provider, issuer *cloudtest.Issuer,
	aroundAWS *http.Client) (*Reconciler, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	m, err := metrics.New("test_", registry)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := cache.NewTokenCache(10, cache.WithObserver(m))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tokens.Close)
	kube := issuer.Wrap(fake.NewFakeClient(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: "tenant-a", Name: "app", Annotations: map[string]string{"eks.amazonaws.com/role-arn": role}}},
		configMap("tenant-a", "good", "app")))
	return &Reconciler{Client: kube, AWS: aws, Tokens: tokens, Metrics: m, Events: events.NewFakeRecorder(10),
		HTTPClient: aroundAWS, Options: []auth.Option{auth.WithHTTPClient(aroundAWS)}}, registry
}

func request(name string) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "tenant-a", Name: name}}
}

// seriesOf counts the series of an object.
func seriesOf(t *testing.T, registry *prometheus.Registry, name string) (n int) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if strings.Contains(metric.String(), `"`+name+`"`) {
				n++
			}
		}
	}
	return n
}

// The series of a deleted object would stay for as long as the controller runs.
func TestReconcilerDeletesTheSeriesOfADeletedObject(t *testing.T) {
	issuer, err := cloudtest.NewIssuer(cloudtest.IssuerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	cloud, err := cloudtest.NewCloud()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cloud.Close)
	cloud.AWS().AddOIDCProvider(account, issuer.URL(), issuer.HTTPClient(), aws.DefaultAudience)
	cloud.AWS().SetRole(role,
		cloudtest.Trust{Issuer: issuer.URL(), Subjects: []string{"system:serviceaccount:tenant-a:app"}})
	r, registry := newReconciler(t, &aws.Provider{}, issuer, cloud.Client())
	for range 2 {
		if result, err := r.Reconcile(t.Context(), request("good")); err != nil || result.RequeueAfter != time.Hour {
			t.Fatalf("%+v, %v", result, err)
		}
	}
	if n := seriesOf(t, registry, "good"); n != 2 {
		t.Fatalf("%d series of the object, want hits and misses", n)
	}
	if err := r.Delete(t.Context(), configMap("tenant-a", "good", "app")); err != nil {
		t.Fatal(err)
	}
	if result, err := r.Reconcile(t.Context(), request("good")); err != nil || result != (ctrl.Result{}) {
		t.Errorf("%+v, %v", result, err)
	}
	if n := seriesOf(t, registry, "good"); n != 0 {
		t.Errorf("%d series of the deleted object", n)
	}
}

// hanging is a network in which AWS never answers.
type hanging struct{}

func (hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// An STS that hangs holds a worker for five seconds. The object comes back
// later.
func TestReconcilerLeavesAnSTSThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer, err := cloudtest.NewIssuer(cloudtest.IssuerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		r, _ := newReconciler(t, &aws.Provider{}, issuer, &http.Client{Transport: hanging{}})
		for _, want := range []time.Duration{5 * time.Second, 0} {
			start := time.Now()
			result, err := r.Reconcile(t.Context(), request("good"))
			if took := time.Since(start); err != nil || result.RequeueAfter <= 0 || took != want {
				t.Errorf("after %s: %+v, %v", took, result, err)
			}
		}
		r.Tokens.Close()
	})
}
