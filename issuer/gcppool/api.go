package gcppool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/exactjson"
	"github.com/workloadid/workloadid/internal/pause"
	"github.com/workloadid/workloadid/internal/transport"
	"github.com/workloadid/workloadid/issuer/internal/object"
)

// poolProvider is a provider in the IAM API.
type poolProvider struct {
	State string `json:"state,omitempty"`
	OIDC  struct {
		Issuer string `json:"issuerUri,omitempty"`
		JWKS   string `json:"jwksJson"`
	} `json:"oidc"`
}

// longRunning is an operation of the IAM API.
type longRunning struct {
	Name  string  `json:"name"`
	Done  bool    `json:"done"`
	Error *status `json:"error"`
}

// status is an error of Google.
type status struct {
	Code    int    `json:"code"`
	Status  string `json:"status"`
	Message string `json:"message"`
}

func (s *Store) get(ctx context.Context, operation string) (poolProvider, error) {
	var p poolProvider
	if err := s.call(ctx, operation, http.MethodGet, s.name, nil, &p); err != nil {
		return p, err
	}
	if p.State == "DELETED" {
		return p, self.Misconfigured("undelete the provider, or name another one", "%s: the provider is deleted", operation)
	}
	return p, nil
}

// upload replaces the keys, and waits until Google has applied them.
func (s *Store) upload(ctx context.Context, operation string, keys []byte) error {
	const patience = time.Minute
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var change poolProvider
	change.OIDC.JWKS = string(keys)
	var op longRunning
	if err := s.call(ctx, operation, http.MethodPatch, s.name+"?updateMask=oidc.jwksJson", change, &op); err != nil {
		return err
	}
	const first, longest = 250 * time.Millisecond, 8 * time.Second
	for delay := first; !op.Done; delay = min(2*delay, longest) {
		if id, ok := strings.CutPrefix(op.Name, s.name+"/operations/"); !ok || strings.ContainsAny(id, "/?#%") {
			return self.Unusable(operation, service, "it names no operation")
		}
		if err := pause.For(ctx, delay); err != nil {
			return self.Unanswered(operation, err)
		}
		if err := s.call(ctx, operation, http.MethodGet, op.Name, nil, &op); err != nil {
			return err
		}
	}
	if op.Error != nil {
		return self.Unavailable(operation, "", "the upload failed: %s (code %d)", provider.Redact(op.Error.Message),
			op.Error.Code)
	}
	return nil
}

func (s *Store) call(ctx context.Context, operation, method, target string, body, into any) error {
	token, err := s.token(ctx, operation)
	if err != nil {
		return err
	}
	answer, err := transport.JSONRequest{Method: method, URL: apiRoot + target, Bearer: token, Body: body}.Send(ctx,
		s.client)
	switch {
	case err != nil:
		return self.Unanswered(operation, err, token)
	case answer.Status != http.StatusOK:
		return refused(operation, answer, token)
	case exactjson.Unmarshal(answer.Body, into) != nil:
		return self.Unusable(operation, service, "it is not the JSON object that was expected")
	}
	return nil
}

func (s *Store) token(ctx context.Context, operation string) (string, error) {
	source := s.source
	if source == nil {
		source = s.provider.NewTokenSource(ctx, s.options...)
	}
	token, err := source.Token()
	var refusal *oauth2.RetrieveError
	switch {
	case errors.As(err, &refusal): // the library's text quotes the answer
		err = fmt.Errorf("the token service answers with HTTP %d, %q", refusal.Response.StatusCode, refusal.ErrorCode)
	case errors.As(err, new(*provider.Error)):
		return "", err
	case err == nil:
		return token.AccessToken, nil
	}
	return "", self.Unanswered(operation, fmt.Errorf("no access token: %w", err))
}

var refusals = object.Refusals{
	"NOT_FOUND": {provider.ErrMisconfigured, "create the provider, or correct its name"},
	"PERMISSION_DENIED": {provider.ErrDenied,
		"grant roles/iam.workloadIdentityPoolAdmin on the project, and enable the IAM API there"},
	"UNAUTHENTICATED":    {provider.ErrDenied, "check the application default credentials"},
	"INVALID_ARGUMENT":   {provider.ErrMisconfigured, ""},
	"RESOURCE_EXHAUSTED": {provider.ErrThrottled, ""},
}

// refused explains an unsuccessful answer, by status and code.
func refused(operation string, answer transport.Answer, token string) error {
	var body struct {
		Error status `json:"error"`
	}
	_ = exactjson.Unmarshal(answer.Body, &body) // leaves it empty
	e := self.Refused(operation, answer.Status, answer.Header)
	e.Code = provider.Redact(body.Error.Status, token)
	e.Message = cmp.Or(provider.Redact(body.Error.Message, token), "the answer is not one of Google")
	return refusals.Explain(e)
}
