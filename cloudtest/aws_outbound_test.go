package cloudtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/aws-sdk-go-v2/service/sts/types"
	"github.com/aws/smithy-go"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/workloadid/workloadid/cloudtest"
)

type input = sts.GetWebIdentityTokenInput

func webIdentityInput(change func(*input)) *input {
	in := &input{Audience: []string{"https://api.example"}, SigningAlgorithm: aws.String("RS256")}
	if change != nil {
		change(in)
	}
	return in
}

// outboundClaims verifies a token with the documents that its issuer publishes.
func outboundClaims(t *testing.T, cloud *cloudtest.Cloud, issuer, token string) map[string]any {
	t.Helper()
	var document struct {
		Issuer  string `json:"issuer"`
		JWKSURI string `json:"jwks_uri"`
	}
	var keys jose.JSONWebKeySet
	getJSON(t, cloud, issuer+"/.well-known/openid-configuration", &document)
	getJSON(t, cloud, document.JWKSURI, &keys)
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.RS256, jose.ES384})
	if err != nil {
		t.Fatal(err)
	}
	claims := map[string]any{}
	if err := parsed.Claims(keys, &claims); err != nil || document.Issuer != issuer {
		t.Fatalf("issuer %q, %v", document.Issuer, err)
	}
	return claims
}

func getJSON(t *testing.T, cloud *cloudtest.Cloud, address string, into any) {
	t.Helper()
	if status, text, _ := send(t, cloud, http.MethodGet, address, ""); status != http.StatusOK ||
		json.Unmarshal([]byte(text), into) != nil {
		t.Fatalf("%s: got %d %s, want JSON", address, status, text)
	}
}

// An unmodified SDK client gets tokens that the published keys verify, with the
// claims of AWS.
func TestWebIdentityToken(t *testing.T) {
	w := newEnvironment(t)
	issuer := w.Cloud.AWS().EnableOutboundFederation(account)
	client := w.sts(w.session(t))
	for name, tc := range map[string]struct {
		change func(*input)
		aud    any
		life   time.Duration
	}{
		"defaults": {nil, "https://api.example", 5 * time.Minute},
		"ES384, two audiences, an hour less a minute": {func(in *input) {
			in.SigningAlgorithm, in.Audience, in.DurationSeconds = aws.String("ES384"), []string{"a",
				"b"}, aws.Int32(3540)
			in.Tags = []types.Tag{{Key: aws.String("team"), Value: aws.String("x")}}
		}, []any{"a", "b"}, 59 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := client.GetWebIdentityToken(t.Context(), webIdentityInput(tc.change))
			if err != nil {
				t.Fatal(err)
			}
			claims := outboundClaims(t, w.Cloud, issuer, *out.WebIdentityToken)
			encode := func(v any) string { b, _ := json.Marshal(v); return string(b) }
			of, _ := claims["https://sts.amazonaws.com/"].(map[string]any)
			if claims["iss"] != issuer || claims["sub"] != roleARN || encode(claims["aud"]) != encode(tc.aud) ||
				of["aws_account"] != account || of["source_region"] != "eu-central-1" {
				t.Errorf("claims %v", claims)
			}
			if tags := encode(of["request_tags"]); tc.change != nil && tags != `{"team":"x"}` {
				t.Errorf("tags %s", tags)
			}
			if d := time.Until(*out.Expiration); d > tc.life || d < tc.life-time.Minute {
				t.Errorf("it is valid for %s", d)
			}
		})
	}
}

// Each fault of a request has an error of its own.
func TestWebIdentityTokenRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(w environment)
		change  func(*input)
		options func(*sts.Options)
		code    string
	}{
		"no audience": {change: func(in *input) { in.Audience = []string{} }, code: "ValidationError"},
		"eleven audiences": {change: func(in *input) { in.Audience = strings.Split("abcdefghijk", "") },
			code: "ValidationError"},
		"an empty audience": {change: func(in *input) { in.Audience = []string{""} }, code: "ValidationError"},
		"wrong algorithm": {change: func(in *input) { in.SigningAlgorithm = aws.String("HS256") },
			code: "ValidationError"},
		"too short": {change: func(in *input) { in.DurationSeconds = aws.Int32(59) },
			code: "ValidationError"},
		"too long": {change: func(in *input) { in.DurationSeconds = aws.Int32(3601) },
			code: "ValidationError"},
		"beyond the session": {prepare: func(w environment) {
			w.Cloud.SetClock(func() time.Time { return time.Now().Add(10 * time.Minute) })
		}, change: func(in *input) { in.DurationSeconds = aws.Int32(3600) },
			code: "SessionDurationEscalationException"},
		"not enabled": {prepare: func(w environment) { w.Cloud.AWS().DisableOutboundFederation(account) },
			code: "OutboundWebIdentityFederationDisabledException"},
		"not allowed": {prepare: func(w environment) { w.Cloud.AWS().Deny(roleARN, "sts:GetWebIdentityToken") },
			code: "AccessDenied"},
		"role deleted": {prepare: func(w environment) { w.Cloud.AWS().RemoveRole(roleARN) }, code: "AccessDenied"},
		"global endpoint": {options: func(o *sts.Options) { o.BaseEndpoint = aws.String("https://sts.amazonaws.com") },
			code: "InvalidAction"},
		"wrong secret": {options: func(o *sts.Options) {
			c, _ := o.Credentials.Retrieve(context.Background())
			o.Credentials = credentials.NewStaticCredentialsProvider(c.AccessKeyID, "wrong", c.SessionToken)
		}, code: "SignatureDoesNotMatch"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			w.Cloud.AWS().EnableOutboundFederation(account)
			client := w.sts(w.session(t))
			if tc.prepare != nil {
				tc.prepare(w)
			}
			options := []func(*sts.Options){}
			if tc.options != nil {
				options = append(options, tc.options)
			}
			_, err := client.GetWebIdentityToken(t.Context(), webIdentityInput(tc.change), options...)
			var api smithy.APIError
			if !errors.As(err, &api) || api.ErrorCode() != tc.code {
				t.Errorf("got %v, want %s", err, tc.code)
			}
		})
	}
}

// IAM enables federation for the account of the caller. AWS itself takes no
// such token for a role.
func TestOutboundFederationOfAnAccount(t *testing.T) {
	w := newEnvironment(t)
	id, secret := w.Cloud.AWS().AddUser(account, "admin")
	own := credentials.NewStaticCredentialsProvider(id, secret, "")
	client := iam.New(iam.Options{Region: "us-east-1", HTTPClient: w.Cloud.Client(), Credentials: own,
		RetryMaxAttempts: 1})
	var api smithy.APIError
	_, err := client.GetOutboundWebIdentityFederationInfo(t.Context(), nil)
	if !errors.As(err, &api) || api.ErrorCode() != "FeatureDisabled" {
		t.Errorf("got %v", err)
	}
	enabled, err := client.EnableOutboundWebIdentityFederation(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	info, err := client.GetOutboundWebIdentityFederationInfo(t.Context(), nil)
	if err != nil || *info.IssuerIdentifier != *enabled.IssuerIdentifier || !info.JwtVendingEnabled {
		t.Errorf("got %+v, %v", info, err)
	}
	_, err = client.EnableOutboundWebIdentityFederation(t.Context(), nil)
	if !errors.As(err, &api) || api.ErrorCode() != "FeatureEnabled" {
		t.Errorf("got %v", err)
	}
	w.Cloud.AWS().AddOIDCProvider(account, *enabled.IssuerIdentifier, w.Cloud.Client(), "https://api.example")
	out, err := w.sts(w.session(t)).GetWebIdentityToken(t.Context(), webIdentityInput(nil))
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.exchange(t.Context(), *out.WebIdentityToken)
	if !errors.As(err, &api) || api.ErrorCode() != "InvalidIdentityToken" {
		t.Errorf("got %v", err)
	}
}
