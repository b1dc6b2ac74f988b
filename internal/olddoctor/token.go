package doctor

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/workloadid/workloadid/internal/jwt"
)

// Claims are what a token says of itself. Nothing of it has been verified.
type Claims struct {
	// Algorithm, KeyID and Type are of the header.
	Algorithm, KeyID, Type string
	// Issuer, Subject and Audience are as they stand in the token.
	Issuer, Subject string
	Audience        []string
	// Expiry, IssuedAt and NotBefore are zero if they are missing.
	Expiry, IssuedAt, NotBefore time.Time
	// Namespace and ServiceAccount are those of the subject. Empty: it is not that of a ServiceAccount.
	Namespace, ServiceAccount string
	// Pod is the pod that the token is bound to.
	Pod string
	// Fingerprint are the first 8 hexadecimal digits of the token's SHA-256.
	Fingerprint string

	// uid and podUID are those of the ServiceAccount and of the pod at the time.
	uid, podUID string
}

// ParseClaims reads a token without verifying it. Its errors hold no part of the token.
func ParseClaims(token string) (*Claims, error) {
	c := &Claims{Fingerprint: fingerprint(token)}
	common, err := jwt.Parse(token)
	if err != nil {
		return nil, err
	}
	parts := strings.Split(token, ".")
	var header struct {
		Algorithm string `json:"alg"`
		KeyID     string `json:"kid"`
		Type      string `json:"typ"`
	}
	if err := decodePart(parts[0], &header); err != nil {
		return nil, errors.New("it is not a JWT: its header is not JSON in base64url")
	}
	var more struct {
		IssuedAt   jwt.Time `json:"iat"`
		NotBefore  jwt.Time `json:"nbf"`
		Kubernetes struct {
			Pod struct {
				Name string `json:"name"`
				UID  string `json:"uid"`
			} `json:"pod"`
		} `json:"kubernetes.io"`
	}
	if err := decodePart(parts[1], &more); err != nil {
		return nil, errors.New("its claims are malformed")
	}
	c.Algorithm, c.KeyID, c.Type = header.Algorithm, header.KeyID, header.Type
	c.Issuer, c.Subject, c.Audience, c.Expiry = common.Issuer, common.Subject, common.Audience, common.Expiry.Time
	c.uid, c.podUID = common.Kubernetes.ServiceAccount.UID, more.Kubernetes.Pod.UID
	c.IssuedAt, c.NotBefore, c.Pod = more.IssuedAt.Time, more.NotBefore.Time, more.Kubernetes.Pod.Name
	if rest, ok := strings.CutPrefix(c.Subject, "system:serviceaccount:"); ok {
		c.Namespace, c.ServiceAccount, _ = strings.Cut(rest, ":")
	}
	return c, nil
}

func decodePart(part string, into any) error {
	content, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		return err
	}
	return json.Unmarshal(content, into)
}

func fingerprint(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:4])
}

// String shows iss, sub, aud and exp.
func (c *Claims) String() string {
	return fmt.Sprintf("iss=%s sub=%s aud=%s exp=%s", shown(c.Issuer), shown(c.Subject), audiences(c.Audience), stamp(c.Expiry))
}

func audiences(list []string) string {
	if len(list) == 1 {
		return exactly(list[0])
	}
	all := make([]string, 0, len(list))
	for _, audience := range list {
		all = append(all, exactly(audience))
	}
	return shown("[" + strings.Join(all, " ") + "]")
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "none"
	}
	return t.UTC().Format(time.RFC3339)
}

// heldToken is the token under examination.
type heldToken struct {
	raw    string
	claims *Claims
	// origin says where it is from. Empty: there is none.
	origin string
	err    error // of parsing it
}

func newHeldToken(raw, origin string) heldToken {
	raw = strings.TrimSpace(raw)
	t := heldToken{raw: raw, origin: origin}
	t.claims, t.err = ParseClaims(raw)
	return t
}
