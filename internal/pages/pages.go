// Package pages lists objects of the API server page by page, which bounds memory: others create many objects, each as large as etcd takes.
package pages

import "sigs.k8s.io/controller-runtime/pkg/client"

// Size is the number of objects of a page. MaxBytes bounds its answer: an object has up to 1.5 MiB.
const (
	Size     = 20
	MaxBytes = 32 << 20
)

// Each calls list for each page. list passes the options on, and returns the position of the next page.
func Each(list func(opts ...client.ListOption) (next string, err error)) error {
	for next := ""; ; {
		var err error
		if next, err = list(client.Limit(Size), client.Continue(next)); err != nil || next == "" {
			return err
		}
	}
}
