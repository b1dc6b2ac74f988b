package cloudtest

import (
	"context"
	"fmt"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	k8stesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Client is an auth.KubernetesClient. It holds objects of core/v1 in memory and
// issues tokens of its ServiceAccounts. It is safe for concurrent use. A
// reconciler needs a [client.Client] instead: use [Issuer.Wrap] on a fake
// client.
type Client struct {
	issuer  *Issuer
	tracker k8stesting.ObjectTracker
}

// coreScheme is made once, because registering the kinds takes longer than most
// tests that use a client.
var coreScheme = sync.OnceValue(func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		panic(err) // a release of k8s.io/api has a consistent scheme
	}
	return scheme
})

// Client returns a client of an API server that holds the given objects. It
// panics if an object is not of core/v1, or is given twice. If a test needs
// more methods or other kinds, pass a fake client of controller-runtime to
// Wrap.
func (i *Issuer) Client(objs ...client.Object) *Client {
	decoder := serializer.NewCodecFactory(coreScheme()).UniversalDecoder()
	c := &Client{issuer: i, tracker: k8stesting.NewObjectTracker(coreScheme(), decoder)}
	for _, obj := range objs {
		copied, _ := obj.DeepCopyObject().(client.Object) // it has the type of obj
		if err := c.Create(context.Background(), copied); err != nil {
			panic(fmt.Sprintf("cloudtest: Issuer.Client: %v", err))
		}
	}
	return c
}

func resourceOf(obj client.Object) (schema.GroupVersionResource, error) {
	gvk, err := apiutil.GVKForObject(obj, coreScheme())
	resource, _ := meta.UnsafeGuessKindToResource(gvk)
	return resource, err
}

// Get implements the method of [client.Client].
func (c *Client) Get(ctx context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	resource, err := resourceOf(obj)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	return trackerLookup(c.tracker)(resource.Resource, key, obj)
}

// Create implements the method of [client.Client]. An object without a UID gets
// one.
func (c *Client) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	resource, err := resourceOf(obj)
	if err != nil {
		return err
	}
	setUID(obj)
	return c.tracker.Create(resource, obj, obj.GetNamespace())
}

// Update implements the method of [client.Client]. The last of two updates
// wins.
func (c *Client) Update(_ context.Context, obj client.Object, _ ...client.UpdateOption) error {
	resource, err := resourceOf(obj)
	if err != nil {
		return err
	}
	return c.tracker.Update(resource, obj, obj.GetNamespace())
}

// Delete implements the method of [client.Client].
func (c *Client) Delete(_ context.Context, obj client.Object, _ ...client.DeleteOption) error {
	resource, err := resourceOf(obj)
	if err != nil {
		return err
	}
	return c.tracker.Delete(resource, obj.GetNamespace(), obj.GetName())
}

// SubResource implements the method of [client.Client] for the sub-resource
// "token" of ServiceAccounts. Create is its only method.
func (c *Client) SubResource(name string) client.SubResourceClient { return subResource{c, name} }

type subResource struct {
	client *Client
	name   string
}

func (s subResource) Create(_ context.Context, obj, sub client.Object, _ ...client.SubResourceCreateOption) error {
	request, ok := sub.(*authenticationv1.TokenRequest)
	if s.name != "token" || !ok {
		return s.refuse("create")
	}
	return s.client.issuer.issue(client.ObjectKeyFromObject(obj), request, trackerLookup(s.client.tracker))
}

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
	return fmt.Errorf(
		"cloudtest: Client creates tokens of ServiceAccounts and does not %s the sub-resource %q: use Issuer.Wrap",
		verb, s.name)
}
