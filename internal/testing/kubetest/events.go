package kubetest

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
)

// Recorder returns a recorder that creates each Event at once, and fails the
// test if the API server refuses it. The recorder of a manager only logs that.
func (c *Cluster) Recorder(t testing.TB) events.EventRecorder { return recorder{c, t} }

type recorder struct {
	c *Cluster
	t testing.TB
}

// Eventf implements events.EventRecorder.
func (r recorder) Eventf(_, _ runtime.Object, eventType, reason, action, note string, args ...any) {
	e := &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{GenerateName: "kubetest-", Namespace: metav1.NamespaceDefault},
		Regarding:           corev1.ObjectReference{Namespace: metav1.NamespaceDefault, Name: r.t.Name()},
		EventTime:           metav1.NewMicroTime(time.Now()),
		ReportingController: "kubetest", ReportingInstance: "kubetest", Type: eventType, Reason: reason, Action: action,
		Note: fmt.Sprintf(note, args...)}
	if err := r.c.Client().Create(r.t.Context(), e); err != nil {
		r.t.Errorf("the API server refuses the Event %s with a note of %d bytes: %v", reason, len(e.Note), err)
	}
}
