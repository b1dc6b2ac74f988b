package diagnose

import (
	"context"
	"encoding/json"
)

// Check 1. Only a pod's own programs look at the environment; for objects the ServiceAccount alone counts.
func (e *examination) checkSource(ctx context.Context) Finding {
	if !e.InPod {
		if e.own() {
			return pass("the program's own identity, as the SDK finds it")
		}
		sa := e.serviceAccount()
		return pass("the ServiceAccount %s/%s; the environment does not count", shown(sa.Namespace), shown(sa.Name))
	}
	if f, hidden := e.hidingEnvironment(); hidden {
		return f
	}
	f := e.podSource()
	if f.Result != Pass {
		return f
	}
	if path := e.Getenv(googleFile); e.Provider.GetName() == "gcp" && path != "" {
		return judgeGoogleFile(ctx, path)
	}
	for _, name := range e.cloud.doubtful {
		if e.Getenv(name) != "" {
			return e.doubt(name, "the environment")
		}
	}
	if session := e.Getenv(sessionVariable); e.Provider.GetName() == "aws" && session != "" && !isSessionName(session) {
		return e.badSession(session, "the environment")
	}
	return f
}

func (e *examination) hidingEnvironment() (Finding, bool) {
	for _, name := range e.cloud.hiding {
		if e.Getenv(name) != "" {
			return fail(e.cloud.unset, "remove "+name+" from the pod's environment",
				"%s in the environment hides the identity of the ServiceAccount", name).
				with(differs(name, "set", "not set")), true
		}
	}
	return Finding{}, false
}

// podSource is about what the webhook has put into the environment.
func (e *examination) podSource() Finding {
	if e.podIdentity {
		return pass("%s", byPodIdentity)
	}
	if e.cloud.tokenFile == "" || e.ServiceAccount.Name != "" {
		return pass("nothing in the environment hides the identity of the ServiceAccount")
	}
	for _, name := range []string{e.cloud.tokenFile, e.cloud.identity} {
		if e.Getenv(name) == "" && (name != e.cloud.tokenFile || e.TokenFile == "") {
			return fail(e.cloud.unset, "annotate the ServiceAccount with "+e.cloud.required+" and restart the pod"+e.labelHint(),
				"%s is not set: the webhook has not changed this pod, so the SDK uses the identity of the node", name).
				with(differs(name, "", "set by the webhook"))
		}
	}
	return pass("web identity of the pod: %s from %s", shown(e.Getenv(e.cloud.identity)), e.cloud.identity)
}

func (e *examination) labelHint() string {
	if len(e.cloud.labels) == 0 {
		return ""
	}
	return `; its template needs the label ` + e.cloud.labels[0] + `: "true"`
}

// doubt is about a variable that only some SDKs prefer.
func (e *examination) doubt(name, where string) Finding {
	return Finding{Result: Warn, Class: e.cloud.unset,
		Remedy:  "remove " + name + " from " + where + ", unless what it names uses the token file",
		Message: name + " in " + where + " has some SDKs use something else than the identity of the ServiceAccount"}.
		with(differs(name, "set", "not set"))
}

// sessionVariable names the session. Without it SDKs make a name up.
const sessionVariable = "AWS_ROLE_SESSION_NAME"

// isSessionName is what AssumeRoleWithWebIdentity takes for RoleSessionName: 2 to 64 characters of [\w+=,.@-].
func isSessionName(s string) bool {
	const shortest, longest = 2, 64
	for _, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '_', c == '+', c == '=', c == ',', c == '.', c == '@', c == '-':
		default:
			return false
		}
	}
	return len(s) >= shortest && len(s) <= longest
}

func (e *examination) badSession(got, where string) Finding {
	return fail("A10", "remove "+sessionVariable+" from "+where+", or make it a shorter name",
		"%s in %s is no name that AWS takes for a session", sessionVariable, where).
		with(differs(sessionVariable, got, "2 to 64 letters, digits and _+=,.@-"))
}

// googleFile is the variable that Google's SDKs look at first.
const googleFile = "GOOGLE_APPLICATION_CREDENTIALS"

// judgeGoogleFile tells a file that says how to use the pod's token from one with credentials of its own.
func judgeGoogleFile(ctx context.Context, path string) Finding {
	const remedy = "remove " + googleFile + " from the pod's environment, or make it a file of the type external_account"
	content, err := readToken(ctx, path)
	if err != nil {
		return fail("G15", remedy, "the file in %s cannot be read, and Google's SDKs use nothing else then: %s",
			googleFile, oneLine(lastError(err))).
			with(same(googleFile, path))
	}
	var file struct {
		Type string `json:"type"`
	}
	if json.Unmarshal([]byte(content), &file) != nil {
		return fail("G15", remedy, "the file in %s is not JSON, and Google's SDKs use nothing else", googleFile).
			with(same(googleFile, path))
	}
	switch file.Type {
	case "external_account":
		return pass("%s says how a token is used", googleFile).with(same("type", file.Type))
	case "service_account", "authorized_user":
		return fail("G15", remedy, "the file in %s hides the identity of the ServiceAccount", googleFile).
			with(differs("type", file.Type, "external_account"))
	}
	return unknown("whether the file in "+googleFile+" hides the identity of the ServiceAccount is not known", remedy).
		with(same("type", file.Type))
}
