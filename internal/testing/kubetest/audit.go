package kubetest

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"
	"time"
)

// Request is a request to the API server.
type Request struct {
	User, UserAgent                              string
	Verb, Resource, Subresource, Namespace, Name string
	Code                                         int
	Time                                         time.Time
}

// Audit returns what a user has asked of the API server so far. The API server
// writes the log before it answers.
func (c *Cluster) Audit(t testing.TB, user string) []Request {
	t.Helper()
	log, err := os.ReadFile(c.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	var requests []Request
	for line := range bytes.Lines(log) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // the API server writes it just now
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		if e.User.Username == user {
			requests = append(requests, e.request())
		}
	}
	return requests
}

// event is the part of an audit.k8s.io/v1 Event that matters here.
type event struct {
	Verb      string
	UserAgent string
	User      struct{ Username string }
	ObjectRef struct{ Resource, Subresource, Namespace, Name string }
	Response  struct{ Code int } `json:"responseStatus"`
	Time      time.Time          `json:"requestReceivedTimestamp"`
}

func (e event) request() Request {
	return Request{User: e.User.Username, UserAgent: e.UserAgent, Verb: e.Verb,
		Resource: e.ObjectRef.Resource, Subresource: e.ObjectRef.Subresource, Namespace: e.ObjectRef.Namespace,
		Name: e.ObjectRef.Name,
		Code: e.Response.Code, Time: e.Time}
}
