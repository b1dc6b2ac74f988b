package main

import (
	"regexp"
	"strings"

	"github.com/workloadid/workloadid/auth/exchange"
)

// goName finds what the library calls its options, in its messages. A value in brackets may follow.
var goName = regexp.MustCompile(`(?:\b[a-z]+\.)?\b` +
	`(With[A-Z]\w*|TokenType[A-Z]\w*|(?:Provider|Policy|Settings)\.[A-Z]\w*)` +
	`(?:\(("[^"]*")\))?`)

// flagNames are for names that no flag of an identity has: flags of some commands, and what people at a command line do.
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

// inTermsOfFlags is an error of the library for people who do not know its options.
func (id *identity) inTermsOfFlags(err error) error {
	if err == nil {
		return nil
	}
	text := id.sent.clean(id.textOfFlags(withRemedy(err)))
	if text == err.Error() {
		return err
	}
	return &reworded{err, text}
}

// textOfFlags has the flags where the library names its options.
func (id *identity) textOfFlags(text string) string {
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
func (id *identity) flagsOfOptions() map[string]string {
	names := map[string]string{}
	for name, flag := range flagNames {
		names[name] = flag
	}
	for _, s := range id.settings() {
		for _, option := range strings.Fields(s.option) {
			_, name, _ := strings.Cut(option, ".")
			if _, ok := names[name]; !ok {
				names[name] = "--" + s.name
			}
		}
	}
	return names
}
