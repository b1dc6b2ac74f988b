package reading

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"

	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/internal/transport"
)

// Request is a request to a JSON API.
type Request struct {
	Question

	Method, URL string
	// Body is sent as JSON. Nil: none.
	Body any
	// Token is the bearer token. It is one of the Secrets.
	Token string
	// QuotaProject is the project that Google bills for the calls of people. Optional.
	QuotaProject string
}

// Ask decodes the answer into a value. A finding with status 404 means that the service does not know the object.
func (r *Request) Ask(ctx context.Context, client *http.Client, into any) doctor.Finding {
	answer, err := transport.Send(ctx, client, func() (*http.Request, error) { return r.build(ctx) }, nil)
	switch {
	case err != nil:
		return r.Unusable(err, 0, "", transport.Message(err, r.Secrets...))
	case answer.Status != http.StatusOK:
		return r.refusal(answer)
	case json.Unmarshal(answer.Body, into) != nil:
		return r.Unusable(nil, answer.Status, "", "the answer is not JSON of the expected form")
	}
	return doctor.Finding{}
}

func (r *Request) build(ctx context.Context) (*http.Request, error) {
	var body bytes.Buffer
	if r.Body != nil {
		if err := json.NewEncoder(&body).Encode(r.Body); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, &body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+r.Token)
	req.Header.Set("Accept", "application/json")
	if r.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.QuotaProject != "" {
		req.Header.Set("X-Goog-User-Project", r.QuotaProject)
	}
	return req, nil
}

// refusal goes by status and code. An error without the code that the service documents comes from something else, such as a
// proxy, and says nothing about rights.
func (r *Request) refusal(answer transport.Answer) doctor.Finding {
	code, reason := readError(answer.Body)
	switch {
	case code == "":
	case answer.Status == http.StatusUnauthorized:
		return r.LoginRefused(answer.Status, code)
	case answer.Status == http.StatusForbidden && (reason == "SERVICE_DISABLED" || reason == "USER_PROJECT_DENIED"):
		return r.with(doctor.Unclear(doctor.Do("Name a project that has enabled iam.googleapis.com and that you may use:",
			"gcloud auth application-default set-quota-project PROJECT_ID"), "%s does not serve the project that pays for your calls.", r.Service),
			answer.Status, reason)
	case answer.Status == http.StatusForbidden:
		return r.Refused(answer.Status, code)
	case answer.Status == http.StatusNotFound:
		return r.with(doctor.Unclear(doctor.Do("See:", r.Show), "%s does not know %s.", r.Service, r.Resource), answer.Status, code)
	}
	return r.Unusable(nil, answer.Status, code, "the service answered with an error")
}

// readError reads the errors of Azure, {"error":{"code":"x"}}, and of Google (AIP-193), whose code is a number beside a status
// and whose details may hold a reason.
func readError(body []byte) (code, reason string) {
	var document struct {
		Error struct {
			Code    json.RawMessage `json:"code"`
			Status  string          `json:"status"`
			Details json.RawMessage `json:"details"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &document) != nil {
		return "", ""
	}
	if json.Unmarshal(document.Error.Code, &code) != nil {
		code = document.Error.Status
	}
	var details []struct {
		Reason string `json:"reason"`
	}
	_ = json.Unmarshal(document.Error.Details, &details) // Azure's details have another form
	for i := range details {
		reason += details[i].Reason
	}
	return code, reason
}
