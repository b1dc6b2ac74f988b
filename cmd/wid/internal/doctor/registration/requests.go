package registration

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	"github.com/workloadid/workloadid/internal/kubeerror"
	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

type certificateRequest = certificatesv1.CertificateSigningRequest

// maxShown bounds the requests that a report lists.
const maxShown = 10

// describe says what a reader decides by: the state of a request, its user, the
// subject that it asks for, and the user's groups.
func describe(r *certificateRequest) (name, text string) {
	state := "pending"
	for _, c := range r.Status.Conditions {
		state = string(c.Type)
	}
	if len(r.Status.Certificate) > 0 {
		state += ", signed"
	}
	return fmt.Sprintf("%.100s", r.Name),
		fmt.Sprintf("%.63s, %s old, by user %.200q for the subject %.300q, in groups %.300q", state,
			doctor.Age(r.CreationTimestamp.Time), r.Spec.Username, subjectOf(r), r.Spec.Groups)
}

// subjectOf has blanks between the parts of the subject, so that a line can
// break there.
func subjectOf(r *certificateRequest) string {
	if block, _ := pem.Decode(r.Spec.Request); block != nil {
		if parsed, err := x509.ParseCertificateRequest(block.Bytes); err == nil {
			return strings.NewReplacer(",", ", ", "+", " + ").Replace(parsed.Subject.String())
		}
	}
	return "none that can be read"
}

// key returns the SHA-256 of the public key that the agent waits for, as
// csr.Request.Key has it, "" if it waits for none.
func (e *examination) key() string {
	_, state := registration.Unpack(registration.AuthTypeCSR, e.own.data)
	for _, content := range state {
		if block, _ := pem.Decode(content); block != nil {
			if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
				if public, err := x509.MarshalPKIXPublicKey(key.Public()); err == nil {
					return fmt.Sprintf("%x", sha256.Sum256(public))
				}
			}
		}
	}
	return ""
}

// ownRequest returns the request of the agent, which has the key in the agent's
// Secret, and nil if there is none.
func (e *examination) ownRequest() *csr.Request {
	key := e.key()
	for i := range e.requests {
		r, err := csr.Parse(&e.requests[i])
		if err == nil && key != "" && r.Key == key && r.Object.Labels[addon.NameLabel] == "" {
			return r
		}
	}
	return nil
}

// showRequests shows the request of the agent. Other users' requests appear
// with --verbose, and never count against the agent.
func (e *examination) showRequests(ctx context.Context) doctor.Finding {
	if e.requestErr != nil {
		return unread("the requests: %s", kubeerror.Message(e.requestErr))
	}
	own := e.ownRequest()
	f := doctor.Skipped("none that waits for this agent, and %d with its label; the hub forgets old ones", len(e.requests))
	switch {
	case own != nil:
		f = e.showRequest(ctx, own)
	case e.Spoke == nil && len(e.requests) > 0:
		f = unread("%d with its label; the kubeconfig of the cluster tells which is the agent's", len(e.requests))
	default:
		f = f.With(time.Time{}, e.credentialWorked(), e.agentEvents(ctx, "requests")...)
	}
	for i := range e.requests {
		if i == maxShown {
			f = f.Detail("more", fmt.Sprint(len(e.requests)-maxShown))
			break
		}
		f = f.Detail(describe(&e.requests[i]))
	}
	return f
}

func (e *examination) showRequest(ctx context.Context, r *csr.Request) doctor.Finding {
	refusal := r.Refusal()
	name, text := describe(r.Object)
	look := e.atHub("look at the request:", "kubectl describe csr "+shell.Word(r.Object.Name, "REQUEST"))
	events := e.events(ctx, metav1.NamespaceDefault, r.Object.UID, look)
	for i := range events {
		events[i].Remedy = e.ofRequest(r, events[i].Reason, look)
	}
	ofAgent := e.agentEvents(ctx, "requests")
	for i := range ofAgent {
		if ofAgent[i].Reason == "ClientCertificateNotApproved" && len(events) > 0 { // the hub's newest Event says why
			ofAgent[i].Remedy = events[0].Remedy
		}
	}
	f := doctor.Unclear(look, "%s; %s", text, name).Whole()
	// a credential that is still valid says nothing of a request for the next
	// one
	since, worked := time.Time{}, time.Time{}
	switch {
	case refusal != nil:
		f = doctor.Failed("ClientCertificate"+string(refusal.Type), look, "%s is %s: %.63s: %.300s", name, refusal.Type,
			refusal.Reason, refusal.Message)
		since = refusal.LastTransitionTime.Time
	case len(r.Object.Status.Certificate) > 0:
		f, worked = doctor.Passed("%s; %s", text, name), e.credentialWorked()
	}
	return f.With(since, worked, append(events, ofAgent...)...)
}

// rivals reports whether the hub could approve several undecided requests.
func (e *examination) rivals() bool {
	open := 0
	for i := range e.requests {
		if r, err := csr.Parse(&e.requests[i]); err == nil && r.IsPending() {
			open++
		}
	}
	return open > 1
}

// ofRequest returns the action that the hub's Event names. The command approves
// only a request of the agent.
func (e *examination) ofRequest(r *csr.Request, reason string, look doctor.Remedy) doctor.Remedy {
	text := fmt.Sprintf("if this cluster's agent lost its credential or was replaced, approve its request by user %.200q:",
		r.Object.Spec.Username)
	if reason == "NotAccepted" && e.rivals() {
		text = fmt.Sprintf(
			"accept the cluster if it is wanted. Several requests wait (--verbose): approve the one with the key of this "+
				"cluster's agent, by user %.200q:", r.Object.Spec.Username)
		reason = "SeveralRequests"
	}
	switch {
	case r.Cluster != e.ClusterName:
		return look
	case slices.Contains([]string{"AlreadyJoined", "AnotherAgent", "AnotherKey", "SeveralRequests"}, reason):
		return e.atHub(text, "wid hub accept --clusters "+e.name()+" --approve-request "+shell.Word(r.Object.Name, "REQUEST"))
	case reason == "UnknownRequester":
		return e.accept()
	}
	return e.action(reason, look)
}
