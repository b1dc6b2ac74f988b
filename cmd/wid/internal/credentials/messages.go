package credentials

import (
	"context"
	"errors"
	"regexp"
	"strings"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/exchange"
)

// goName finds what the library calls its options, in its messages. A value in brackets may follow.
var goName = regexp.MustCompile(`(?:\b[a-z]+\.)?\b` +
	`(With[A-Z]\w*|TokenType[A-Z]\w*|(?:Provider|Policy|Settings)\.[A-Z]\w*)` +
	`(?:\(("[^"]*")\))?`)

// flagNames are names without a flag of an identity.
var flagNames = map[string]string{
	"WithAnnotations":            "--annotation",
	"WithClusterResource":        "--cluster",
	"WithClusterAddress":         "--cluster-address",
	"WithClusterName":            "--cluster-name",
	"WithCAData":                 "--cluster-ca-file",
	"WithHTTPClient":             "the program's own client",
	"WithOwner":                  "--service-account",
	"WithCache":                  "--service-account",
	"WithGitURL":                 "the repository's URL",
	"Policy.AllowCrossNamespace": "another --service-account",
	"Policy.AllowCluster":        "--cluster or --cluster-address",
	"Policy.AllowProxy":          "--proxy-url",
	"Provider.PrivateClouds":     "the file that AZURE_ENVIRONMENT_FILEPATH names",
	"TokenTypeAccessToken":       exchange.TokenTypeAccessToken,
	"Provider.Registries":        "the list of registries",
}

// InTermsOfFlags rewrites an error of the library for users of the command line.
func (id *Identity) InTermsOfFlags(err error) error {
	if err == nil {
		return nil
	}
	text := id.Sent.Clean(id.TextOfFlags(withRemedy(err)))
	if text == err.Error() {
		return err
	}
	return &reworded{err, text}
}

// TextOfFlags replaces names of the library's options with flags.
func (id *Identity) TextOfFlags(text string) string {
	names := id.flagsOfOptions()
	return goName.ReplaceAllStringFunc(text, func(match string) string {
		parts := goName.FindStringSubmatch(match)
		flag, ok := names[parts[1]]
		switch {
		case !ok:
			return match
		case parts[2] != "":
			return flag + " " + parts[2]
		}
		return flag
	})
}

type reworded struct {
	error
	text string
}

func (r *reworded) Error() string { return r.text }
func (r *reworded) Unwrap() error { return r.error }

// flagsOfOptions maps names of the library, without that of the package, to flags. Of several flags the first one counts.
func (id *Identity) flagsOfOptions() map[string]string {
	names := map[string]string{}
	for name, flag := range flagNames {
		names[name] = flag
	}
	for _, s := range id.Settings() {
		for _, option := range strings.Fields(s.option) {
			_, name, _ := strings.Cut(option, ".")
			if _, ok := names[name]; !ok {
				names[name] = "--" + s.Name
			}
		}
	}
	return names
}

// unreached marks the error of an API server of the ServiceAccount that gave no answer.
type unreached struct{ error }

func (e *unreached) Unwrap() error { return e.error }

// withRemedy returns the text of an error of the library, with the remedy of a person at the command line.
func withRemedy(err error) string {
	text := err.Error()
	var e *auth.Error
	switch {
	case !errors.As(err, &e):
	case e.Remedy == "":
		if remedy := remedyFor(err, e); remedy != "" {
			text += "; " + remedy
		}
	case e.Cause == auth.CauseNoOwnIdentity:
		text = strings.Replace(text, e.Remedy, e.Remedy+" with --service-account", 1)
	case e.Cause == auth.CauseAudienceNotAllowed:
		text = strings.Replace(text, e.Remedy, "pass it with --audience", 1)
	}
	return text
}

// remedyFor returns remedies that only the command knows.
func remedyFor(err error, e *auth.Error) string {
	var cluster *unreached
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "raise --timeout, or check what does not answer"
	case errors.As(err, &cluster):
		return "check the cluster's address in the kubeconfig, and that its user can log in: try kubectl get serviceaccounts"
	case strings.HasPrefix(e.Code, "AADSTS"):
		return "look the code up at https://login.microsoftonline.com/error"
	}
	return ""
}
