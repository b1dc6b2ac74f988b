package serviceaccounts

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Client returns a client that reads ServiceAccounts from r. It passes everything else to base, including ServiceAccounts of
// namespaces that r does not read. The clients of several Readers can therefore be stacked.
//
// The result of Get belongs to the caller, but is only a part of the ServiceAccount. Update, Patch and Apply of ServiceAccounts
// are refused; use base for them. Use base for the doctor too, which also reads misspelt annotations. Options of Get have no
// effect on ServiceAccounts.
//
// Auth reads with GetShared, which copies nothing. A provider outside this module must not write to the annotations. A client
// that wraps this one hides GetShared and costs a copy of the annotations.
func (r *Reader) Client(base client.Client) client.Client { return &readingClient{base, r} }

type readingClient struct {
	client.Client
	reader *Reader
}

// sharedReader is the interface that auth looks up in a client.
type sharedReader interface {
	GetShared(ctx context.Context, key client.ObjectKey, sa *corev1.ServiceAccount) error
}

// Get implements client.Reader.
func (c *readingClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	sa, ok := obj.(*corev1.ServiceAccount)
	if !ok || !c.reader.covers(key.Namespace) {
		return c.Client.Get(ctx, key, obj, opts...)
	}
	if err := c.reader.read(ctx, key, sa); err != nil {
		return err
	}
	sa.Annotations, sa.DeletionTimestamp = maps.Clone(sa.Annotations), sa.DeletionTimestamp.DeepCopy()
	return nil
}

// GetShared is Get for callers that do not modify the result.
func (c *readingClient) GetShared(ctx context.Context, key client.ObjectKey, sa *corev1.ServiceAccount) error {
	if c.reader.covers(key.Namespace) {
		return c.reader.read(ctx, key, sa)
	}
	if base, ok := c.Client.(sharedReader); ok {
		return base.GetShared(ctx, key, sa)
	}
	return c.Client.Get(ctx, key, sa)
}

// Update implements client.Writer.
func (c *readingClient) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	if sa, ok := obj.(*corev1.ServiceAccount); ok {
		return refuse("update", sa.Namespace, sa.Name)
	}
	return c.Client.Update(ctx, obj, opts...)
}

// Patch implements client.Writer.
func (c *readingClient) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if sa, ok := obj.(*corev1.ServiceAccount); ok {
		return refuse("patch", sa.Namespace, sa.Name)
	}
	return c.Client.Patch(ctx, obj, patch, opts...)
}

// Apply implements client.Writer. A configuration extracted from the result of Get would lack most fields.
func (c *readingClient) Apply(ctx context.Context, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	if a, ok := obj.(applied); ok && value(a.GetKind()) == "ServiceAccount" && value(a.GetAPIVersion()) == "v1" {
		return refuse("apply", value(a.GetNamespace()), value(a.GetName()))
	}
	return c.Client.Apply(ctx, obj, opts...)
}

// applied is the common interface of all generated configurations for Apply.
type applied interface {
	GetKind() *string
	GetAPIVersion() *string
	GetNamespace() *string
	GetName() *string
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func refuse(verb, namespace, name string) error {
	return fmt.Errorf("%s ServiceAccount %q: this client reads a part of ServiceAccounts only, and what is written would lack "+
		"the rest; read and write it with the client that was given to serviceaccounts.Reader.Client", verb, namespace+"/"+name)
}
