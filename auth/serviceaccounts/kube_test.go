package serviceaccounts_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/serviceaccounts"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

// patience is that with an API server of a machine that is busy.
const patience = time.Minute

// With a real API server and no more rights than the documentation names: what is created, annotated, deleted and created
// again shows.
func TestRealAPIServer(t *testing.T) {
	cluster := kubetest.Start(t)
	namespace, admin := cluster.Namespace(t), cluster.Client()
	user := cluster.User(t, "reads-serviceaccounts", namespace, rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"list", "watch"}})
	r, err := serviceaccounts.New(user, serviceaccounts.Options{Namespace: namespace, SyncTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	start(t, r)
	key := client.ObjectKey{Namespace: namespace, Name: "app"}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "app",
		Annotations: map[string]string{aws.RoleARNAnnotation: roleARN, "example.com/other": "x"}}}
	if err := admin.Create(t.Context(), sa); err != nil {
		t.Fatal(err)
	}
	until(t, r, key, "the creation", func(got *corev1.ServiceAccount, err error) bool {
		return err == nil && got.UID == sa.UID && got.Annotations[aws.RoleARNAnnotation] == roleARN && len(got.Annotations) == 1
	})
	sa.Annotations[aws.RoleARNAnnotation] = roleARN + "-2"
	if err := admin.Update(t.Context(), sa); err != nil {
		t.Fatal(err)
	}
	until(t, r, key, "the new annotation", func(got *corev1.ServiceAccount, err error) bool {
		return err == nil && got.Annotations[aws.RoleARNAnnotation] == roleARN+"-2"
	})
	if err := admin.Delete(t.Context(), sa); err != nil {
		t.Fatal(err)
	}
	until(t, r, key, "the deletion", func(_ *corev1.ServiceAccount, err error) bool { return apierrors.IsNotFound(err) })
	again := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "app"}}
	if err := admin.Create(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	until(t, r, key, "the new one", func(got *corev1.ServiceAccount, err error) bool { return err == nil && got.UID == again.UID })
}

// A controller with the rules for reading without a Reader hears at once which ones it lacks.
func TestMissingRules(t *testing.T) {
	cluster := kubetest.Start(t)
	namespace := cluster.Namespace(t)
	user := cluster.User(t, "may-get", namespace, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"get"}})
	r, err := serviceaccounts.New(user, serviceaccounts.Options{Namespace: namespace, SyncTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	run(t, r)
	_, err = auth.GetAccessToken(context.Background(), &aws.Provider{}, auth.WithSTSRegion("eu-central-1"),
		auth.WithServiceAccount(client.ObjectKey{Namespace: namespace, Name: "app"}, r.Client(cluster.Client())),
		auth.WithOwner(cache.InvolvedObject{Kind: "Bucket", Namespace: namespace, Name: "b"}))
	check(t, err, auth.ErrDenied, `verbs list and watch on serviceaccounts in namespace "`+namespace+`"`, "may-get", "HTTP 403")
	if !apierrors.IsForbidden(err) {
		t.Errorf("callers do not find the API server's answer: %v", err)
	}
}

// Without the right to watch, the lists that the Reader falls back to still serve, but it does not count as ready.
func TestMissingWatch(t *testing.T) {
	cluster := kubetest.Start(t)
	namespace := cluster.Namespace(t)
	user := cluster.User(t, "may-list", namespace, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"list"}})
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "app"}}
	if err := cluster.Client().Create(t.Context(), sa); err != nil {
		t.Fatal(err)
	}
	r, err := serviceaccounts.New(user, serviceaccounts.Options{Namespace: namespace, SyncTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	run(t, r)
	key := client.ObjectKeyFromObject(sa)
	if err := r.Get(t.Context(), key, &corev1.ServiceAccount{}); err != nil {
		t.Fatal(err)
	}
	until(t, r, key, "the end of readiness", func(_ *corev1.ServiceAccount, err error) bool {
		return err == nil && errors.Is(r.Check(nil), auth.ErrDenied)
	})
	check(t, r.Check(nil), auth.ErrDenied, "list and watch on serviceaccounts", "may-list")
}

// reads is a Runnable that reads as soon as it is started.
type reads struct {
	kube client.Client
	got  chan error
}

func (r *reads) Start(ctx context.Context) error {
	r.got <- r.kube.Get(ctx, client.ObjectKey{Namespace: "default", Name: "nobody"}, &corev1.ServiceAccount{})
	<-ctx.Done()
	return nil
}

func (*reads) NeedLeaderElection() bool { return false }

// A manager starts its Runnables in no order.
func TestManagerStartsReadersFirst(t *testing.T) {
	cluster := kubetest.Start(t)
	mgr, err := ctrl.NewManager(cluster.Config(), ctrl.Options{Metrics: server.Options{BindAddress: "0"}, Logger: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	r, err := serviceaccounts.New(mgr.GetConfig(), serviceaccounts.Options{SyncTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	const readers = 20
	got := make(chan error, readers)
	for i := range readers {
		if i == readers/2 {
			if err := mgr.Add(r); err != nil {
				t.Fatal(err)
			}
		}
		if err := mgr.Add(&reads{r.Client(mgr.GetClient()), got}); err != nil {
			t.Fatal(err)
		}
	}
	if err := mgr.AddReadyzCheck("serviceaccounts", r.Check); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	for range readers {
		if err := <-got; !apierrors.IsNotFound(err) {
			t.Errorf("got %v", err)
		}
	}
	if err := r.Check(nil); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
