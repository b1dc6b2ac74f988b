package doctor

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// getObject reads an object without its type in Go: the kinds may be those of others, and a manager's client would begin to
// watch all objects of a kind that it has a type for.
func getObject(ctx context.Context, c client.Reader, apiVersion, kind string,
	key client.ObjectKey) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(apiVersion)
	object.SetKind(kind)
	return object, c.Get(ctx, key, object)
}

// readObject is getObject into a type.
func readObject(ctx context.Context, c client.Reader, apiVersion, kind string, key client.ObjectKey, into any) error {
	object, err := getObject(ctx, c, apiVersion, kind, key)
	if err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into)
}

const (
	pageSize = 100
	// maxListed bounds what a list of strangers' objects takes of memory and time.
	maxListed = 1000
)

// listObjects reads up to maxListed objects, and reports whether there are more.
func listObjects(ctx context.Context, c client.Reader, apiVersion, kind string,
	opts ...client.ListOption) (items []unstructured.Unstructured, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*requestTimeout)
	defer cancel()
	next := ""
	for {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind+"List"))
		if err := c.List(ctx, list, append([]client.ListOption{client.Limit(pageSize), client.Continue(next)},
			opts...)...); err != nil {
			return items, true, err
		}
		items = append(items, list.Items...)
		if next = list.GetContinue(); len(items) > maxListed || next != "" && len(items) == maxListed {
			return items[:maxListed], true, nil
		}
		if next == "" || len(list.Items) == 0 {
			return items, false, nil
		}
	}
}

// absentKind reports that a cluster does not know a kind: no mapping of it, or no path for it.
func absentKind(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) &&
		strings.Contains(err.Error(), "could not find the requested resource")
}

// unread is the finding of a check that could not read something; grant names the right that it takes.
func unread(what string, err error, grant string) Finding {
	return unknown(what+" cannot be read: "+kubeMessage(err), remedyOf(err, grant))
}

// remedyOf is what to do about an API server's refusal, or about its silence; grant names the right that it takes.
func remedyOf(err error, grant string) string {
	if _, remedy, known := obstacle(err); known {
		return remedy
	}
	switch {
	case apierrors.IsUnauthorized(err):
		return "log in again: the API server refuses the credentials of the kubeconfig"
	case apierrors.IsForbidden(err):
		return grant
	case isCacheEmpty(err):
		return "set Config.Reader to Manager.GetAPIReader(): the client reads from a cache, which takes the rights to list and watch"
	case apierrors.ReasonForError(err) == "":
		return "see that the API server runs, and that the kubeconfig and the network lead to it: " + version
	}
	return "try again"
}
