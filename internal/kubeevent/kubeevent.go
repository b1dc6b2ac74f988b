// Package kubeevent records Events.
package kubeevent

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
)

// maxNote is the longest note of an Event of events.k8s.io/v1, in bytes. The
// API server refuses a longer one, which the recorder only logs.
const maxNote = 1024

// Record records an Event about an object. A longer message is cut between two
// characters, and ends in "…". A nil recorder drops the Event.
func Record(recorder events.EventRecorder, about runtime.Object, eventType, reason, action, message string) {
	if recorder != nil {
		recorder.Eventf(about, nil, eventType, reason, action, "%s", note(message))
	}
}

func note(message string) string {
	const mark = "…"
	if message = strings.ToValidUTF8(message, ""); len(message) <= maxNote {
		return message
	}
	return strings.ToValidUTF8(message[:maxNote-len(mark)], "") + mark
}
