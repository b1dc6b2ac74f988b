package gcp

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/transport"
)

const (
	opImpersonate = "impersonate the service account"
	opIDToken     = "get an ID token of the service account"
)

// impersonate returns a token of the service account, made with the
// ServiceAccount's federated token.
func (e *exchange) impersonate(ctx context.Context, federated *Token) (auth.Token, error) {
	if audience, ok := idTokenAudience(e.opts); ok {
		return e.generateIDToken(ctx, federated, audience)
	}
	request := struct {
		Delegates []string `json:"delegates,omitempty"`
		Scope     []string `json:"scope"`
		Lifetime  string   `json:"lifetime"`
	}{e.delegates(), scopes(e.opts), "3600s"}
	if d, ok := lifetime(e.opts); ok {
		request.Lifetime = fmt.Sprintf("%ds", d/time.Second)
	}
	var answer struct {
		AccessToken string    `json:"accessToken"`
		ExpireTime  time.Time `json:"expireTime"`
	}
	if err := e.callIAM(ctx, opImpersonate, "generateAccessToken", federated, request, &answer); err != nil {
		return nil, err
	}
	token, err := newToken(opImpersonate, answer.AccessToken, "", e.email, answer.ExpireTime, time.Now())
	if err != nil {
		return nil, err
	}
	return token, nil
}

func (e *exchange) generateIDToken(ctx context.Context, federated *Token, audience string) (auth.Token, error) {
	request := struct {
		Delegates    []string `json:"delegates,omitempty"`
		Audience     string   `json:"audience"`
		IncludeEmail bool     `json:"includeEmail"`
	}{e.delegates(), audience, true}
	var answer struct {
		Token string `json:"token"`
	}
	if err := e.callIAM(ctx, opIDToken, "generateIdToken", federated, request, &answer); err != nil {
		return nil, err
	}
	token, err := newIDToken(opIDToken, answer.Token, audience, time.Now())
	if err != nil {
		return nil, err
	}
	return token, nil
}

func (e *exchange) delegates() []string {
	var names []string
	for _, email := range delegates(e.opts) {
		names = append(names, "projects/-/serviceAccounts/"+email)
	}
	return names
}

// callIAM calls a method of the IAM Service Account Credentials API, v1.
func (e *exchange) callIAM(ctx context.Context, operation, method string, federated *Token, request, answer any) error {
	bearer := federated.AccessToken()
	got, err := transport.JSONRequest{Method: http.MethodPost, Bearer: bearer, Body: request,
		URL: "https://iamcredentials." + e.provider.universe() + "/v1/projects/-/serviceAccounts/" + url.PathEscape(e.email) +
			":" + method,
	}.Send(ctx, e.client)
	switch {
	case err != nil:
		return self.Unanswered(operation, err, bearer, e.oidcToken)
	case got.Status != http.StatusOK:
		return e.impersonationError(got, operation, bearer)
	}
	return decode(got, operation, answer)
}
