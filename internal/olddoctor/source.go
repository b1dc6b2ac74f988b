package doctor

import (
	"context"
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Check 1. Only a pod's own programs look at the environment; for objects the ServiceAccount alone counts.
func (e *examination) checkSource(ctx context.Context) Finding {
	if !e.InPod {
		if e.own() {
			return pass("the program's own identity, as the SDK finds it")
		}
		if e.nameless() {
			return e.unnamed()
		}
		sa := e.serviceAccount()
		return pass("the ServiceAccount %s/%s; the environment does not count", shown(sa.Namespace), shown(sa.Name))
	}
	if f, hidden := e.hidingEnvironment(); hidden {
		return f
	}
	f := e.podSource(ctx)
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
func (e *examination) podSource(ctx context.Context) Finding {
	if e.podIdentity {
		return pass("%s", byPodIdentity)
	}
	if e.cloud.tokenFile == "" || e.ServiceAccount.Name != "" {
		return pass("nothing in the environment hides the identity of the ServiceAccount")
	}
	for _, name := range []string{e.cloud.tokenFile, e.cloud.identity} {
		if e.Getenv(name) == "" && (name != e.cloud.tokenFile || e.TokenFile == "") {
			return fail(e.cloud.unset, e.howToInject(ctx, name),
				"%s is not set: the webhook has not changed this pod, so the SDK uses the identity of the node", name).
				with(differs(name, "", "set by the webhook"))
		}
	}
	return pass("web identity of the pod: %s from %s", shown(e.Getenv(e.cloud.identity)), e.cloud.identity)
}

// howToInject is what makes the webhook change this pod, as far as the pod may look at itself.
func (e *examination) howToInject(ctx context.Context, missing string) string {
	if e.Provider.GetName() == "aws" && missing == e.cloud.tokenFile && e.Getenv(e.cloud.identity) != "" {
		return "remove " + e.cloud.identity + " from the pod's template, for which the webhook leaves the container alone, " +
			"or set " + e.cloud.tokenFile + " beside it, and mount a token there"
	}
	annotate := "annotate the ServiceAccount with " + e.cloud.required + " and restart the pod" + e.labelHint()
	sa := e.readHost(ctx)
	switch {
	case sa == nil:
		return annotate + "; if it is annotated, see what the webhook does: wid doctor --pod NAMESPACE/POD_NAME, where a kubeconfig is"
	case sa.Annotations[e.cloud.required] == "":
		return e.annotating(sa, e.cloud.required+"=VALUE") + "\nand restart the pod" + e.labelHint()
	}
	return "the ServiceAccount is annotated: restart the pod" + e.labelHint() +
		"; if it stays, see what the webhook does: wid doctor --pod NAMESPACE/POD_NAME, where a kubeconfig is"
}

// readHost reads the ServiceAccount that this pod itself runs as, by the token that it has for the API server. Nil: it may
// not, or has none.
func (e *examination) readHost(ctx context.Context) *corev1.ServiceAccount {
	if e.Client == nil || e.RESTConfig == nil {
		return nil
	}
	raw := e.RESTConfig.BearerToken
	if raw == "" {
		raw, _ = readToken(ctx, e.RESTConfig.BearerTokenFile) // without one nothing is read
	}
	claims, err := ParseClaims(strings.TrimSpace(raw))
	if err != nil || claims.ServiceAccount == "" {
		return nil
	}
	sa := &corev1.ServiceAccount{}
	if readObject(ctx, e.Reader, "v1", "ServiceAccount", client.ObjectKey{Namespace: claims.Namespace, Name: claims.ServiceAccount}, sa) != nil {
		return nil
	}
	sa.Namespace, sa.Name = claims.Namespace, claims.ServiceAccount
	return sa
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
