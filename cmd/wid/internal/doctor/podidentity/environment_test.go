package podidentity_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	examine "github.com/workloadid/workloadid/cmd/wid/internal/doctor/podidentity"
	"github.com/workloadid/workloadid/internal/podidentity"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m).Run()) }

const (
	namespace = "team-a"
	account   = "reporting"
	audience  = "iam-credentials-provider.iam-system.svc"
	flags     = "--context prod"
	role      = "arn:aws:iam::123456789012:role/team-a/reporting"
	secret    = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// environment is a cluster whose pod gets credentials, until a fault changes
// that. A nil object is left out.
type environment struct {
	t              testing.TB
	namespace      *corev1.Namespace
	account        *corev1.ServiceAccount
	binding, other *v1alpha1.IAMBinding
	pod            *corev1.Pod
	events         []corev1.Event
	// absent are kinds that the API server does not serve, forbidden those that
	// may not be read.
	absent, forbidden map[string]bool
	// admit answers the dry run of a pod. A real webhook does in TestWebhook.
	admit  func(ctx context.Context, pod *corev1.Pod) error
	config examine.Config
}

func newEnvironment(t testing.TB) *environment {
	t.Helper()
	hourAgo, created := metav1.NewTime(time.Now().Add(-time.Hour)), metav1.NewTime(time.Now().Add(-2*time.Hour))
	w := &environment{t: t, absent: map[string]bool{}, forbidden: map[string]bool{},
		config: examine.Config{Namespace: namespace, Pod: "reporting-0", File: cli.KubeFile{Context: "prod"}}}
	w.namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace,
		Labels: map[string]string{"iam.aws.k8s.io/injection": "enabled"}}}
	w.account = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	w.binding = bindingOf("reporting", account)
	w.binding.CreationTimestamp = created
	w.setCondition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, podidentity.ReasonAccepted, "pods are served")
	w.setCondition(v1alpha1.ConditionRoleAssumable, metav1.ConditionTrue, podidentity.ReasonAssumed,
		"the role was assumed")
	w.pod = injectedPod()
	w.pod.CreationTimestamp = hourAgo
	w.admit = func(_ context.Context, pod *corev1.Pod) error {
		if len(pod.Spec.InitContainers) > 0 || len(pod.Spec.Volumes) > 0 || len(pod.Spec.Containers[0].Env) > 0 ||
			pod.Spec.NodeName != "" || pod.Name != "" {
			t.Errorf("the dry run has parts that the author did not write: %+v", pod)
		}
		pod.Spec = injectedPod().Spec
		return nil
	}
	return w
}

func bindingOf(name, account string) *v1alpha1.IAMBinding {
	return &v1alpha1.IAMBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Generation: 1,
		UID: types.UID("of " + name)},
		Spec: v1alpha1.IAMBindingSpec{AWS: v1alpha1.AWSRole{RoleARN: role},
			ServiceAccountRef: v1alpha1.ServiceAccountReference{Name: account}}}
}

func injectedPod() *corev1.Pod {
	env := []corev1.EnvVar{{Name: "AWS_CONTAINER_CREDENTIALS_FULL_URI", Value: "http://127.0.0.1:2020/v1/credentials"},
		{Name: "AWS_CONTAINER_AUTHORIZATION_TOKEN", Value: secret}}
	always := corev1.ContainerRestartPolicyAlways
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "reporting-0", UID: "1"},
		Spec: corev1.PodSpec{ServiceAccountName: account,
			Containers: []corev1.Container{{Name: "app", Image: "app", Env: env}},
			InitContainers: []corev1.Container{{Name: "iam-credentials-proxy", Image: "pod", RestartPolicy: &always,
				Env: env[1:]}},
			Volumes: []corev1.Volume{{Name: "iam-credentials-token",
				VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
					Sources: []corev1.VolumeProjection{
						{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: audience, Path: "token"}}}}}}}},
		Status: corev1.PodStatus{
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "iam-credentials-proxy", Started: new(true),
				State: running(time.Now().Add(-time.Hour))}}}}
}

func running(since time.Time) corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(since)}}
}

// warn records an Event about an object.
func (w *environment) warn(about client.Object, kind, path, reason, message string, age time.Duration) {
	at := metav1.NewTime(time.Now().Add(-age))
	w.events = append(w.events,
		corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("event-", len(w.events))},
			InvolvedObject: corev1.ObjectReference{Kind: kind, Name: about.GetName(), UID: about.GetUID(), FieldPath: path},
			Type:           corev1.EventTypeWarning, Reason: reason, Message: message, LastTimestamp: at})
}

func (w *environment) setCondition(kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&w.binding.Status.Conditions,
		metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message,
			ObservedGeneration: w.binding.Generation})
}

func scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (w *environment) objects() (all []client.Object) {
	if w.namespace != nil {
		all = append(all, w.namespace)
	}
	if w.account != nil {
		all = append(all, w.account)
	}
	for _, b := range []*v1alpha1.IAMBinding{w.binding, w.other} {
		if b != nil {
			all = append(all, b)
		}
	}
	if w.pod != nil {
		all = append(all, w.pod)
	}
	for i := range w.events {
		all = append(all, &w.events[i])
	}
	return all
}

// index is that of the API server for Events, which are read as unstructured
// ones.
func index(field ...string) client.IndexerFunc {
	return func(o client.Object) []string {
		content, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(o) // it always is one
		value, _, _ := unstructured.NestedString(content, field...)
		return []string{value}
	}
}

func (w *environment) client() client.Client {
	refuse := func(kind schema.GroupVersionKind, name string) error {
		switch {
		case w.absent[kind.Kind]:
			return &meta.NoKindMatchError{GroupKind: kind.GroupKind(), SearchedVersions: []string{kind.Version}}
		case w.forbidden[kind.Kind]:
			return apierrors.NewForbidden(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, name, nil)
		}
		return nil
	}
	c := fake.NewClientBuilder().WithScheme(scheme(w.t)).WithObjects(w.objects()...).
		WithIndex(&corev1.Event{}, "type", index("type")).WithIndex(&corev1.Event{}, "involvedObject.uid",
		index("involvedObject", "uid")).
		Build()
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object,
			opts ...client.GetOption) error {
			if err := refuse(obj.GetObjectKind().GroupVersionKind(), key.Name); err != nil {
				return err
			}
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			kind := list.GetObjectKind().GroupVersionKind()
			kind.Kind = kind.Kind[:len(kind.Kind)-len("List")]
			if err := refuse(kind, ""); err != nil {
				return err
			}
			return c.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, _ client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			pod, isPod := obj.(*corev1.Pod)
			switch {
			case !isPod || !slices.Contains(opts, client.CreateOption(client.DryRunAll)):
				w.t.Errorf("%T is stored", obj)
				return nil
			case w.forbidden["create pods"]:
				return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil)
			}
			return w.admit(ctx, pod)
		},
	})
}

func (w *environment) run() *doctor.Report {
	w.t.Helper()
	w.config.Client = w.client()
	return examine.Run(w.t.Context(), w.config)
}
