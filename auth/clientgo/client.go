package clientgo

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
)

// New takes a kubernetes.Interface and returns a client for
// [auth.WithServiceAccount], [auth.WithClient], [auth.TokenRequest] and
// [auth.GetClusterConfigFromConfigMap]. It gets ServiceAccounts and ConfigMaps,
// creates tokens of ServiceAccounts, and refuses everything else. Each Get asks
// the API server. It returns the errors of the clientset. It is safe for
// concurrent use.
func New(clientset interface {
	CoreV1() typedcorev1.CoreV1Interface
}) auth.KubernetesClient {
	return NewForServiceAccounts(clientset.CoreV1())
}

// NewForServiceAccounts is [New] for a typed client, such as
// [typedcorev1.CoreV1Interface]. To read ConfigMaps, the client needs a method
// ConfigMaps too.
func NewForServiceAccounts(c typedcorev1.ServiceAccountsGetter) auth.KubernetesClient { return kube{c} }

type kube struct {
	typedcorev1.ServiceAccountsGetter
}

// Get implements auth.KubernetesClient.
func (k kube) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	get := *(&client.GetOptions{}).ApplyOptions(opts).AsGetOptions()
	switch into := obj.(type) {
	case *corev1.ServiceAccount:
		return fill(into)(k.ServiceAccounts(key.Namespace).Get(ctx, key.Name, get))
	case *corev1.ConfigMap:
		if maps, ok := k.ServiceAccountsGetter.(typedcorev1.ConfigMapsGetter); ok {
			return fill(into)(maps.ConfigMaps(key.Namespace).Get(ctx, key.Name, get))
		}
	}
	return fmt.Errorf("the client for auth gets ServiceAccounts and ConfigMaps, not a %T", obj)
}

// fill copies an answer to the caller's object.
func fill[T any](into *T) func(*T, error) error {
	return func(answer *T, err error) error {
		if err == nil {
			*into = *answer
		}
		return err
	}
}

// SubResource implements auth.KubernetesClient.
func (k kube) SubResource(name string) client.SubResourceClient {
	return subResource{accounts: k.ServiceAccountsGetter, name: name}
}

// subResource serves Create, the only method that auth calls.
type subResource struct {
	accounts typedcorev1.ServiceAccountsGetter
	name     string
}

// Create requests a token for a ServiceAccount.
func (s subResource) Create(ctx context.Context, obj, sub client.Object, opts ...client.SubResourceCreateOption) error {
	account, isAccount := obj.(*corev1.ServiceAccount)
	request, isRequest := sub.(*authenticationv1.TokenRequest)
	if s.name != "token" || !isAccount || !isRequest {
		return fmt.Errorf("the client for auth creates tokens of ServiceAccounts, not %q of a %T from a %T", s.name, obj, sub)
	}
	create := *(&client.SubResourceCreateOptions{}).ApplyOptions(opts).AsCreateOptions()
	return fill(request)(s.accounts.ServiceAccounts(account.Namespace).CreateToken(ctx, account.Name, request, create))
}

// auth never calls the other methods; the interface requires them.

func (s subResource) Get(context.Context, client.Object, client.Object, ...client.SubResourceGetOption) error {
	return s.refuse("get")
}
func (s subResource) Update(context.Context, client.Object, ...client.SubResourceUpdateOption) error {
	return s.refuse("update")
}
func (s subResource) Patch(context.Context, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
	return s.refuse("patch")
}
func (s subResource) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	return s.refuse("apply")
}

func (s subResource) refuse(verb string) error {
	return fmt.Errorf("the client for auth creates tokens of ServiceAccounts, it does not %s the sub-resource %q",
		verb, s.name)
}
