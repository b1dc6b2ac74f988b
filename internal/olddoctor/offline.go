package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/internal/transport"
)

// Check 2.
func (e *examination) checkTokenFile(ctx context.Context) Finding {
	if e.TokenFile == "" {
		return skip("the token does not come from a file")
	}
	const remount = "mount a projected token (volumes[].projected.sources[].serviceAccountToken)"
	info, err := statFile(ctx, e.TokenFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		what := "the file does not exist"
		if _, linkErr := lstatFile(ctx, e.TokenFile); linkErr == nil {
			what = "the link leads nowhere: the kubelet has removed what ..data pointed to"
		}
		return fail(e.cloud.unset, remount, "%s: %q", what, e.TokenFile)
	case isPermission(err):
		return e.unreadable("a directory above it")
	case err != nil:
		return fail("K9", remount, "cannot look at the token file %q", e.TokenFile)
	case info.IsDir():
		return fail("A6", "name the file in it, "+filepath.Join(e.TokenFile, "token")+" perhaps", "the token file %q is a directory", e.TokenFile)
	}
	content, err := readToken(ctx, e.TokenFile)
	switch {
	case isPermission(err):
		return e.unreadable(fmt.Sprintf("mode %04o", info.Mode().Perm()))
	case err != nil:
		return fail("A6", remount, "the token file %q cannot be read: %s", e.TokenFile, oneLine(lastError(err)))
	}
	trimmed := strings.TrimSpace(content)
	switch {
	case trimmed == "":
		return fail("A6", remount, "the token file %q is empty", e.TokenFile)
	case strings.ContainsAny(trimmed, " \t\r\n"):
		return fail("A6", "write the token and nothing else into the file", "the file %q has text beside the token", e.TokenFile).
			with(Field{Name: "content", Observed: fmt.Sprintf("%d words", len(strings.Fields(trimmed))), Expected: "1 word", Differs: true})
	case trimmed != content && strings.TrimRight(content, "\n") != trimmed:
		return Finding{Result: Warn, Class: "A6", Remedy: "write the token and nothing else into the file",
			Message: fmt.Sprintf("the file %q has blanks around the token; not all SDKs remove them", e.TokenFile)}
	}
	return pass("the token file can be read, %d bytes", len(content))
}

func (e *examination) unreadable(why string) Finding {
	return fail("K9", "kubectl patch deployment DEPLOYMENT --type merge -p '{\"spec\":{\"template\":{\"spec\":{\"securityContext\":{\"fsGroup\":65534}}}}}'",
		"cannot read %q as uid %d (%s)", e.TokenFile, os.Geteuid(), why)
}

// lastError leaves the path out, which the message names already.
func lastError(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}

// Check 3.
func (e *examination) checkFormat(context.Context) Finding {
	if e.token.err != nil {
		what := "not a JWT"
		if !strings.Contains(e.token.raw, ".") {
			what = "not a JWT: an opaque access token, perhaps"
		}
		return fail(e.cloud.malformed, "use a token of the ServiceAccount:\nkubectl create token SERVICE_ACCOUNT", "%s: %v", what, e.token.err)
	}
	if f, none := e.noToken(); none {
		return f
	}
	c := e.token.claims
	switch {
	case c.KeyID == "":
		return fail(e.cloud.noKey, "have the issuer put kid into the header; Kubernetes does",
			"the token has no kid: nobody can tell which key signed it").with(differs("kid", "", "the ID of a published key"))
	case c.Algorithm == "none" || strings.HasPrefix(c.Algorithm, "HS") || c.Algorithm == "":
		return fail(e.cloud.malformed, "sign with RS256", "the token is not signed with a private key").with(differs("alg", c.Algorithm, "RS256"))
	case c.Algorithm != "RS256" && e.cloud.name != "Google Cloud" && e.cloud.readsIssuer:
		return Finding{Result: Warn, Class: e.cloud.malformed, Remedy: "sign with an RSA key (--service-account-signing-key-file)",
			Message: "not every cloud accepts this algorithm"}.with(differs("alg", c.Algorithm, "RS256"))
	}
	return pass("JWT, %s, kid %s, sha256 %s", shown(c.Algorithm), shown(c.KeyID), c.Fingerprint).
		with(same("kid", c.KeyID), same("alg", c.Algorithm), same("sha256", c.Fingerprint))
}

// Check 4.
func (e *examination) checkClaims(context.Context) Finding {
	if f, none := e.noToken(); none {
		return f
	}
	c := e.token.claims
	all := []Field{same("iss", c.Issuer), same("sub", c.Subject), same("aud", audiences(c.Audience)), same("exp", stamp(c.Expiry))}
	const fresh = "use a projected token, or a fresh one:\nkubectl create token SERVICE_ACCOUNT --audience AUDIENCE"
	switch {
	case c.Issuer == "kubernetes/serviceaccount":
		return fail(e.cloud.noAudience, fresh, "this is a legacy token of a Secret: it has no audience and no end").
			with(append(all, differs("iss", c.Issuer, "an https URL"))[1:]...)
	case len(c.Audience) == 0:
		return fail(e.cloud.noAudience, fresh, "no aud: this is a legacy token of a Secret").with(differs("aud", "", e.cloud.audience))
	case c.Issuer == "":
		return fail(e.cloud.wrongIssuer, fresh, "the claim iss is missing").with(differs("iss", "", "the cluster's issuer"))
	case c.Subject == "":
		return fail(e.cloud.wrongSubject, fresh, "the claim sub is missing").with(differs("sub", "", "system:serviceaccount:<namespace>:<name>"))
	case c.Expiry.IsZero():
		return fail(e.cloud.old, fresh, "the claim exp is missing").with(differs("exp", "", "a time"))
	}
	return pass("issued to %s", e.holder()).with(all...)
}

func (e *examination) holder() string {
	c := e.token.claims
	if c.ServiceAccount == "" {
		return shown(c.Subject)
	}
	who := shown(c.Namespace + "/" + c.ServiceAccount)
	if c.Pod != "" {
		who += " for pod " + shown(c.Pod)
	}
	return who
}

// Check 6.
func (e *examination) checkAudience(ctx context.Context) Finding {
	if f, wrong := e.wrongAudienceAnnotation(); wrong {
		return f
	}
	if f, none := e.noToken(); none {
		return f
	}
	c := e.token.claims
	want, err := e.wantedAudiences(ctx)
	if err != nil {
		return unknown("what audience is wanted is not known: "+oneLine(messageOf(err)), "see check 9")
	}
	if f, misspelt := e.misspeltAudience(want); misspelt {
		return f
	}
	missing := slices.ContainsFunc(want, func(a string) bool { return !slices.Contains(c.Audience, a) })
	remedy := fmt.Sprintf("request the token with the audience that is needed:\nkubectl create token %s -n %s",
		shell.Word(c.ServiceAccount, "SERVICE_ACCOUNT"), shell.Word(c.Namespace, "NAMESPACE"))
	for _, audience := range want {
		remedy += " --audience " + shell.Word(audience, "AUDIENCE")
	}
	if e.InPod && e.TokenFile != "" && len(want) > 0 { // where nobody creates tokens but the kubelet
		remedy = "set the audience in the pod's template, in volumes[].projected.sources[].serviceAccountToken, to " +
			shell.Word(want[0], "AUDIENCE")
	}
	switch {
	case missing && slices.Contains(c.Audience, c.Issuer), missing && slices.ContainsFunc(c.Audience, isAPIServer):
		return fail(e.cloud.wrongAudience, remedy, "the token is for the API server; %s needs another audience", e.cloud.name).
			with(differs("aud", audiences(c.Audience), audiences(want)))
	case missing && visible(strings.Join(c.Audience, " ")) == visible(strings.Join(want, " ")):
		return fail(e.cloud.wrongAudience, remedy, "the token's audience and the one that is needed: %s", byBlanks).
			with(differs("aud", audiences(c.Audience), audiences(want)))
	case missing && e.podsOwn.audiences != nil:
		return Finding{Result: Warn, Class: e.cloud.wrongAudience, Remedy: "see checks 15 and 21",
			Message: "the token is for whom the pod's volume has it for; whether " + e.cloud.name + " takes it is for the exchange to show"}.
			with(differs("aud", audiences(c.Audience), audiences(want)))
	case missing:
		return fail(e.cloud.wrongAudience, remedy, "the token is for somebody else").with(differs("aud", audiences(c.Audience), audiences(want)))
	case len(c.Audience) > len(want):
		return Finding{Result: Warn, Class: "K5", Remedy: remedy,
			Message: "the token has audiences beside the one that is needed, and this library does not send such tokens out"}.
			with(differs("aud", audiences(c.Audience), audiences(want)))
	}
	if key := e.cloud.audienceKey; key != "" && e.serviceAccount().Annotations[key] != "" {
		return pass("the audience is what the annotation %s says", key).with(same("aud", audiences(c.Audience)))
	}
	return pass("the audience fits %s", e.cloud.name).with(same("aud", audiences(c.Audience)))
}

func (e *examination) wantedAudiences(ctx context.Context) ([]string, error) {
	opts := e.resolved()
	switch {
	case e.podsOwn.audiences != nil:
		return e.podsOwn.audiences, nil
	case len(opts.Audiences) > 0:
		return opts.Audiences, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return e.Provider.GetAudiences(ctx, e.serviceAccount(), opts)
}

func isAPIServer(audience string) bool {
	return strings.HasPrefix(strings.TrimPrefix(audience, "https://"), "kubernetes.default") || audience == "kubernetes" || audience == "api"
}

// messageOf leaves out what a finding shows elsewhere.
func messageOf(err error) string {
	if e, ok := asError(err); ok {
		return e.Message
	}
	return err.Error()
}

// Check 7.
func (e *examination) checkSubject(context.Context) Finding {
	if f, none := e.noToken(); none {
		return f
	}
	got := e.token.claims.Subject
	want := got
	if e.ServiceAccount.Name != "" {
		want = subjectOf(e.ServiceAccount)
	}
	const remedy = "use a token of the ServiceAccount that is meant, written as Kubernetes writes it"
	switch {
	case got == want && e.cloud.maxSubject > 0 && len(got) > e.cloud.maxSubject:
		return fail("G9", "shorten namespace or name, or map another claim to google.subject",
			"the subject has %d bytes; Google allows %d", len(got), e.cloud.maxSubject).
			with(Field{Name: "sub", Observed: shown(got), Expected: fmt.Sprintf("at most %d bytes", e.cloud.maxSubject), Differs: true})
	case got == want:
		return pass("the subject is %s", shown(got)).with(same("sub", got))
	case strings.EqualFold(got, want):
		return fail(e.cloud.wrongCase, remedy, "the subject differs in upper and lower case only").with(differs("sub", got, want))
	case visible(got) == visible(want):
		return fail(e.cloud.wrongSubject, remedy, "the token is of another ServiceAccount: %s", byBlanks).with(differs("sub", got, want))
	}
	return fail(e.cloud.wrongSubject, remedy, "the token is of another ServiceAccount").with(differs("sub", got, want))
}

// Check 8.
func (e *examination) checkIssuer(context.Context) Finding {
	if f, none := e.noToken(); none {
		return f
	}
	iss := e.token.claims.Issuer
	if e.Issuer != "" && e.Issuer != iss {
		return fail(e.cloud.wrongIssuer, "tell the cloud the issuer as it stands in the token, "+issuerOf(e.token.claims),
			"the token's issuer is not the one that the cloud trusts: %s", difference(iss, e.Issuer)).with(differs("iss", iss, e.Issuer))
	}
	u, err := url.Parse(iss)
	const remedy = "set --service-account-issuer of the API server to a public https URL"
	switch {
	case err != nil || u.Host == "":
		return fail("K8", remedy, "the issuer is not a URL").with(differs("iss", iss, "https://<host>[/<path>]"))
	case u.Scheme != "https":
		return fail("K8", remedy, "the issuer has to begin with https://").with(differs("iss", iss, "https://"+u.Host+u.Path))
	case u.RawQuery != "" || u.Fragment != "" || u.User != nil || strings.ContainsAny(iss, "?#"):
		return fail("K8", remedy, "the issuer holds a query, a fragment or a user name").with(differs("iss", iss, "https://"+u.Host+u.Path))
	case e.cloud.readsIssuer && isAPIServer(u.Host) && len(e.JWKS) == 0:
		return fail("K8", remedy, "no cloud can reach %s", shown(iss)).with(differs("iss", iss, "a public https URL"))
	case e.cloud.readsIssuer && isPrivate(u.Hostname()) && len(e.JWKS) == 0:
		return Finding{Result: Warn, Class: e.cloud.private, Message: "the issuer is at an address that clouds cannot reach", Remedy: remedy}.
			with(differs("iss", iss, "a public https URL"))
	case strings.HasSuffix(iss, "/"):
		return pass("the issuer ends with /: copy it exactly").with(same("iss", iss))
	}
	return pass("the issuer is %s", shown(iss)).with(same("iss", iss))
}

// difference says in which way two addresses are not the same.
func difference(a, b string) string {
	switch {
	case strings.TrimSuffix(a, "/") == strings.TrimSuffix(b, "/"):
		return "they differ only by the / at the end"
	case strings.EqualFold(a, b):
		return "they differ in upper and lower case only"
	case visible(a) == visible(b):
		return byBlanks
	}
	ua, errA := url.Parse(a)
	ub, errB := url.Parse(b)
	switch {
	case errA != nil || errB != nil:
		return "they differ"
	case ua.Host == ub.Host && ua.Scheme == ub.Scheme:
		return "the paths differ, as after a cluster was rebuilt"
	case ua.Host == ub.Host:
		return "the schemes differ"
	}
	return "the hosts differ"
}

func isPrivate(host string) bool { return transport.LeadsInside(host) }
