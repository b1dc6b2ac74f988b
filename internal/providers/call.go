package providers

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"

	"github.com/workloadid/workloadid/internal/exactjson"
	"github.com/workloadid/workloadid/internal/transport"
)

// Request is a request to a REST API that accepts a bearer token and JSON.
type Request struct {
	Operation, Service  string // for errors
	Method, URL, Bearer string
	Body                any      // optional
	Secrets             []string // besides the bearer
}

// Call sends a request and decodes the JSON of an answer with status 200. refused explains every other answer.
func (n Name) Call(ctx context.Context, client *http.Client, r Request, into any, refused func(transport.Answer) error) error {
	answer, err := transport.Send(ctx, client, func() (*http.Request, error) { return r.make(ctx) }, nil)
	switch {
	case err != nil:
		return n.Unanswered(r.Operation, err, append([]string{r.Bearer}, r.Secrets...)...)
	case answer.Status != http.StatusOK:
		return refused(answer)
	case exactjson.Unmarshal(answer.Body, into) != nil:
		return n.Unusable(r.Operation, r.Service, "it is not the JSON object that was expected")
	}
	return nil
}

func (r Request) make(ctx context.Context) (*http.Request, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = json.Marshal(r.Body); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+r.Bearer)
	req.Header.Set("Accept", "application/json")
	if r.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}
