package hubcmd

import (
	"context"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/ocm"
)

// Events are data of other programs. The newest one about a request counts,
// whatever it says, and without the right to list them the rest is shown.
func TestHubStatusShowsTheNewestRefusal(t *testing.T) {
	hub := newHub(t, cluster("shop", false))
	name := regtest.Ask(t, hub, asBootstrapUser(hub), "shop", "agent1")
	request := &regtest.RequestsOf(t, hub, "shop")[0]
	request.UID = "of the request" // the fake gives none
	regtest.Must(t, hub.Update(t.Context(), request))
	now := time.Now()
	event := func(reason, note string, at time.Duration, change func(*eventsv1.Event)) {
		e := &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{GenerateName: "refusal-", Namespace: "default"},
			EventTime: metav1.NewMicroTime(now.Add(at)), Action: ocm.ActionApprove, Reason: reason, Note: note,
			Type:      corev1.EventTypeWarning,
			Regarding: corev1.ObjectReference{Kind: "CertificateSigningRequest", Name: name, UID: request.UID}}
		change(e)
		regtest.Must(t, hub.Create(t.Context(), e))
	}
	event("NotAccepted", "first", -time.Hour, func(*eventsv1.Event) {})
	event("SeveralRequests", "two\nlines\x1b[31m", -3*time.Minute, func(e *eventsv1.Event) {
		e.Series = &eventsv1.EventSeries{Count: 9, LastObservedTime: metav1.NewMicroTime(now.Add(-time.Minute))}
	})
	event("AnotherAgent", "before the last of the series", -2*time.Minute, func(*eventsv1.Event) {})
	event("Approved", "of no refusal", 0, func(e *eventsv1.Event) { e.Type = corev1.EventTypeNormal })
	event("Other", "of another program", 0, func(e *eventsv1.Event) { e.Action = "Watch" })
	event("Other", "of another object", 0, func(e *eventsv1.Event) { e.Regarding.Kind = "Node" })
	event("Other", "of a deleted request of the name", 0, func(e *eventsv1.Event) { e.Regarding.UID = "deleted" })
	forbidden := interceptor.NewClient(hub, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch,
		list client.ObjectList, opts ...client.ListOption) error {
		if _, ok := list.(*eventsv1.EventList); ok {
			return apierrors.NewForbidden(eventsv1.Resource("events"), "", nil)
		}
		return c.List(ctx, list, opts...)
	}})
	shown := AgentRequest{Name: name, User: bootstrapUser, Reason: "SeveralRequests", Message: "two lines [31m"}
	for what, row := range map[string]struct {
		hub   client.Reader
		want  AgentRequest
		table string
	}{
		"with the right to list Events":    {hub, shown, "1 (SeveralRequests)"},
		"without the right to list Events": {forbidden, AgentRequest{Name: name, User: bootstrapUser}, "1"},
	} {
		t.Run(what, func(t *testing.T) {
			all, err := clustersOf(t.Context(), row.hub)
			regtest.Must(t, err)
			if got := all[0].PendingRequests; !reflect.DeepEqual(got, []AgentRequest{row.want}) {
				t.Errorf("status shows %+v, want %+v", got, row.want)
			}
			if got := requests(&all[0]); got != row.table {
				t.Errorf("the table shows %q, want %q", got, row.table)
			}
		})
	}
}
