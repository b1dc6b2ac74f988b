package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/auth/token"
)

// identify says whose a credential is: STS has told, a token of Entra tells itself, Google is asked. "" if nobody tells.
func (d *doctorFlags) identify(ctx context.Context, t auth.Token) (string, error) {
	switch t := t.(type) {
	case *aws.Token:
		return t.AssumedRoleARN(), nil
	case *azure.Token:
		return clientOf(t.AccessToken().Token), nil
	case *gcp.Token:
		return d.tokenInfo(ctx, t.AccessToken())
	case *token.Token:
		return subjectOfJWT(t.Reveal()), nil
	}
	return "", nil
}

// claimsOf leaves into as it is if there are no claims.
func claimsOf(jwt string, into any) {
	parts := strings.Split(jwt, ".")
	if len(parts) != 3 {
		return
	}
	if content, err := base64.RawURLEncoding.DecodeString(parts[1]); err == nil {
		_ = json.Unmarshal(content, into) // see above
	}
}

func subjectOfJWT(jwt string) string {
	var claims struct {
		Subject string `json:"sub"`
	}
	claimsOf(jwt, &claims)
	return claims.Subject
}

// clientOf is the client ID in an access token of Entra, which calls it azp in version 2.
func clientOf(jwt string) string {
	var claims struct {
		ApplicationID   string `json:"appid"`
		AuthorizedParty string `json:"azp"`
	}
	claimsOf(jwt, &claims)
	if claims.ApplicationID != "" {
		return claims.ApplicationID
	}
	return claims.AuthorizedParty
}

const maxTokenInfo = 64 << 10

// tokenInfo asks Google for the e-mail address. The token goes where it came from, and not into a URL.
func (d *doctorFlags) tokenInfo(ctx context.Context, token string) (string, error) {
	form := url.Values{"access_token": {token}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://oauth2.googleapis.com/tokeninfo", bytes.NewBufferString(form.Encode()))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if d.id.httpClient != nil {
		client.Transport = d.id.httpClient.Transport
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", errors.New("tokeninfo of Google cannot be reached")
	}
	defer resp.Body.Close() //nolint:errcheck // read as far as it is of use
	var answer struct {
		Email string `json:"email"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxTokenInfo)).Decode(&answer); err != nil {
		return "", errors.New("the answer of Google's tokeninfo cannot be read")
	}
	return answer.Email, nil
}
