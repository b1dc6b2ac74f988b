// Package oauth implements the requests and answers of OAuth 2.0 that several
// providers share: token exchange (RFC 8693) and the answers of a token
// endpoint (RFC 6749, section 5).
package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/workloadid/workloadid/internal/exactjson"
	"github.com/workloadid/workloadid/internal/jwt"
)

// Token types of RFC 8693, section 3.
const (
	TokenTypeAccessToken  = "urn:ietf:params:oauth:token-type:access_token"
	TokenTypeRefreshToken = "urn:ietf:params:oauth:token-type:refresh_token"
	TokenTypeIDToken      = "urn:ietf:params:oauth:token-type:id_token"
	TokenTypeJWT          = "urn:ietf:params:oauth:token-type:jwt"
)

// AssertionType is the type of client assertions of RFC 7523, section 2.2.
const AssertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

// Exchange is a request of RFC 8693, section 2.1, without its empty parameters.
type Exchange struct {
	SubjectToken, SubjectTokenType                string
	ActorToken, ActorTokenType                    string
	Audience, Resource, Scope, RequestedTokenType string
}

// Form returns the parameters.
func (e Exchange) Form() url.Values {
	form := url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}}
	for name, value := range map[string]string{
		"subject_token": e.SubjectToken, "subject_token_type": e.SubjectTokenType,
		"actor_token": e.ActorToken, "actor_token_type": e.ActorTokenType,
		"audience": e.Audience, "resource": e.Resource, "scope": e.Scope, "requested_token_type": e.RequestedTokenType,
	} {
		if value != "" {
			form.Set(name, value)
		}
	}
	return form
}

// NewRequest returns a request that sends a form and accepts JSON.
func NewRequest(ctx context.Context, endpoint string, form url.Values) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	return req, nil
}

// Answer is a success or an error of a token endpoint. A member that is missing
// or no string is empty.
type Answer struct {
	AccessToken, TokenType, IssuedTokenType string
	Scope                                   *string // nil: the answer does not say
	// ExpiresIn is in seconds: zero if the answer does not say, negative if it
	// is malformed or not positive, and perhaps infinite.
	ExpiresIn float64
	// Failed reports whether there is an error. Its Code is empty if it is not
	// a string.
	Failed            bool
	Code, Description string
}

// ParseAnswer reads the body of an answer. Its errors never hold a part of it.
func ParseAnswer(body []byte) (Answer, error) {
	o, err := exactjson.ParseObject(body)
	return ReadAnswer(o), err
}

// ReadAnswer reads the members of an answer.
func ReadAnswer(o exactjson.Object) Answer {
	a := Answer{AccessToken: o.Text("access_token"), TokenType: o.Text("token_type"),
		IssuedTokenType: o.Text("issued_token_type"),
		Failed:          o.Has("error"), Code: o.Text("error"), Description: o.Text("error_description"),
		ExpiresIn: o.Seconds("expires_in")}
	if scope := (*string)(nil); json.Unmarshal(o["scope"], &scope) == nil {
		a.Scope = scope
	}
	return a
}

// CheckToken refuses a value that an Authorization header cannot carry. RFC
// 6749, appendix A.12 lists the valid characters; the blank is not accepted.
func CheckToken(value string) error {
	switch {
	case value == "":
		return errors.New("it holds no token")
	case len(value) > jwt.MaxSize:
		return fmt.Errorf("its token is larger than %d bytes", jwt.MaxSize)
	case strings.ContainsFunc(value, unprintable):
		return errors.New("its token holds invalid characters")
	}
	return nil
}

// ValidScope accepts a scope-token of RFC 6749, section 3.3. A blank would make
// two scopes of one.
func ValidScope(s string) bool {
	return s != "" && !strings.ContainsFunc(s, unprintable) && !strings.ContainsAny(s, `"\`)
}

// AbsoluteURI accepts resources of RFC 8707, section 2, and token types of RFC
// 8693, section 3.
func AbsoluteURI(s string) bool {
	if strings.Contains(s, "#") || strings.ContainsFunc(s, unprintable) {
		return false
	}
	u, err := url.Parse(s)
	return err == nil && u.IsAbs() && u.User == nil && (u.Host != "" || u.Opaque != "" || u.Path != "")
}

func unprintable(r rune) bool { return r <= ' ' || r > '~' }
