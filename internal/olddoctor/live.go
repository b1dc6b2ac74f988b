package doctor

import (
	"context"
	"strings"
)

// Check 21: what the program itself would do, without a cache.
func (e *examination) checkExchange(ctx context.Context) Finding {
	if e.podIdentity && !e.own() {
		return skip("the agent on the pod's node makes the exchange; run wid doctor in the pod")
	}
	if !e.own() && e.token.claims == nil {
		f, _ := e.noToken()
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	defer waiting(ctx, "the token service of "+e.cloud.name)()
	e.learnAudience(ctx)
	token, err := e.accessToken(ctx)
	if err != nil {
		f := e.outage(e.refusal(ctx, err), err)
		if c := e.token.claims; c != nil {
			f.Fields = append(f.Fields, same("iss", c.Issuer), same("sub", c.Subject), same("aud", audiences(c.Audience)))
			if f.Class == "A1" {
				f = e.explainRefusal(f)
			}
		}
		return f
	}
	e.gained = token
	end := e.Now().Add(token.GetDuration())
	return pass("the exchange works; the credential lives until %s", stamp(end)).with(same("expires", stamp(end)))
}

// explainRefusal is for a role that STS does not let the token assume. It goes by the role's trust policy as far as that was
// read.
func (e *examination) explainRefusal(f Finding) Finding {
	read := e.anchors != nil && len(e.anchors.Policy) > 0
	switch rule := e.results[20]; {
	case read && rule == Fail:
		f.Remedy = "see check 20, which shows what to correct"
	case read && rule == Pass:
		f.Remedy = "the trust policy that was read admits the token: see that it is the role's, and try again a minute after a change\n" +
			"aws iam get-role --role-name " + e.roleWord()
	case read && rule == Unknown:
		f.Remedy = compareByHand
	default:
		return e.correctFirst(e.toAdmit(f, nil))
	}
	return f
}

// Check 22.
func (e *examination) checkIdentity(ctx context.Context) Finding {
	if e.gained == nil {
		return Finding{Result: Skip, Needs: 21, Message: "skipped: there is no credential, see check 21"}
	}
	if t, ok := e.gained.(interface{ ServiceAccountEmail() string }); ok && !e.own() && t.ServiceAccountEmail() == "" && (!e.byFile || e.email() == "") {
		return skip("a federated token of Google tells nobody whose it is")
	}
	who, err := e.identify(ctx)
	switch {
	case err != nil:
		return unknown("whose credential it is cannot be asked: "+shown(messageOf(err)), "")
	case who == "" && e.Identify == nil:
		return skip("the credential does not tell whose it is, and nobody was given who asks (Config.Identify)")
	case who == "":
		return unknown("the credential does not tell whose it is",
			"leave this check out if the credential is one that no service names: --skip identity")
	}
	want := e.serviceAccount().Annotations[e.cloud.required]
	if e.Provider.GetName() == "gcp" {
		want = e.serviceAccount().Annotations[emailAnnotation]
	}
	if e.own() || want == "" || sameIdentity(who, want) {
		return pass("you are %s", shown(who)).with(same("identity", who))
	}
	return fail(e.cloud.unset, "restart the pod, and remove other credentials from its environment",
		"this is somebody else: %s", shown(who)).with(differs("identity", who, want))
}

func (e *examination) identify(ctx context.Context) (string, error) {
	if e.Identify != nil {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		defer waiting(ctx, "the token service of "+e.cloud.name)()
		return patiently(ctx, func() (string, error) { return e.Identify(ctx, e.gained) })
	}
	switch t := e.gained.(type) {
	case interface{ AssumedRoleARN() string }:
		return t.AssumedRoleARN(), nil
	case interface{ Reveal() string }:
		if c, err := ParseClaims(t.Reveal()); err == nil {
			return c.Subject, nil
		}
	}
	return "", nil
}

// sameIdentity compares names; the session of a role has the role's own name in it.
func sameIdentity(got, want string) bool {
	if strings.EqualFold(got, want) {
		return true
	}
	rest, ok := strings.CutPrefix(want, "arn:")
	parts := strings.SplitN(rest, ":", 5)
	session := strings.SplitN(strings.TrimPrefix(got, "arn:"), ":", 5)
	if !ok || len(parts) < 5 || len(session) < 5 || parts[3] != session[3] {
		return false
	}
	name := parts[4][strings.LastIndexByte(parts[4], '/')+1:]
	return strings.HasPrefix(session[4], "assumed-role/"+name+"/")
}
