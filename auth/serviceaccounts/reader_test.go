package serviceaccounts_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/fake"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/serviceaccounts"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/testworld"
)

func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil // one of them sleeps by the clock, of which synctest has several
	goleak.VerifyTestMain(kubetest.Main(m))
}

const roleARN = "arn:aws:iam::123456789012:role/tenant-a"

func metadataOf(namespace, name string, annotations map[string]string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name), Annotations: annotations},
	}
}

func fakeClient(objs ...k8sruntime.Object) *fake.FakeMetadataClient {
	scheme := fake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		panic(err)
	}
	return fake.NewSimpleMetadataClient(scheme, objs...)
}

func newReader(t testing.TB, c metadata.Interface, o serviceaccounts.Options) *serviceaccounts.Reader {
	t.Helper()
	r, err := serviceaccounts.NewForClient(c, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// start runs a reader until the test ends.
func start(t testing.TB, r *serviceaccounts.Reader) {
	t.Helper()
	run(t, r)
	if err := r.WaitForSync(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// until reads again and again, since a watch brings changes when it does.
func until(t testing.TB, r reader, key client.ObjectKey, what string, ok func(*corev1.ServiceAccount, error) bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		sa := &corev1.ServiceAccount{}
		if ok(sa, r.Get(t.Context(), key, sa)) {
			return
		}
		runtime.Gosched()
	}
	t.Fatalf("%s has not happened", what)
}

// reader is what controllers read with.
type reader interface {
	Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error
}

func get(t testing.TB, r reader, namespace, name string) *corev1.ServiceAccount {
	t.Helper()
	sa := &corev1.ServiceAccount{}
	if err := r.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, sa); err != nil {
		t.Fatal(err)
	}
	return sa
}

func TestWhatIsKept(t *testing.T) {
	annotations := map[string]string{aws.RoleARNAnnotation: roleARN, "example.com/a": "x", "example.com/b": "y",
		"eks.amazonaws.com/junk": "z", corev1.LastAppliedConfigAnnotation: "{}"}
	tests := map[string]struct {
		prefixes []string
		want     []string
	}{
		"what the providers read":  {nil, []string{aws.RoleARNAnnotation}},
		"and what has a prefix":    {[]string{"example.com/"}, []string{aws.RoleARNAnnotation, "example.com/a", "example.com/b"}},
		"and one by its name":      {[]string{"example.com/b"}, []string{aws.RoleARNAnnotation, "example.com/b"}},
		"and nothing, if so asked": {[]string{}, []string{aws.RoleARNAnnotation}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newReader(t, fakeClient(metadataOf("tenant-a", "app", annotations)), serviceaccounts.Options{AnnotationPrefixes: tt.prefixes})
			start(t, r)
			sa := get(t, r, "tenant-a", "app")
			if sa.Name != "app" || sa.Namespace != "tenant-a" || sa.UID != "tenant-a/app" || len(sa.Annotations) != len(tt.want) {
				t.Errorf("got %+v", sa.ObjectMeta)
			}
			for _, name := range tt.want {
				if sa.Annotations[name] != annotations[name] {
					t.Errorf("the annotation %q is %q", name, sa.Annotations[name])
				}
			}
		})
	}
}

func TestErrors(t *testing.T) {
	c := fakeClient(metadataOf("tenant-a", "app", nil))
	r := newReader(t, c, serviceaccounts.Options{})
	key := client.ObjectKey{Namespace: "tenant-a", Name: "app"}
	start(t, r)
	if err := r.Get(t.Context(), client.ObjectKey{Namespace: "tenant-a", Name: "other"}, &corev1.ServiceAccount{}); !apierrors.IsNotFound(err) {
		t.Errorf("one that does not exist: %v", err)
	}
	if err := r.Get(t.Context(), key, &corev1.Secret{}); err == nil {
		t.Error("read a Secret")
	}
	if err := r.Start(t.Context()); err == nil {
		t.Error("started twice")
	}
	if r.NeedLeaderElection() {
		t.Error("only the leader would read")
	}
}

func TestChanges(t *testing.T) {
	c := fakeClient(metadataOf("tenant-a", "app", map[string]string{aws.RoleARNAnnotation: roleARN}))
	r := newReader(t, c, serviceaccounts.Options{})
	start(t, r)
	gvr, key := corev1.SchemeGroupVersion.WithResource("serviceaccounts"), client.ObjectKey{Namespace: "tenant-a", Name: "app"}
	other := metadataOf("tenant-a", "app", map[string]string{aws.RoleARNAnnotation: roleARN + "-2"})
	if err := c.Tracker().Update(gvr, other, "tenant-a"); err != nil {
		t.Fatal(err)
	}
	until(t, r, key, "the new annotation", func(sa *corev1.ServiceAccount, err error) bool {
		return err == nil && sa.Annotations[aws.RoleARNAnnotation] == roleARN+"-2"
	})
	now := metav1.Now()
	other.DeletionTimestamp = &now
	if err := c.Tracker().Update(gvr, other.DeepCopy(), "tenant-a"); err != nil {
		t.Fatal(err)
	}
	until(t, r, key, "the deletion that waits", func(sa *corev1.ServiceAccount, err error) bool {
		return err == nil && sa.DeletionTimestamp != nil
	})
	if err := c.Tracker().Delete(gvr, "tenant-a", "app"); err != nil {
		t.Fatal(err)
	}
	until(t, r, key, "the deletion", func(_ *corev1.ServiceAccount, err error) bool { return apierrors.IsNotFound(err) })
}

// The reader serves auth: a cached credential costs no allocation, and deleting the ServiceAccount revokes it.
func TestHitsAllocateNothing(t *testing.T) {
	issuer := testworld.Issuer(t)
	cloud := testworld.Cloud(t)
	cloud.AWS().AddOIDCProvider("123456789012", issuer.URL(), issuer.HTTPClient(), aws.DefaultAudience)
	cloud.AWS().SetRole(roleARN, authtest.Trust{Issuer: issuer.URL(), Subjects: []string{"system:serviceaccount:tenant-a:app"}})
	annotations := map[string]string{aws.RoleARNAnnotation: roleARN}
	base := issuer.Client(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app", UID: "tenant-a/app", Annotations: annotations}})
	c := fakeClient(metadataOf("tenant-a", "app", annotations))
	r := newReader(t, c, serviceaccounts.Options{})
	start(t, r)
	tokens, err := cache.NewTokenCache(10)
	if err != nil {
		t.Fatal(err)
	}
	defer tokens.Close()
	key := client.ObjectKey{Namespace: "tenant-a", Name: "app"}
	opts := []auth.Option{auth.WithServiceAccount(key, r.Client(base)), auth.WithSTSRegion("eu-central-1"), auth.WithHTTPClient(cloud.Client()),
		auth.WithCache(tokens, cache.InvolvedObject{Kind: "Bucket", Namespace: "tenant-a", Name: "b", Operation: "reconcile"})}
	provider := &aws.Provider{}
	call := func() error {
		_, err := auth.GetAccessToken(t.Context(), provider, opts...)
		return err
	}
	if err := call(); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(1000, func() { err = call() }); err != nil || n >= 1 {
		t.Errorf("a hit makes %.1f allocations, %v", n, err)
	}
	if err := c.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("serviceaccounts"), "tenant-a", "app"); err != nil {
		t.Fatal(err)
	}
	until(t, r, key, "the deletion", func(_ *corev1.ServiceAccount, err error) bool { return apierrors.IsNotFound(err) })
	if err := call(); !apierrors.IsNotFound(err) {
		t.Errorf("after the deletion: %v", err)
	}
}

// BenchmarkBytesPerServiceAccount reports what the package's documentation says.
func BenchmarkBytesPerServiceAccount(b *testing.B) {
	for _, annotated := range []bool{true, false} {
		b.Run(fmt.Sprintf("annotated=%t", annotated), func(b *testing.B) {
			const count = 10_000
			for b.Loop() {
				var objs []k8sruntime.Object
				for i := range count {
					m := metadataOf(fmt.Sprintf("tenant-%05d", i), "default", nil)
					m.ResourceVersion = fmt.Sprintf("1%09d", i)
					m.UID = types.UID(fmt.Sprintf("0a1b2c3d-0000-4000-8000-%012d", i))
					if annotated {
						m.Annotations = map[string]string{aws.RoleARNAnnotation: roleARN + m.Namespace}
					}
					objs = append(objs, m)
				}
				c := fakeClient(objs...)
				before := heap()
				r := newReader(b, c, serviceaccounts.Options{})
				start(b, r)
				after := heap()
				b.ReportMetric(float64(after-before)/count, "B/ServiceAccount")
				runtime.KeepAlive(r)
				runtime.KeepAlive(objs)
			}
		})
	}
}

func heap() int64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
