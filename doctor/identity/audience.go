package identity

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/internal/shell"
)

// checkAudience judges what the user wrote before what the token has, because the token follows the annotation.
func (e *examination) checkAudience(ctx context.Context, c *doctor.Claims) doctor.Finding {
	if f, wrong := e.judgeRequestedAudience(); wrong {
		return f
	}
	want, err := e.wantedAudiences(ctx)
	if err != nil {
		return doctor.Skipped("The audience that %s needs is unknown.", e.cloud.name)
	}
	f := doctor.Passed("The token's audience is that of %s.", e.cloud.name).Detail("aud", list(c.Audiences))
	missing := slices.ContainsFunc(want, func(a string) bool { return !slices.Contains(c.Audiences, a) })
	remedy := doctor.Do("Request the token with the right audience:",
		fmt.Sprintf("kubectl create token -n %s %s --audience %s", e.namespaceWord(), e.nameWord(), e.audienceWord()))
	if e.InPod {
		remedy = doctor.Do("Set audience of serviceAccountToken in the volume of the pod's template.")
	}
	switch {
	case missing && slices.ContainsFunc(c.Audiences, func(a string) bool { return a == c.Issuer || isAPIServer(a) }):
		f = doctor.Failed(e.cloud.wrongAudience, remedy, "The token is for the API server; %s needs another audience.", e.cloud.name)
	case missing:
		f = doctor.Failed(e.cloud.wrongAudience, remedy, "The token is for another receiver than %s.", e.cloud.name)
	case len(c.Audiences) > len(want):
		f = doctor.Failed("K5", remedy, "The token has further audiences, so it is not sent out.").As(doctor.Warn)
	default:
		return f
	}
	return f.Compare("token", list(c.Audiences), "expected", list(want))
}

func (e *examination) wantedAudiences(ctx context.Context) ([]string, error) {
	opts := e.resolved()
	if len(opts.Audiences) > 0 {
		return opts.Audiences, nil
	}
	return e.Provider.GetAudiences(ctx, e.serviceAccount(), opts)
}

// judgeRequestedAudience finds an audience in the annotation, or in the options, that this cloud cannot mean.
func (e *examination) judgeRequestedAudience() (doctor.Finding, bool) {
	key := e.cloud.audienceKey
	got, annotated := e.serviceAccount().Annotations[key]
	where, remedy := "The audience in the annotation "+key, doctor.Do("Remove the annotation. The default is "+e.defaultAudience()+":", e.annotating(key+"-"))
	if requested := e.resolved().Audiences; len(requested) == 1 {
		got, annotated, where, remedy = requested[0], true, "The requested audience", doctor.Do("Correct the audience in the options, or leave it out.")
	}
	if !annotated || !e.cloud.readsIssuer || slices.Contains(e.cloud.audiences, got) {
		return doctor.Finding{}, false
	}
	why, near := "", e.nearAudience(got)
	switch other := e.otherCloud(got); {
	case got == "" || strings.ContainsFunc(got, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }):
		why = "is empty or holds blanks"
	case other != "":
		why = "is that of " + other
	case isAPIServer(got):
		why = "is that of the API server"
	case near != "":
		why = "is misspelt"
	default:
		return doctor.Finding{}, false
	}
	return doctor.Failed(e.cloud.wrongAudience, remedy, "%s %s.", where, why).
		Compare("audience", fmt.Sprintf("%.100q", got), "expected", fmt.Sprintf("%q", cmp.Or(near, e.defaultAudience()))), true
}

func (e *examination) defaultAudience() string {
	if len(e.cloud.audiences) == 0 {
		return ""
	}
	return e.cloud.audiences[0]
}

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

// isAPIServer knows the usual audiences of API servers.
func isAPIServer(audience string) bool {
	return strings.HasPrefix(strings.TrimPrefix(audience, "https://"), "kubernetes.default") || audience == "kubernetes" || audience == "api"
}
