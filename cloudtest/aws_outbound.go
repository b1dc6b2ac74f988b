package cloudtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/uuid"

	"github.com/workloadid/workloadid/internal/awsname"
)

// outboundSuffix ends the hosts of the issuers of AWS accounts.
const outboundSuffix = ".tokens.sts.global.api.aws"

// outboundIssuer issues tokens of one account's roles and users for services
// outside AWS. AWS.mu guards enabled.
type outboundIssuer struct {
	url     string
	enabled bool
	rsa     *rsa.PrivateKey
	ec      *ecdsa.PrivateKey
}

// EnableOutboundFederation lets the roles and users of an account call
// GetWebIdentityToken, and returns the account's issuer. Every call returns the
// same issuer. Other services of the [Cloud] get its documents with
// [Cloud.Client].
func (a *AWS) EnableOutboundFederation(account string) (issuer string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.enableOutbound(account).url
}

// DisableOutboundFederation undoes [AWS.EnableOutboundFederation]. Issued
// tokens stay valid.
func (a *AWS) DisableOutboundFederation(account string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if issuer := a.outbound[account]; issuer != nil {
		issuer.enabled = false
	}
}

// The caller of enableOutbound holds the lock.
func (a *AWS) enableOutbound(account string) *outboundIssuer {
	issuer := a.outbound[account]
	if issuer == nil {
		issuer = &outboundIssuer{url: "https://" + uuid.NewString() + outboundSuffix}
		var errs [2]error
		issuer.rsa, errs[0] = rsa.GenerateKey(rand.Reader, 2048)
		issuer.ec, errs[1] = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
		if errs != [2]error{} {
			panic(errs) // size and curve are constants
		}
		a.outbound[account] = issuer
	}
	issuer.enabled = true
	return issuer
}

func (i *outboundIssuer) keys() jose.JSONWebKeySet {
	return jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
		{Key: &i.rsa.PublicKey, KeyID: "RSA_0", Algorithm: string(jose.RS256), Use: "sig"},
		{Key: &i.ec.PublicKey, KeyID: "EC384_0", Algorithm: string(jose.ES384), Use: "sig"}}}
}

func (i *outboundIssuer) sign(algorithm string, claims map[string]any) (string, error) {
	key := jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: i.rsa, KeyID: "RSA_0"}}
	if algorithm == string(jose.ES384) {
		key = jose.SigningKey{Algorithm: jose.ES384, Key: jose.JSONWebKey{Key: i.ec, KeyID: "EC384_0"}}
	}
	signer, err := jose.NewSigner(key, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return "", err
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}

func isOutboundHost(host string) bool { return strings.HasSuffix(host, outboundSuffix) }

// serveOutbound serves the documents of an issuer. As with Issuer, Calls does
// not count them.
func (a *AWS) serveOutbound(w http.ResponseWriter, r *http.Request, host string) {
	var found *outboundIssuer
	a.mu.Lock()
	for _, issuer := range a.outbound {
		if issuer.url == "https://"+strings.ToLower(host) {
			found = issuer
		}
	}
	a.mu.Unlock()
	var document any
	switch {
	case found == nil:
	case r.URL.Path == "/.well-known/openid-configuration":
		document = discovery{Issuer: found.url, JWKSURI: found.url + "/.well-known/jwks.json",
			ResponseTypes: []string{"id_token"}, SubjectTypes: []string{"public"},
			Algorithms: []string{string(jose.RS256), string(jose.ES384)}}
	case r.URL.Path == "/.well-known/jwks.json":
		document = found.keys()
	}
	if document == nil || r.Method != http.MethodGet {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(document) // a client that has gone needs no answer
}

// webIdentityRequest is a checked request for GetWebIdentityToken.
type webIdentityRequest struct {
	audiences []string
	algorithm string
	lifetime  time.Duration
	tags      map[string]string
}

// getWebIdentityToken requires the permission sts:GetWebIdentityToken, whose
// conditions may name sts:IdentityTokenAudience and sts:SigningAlgorithm. It
// does not imitate claims of organizations and of the machine. As at AWS,
// AssumeRoleWithWebIdentity refuses its tokens.
func (s *stsCall) getWebIdentityToken() (node, *awsError) {
	if s.host == "sts.amazonaws.com" { // regional endpoints only
		return node{}, refuse(http.StatusBadRequest, "InvalidAction", "Could not find operation %s for version %s",
			"GetWebIdentityToken", stsVersion)
	}
	caller, err := s.authenticate()
	if err != nil {
		return node{}, err
	}
	request, err := s.readWebIdentityRequest()
	if err != nil {
		return node{}, err
	}
	wanted := access{action: "sts:GetWebIdentityToken", resource: "*", context: s.aws.contextOf(caller)}
	wanted.context["sts:identitytokenaudience"] = request.audiences
	wanted.context["sts:signingalgorithm"] = []string{request.algorithm}
	if s.aws.identityDecision(caller, wanted) != allowed {
		return node{}, notAuthorized(caller, wanted.action, wanted.resource)
	}
	s.aws.mu.Lock()
	issuer := s.aws.outbound[caller.account]
	enabled := issuer != nil && issuer.enabled
	s.aws.mu.Unlock()
	expiry := s.aws.cloud.time().Add(request.lifetime).UTC().Truncate(time.Second)
	switch {
	case !enabled:
		return node{}, refuse(http.StatusForbidden, "OutboundWebIdentityFederationDisabledException",
			"Outbound web identity federation is not enabled for this account.")
	case !caller.Expiration.IsZero() && expiry.After(caller.Expiration):
		return node{}, refuse(http.StatusForbidden, "SessionDurationEscalationException",
			"The requested token duration would extend the session beyond its original expiration time.")
	}
	token, failure := issuer.sign(request.algorithm, s.webIdentityClaims(issuer, caller, request, expiry))
	if failure != nil {
		return node{}, refuse(http.StatusInternalServerError, "InternalFailure", "%v", failure)
	}
	return element("GetWebIdentityTokenResult", "", element("WebIdentityToken", token),
		element("Expiration", expiry.Format(time.RFC3339))), nil
}

func (s *stsCall) webIdentityClaims(issuer *outboundIssuer, caller accessKey, request webIdentityRequest,
	expiry time.Time) map[string]any {
	of := map[string]any{"aws_account": caller.account, "source_region": awsname.STSRegion(s.host)}
	if len(request.tags) > 0 {
		of["request_tags"] = request.tags
	}
	if len(caller.Tags) > 0 {
		of["principal_tags"] = caller.Tags
	}
	if !caller.Expiration.IsZero() {
		of["original_session_exp"] = caller.Expiration.Format(time.RFC3339)
	}
	claims := map[string]any{"iss": issuer.url, "sub": firstOf(caller.RoleARN, caller.ARN), "aud": request.audiences,
		"iat": expiry.Add(-request.lifetime).Unix(), "exp": expiry.Unix(), "jti": uuid.NewString(),
		"https://sts.amazonaws.com/": of}
	if len(request.audiences) == 1 {
		claims["aud"] = request.audiences[0]
	}
	return claims
}

// Limits of the API reference of GetWebIdentityToken.
const (
	maxTokenAudiences, maxTokenAudience          = 10, 1000
	defaultTokenLife, minTokenLife, maxTokenLife = 300, 60, 3600
)

func (s *stsCall) readWebIdentityRequest() (r webIdentityRequest, err *awsError) {
	for n := 1; s.form.Has(fmt.Sprintf("Audience.member.%d", n)); n++ {
		member := fmt.Sprintf("Audience.member.%d", n)
		if err := s.checkLength(member, `[\s\S]*`, 1, maxTokenAudience); err != nil {
			return r, err
		}
		r.audiences = append(r.audiences, s.form.Get(member))
	}
	if len(r.audiences) == 0 || len(r.audiences) > maxTokenAudiences {
		return r, invalidParameter(fmt.Sprint(r.audiences), "audience", "Member must have length between 1 and 10")
	}
	if r.algorithm = s.form.Get("SigningAlgorithm"); !slices.Contains([]string{"RS256", "ES384"}, r.algorithm) {
		return r, invalidParameter(r.algorithm, "signingAlgorithm", "Member must satisfy enum value set: [RS256, ES384]")
	}
	seconds := defaultTokenLife
	if text := s.form.Get("DurationSeconds"); text != "" {
		var malformed error
		if seconds, malformed = strconv.Atoi(text); malformed != nil || seconds < minTokenLife || seconds > maxTokenLife {
			return r, invalidParameter(text, "durationSeconds", "Member must have value between 60 and 3600")
		}
	}
	r.lifetime = time.Duration(seconds) * time.Second
	id := Identity{Tags: map[string]string{}}
	err = s.readTags(&id)
	r.tags = id.Tags
	return r, err
}

// The callers of IAM's actions for outbound federation hold the lock.

func (c *iamCall) enableOutboundFederation() ([]node, *awsError) {
	if issuer := c.aws.outbound[c.caller.account]; issuer != nil && issuer.enabled {
		return nil, refuse(http.StatusConflict, "FeatureEnabled", "Outbound identity federation is already enabled.")
	}
	return []node{element("IssuerIdentifier", c.aws.enableOutbound(c.caller.account).url)}, nil
}

func (c *iamCall) getOutboundFederation() ([]node, *awsError) {
	issuer := c.aws.outbound[c.caller.account]
	if issuer == nil {
		return nil, refuse(http.StatusNotFound, "FeatureDisabled", "Outbound identity federation is not enabled.")
	}
	return []node{element("IssuerIdentifier", issuer.url),
		element("JwtVendingEnabled", strconv.FormatBool(issuer.enabled))}, nil
}
