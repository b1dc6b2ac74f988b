package transport

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
)

// JSONRequest is a request to a REST API that accepts a bearer token and JSON.
type JSONRequest struct {
	Method, URL, Bearer string
	Body                any // optional
}

// Send is the function [Send] for this request.
func (r JSONRequest) Send(ctx context.Context, client *http.Client) (Answer, error) {
	return Send(ctx, client, func() (*http.Request, error) { return r.make(ctx) }, nil)
}

func (r JSONRequest) make(ctx context.Context) (*http.Request, error) {
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
