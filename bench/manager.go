package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
)

func hitManager(w *environment, p plan) (result, error) {
	return hitInformer(w, p, ctrlcache.ByObject{})
}

func hitStripped(w *environment, p plan) (result, error) { return hitInformer(w, p, stripped()) }

// stripped is from docs/workload-identity.md.
func stripped() ctrlcache.ByObject {
	return ctrlcache.ByObject{Transform: auth.ServiceAccountTransform(&aws.Provider{}), UnsafeDisableDeepCopy: new(true)}
}

// hitInformer measures a hit whose ServiceAccount is read with a manager's
// client.
func hitInformer(w *environment, p plan, of ctrlcache.ByObject) (result, error) {
	t, n := w.tenant("tenant-a", true), p.scaled(10_000)
	before := heap()
	kube, end, err := managerClient(t, n, of)
	if err != nil {
		return result{}, err
	}
	defer end()
	note := fmt.Sprintf(
		"the manager takes %d bytes of heap for each of 10,000 ServiceAccounts as kubectl apply leaves them.",
		(heap()-before)/int64(n))
	informed := *w
	informed.kube = &memory{Client: kube, accounts: w.kube.accounts, informed: true}
	r, err := hitAccessToken(&informed, p, t)
	r.note = note
	return r, err
}

// managerClient returns the client of a manager whose informer holds the
// tenant's ServiceAccount and n others, and a function that ends it.
func managerClient(t *tenant, n int, of ctrlcache.ByObject) (client.Client, func(), error) {
	config, mapper := &rest.Config{Host: "https://unused.invalid"}, meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ServiceAccount"), meta.RESTScopeNamespace)
	informers, err := ctrlcache.New(config,
		ctrlcache.Options{Mapper: mapper, ByObject: map[client.Object]ctrlcache.ByObject{&corev1.ServiceAccount{}: of},
			NewInformer: func(_ toolscache.ListerWatcher, obj k8sruntime.Object, resync time.Duration,
				indexers toolscache.Indexers) toolscache.SharedIndexInformer {
				return toolscache.NewSharedIndexInformer(lister{t, n}, obj, resync, indexers)
			}})
	if err != nil {
		return nil, nil, err
	}
	kube, err := client.New(config,
		client.Options{Scheme: scheme.Scheme, Mapper: mapper, Cache: &client.CacheOptions{Reader: informers}})
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- informers.Start(ctx) }()
	end := func() { cancel(); <-done }
	if !informers.WaitForCacheSync(ctx) {
		end()
		return nil, nil, errors.New("the manager's cache did not start")
	}
	return kube, end, kube.Get(ctx, t.key, &corev1.ServiceAccount{}) // starts the informer, and waits for it
}

// lister is an API server with ServiceAccounts that never change.
type lister struct {
	tenant *tenant
	others int
}

func (l lister) List(metav1.ListOptions) (k8sruntime.Object, error) {
	list := &corev1.ServiceAccountList{ListMeta: metav1.ListMeta{ResourceVersion: "1"},
		Items: []corev1.ServiceAccount{*l.tenant.account}}
	for i := range l.others {
		list.Items = append(list.Items, applied(i))
	}
	return list, nil
}

func (lister) Watch(metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil }

// IsWatchListSemanticsUnSupported makes the informer list.
func (lister) IsWatchListSemanticsUnSupported() bool { return true }

// applied returns a ServiceAccount as kubectl apply leaves it. Decoded objects
// share no strings.
func applied(i int) corev1.ServiceAccount {
	namespace, own := fmt.Sprintf("tenant-%05d", i), strings.Clone
	role := roleOf(namespace)
	last := fmt.Sprintf(
		`{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"annotations":{%q:%q},"name":%q,"namespace":%q}}`,
		aws.RoleARNAnnotation, role, saName, namespace)
	fields := fmt.Sprintf(`{"f:metadata":{"f:annotations":{".":{},"f:%s":{},"f:%s":{}}}}`, aws.RoleARNAnnotation,
		corev1.LastAppliedConfigAnnotation)
	return corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: own(saName),
		UID:             types.UID(fmt.Sprintf("0a1b2c3d-0000-4000-8000-%012d", i)),
		ResourceVersion: fmt.Sprintf("1%09d", i), CreationTimestamp: metav1.Now(),
		Annotations: map[string]string{own(aws.RoleARNAnnotation): role, own(corev1.LastAppliedConfigAnnotation): last},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: own("kubectl-client-side-apply"),
			Operation:  metav1.ManagedFieldsOperationType(own("Update")),
			APIVersion: own("v1"), Time: &metav1.Time{Time: time.Now()}, FieldsType: own("FieldsV1"),
			FieldsV1: &metav1.FieldsV1{Raw: []byte(fields)}}}}}
}
