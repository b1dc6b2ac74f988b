// Package kube reads objects from API servers for the checks of the doctor.
package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	"github.com/workloadid/workloadid/internal/kubeerror"
)

// Get reads an object into a type. The client needs no kinds in its scheme, and
// a manager's client starts no informer of the type.
func Get(ctx context.Context, c client.Reader, kind schema.GroupVersionKind, key client.ObjectKey, into any) error {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	if err := c.Get(ctx, key, object); err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into)
}

// maxListed bounds what a list may take of memory and time.
const maxListed = 500

// List returns up to 500 objects. An object that does not fit the type is left
// out.
func List[T any](ctx context.Context, c client.Reader, kind schema.GroupVersionKind,
	opts ...client.ListOption) (all []T, err error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := c.List(ctx, list, append(opts, client.Limit(maxListed))...); err != nil {
		return nil, err
	}
	for i := range list.Items {
		var o T
		if runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &o) == nil {
			all = append(all, o)
		}
	}
	return all, nil
}

// Absent reports that the API server does not serve the kind.
func Absent(err error) bool {
	return meta.IsNoMatchError(err) ||
		apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// Unread returns the finding of a check that an API server refuses to answer.
// The command asks as another user.
func Unread(what string, err error, command string) doctor.Finding {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return doctor.Refusal("The API server", err)
	}
	return doctor.Unclear(doctor.Do("Correct what the answer says, log in again, or run this as a user with the right:",
		command),
		"The API server does not show %s: %s.", what, strings.TrimSuffix(fmt.Sprintf("%.300s", kubeerror.Message(err)), "."))
}

// MaxSkew is the largest difference of two clocks that a slow answer can
// explain.
const MaxSkew = 30 * time.Second

// Do returns the remedy of a sentence and commands of kubectl and wid for the
// cluster of a kubeconfig.
func Do(file cli.KubeFile, text string, commands ...string) doctor.Remedy {
	for i, command := range commands {
		commands[i] = file.Kubectl(command)
	}
	return doctor.Do(text, commands...)
}

// Stamp writes a time as it is written in objects.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

const maxEvents = 5

// Warnings returns the newest wanted Warning Events about an object, each with
// its remedy; nil wants all.
func Warnings(ctx context.Context, c client.Reader, namespace string, about client.MatchingFields,
	remedy func(*corev1.Event) doctor.Remedy, wanted func(*corev1.Event) bool) (all []doctor.Event, err error) {
	fields := maps.Clone(about)
	fields["type"] = corev1.EventTypeWarning
	found, err := List[corev1.Event](ctx, c, corev1.SchemeGroupVersion.WithKind("Event"),
		client.InNamespace(namespace), fields)
	for i := range found {
		if v := &found[i]; wanted == nil || wanted(v) {
			all = append(all, doctor.Event{Time: Past(seen(v), time.Now()), Reason: reasonOf(v),
				Message: strings.TrimSuffix(v.Message, "."),
				Object:  fmt.Sprintf("%.63s %.200s", v.InvolvedObject.Kind, v.InvolvedObject.Name), Remedy: remedy(v)})
		}
	}
	slices.SortStableFunc(all, func(a, b doctor.Event) int { return b.Time.Compare(a.Time) })
	return all[:min(len(all), maxEvents)], err
}

// Sees returns the finding, or makes it Unknown if its Events could not be
// read: a part without them proves nothing.
func Sees(f doctor.Finding, err error) doctor.Finding { //nolint:gocritic // a copy
	if err != nil && f.Result != doctor.Fail {
		f.Result, f.Message = doctor.Unknown, "its Events cannot be read: "+kubeerror.Message(err)+"; "+f.Message
	}
	return f
}

// UID selects the Events of one object, without the Events of earlier objects
// of the same name.
func UID(uid types.UID) client.MatchingFields {
	return client.MatchingFields{"involvedObject.uid": string(uid)}
}

// reasonOf returns a reason that is a word. Anyone who may create Events
// chooses it.
func reasonOf(v *corev1.Event) string {
	if strings.ContainsFunc(v.Reason, func(r rune) bool { return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') }) {
		return "Event"
	}
	return v.Reason
}

// Past returns a time that another program wrote, or otherwise if that time is
// in the future.
func Past(t, otherwise time.Time) time.Time {
	if t.After(time.Now().Add(MaxSkew)) {
		return otherwise
	}
	return t
}

func seen(v *corev1.Event) time.Time {
	switch {
	case v.Series != nil:
		return v.Series.LastObservedTime.Time
	case !v.EventTime.IsZero():
		return v.EventTime.Time
	}
	return v.LastTimestamp.Time
}
