package identity

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/cause"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor/internal/kube"
	"github.com/workloadid/workloadid/internal/jwt"
	"github.com/workloadid/workloadid/internal/shell"
)

type heldToken struct {
	raw    string
	claims *doctor.Claims
	err    error // of reading and parsing it
}

// hold keeps what a source has returned.
func (e *examination) hold(raw string, _ time.Time, err error) heldToken {
	t := heldToken{raw: strings.TrimSpace(raw), err: err}
	e.keepSecret(t.raw)
	if err == nil {
		if t.claims, err = parseClaims(t.raw); err != nil {
			t.err = &auth.Error{Reason: auth.ErrMisconfigured, Message: "the subject token cannot be used: " + err.Error()}
		}
	}
	return t
}

// parseClaims reads a token without verifying it. Its errors hold no part of
// the token.
func parseClaims(token string) (*doctor.Claims, error) {
	if strings.ContainsAny(token, " \r\n\t") {
		return nil, errors.New("there is text beside the token")
	}
	common, err := jwt.Parse(token)
	if err != nil {
		return nil, err
	}
	c := &doctor.Claims{Issuer: common.Issuer, Subject: common.Subject, Audiences: common.Audience,
		Expiry: common.Expiry.Time}
	if rest, ok := strings.CutPrefix(c.Subject, subjectPrefix); ok {
		c.Namespace, c.ServiceAccount, _ = strings.Cut(rest, ":")
	}
	return c, nil
}

const subjectPrefix = "system:serviceaccount:"

// checkToken finds what keeps the provider from sending a token at all.
func (e *examination) checkToken(ctx context.Context) doctor.Finding {
	c, want := e.token.claims, subjectPrefix+e.ServiceAccount.Namespace+":"+e.ServiceAccount.Name
	switch {
	case e.token.err != nil:
		return e.unusableToken(ctx)
	case c == nil:
		return doctor.Skipped("There is no token to examine.")
	case len(c.Audiences) == 0:
		return doctor.Failed(cause.TokenWithoutAudience, e.freshToken(ctx),
			"This is a legacy token of a Secret, without an audience.")
	case e.ServiceAccount.Name != "" && c.Subject != want:
		return doctor.Failed(cause.TokenOfAnotherServiceAccount, e.freshToken(ctx),
			"The token is of another ServiceAccount.").Compare("token", c.Subject, "expected", want)
	}
	if audiences, err := e.wantedAudiences(ctx); err == nil && slices.ContainsFunc(audiences, func(a string) bool {
		return !slices.Contains(c.Audiences, a)
	}) {
		return doctor.Failed(cause.AudienceNotTrusted, e.freshToken(ctx), "The token is for another receiver than %s.",
			e.cloud.name).
			Compare("token", list(c.Audiences), "expected", list(audiences))
	}
	f := doctor.Passed("The token is of %s.", c.Subject)
	return f.Detail("iss", c.Issuer).Detail("aud", list(c.Audiences)).Detail("exp", kube.Stamp(c.Expiry))
}

// unusableToken has the words of the library, which reads token files for
// controllers too.
func (e *examination) unusableToken(ctx context.Context) doctor.Finding {
	f := e.refusal("The token file", e.token.err)
	switch isUnread := errors.As(e.token.err, new(*fs.PathError)); {
	case !isUnread:
		f.Class, f.Remedy = string(cause.TokenMalformed), e.freshToken(ctx)
	case f.Class != string(cause.TokenFileUnreadable):
		f.Class = string(cause.IdentityNotConfigured)
	}
	return f
}

func (e *examination) freshToken(ctx context.Context) doctor.Remedy {
	if e.InPod {
		return doctor.Do("Correct serviceAccountToken in the volume of the pod's template.")
	}
	audience := "AUDIENCE"
	if wanted, err := e.wantedAudiences(ctx); err == nil && len(wanted) > 0 {
		audience = shell.Word(wanted[0], audience)
	}
	return doctor.Do("Use a token of the ServiceAccount:",
		e.query().Fill("kubectl create token -n NAMESPACE SERVICE_ACCOUNT --audience ")+audience)
}

func list(values []string) string { return cmp.Or(strings.Join(values, ", "), "none") }

func (e *examination) wantedAudiences(ctx context.Context) ([]string, error) {
	opts := e.resolved()
	if len(opts.Audiences) > 0 {
		return opts.Audiences, nil
	}
	return e.Provider.GetAudiences(ctx, e.serviceAccount(), opts)
}
