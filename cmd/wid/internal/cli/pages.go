package cli

import "sigs.k8s.io/controller-runtime/pkg/client"

// PageSize is the number of objects of a page. maxPage bounds its answer: an object has up to 1.5 MiB.
const (
	PageSize = 20
	maxPage  = 32 << 20
)

// EachPage calls list for each page of the API server's objects, which bounds memory: others create many objects, each as
// large as etcd takes. list passes the options on, and returns the position of the next page.
func EachPage(list func(opts ...client.ListOption) (next string, err error)) error {
	for next := ""; ; {
		var err error
		if next, err = list(client.Limit(PageSize), client.Continue(next)); err != nil || next == "" {
			return err
		}
	}
}
