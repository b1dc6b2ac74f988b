package cloudtest

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/workloadid/workloadid/internal/azurename"
)

// AzureIdentity is the identity behind an access token, or behind the refresh
// token of a registry.
type AzureIdentity struct {
	Tenant, ClientID string
	// Subject is the sub claim of the exchanged token. It is empty for secrets
	// and managed identities.
	Subject string
	// Audience is the resource that accepts the token, or the host of the
	// registry.
	Audience string
	// Claims is the parameter of that name in the request.
	Claims     string
	Expiration time.Time
}

// issue returns an opaque token, or one in the form of a JWT for the APIs whose
// callers read its claims.
func (a *Azure) issue(identity AzureIdentity) string {
	if a.has(func(c azurename.Cloud) bool {
		return identity.Audience == c.ManagementAudience || identity.Audience == "https://"+c.GraphHost
	}) {
		encode := base64.RawURLEncoding.EncodeToString
		claims,
			_ := json.Marshal(map[string]any{"aud": identity.Audience, "tid": identity.Tenant, "oid": a.objectID(identity),
			"appid": identity.ClientID, "exp": identity.Expiration.Unix()}) // strings and numbers always encode
		token := encode([]byte(`{"typ":"JWT","alg":"RS256"}`)) + "." + encode(claims) + "." + encode(random(96))
		a.remember(token, identity)
		return token
	}
	token := "azure-" + base64.RawURLEncoding.EncodeToString(random(96))
	a.remember(token, identity)
	return token
}

// issueRefreshToken returns a token in the form of a JWT with its expiry, as
// registries do.
func (a *Azure) issueRefreshToken(identity AzureIdentity) string {
	encode := base64.RawURLEncoding.EncodeToString
	claims,
		_ := json.Marshal(map[string]any{"jti": uuid.NewString(), "sub": identity.ClientID, "iss": "Azure Container Registry",
		"aud": identity.Audience, "exp": identity.Expiration.Unix(), "grant_type": "refresh_token"})
	token := encode([]byte(`{"alg":"RS256","typ":"JWT"}`)) + "." + encode(claims) + "." + encode(random(96))
	a.remember(token, identity)
	return token
}

func (a *Azure) remember(token string, identity AzureIdentity) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tokens[token] = identity
}

// bearer returns the identity of a token that is valid now for one of the given
// resources.
func (a *Azure) bearer(token string, audiences ...string) (AzureIdentity, bool) {
	identity, ok := a.Identity(token)
	return identity, ok && slices.Contains(audiences, identity.Audience)
}

func bearerOf(r *http.Request) string {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return ""
	}
	return token
}

// oneOf ignores case, because client IDs are GUIDs.
func oneOf(clientIDs []string, id string) bool {
	return slices.ContainsFunc(clientIDs, func(c string) bool { return strings.EqualFold(c, id) })
}

// sameTenant reports whether two names identify one tenant.
func (a *Azure) sameTenant(x, y string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.tenants[strings.ToLower(x)]
	return t != nil && t == a.tenants[strings.ToLower(y)]
}

// sendJSON answers with a document and applies the fault.
func (a *Azure) sendJSON(w http.ResponseWriter, r *http.Request, fault *Fault, status int, document any) {
	body, err := json.Marshal(document)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
	}
	w.Header().Set("Date", a.cloud.time().UTC().Format(http.TimeFormat))
	fault.send(w, r, a.cloud.closing, status, body)
}
