package aws

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/awsname"
	"github.com/workloadid/workloadid/internal/redact"
)

const (
	opSign = "sign a request for the caller's identity"

	identityBody = "Action=GetCallerIdentity&Version=2011-06-15"
	maxServerID  = 255

	// vaultServerIDHeader is the header that binds a login to one Vault server.
	vaultServerIDHeader = "X-Vault-AWS-IAM-Server-ID"
)

// SignedCallerIdentity is a signed request to STS, GetCallerIdentity, that was not sent. Its receiver sends it to learn the identity of
// the signer. AWS identities log in to HashiCorp Vault and others with it.
//
// It is a credential until the signature expires. It is immutable and prints as a redacted summary.
type SignedCallerIdentity struct {
	url       string
	header    redact.Secret // in JSON
	expiresAt time.Time
}

// NewSignedCallerIdentity signs a request to STS in the region of the options, with the credentials that auth.GetAccessToken returns for
// them. The signature covers a serverID that is not empty, as the header X-Vault-AWS-IAM-Server-ID. Another server then refuses the login.
func (p *Provider) NewSignedCallerIdentity(ctx context.Context, serverID string, opts ...auth.Option,
) (*SignedCallerIdentity, error) {
	if len(serverID) > maxServerID || !printable(serverID) {
		return nil, self.Misconfigured("use the value that the server expects", "%.100q cannot be a server ID", serverID)
	}
	issued, err := auth.GetAccessToken(ctx, p, opts...)
	if err != nil {
		return nil, err
	}
	token, err := FromToken(issued)
	if err != nil {
		return nil, err
	}
	var given auth.Options
	for _, opt := range opts {
		if opt != nil {
			opt(&given)
		}
	}
	return token.signCallerIdentity(ctx, p.stsRegion(&given.Options), serverID, time.Now())
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

func (t *Token) signCallerIdentity(ctx context.Context, region, serverID string, now time.Time,
) (*SignedCallerIdentity, error) {
	partition, ok := awsname.PartitionOf(region)
	if !ok {
		return nil, self.Misconfigured("use one such as eu-central-1",
			"%.100q is not a region of a known partition of AWS", region)
	}
	url := "https://sts." + region + "." + partition.Suffix + "/"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(identityBody))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	if serverID != "" {
		req.Header.Set(vaultServerIDHeader, serverID)
	}
	sum := sha256.Sum256([]byte(identityBody))
	hash := hex.EncodeToString(sum[:])
	if err := v4.NewSigner().SignHTTP(ctx, t.Credentials(), req, hash, "sts", region, now); err != nil {
		return nil, self.Unavailable(opSign, "", "it cannot be signed: %T", err)
	}
	header, err := json.Marshal(req.Header)
	if err != nil {
		return nil, err
	}
	end := t.endsBy(now.Add(signatureLife))
	return &SignedCallerIdentity{url: url, header: redact.New(string(header)), expiresAt: end}, nil
}

// Method returns the request's method, POST.
func (*SignedCallerIdentity) Method() string { return http.MethodPost }

// URL returns the request's URL.
func (s *SignedCallerIdentity) URL() string { return s.url }

// Body returns the request's body. It holds no secret.
func (*SignedCallerIdentity) Body() string { return identityBody }

// Header returns a copy of the request's header. It holds the signature and the session token.
func (s *SignedCallerIdentity) Header() http.Header {
	var h http.Header
	_ = json.Unmarshal([]byte(s.header.Reveal()), &h) // was made by json.Marshal
	return h
}

// ExpiresAt returns the time at which the signature or the credentials expire.
func (s *SignedCallerIdentity) ExpiresAt() time.Time { return s.expiresAt }

// GetDuration implements auth.Token.
func (s *SignedCallerIdentity) GetDuration() time.Duration { return time.Until(s.expiresAt) }

// VaultLogin returns the body of a login at Vault's AWS auth method (type iam), to be encoded as JSON:
// POST /v1/auth/aws/login. role is Vault's role; empty means the one that Vault derives from the identity. The map is the
// caller's, and holds the credential.
func (s *SignedCallerIdentity) VaultLogin(role string) map[string]string {
	encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	login := map[string]string{
		"iam_http_request_method": s.Method(),
		"iam_request_url":         encode(s.url),
		"iam_request_body":        encode(identityBody),
		"iam_request_headers":     encode(s.header.Reveal()),
	}
	if role != "" {
		login["role"] = role
	}
	return login
}

func (s SignedCallerIdentity) summary() string {
	return fmt.Sprintf("signed request to %q, redacted, expires %s", s.url, s.expiresAt.UTC().Format(time.RFC3339))
}

// String returns the redacted summary.
func (s SignedCallerIdentity) String() string { return s.summary() }

// Format prints the redacted summary under every verb.
func (s SignedCallerIdentity) Format(f fmt.State, _ rune) { redact.Print(f, s.summary()) }

// MarshalText encodes the redacted summary, for JSON, slog and logr too.
func (s SignedCallerIdentity) MarshalText() ([]byte, error) { return []byte(s.summary()), nil }
