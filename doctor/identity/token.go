package identity

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/workloadid/workloadid/auth/plugin"
	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/internal/jwt"
)

// heldToken is the token under examination.
type heldToken struct {
	raw     string
	content string // of the file, blanks included
	claims  *claims
	unread  error // of reading the file
	err     error // of parsing the token
}

// claims has in addition to those for Trust what the doctor alone needs.
type claims struct {
	doctor.Claims

	fingerprint string // the first 8 hexadecimal digits of the token's SHA-256
}

// readToken reads the token of the caller, or else its file.
func (e *examination) readToken(ctx context.Context) heldToken {
	if e.Token != "" {
		return e.hold(e.Token)
	}
	content, err := readFile(ctx, e.TokenFile)
	if err != nil {
		return heldToken{unread: err}
	}
	return e.hold(content)
}

func (e *examination) hold(content string) heldToken {
	t := heldToken{content: content, raw: strings.TrimSpace(content)}
	e.keepSecret(t.raw)
	t.claims, t.err = parseClaims(t.raw)
	return t
}

// readFile reads a bounded file.
func readFile(ctx context.Context, path string) (string, error) {
	file, err := os.Open(path) //nolint:gosec // the caller names it
	if err != nil {
		return "", err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	if info, err := file.Stat(); err == nil && info.IsDir() {
		return "", errors.New("it is a directory")
	}
	content, err := plugin.Read(ctx, file)
	return string(content), err
}

// parseClaims reads a token without verifying it. Its errors hold no part of the token.
func parseClaims(token string) (*claims, error) {
	common, err := jwt.Parse(token)
	if err != nil {
		return nil, err
	}
	parts := strings.Split(token, ".")
	var header struct {
		Algorithm string `json:"alg"`
		KeyID     string `json:"kid"`
	}
	var more struct {
		NotBefore  jwt.Time `json:"nbf"`
		Kubernetes struct {
			Pod struct {
				Name string `json:"name"`
			} `json:"pod"`
		} `json:"kubernetes.io"`
	}
	if decodePart(parts[0], &header) != nil || decodePart(parts[1], &more) != nil {
		return nil, errors.New("its header or its claims are malformed")
	}
	sum := sha256.Sum256([]byte(token))
	c := &claims{fingerprint: hex.EncodeToString(sum[:4]), Claims: doctor.Claims{Issuer: common.Issuer, Subject: common.Subject, Audiences: common.Audience,
		UID: common.Kubernetes.ServiceAccount.UID, Pod: more.Kubernetes.Pod.Name, PodUID: common.Kubernetes.Pod.UID,
		IssuedAt: common.IssuedAt.Time, NotBefore: more.NotBefore.Time, Expiry: common.Expiry.Time, KeyID: header.KeyID, Algorithm: header.Algorithm}}
	if rest, ok := strings.CutPrefix(c.Subject, subjectPrefix); ok {
		c.Namespace, c.ServiceAccount, _ = strings.Cut(rest, ":")
	}
	return c, nil
}

const subjectPrefix = "system:serviceaccount:"

func decodePart(part string, into any) error {
	content, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		return err
	}
	return json.Unmarshal(content, into)
}

func (e *examination) checkTokenFormat(context.Context) doctor.Finding {
	if e.Token == "" && e.TokenFile != "" {
		if f, wrong := e.judgeFile(); wrong {
			return f
		}
	}
	switch {
	case e.token.err != nil && !strings.Contains(e.token.raw, "."):
		return doctor.Failed(malformed, e.freshToken(), "This is not a JWT, perhaps an opaque access token.")
	case e.token.err != nil:
		return doctor.Failed(malformed, e.freshToken(), "The token is not that of a ServiceAccount: %v.", e.token.err)
	case e.token.claims == nil:
		return doctor.Skipped(noToken)
	}
	c := e.token.claims
	switch {
	case c.KeyID == "":
		return doctor.Failed(e.cloud.noKey, e.freshToken(), "The token's header names no key (kid).")
	case c.Algorithm == "none" || strings.HasPrefix(c.Algorithm, "HS") || c.Algorithm == "":
		return doctor.Failed(malformed, e.freshToken(), "The token is not signed with a private key.").Compare("alg", c.Algorithm, "expected", "RS256")
	case c.Algorithm != "RS256" && e.cloud.readsIssuer && e.Provider.GetName() != "gcp":
		return doctor.Failed(malformed, doctor.Do("Sign with an RSA key (--service-account-signing-key-file of the API server)."),
			"%s accepts tokens signed with RS256 only.", e.cloud.name).Compare("alg", c.Algorithm, "expected", "RS256").As(doctor.Warn)
	case e.token.raw != strings.TrimRight(e.token.content, "\n"):
		return doctor.Failed(malformed, doctor.Do("Write the token alone into the file."), "The file has blanks around the token, which some SDKs keep.").As(doctor.Warn)
	}
	return doctor.Passed("The token is a JWT.").Detail("alg", c.Algorithm).Detail("kid", c.KeyID).Detail("sha256", c.fingerprint)
}

func (e *examination) freshToken() doctor.Remedy {
	return doctor.Do("Use a token of the ServiceAccount:", fmt.Sprintf("kubectl create token -n %s %s --audience %s", e.namespaceWord(), e.nameWord(), e.audienceWord()))
}

// judgeFile judges a file that holds no single word.
func (e *examination) judgeFile() (doctor.Finding, bool) {
	remount := doctor.Do("Mount a projected token there (volumes[].projected.sources[].serviceAccountToken).")
	err := e.token.unread
	switch words := len(strings.Fields(e.token.content)); {
	case errors.Is(err, fs.ErrNotExist):
		return doctor.Failed(e.cloud.unset, remount, "The token file %q does not exist.", e.TokenFile), true
	case errors.Is(err, fs.ErrPermission):
		return doctor.Failed("K9", doctor.Do("Set securityContext.fsGroup in the pod's template."),
			"The user %d may not read the token file %q.", os.Geteuid(), e.TokenFile), true
	case err != nil:
		return doctor.Failed(malformed, remount, "The token file %q cannot be read: %v.", e.TokenFile, lastError(err)), true
	case words == 0:
		return doctor.Failed(malformed, remount, "The token file %q is empty.", e.TokenFile), true
	case words > 1:
		return doctor.Failed(malformed, doctor.Do("Write the token alone into the file."), "The token file %q has text beside the token.", e.TokenFile), true
	}
	return doctor.Finding{}, false
}

// lastError leaves the path out, which the message names already.
func lastError(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

func (e *examination) checkClaims(context.Context) doctor.Finding {
	c, f := e.tokenClaims()
	if c == nil {
		return f
	}
	fail := func(class, format string, args ...any) doctor.Finding {
		return doctor.Failed(class, e.freshToken(), format, args...)
	}
	want := c.Subject
	if e.ServiceAccount.Name != "" {
		want = subjectPrefix + e.ServiceAccount.Namespace + ":" + e.ServiceAccount.Name
	}
	const longest = 127 // google.subject, in bytes
	switch {
	case c.Issuer == "kubernetes/serviceaccount", len(c.Audiences) == 0:
		return fail(e.cloud.noAudience, "This is a legacy token of a Secret, without an audience.")
	case c.Issuer == "":
		return fail(e.cloud.wrongIssuer, "The token lacks the claim iss.")
	case c.Subject == "":
		return fail(e.cloud.wrongSubject, "The token lacks the claim sub.")
	case c.Expiry.IsZero():
		return fail(e.cloud.old, "The token lacks the claim exp.")
	case strings.EqualFold(c.Subject, want) && c.Subject != want:
		return fail(e.cloud.wrongCase, "The token's subject differs in upper and lower case.").Compare("token", c.Subject, "expected", want)
	case c.Subject != want:
		return fail(e.cloud.wrongSubject, "The token is of another ServiceAccount.").Compare("token", c.Subject, "expected", want)
	case e.Provider.GetName() == "gcp" && len(c.Subject) > longest:
		return doctor.Failed("G9", doctor.Do("Shorten namespace or name, or map another claim to google.subject."),
			"The token's subject has %d bytes; Google allows %d.", len(c.Subject), longest)
	}
	return doctor.Passed("The token is of %s.", c.Subject).Detail("iss", c.Issuer).Detail("aud", list(c.Audiences)).Detail("exp", stamp(c.Expiry))
}

func list(values []string) string {
	if len(values) == 0 {
		return "none"
	}
	return strings.Join(values, ", ")
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// sameSet ignores order.
func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
