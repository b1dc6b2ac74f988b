package doctorcmd

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/token"
)

// identify returns the identity of a credential: as STS told it, or from a token of Entra or Kubernetes itself. It returns "" for others.
func identify(t auth.Token) string {
	switch t := t.(type) {
	case *aws.Token:
		return t.AssumedRoleARN()
	case *azure.Token: // version 2 of its tokens says azp
		return stringClaim(t.AccessToken().Token, "appid", "azp")
	case *token.Token:
		return stringClaim(t.Reveal(), "sub")
	}
	return ""
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
