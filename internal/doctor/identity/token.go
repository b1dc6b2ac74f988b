package identity

import (
	"cmp"
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

	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/reason"
	"github.com/workloadid/workloadid/internal/jwt"
	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/internal/stdin"
)

// heldToken is the token under examination.
type heldToken struct {
	raw    string
	claims *doctor.Claims
	unread error // of reading the file
	err    error // of parsing the token
}

func (e *examination) hold(content string) heldToken {
	t := heldToken{raw: strings.TrimSpace(content)}
	e.keepSecret(t.raw)
	if t.claims, t.err = parseClaims(t.raw); strings.ContainsAny(t.raw, " \r\n\t") {
		t.claims, t.err = nil, errors.New("there is text beside it")
	}
	return t
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

// readFile reads a bounded file.
func readFile(ctx context.Context, path string) (string, error) {
	file, err := os.Open(path) //nolint:gosec // the caller names it
	if err != nil {
		return "", err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	content, err := stdin.Read(ctx, file)
	return string(content), err
}

// parseClaims reads a token without verifying it. Its errors hold no part of the token.
func parseClaims(token string) (*doctor.Claims, error) {
	common, err := jwt.Parse(token)
	if err != nil {
		return nil, err
	}
	var header struct {
		Algorithm string `json:"alg"`
		KeyID     string `json:"kid"`
	}
	part, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[0])
	if err != nil || json.Unmarshal(part, &header) != nil {
		return nil, errors.New("its header is malformed")
	}
	c := &doctor.Claims{Issuer: common.Issuer, Subject: common.Subject, Audiences: common.Audience, IssuedAt: common.IssuedAt.Time,
		Expiry: common.Expiry.Time, KeyID: header.KeyID, Algorithm: header.Algorithm}
	if rest, ok := strings.CutPrefix(c.Subject, subjectPrefix); ok {
		c.Namespace, c.ServiceAccount, _ = strings.Cut(rest, ":")
	}
	return c, nil
}

const subjectPrefix = "system:serviceaccount:"

// checkToken finds what keeps the provider from sending a token at all.
func (e *examination) checkToken(ctx context.Context) doctor.Finding {
	c, want := e.token.claims, ""
	if c != nil {
		want = c.Subject
	}
	if e.ServiceAccount.Name != "" {
		want = subjectPrefix + e.ServiceAccount.Namespace + ":" + e.ServiceAccount.Name
	}
	switch {
	case errors.Is(e.token.unread, fs.ErrPermission):
		return doctor.Failed(reason.TokenFileUnreadable, doctor.Do("Set securityContext.fsGroup in the pod's template."), "User %d may not read the token file %q.", os.Geteuid(), e.TokenFile)
	case e.token.unread != nil:
		return doctor.Failed(reason.IdentityNotConfigured, doctor.Do("Mount a projected token there (volumes[].projected.sources[].serviceAccountToken)."),
			"The token file %q cannot be read: %v.", e.TokenFile, e.token.unread)
	case e.token.err != nil:
		return doctor.Failed(reason.TokenMalformed, e.freshToken(), "This is not the token of a ServiceAccount: %v.", e.token.err)
	case c == nil:
		return doctor.Skipped("There is no token to examine.")
	case len(c.Audiences) == 0:
		return doctor.Failed(reason.TokenWithoutAudience, e.freshToken(), "This is a legacy token of a Secret, without an audience.")
	case c.Subject != want:
		return doctor.Failed(reason.TokenOfAnotherServiceAccount, e.freshToken(), "The token is of another ServiceAccount.").Compare("token", c.Subject, "expected", want)
	}
	if audiences, err := e.wantedAudiences(ctx); err == nil && slices.ContainsFunc(audiences, func(a string) bool { return !slices.Contains(c.Audiences, a) }) {
		return doctor.Failed(reason.AudienceNotTrusted, e.freshToken(), "The token is for another receiver than %s.", e.cloud.name).
			Compare("token", list(c.Audiences), "expected", list(audiences))
	}
	sum := sha256.Sum256([]byte(e.token.raw))
	f := doctor.Passed("The token is of %s.", c.Subject)
	return f.Detail("iss", c.Issuer).Detail("aud", list(c.Audiences)).Detail("exp", stamp(c.Expiry)).Detail("kid", c.KeyID).Detail("sha256", hex.EncodeToString(sum[:4]))
}

func (e *examination) freshToken() doctor.Remedy {
	if e.InPod {
		return doctor.Do("Correct serviceAccountToken in the volume of the pod's template.")
	}
	return doctor.Do("Use a token of the ServiceAccount:", fmt.Sprintf("kubectl create token -n %s %s --audience %s", e.namespaceWord(), e.nameWord(), e.audienceWord()))
}

func list(values []string) string { return cmp.Or(strings.Join(values, ", "), "none") }

func (e *examination) wantedAudiences(ctx context.Context) ([]string, error) {
	opts := e.resolved()
	if len(opts.Audiences) > 0 {
		return opts.Audiences, nil
	}
	return e.Provider.GetAudiences(ctx, e.serviceAccount(), opts)
}

// checkAudience finds a misspelt audience in the annotation, or in the options. The exchange says what else is wrong with it.
func (e *examination) checkAudience(context.Context) doctor.Finding {
	key := e.cloud.audienceKey
	got, where := e.serviceAccount().Annotations[key], "The audience in the annotation "+key
	remedy := doctor.Do("Remove the annotation. The default is "+e.defaultAudience()+":", e.annotating(key+"-"))
	if requested := e.resolved().Audiences; len(requested) == 1 {
		got, where, remedy = requested[0], "The requested audience", doctor.Do("Correct the audience, or leave it out.")
		remedy.Option = "auth.WithAudiences"
	}
	near := e.nearAudience(got)
	if near == "" || !e.cloud.readsIssuer {
		return doctor.Passed("No audience is misspelt.")
	}
	return doctor.Failed(reason.AudienceNotTrusted, remedy, "%s is misspelt.", where).
		Compare("audience", fmt.Sprintf("%.100q", got), "expected", fmt.Sprintf("%q", near))
}

func (e *examination) defaultAudience() string { return append(slices.Clone(e.cloud.audiences), "")[0] }

func (e *examination) audienceWord() string {
	if e.Provider.GetName() == "gcp" {
		if provider := e.serviceAccount().Annotations[e.cloud.annotations[1]]; provider != "" {
			return shell.Word("//iam.googleapis.com/"+provider, "AUDIENCE")
		}
		return "AUDIENCE"
	}
	if requested := e.resolved().Audiences; len(requested) > 0 {
		return shell.Word(requested[0], "AUDIENCE")
	}
	return shell.Word(e.defaultAudience(), "AUDIENCE")
}
