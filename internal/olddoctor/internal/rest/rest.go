// Package rest asks the JSON APIs of clouds with the caller's own token, and words what goes wrong for a person: who was
// asked, which right is missing, and the command that shows the same.
package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/olddoctor"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

// Question is a request and what a person has to know about it.
type Question struct {
	// Provider is the provider's name, Service that of the service.
	Provider, Service string
	// Permission is the right that it needs, Resource what for.
	Permission, Resource string
	// Who is the caller, as far as it is known.
	Who string
	// Show is a command that shows the same.
	Show string

	Method, URL string
	// Body is sent as JSON. Nil: nothing.
	Body any
	// Token is the bearer token.
	Token string
	// QuotaProject is the project that pays for the calls of people at Google. Optional.
	QuotaProject string
}

// Ask reads the answer into a value. A 404 has doctor.ErrMissing below it.
func (q Question) Ask(ctx context.Context, client *http.Client, into any) error {
	var body []byte
	if q.Body != nil {
		var err error
		if body, err = json.Marshal(q.Body); err != nil {
			return err
		}
	}
	answer, err := transport.Send(ctx, client, func() (*http.Request, error) {
		req, err := http.NewRequestWithContext(ctx, q.Method, q.URL, bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+q.Token)
		req.Header.Set("Accept", "application/json")
		if q.QuotaProject != "" {
			req.Header.Set("X-Goog-User-Project", q.QuotaProject)
		}
		if body != nil {
			req.Header.Set("Content-Type", "application/json")
		}
		return req, nil
	}, nil)
	if err != nil {
		return q.unanswered(err, transport.Message(err, q.Token))
	}
	if answer.Status != http.StatusOK {
		return q.refused(answer)
	}
	if json.Unmarshal(answer.Body, into) != nil {
		return q.unanswered(nil, "HTTP 200 with something that is no answer of it")
	}
	return nil
}

// Strange is for answers that lack what was asked for.
func (q Question) Strange() error { return q.unanswered(nil, "it lacks what was asked for") }

func (q Question) unanswered(err error, why string) error {
	return &auth.Error{Provider: q.Provider, Reason: auth.ErrUnavailable, Err: err, Remedy: "try again, or see: " + q.Show,
		Message: q.Service + " gives no usable answer: " + why}
}

// refused goes by the status, and takes code and text over.
func (q Question) refused(answer transport.Answer) error {
	code, reason, text := readError(answer.Body)
	e := &auth.Error{Provider: q.Provider, StatusCode: answer.Status, Code: redact.Text(code, q.Token), Remedy: "see: " +
		q.Show,
		RequestID: redact.Text(answer.Header.Get("x-ms-request-id"), q.Token)}
	text = redact.Text(text, q.Token)
	switch {
	case code == "":
		return q.unanswered(nil, fmt.Sprintf("HTTP %d with something that is no answer of it", answer.Status))
	case answer.Status == http.StatusUnauthorized:
		e.Reason, e.Message, e.Remedy = auth.ErrDenied, q.Service+" does not accept your login: "+text, "log in again, and see: "+q.Show
	case answer.Status == http.StatusForbidden && (reason == "SERVICE_DISABLED" || reason == "USER_PROJECT_DENIED"):
		// It is not about a right on what was asked for.
		e.Reason, e.Message = auth.ErrMisconfigured, q.Service+" does not serve the project that pays for your calls: "+text
		e.Remedy = "gcloud auth application-default set-quota-project PROJECT_ID, one with the API iam.googleapis.com and " +
			"serviceusage.services.use for you, and see: " + q.Show
	case answer.Status == http.StatusForbidden:
		e.Reason, e.Message = auth.ErrDenied, fmt.Sprintf("%s refuses %s to %s: %s", q.Service, q.Permission, q.Who, text)
		e.Remedy = fmt.Sprintf("grant %s on %s, and see: %s", q.Permission, q.Resource, q.Show)
	case answer.Status == http.StatusNotFound:
		e.Reason, e.Message, e.Err = auth.ErrMisconfigured, fmt.Sprintf("%s has no %s: %s", q.Service, q.Resource,
			text), doctor.ErrMissing
	case answer.Status == http.StatusTooManyRequests:
		e.Reason, e.Message = auth.ErrThrottled, q.Service+" asks to slow down"
	default:
		e.Reason, e.Message = auth.ErrUnavailable, fmt.Sprintf("%s answers %d: %s", q.Service, answer.Status, text)
	}
	return e
}

// readError knows the errors of Azure, {"error":{"code":"x","message":"y"}}, and those of Google (AIP-193), whose code is a
// number beside a status, and whose details may have a reason. The code is empty if it is none of them.
func readError(body []byte) (code, reason, message string) {
	var document struct {
		Error struct {
			Code    json.RawMessage `json:"code"`
			Status  string          `json:"status"`
			Message string          `json:"message"`
			Details json.RawMessage `json:"details"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &document) != nil {
		return "", "", ""
	}
	if json.Unmarshal(document.Error.Code, &code) != nil {
		code = document.Error.Status
	}
	var details []struct {
		Reason string `json:"reason"`
	}
	_ = json.Unmarshal(document.Error.Details, &details) // those of Azure have another form
	for _, d := range details {
		if reason == "" {
			reason = d.Reason
		}
	}
	return code, reason, document.Error.Message
}
