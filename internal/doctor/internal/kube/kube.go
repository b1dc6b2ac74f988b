// Package kube reads objects and the time from API servers for the checks of the doctor.
package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
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

// List returns up to 1,000 objects. An object that does not fit the type is left out.
func List[T any](ctx context.Context, c client.Reader, kind schema.GroupVersionKind, opts ...client.ListOption) (all []T, err error) {
	list := &unstructured.UnstructuredList{}
	for {
		next := list.GetContinue()
		list = &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		page := []client.ListOption{client.Limit(pageSize), client.Continue(next)}
		if err := c.List(ctx, list, append(page, opts...)...); err != nil {
			return all, err
		}
		for i := range list.Items {
			var o T
			if runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &o) == nil {
				all = append(all, o)
			}
		}
		if list.GetContinue() == "" || len(list.Items) == 0 || len(all) >= maxListed {
			return all, nil
		}
	}
}

// Absent reports that the API server does not serve the kind.
func Absent(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// Unread returns the finding of a check that an API server refuses to answer. The command asks as another user.
func Unread(what string, err error, command string) doctor.Finding {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return doctor.Refusal("The API server", err)
	}
	return doctor.Unclear(doctor.Do("Correct what the answer says, log in again, or run this as a user with the right:", command),
		"The API server does not show %s: %s.", what, strings.TrimSuffix(fmt.Sprintf("%.300s", kubeerror.Message(err)), "."))
}

// MaxSkew is the difference of two clocks that may be that of a slow answer.
const MaxSkew = 30 * time.Second

// Skew returns by how much the clock of an API server (RFC 9110, section 6.6.1) is ahead of this machine's. The time of a cached answer
// does not count.
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
	date, err := http.ParseTime(resp.Header.Get("Date"))
	return date.Sub(asked.Add(now().Sub(asked) / 2).Truncate(time.Second)), err == nil && resp.Header.Get("Age") == ""
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
