package podscenario

import (
	"context"
	"errors"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
)

// Environment is a real API server that serves the kinds of pod identity, with
// a namespace of one test. It has no admission policy.
type Environment struct {
	client.Client // of an administrator

	T         testing.TB
	Cluster   *kubetest.Cluster
	Namespace string
}

// New returns the environment of a test.
func New(t testing.TB, cluster *kubetest.Cluster) *Environment {
	t.Helper()
	e := &Environment{T: t, Cluster: cluster}
	scheme, err := Scheme()
	e.Must(err)
	kubetest.Apply(t, cluster.Client(), v1alpha1.BindingCRD(), v1alpha1.AllowListCRD())
	e.Eventually("the API server serves the kinds", func() bool {
		// An older client remembers that there are none.
		e.Client, err = client.New(cluster.Config(), client.Options{Scheme: scheme})
		return err == nil && servesKinds(t.Context(), e) == nil
	})
	e.Namespace = cluster.Namespace(t)
	return e
}

// Must ends the test if a call that prepares something fails.
func (e *Environment) Must(err error) {
	e.T.Helper()
	if err != nil {
		e.T.Fatal(err)
	}
}

// Eventually waits for the API server, and for what watches it.
func (e *Environment) Eventually(what string, done func() bool) {
	e.T.Helper()
	kubetest.Eventually(e.T, what, done)
}

// Allow replaces the rules of the allow-list.
func (e *Environment) Allow(rules ...v1alpha1.AllowRule) {
	e.T.Helper()
	list := &v1alpha1.IAMRoleAllowList{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AllowListName}}
	err := e.Get(e.T.Context(), client.ObjectKeyFromObject(list), list)
	list.Spec.Rules = append([]v1alpha1.AllowRule{}, rules...)
	if apierrors.IsNotFound(err) {
		err = e.Create(e.T.Context(), list)
	} else if err == nil {
		err = e.Update(e.T.Context(), list)
	}
	e.Must(err)
}

// Account creates a ServiceAccount unless it exists.
func (e *Environment) Account(name string) {
	e.T.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name}}
	e.Must(client.IgnoreAlreadyExists(e.Create(e.T.Context(), account)))
}

// Pod returns a pod of the namespace, which passes the Pod Security level
// restricted.
func (e *Environment) Pod(account string) *corev1.Pod {
	e.T.Helper()
	pod, err := NewPod("")
	e.Must(err)
	pod.Namespace, pod.GenerateName, pod.Spec.ServiceAccountName = e.Namespace, "pod-", account
	return pod
}

// Token returns a token of a ServiceAccount, bound to a pod unless that is nil.
func (e *Environment) Token(account string, pod *corev1.Pod, audiences ...string) string {
	e.T.Helper()
	token, err := RequestToken(e.T.Context(), e, e.Namespace, account, pod, audiences...)
	e.Must(err)
	return token
}

// RequestToken asks for a token as the kubelet does, bound to a pod unless that
// is nil.
func RequestToken(ctx context.Context, c client.Client, namespace, account string, pod *corev1.Pod,
	audiences ...string) (string, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod",
			Name: pod.Name, UID: pod.UID}
	}
	owner := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	err := c.SubResource("token").Create(ctx, owner, request)
	return request.Status.Token, err
}

// Binding returns an IAMBinding with a generated name.
func Binding(namespace, account, role string) *v1alpha1.IAMBinding {
	return &v1alpha1.IAMBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "binding-"},
		Spec: v1alpha1.IAMBindingSpec{AWS: v1alpha1.AWSRole{RoleARN: role},
			ServiceAccountRef: v1alpha1.ServiceAccountReference{Name: account}}}
}

// Scheme has the types of Kubernetes and of pod identity.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme))
}

func servesKinds(ctx context.Context, c client.Client) error {
	return errors.Join(c.List(ctx, &v1alpha1.IAMBindingList{}), c.List(ctx, &v1alpha1.IAMRoleAllowListList{}))
}
