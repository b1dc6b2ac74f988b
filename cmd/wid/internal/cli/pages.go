package cli

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pageSize is the number of objects of a page. maxAnswer bounds a page: an
// object has up to 1.5 MiB.
const (
	pageSize  = 20
	maxAnswer = 32 << 20
)

// Each calls do for each object that the API server lists. It reads page by
// page, which bounds memory: others create many objects, each as large as etcd
// takes. list is an empty list of the kind.
func Each[O client.Object](ctx context.Context, c client.Reader, list client.ObjectList, do func(O),
	opts ...client.ListOption) error {
	for next := ""; ; {
		page, _ := list.DeepCopyObject().(client.ObjectList) // a copy has the same type
		if err := c.List(ctx, page, append(opts, client.Limit(pageSize), client.Continue(next))...); err != nil {
			return err
		}
		err := meta.EachListItem(page, func(o runtime.Object) error {
			if object, ok := o.(O); ok {
				do(object)
			}
			return nil
		})
		if next = page.GetContinue(); err != nil || next == "" {
			return err
		}
	}
}
