// Package kube reads objects and the time from API servers for the checks of the doctor.
package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/reason"
	"github.com/workloadid/workloadid/internal/kubeerror"
	"github.com/workloadid/workloadid/internal/transport"
)

// Get reads an object into a type. The client needs no kinds in its scheme, and a manager's client starts no informer of the type.
func Get(ctx context.Context, c client.Reader, kind schema.GroupVersionKind, key client.ObjectKey, into any) error {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	if err := c.Get(ctx, key, object); err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into)
}

// Limits on what a list may take of memory and time.
const (
	pageSize  = 100
	maxListed = 1000
)

// List returns up to 1,000 objects, and reports whether there are more. An object that does not fit the type is left out.
func List[T any](ctx context.Context, c client.Reader, kind schema.GroupVersionKind, opts ...client.ListOption) (all []T, more bool, err error) {
	list := &unstructured.UnstructuredList{}
	for {
		next := list.GetContinue()
		list = &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		page := []client.ListOption{client.Limit(pageSize), client.Continue(next)}
		if err := c.List(ctx, list, append(page, opts...)...); err != nil {
			return all, true, err
		}
		for i := range list.Items {
			var o T
			if runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &o) == nil {
				all = append(all, o)
			}
		}
		if more = list.GetContinue() != ""; !more || len(list.Items) == 0 || len(all) >= maxListed {
			return all, more, nil
		}
	}
}

// Absent reports that the API server does not serve the kind.
func Absent(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// Unread returns the finding of a check that could not read an object. The command shows the object to a person with the right.
func Unread(what string, err error, command string) doctor.Finding {
	var request *url.Error
	f := doctor.Unclear(doctor.Do("Try again, or run:", command), "The API server does not show %s.", what)
	switch {
	case apierrors.IsUnauthorized(err):
		f = doctor.Unclear(doctor.Do("Log in to the cluster again."), "The API server refuses the credentials of the kubeconfig.")
		f.Class = reason.LoginRefused
		return f
	case apierrors.IsForbidden(err):
		f = doctor.Unclear(doctor.Do("Run this as a user with the right to read it:", command), "You may not read %s.", what)
	case errors.As(err, &request), errors.Is(err, context.DeadlineExceeded):
		return doctor.Refusal("The API server", err)
	}
	return f.Detail("error", kubeerror.Message(err))
}

// MaxSkew is the difference of two clocks that may be that of a slow answer.
const MaxSkew = 30 * time.Second

// Ahead returns by how much the clock of an answer (RFC 9110, section 6.6.1) is ahead of this machine's. The time of a cached answer
// does not count.
func Ahead(header http.Header, asked, answered time.Time) (ahead time.Duration, known bool) {
	date, err := http.ParseTime(header.Get("Date"))
	if err != nil || header.Get("Age") != "" {
		return 0, false
	}
	return date.Sub(asked.Add(answered.Sub(asked) / 2).Truncate(time.Second)), true
}

// Skew returns by how much the clock of an API server is ahead of this machine's.
func Skew(ctx context.Context, config *rest.Config, now func() time.Time) (ahead time.Duration, known bool) {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return 0, false
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return 0, false
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base.ResolveReference(&url.URL{Path: "/version"}).String(), nil)
	if err != nil {
		return 0, false
	}
	asked := now()
	resp, err := transport.Guard(httpClient).Do(req)
	if err != nil {
		return 0, false
	}
	resp.Body.Close() //nolint:errcheck,gosec // only the header counts
	return Ahead(resp.Header, asked, now())
}

// Off returns the finding for a clock that differs from a server's.
func Off(class, server string, ahead time.Duration) doctor.Finding {
	direction := "behind"
	if ahead < 0 {
		direction = "ahead of"
	}
	return doctor.Failed(class, doctor.Do("Synchronize this machine's clock:", "sudo timedatectl set-ntp true"),
		"This machine's clock is %s %s that of %s, whose clock counts here.", ahead.Abs().Round(time.Second), direction, server).As(doctor.Warn)
}

// Stamp writes a time as it is written in objects.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Count returns "1 pin" or "2 pins".
func Count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
