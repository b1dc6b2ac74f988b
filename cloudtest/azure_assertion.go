package cloudtest

import (
	"crypto/rsa"
	"crypto/sha1" //nolint:gosec // x5t is defined with it
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// assertion checks a JWT. Either an issuer that the application trusts has
// signed it, or the application's certificate has.
func (e *entraCall) assertion(identity AzureIdentity, app *azureApp) (AzureIdentity, *entraRefusal) {
	malformed := refuseEntra(http.StatusBadRequest, "invalid_request", 50027, "JWT token is invalid or malformed.")
	token, err := jwt.ParseSigned(e.form.Get("client_assertion"),
		[]jose.SignatureAlgorithm{jose.RS256, jose.PS256, jose.ES256, jose.RS384, jose.RS512})
	if err != nil {
		return identity, malformed
	}
	var claims tokenClaims
	if token.UnsafeClaimsWithoutVerification(&claims) != nil {
		return identity, malformed
	}
	if claims.Issuer == app.clientID && e.proxy == nil {
		return identity, e.certificate(token, claims, app)
	}
	if refusal := e.trust(claims, app); refusal != nil {
		return identity, refusal
	}
	if refusal := e.signature(token, claims); refusal != nil {
		return identity, refusal
	}
	identity.Subject = claims.Subject
	return identity, e.validity(claims)
}

func (e *entraCall) trust(claims tokenClaims, app *azureApp) *entraRefusal {
	if e.proxy != nil {
		return e.proxy.authorize(claims, app.clientID)
	}
	return e.federation(claims, app)
}

// federation looks for the federated credential. Its refusal names the first
// part that matches no credential.
func (e *entraCall) federation(claims tokenClaims, app *azureApp) *entraRefusal {
	const advice = "Please check your federated identity credential Subject, Audience and Issuer against the presented assertion. https://docs.microsoft.com/en-us/azure/active-directory/develop/workload-identity-federation"
	audience := ""
	if len(claims.Audience) > 0 {
		audience = claims.Audience[0]
	}
	left := app.federated
	keep := func(fits func(FederatedCredential) bool) bool {
		kept := slices.DeleteFunc(slices.Clone(left), func(f FederatedCredential) bool { return !fits(f) })
		if len(kept) > 0 {
			left = kept
		}
		return len(kept) > 0
	}
	refuse := func(number int, part, value string) *entraRefusal {
		return refuseEntra(http.StatusUnauthorized, "invalid_client", number,
			"No matching federated identity record found for presented assertion %s '%s'. %s", part, value, advice)
	}
	switch {
	case len(left) == 0:
		return refuseEntra(http.StatusUnauthorized, "invalid_client", 70025,
			"The client '%s' has no configured federated identity credentials.", app.clientID)
	case !keep(func(f FederatedCredential) bool { return f.Issuer == claims.Issuer }):
		return refuse(700211, "issuer", claims.Issuer)
	case !keep(func(f FederatedCredential) bool { return strings.EqualFold(f.Subject, claims.Subject) }):
		return refuse(700213, "subject", claims.Subject)
	case !keep(func(f FederatedCredential) bool { return f.Subject == claims.Subject }):
		return refuseEntra(http.StatusUnauthorized, "invalid_client", 7002138,
			"No matching federated identity record found for presented assertion subject '%s'. The subject matches with case-insensitive comparison, but not with case-sensitive comparison. %s", claims.Subject, advice)
	case !keep(func(f FederatedCredential) bool { return slices.Contains(claims.Audience, f.Audience) }):
		return refuse(700212, "audience", audience)
	}
	return nil
}

func (e *entraCall) signature(token *jwt.JSONWebToken, claims tokenClaims) *entraRefusal {
	unreachable := refuseEntra(http.StatusBadRequest, "invalid_request", 90061,
		"Request to External OIDC endpoint failed.")
	e.azure.mu.Lock()
	issuer := e.azure.issuers[claims.Issuer]
	e.azure.mu.Unlock()
	if issuer == nil {
		return unreachable
	}
	err := issuer.verify(e.r.Context(), token)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errSignature):
		return refuseEntra(http.StatusUnauthorized, "invalid_client", 50013,
			"Assertion failed signature validation. [Reason - The signature is not valid.]")
	case !errors.Is(err, errKeys) || err != errKeys: //nolint:errorlint // unwrapped: the issuer was reached
		return unreachable
	}
	return refuseEntra(http.StatusUnauthorized, "invalid_client", 7000272,
		"The certificate with identifier %s used to sign the federated credential could not be found in the metadata of identity provider %s. Please validate that your Identity Provider's metadata exposes the key used to sign the incoming token.", token.Headers[0].KeyID, claims.Issuer)
}

func (e *entraCall) validity(claims tokenClaims) *entraRefusal {
	now := e.azure.cloud.time()
	from, to := time.Unix(0, 0), time.Unix(0, 0)
	if claims.NotBefore != nil {
		from = claims.NotBefore.Time()
	}
	if claims.Expiry != nil {
		to = claims.Expiry.Time()
	}
	const skew = 5 * time.Minute
	if now.Before(from.Add(-skew)) || !now.Before(to.Add(skew)) {
		const layout = "2006-01-02T15:04:05.0000000Z"
		return refuseEntra(http.StatusUnauthorized, "invalid_client", 700024,
			"Client assertion is not within its valid time range. Current time: %s, assertion valid from %s, expiry time of assertion %s. Review the documentation at https://docs.microsoft.com/azure/active-directory/develop/active-directory-certificate-credentials .",
			now.UTC().Format(layout), from.UTC().Format(layout), to.UTC().Format(layout))
	}
	return nil
}

// certificate checks an assertion that the application signed itself.
func (e *entraCall) certificate(token *jwt.JSONWebToken, claims tokenClaims, app *azureApp) *entraRefusal {
	thumbprint := ""
	for _, name := range []jose.HeaderKey{"x5t#S256", "x5t"} {
		if s, ok := token.Headers[0].ExtraHeaders[name].(string); ok {
			thumbprint = s
			break
		}
	}
	unknown := refuseEntra(http.StatusUnauthorized, "invalid_client", 700027,
		"The certificate with identifier used to sign the client assertion is not registered on application. [Reason - The key was not found., Please visit the Azure Portal to check the key.]")
	if app.certificate == nil {
		return unknown
	}
	long, short := sha256.Sum256(app.certificate.Raw),
		sha1.Sum(app.certificate.Raw) //nolint:gosec // x5t is defined with it
	encode := base64.RawURLEncoding.EncodeToString
	key, ok := app.certificate.PublicKey.(*rsa.PublicKey)
	// Clients use either alphabet of base64.
	plain := strings.NewReplacer("+", "-", "/", "_", "=", "").Replace(thumbprint)
	if !ok || plain != encode(long[:]) && plain != encode(short[:]) {
		return unknown
	}
	if token.Claims(key, &tokenClaims{}) != nil || claims.Subject != app.clientID ||
		!slices.Contains(claims.Audience, "https://"+e.host+"/"+e.tenant+"/oauth2/v2.0/token") {
		return refuseEntra(http.StatusUnauthorized, "invalid_client", 50013,
			"Assertion failed signature validation. [Reason - The signature is not valid.]")
	}
	return e.validity(claims)
}
