package doctorcmd

import (
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
	"github.com/workloadid/workloadid/internal/transport"
)

// identify returns the identity of a credential: as STS told it, from a token of Entra or Kubernetes itself, or from Google. It
// returns "" if the service tells none.
func (d *DoctorFlags) identify(ctx context.Context, t auth.Token) (string, error) {
	switch t := t.(type) {
	case *aws.Token:
		return t.AssumedRoleARN(), nil
	case *azure.Token: // version 2 of its tokens says azp
		return stringClaim(t.AccessToken().Token, "appid", "azp"), nil
	case *gcp.Token:
		return d.tokenInfo(ctx, t.AccessToken())
	case *token.Token:
		return stringClaim(t.Reveal(), "sub"), nil
	}
	return "", nil
}

// stringClaim returns the first of the claims that the JWT has.
func stringClaim(jwt string, names ...string) string {
	_, rest, _ := strings.Cut(jwt, ".")
	payload, _, _ := strings.Cut(rest, ".")
	content, err := base64.RawURLEncoding.DecodeString(payload)
	claims := map[string]any{}
	if err != nil || json.Unmarshal(content, &claims) != nil {
		return ""
	}
	for _, name := range names {
		if value, ok := claims[name].(string); ok {
			return value
		}
	}
	return ""
}

// tokenInfo asks Google for the e-mail address. The token goes to its issuer, and not into a URL.
func (d *DoctorFlags) tokenInfo(ctx context.Context, token string) (string, error) {
	form := url.Values{"access_token": {token}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://oauth2.googleapis.com/tokeninfo", strings.NewReader(form.Encode()))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	client := http.Client{CheckRedirect: transport.NoRedirect}
	if d.id.HTTPClient != nil {
		client.Transport = d.id.HTTPClient.Transport
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", errors.New("tokeninfo of Google cannot be reached")
	}
	defer resp.Body.Close() //nolint:errcheck // read as far as it is of use
	var answer struct {
		Email string `json:"email"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, transport.MaxBody)).Decode(&answer); err != nil {
		return "", errors.New("the answer of Google's tokeninfo cannot be read")
	}
	return answer.Email, nil
}
