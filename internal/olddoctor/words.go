package doctor

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/shell"
)

// These write values of tokens and objects into the commands of remedies. What is not known is a word in capitals, which a shell
// takes for nothing but a word.

func namespaceOf(sa *corev1.ServiceAccount) string { return shell.Word(sa.Namespace, "NAMESPACE") }

func nameOf(sa *corev1.ServiceAccount) string { return shell.Word(sa.Name, "SERVICE_ACCOUNT") }

func issuerOf(c *Claims) string { return shell.Word(c.Issuer, "ISSUER") }

func subjectWord(c *Claims) string { return shell.Word(c.Subject, "SUBJECT") }

// The names of what a cloud has to be told about, as far as the ServiceAccount and its token say.

func (e *examination) roleWord() string {
	_, _, role, _ := e.roleParts()
	return shell.Word(role, "ROLE_NAME")
}

func (e *examination) oidcProviderWord() string {
	const placeholder = "PROVIDER_ARN"
	if e.token.claims == nil {
		return placeholder
	}
	arn, _, ok := e.oidcProvider()
	if !ok {
		return placeholder
	}
	return shell.Word(arn, placeholder)
}

func (e *examination) poolProviderWord() string {
	return shell.Word(e.serviceAccount().Annotations[poolProviderAnnotation], "PROVIDER_NAME")
}

func (e *examination) emailWord() string { return shell.Word(e.email(), "EMAIL") }

func (e *examination) clientIDWord() string {
	id := ""
	if e.Provider.GetName() == "azure" {
		id = e.serviceAccount().Annotations[e.cloud.required]
	}
	return shell.Word(id, "CLIENT_ID")
}

// email is the service account of Google Cloud that is impersonated. Empty: none.
func (e *examination) email() string { return e.serviceAccount().Annotations[emailAnnotation] }

// memberWord is the principal that the ServiceAccount is to Google Cloud, with the usual mapping of google.subject if the provider
// was not read.
func (e *examination) memberWord(ctx context.Context) string {
	const placeholder = "PRINCIPAL"
	c := e.token.claims
	if c == nil || e.Provider.GetName() != "gcp" {
		return placeholder
	}
	trust := e.anchors
	if trust == nil || len(trust.Anchors) == 0 {
		trust = &Trust{}
		if provider := e.serviceAccount().Annotations[poolProviderAnnotation]; strings.Contains(provider, "/providers/") {
			trust.Anchors = []Anchor{{Name: provider, SubjectMapping: "assertion.sub"}}
		}
	}
	names, _ := e.principals(ctx, trust)
	if len(names) == 0 || len(trust.Anchors) > 0 && len(names) == 1 { // everybody of the pool is too much
		return placeholder
	}
	return shell.Word(names[0], placeholder)
}

// filled has a class's remedy name what is known of this very case.
func (e *examination) filled(ctx context.Context, remedy string) string {
	words := map[string]func() string{
		"ROLE_NAME": e.roleWord, "PROVIDER_ARN": e.oidcProviderWord, "PROVIDER_NAME": e.poolProviderWord, "EMAIL": e.emailWord,
		"CLIENT_ID": e.clientIDWord, "PRINCIPAL": func() string { return e.memberWord(ctx) }, "AUDIENCE": e.audienceWord,
		"ROLE_ARN":        func() string { return shell.Word(e.serviceAccount().Annotations[e.cloud.required], "ROLE_ARN") },
		"ACCOUNT_ID":      func() string { _, account, _, _ := e.roleParts(); return shell.Word(account, "ACCOUNT_ID") },
		"CLUSTER_ID":      func() string { return shell.Word(e.Cluster, "CLUSTER_ID") },
		"CLUSTER_NAME":    func() string { return shell.Word(e.Cluster[strings.LastIndexByte(e.Cluster, '/')+1:], "CLUSTER_NAME") },
		"NAMESPACE":       func() string { return namespaceOf(e.serviceAccount()) },
		"SERVICE_ACCOUNT": func() string { return nameOf(e.serviceAccount()) },
		"MEMBER": func() string {
			if e.email() == "" {
				return e.memberWord(ctx)
			}
			return shell.Word("serviceAccount:"+e.email(), "MEMBER")
		},
	}
	if location, rest, ok := strings.Cut(e.Repository, "-docker.pkg.dev/"); ok {
		parts := strings.Split(rest, "/")
		words["LOCATION"] = func() string { return shell.Word(location, "LOCATION") }
		words["PROJECT_ID"] = func() string { return shell.Word(parts[0], "PROJECT_ID") }
		if len(parts) > 1 {
			words["REPOSITORY"] = func() string { return shell.Word(parts[1], "REPOSITORY") }
		}
	}
	if c := e.token.claims; c != nil {
		words["ISSUER"], words["SUBJECT"] = func() string { return issuerOf(c) }, func() string { return subjectWord(c) }
	}
	return capitals.ReplaceAllStringFunc(remedy, func(word string) string {
		if value, ok := words[word]; ok {
			return value()
		}
		return word
	})
}

var capitals = regexp.MustCompile(`\b[A-Z][A-Z_]+\b`)

// inCapitals is for the library's own sentences, which have <a name> for what is left open.
func inCapitals(remedy string) string {
	return openName.ReplaceAllStringFunc(remedy, func(name string) string {
		return strings.ReplaceAll(strings.ToUpper(strings.Trim(name, "<>")), " ", "_")
	})
}

var openName = regexp.MustCompile(`<[a-z][A-Za-z ]*>`)

// inert writes in JSON's other way what a shell obeys in text that is not meant for it, but pasted.
var inert = strings.NewReplacer("$", `\u0024`, "`", `\u0060`, "'", `\u0027`, "!", `\u0021`)

// secrets are what a server that echoes its requests could have this program print.
func (e *examination) secrets() []string {
	e.known.add(e.Token, e.token.raw, e.helperToken)
	e.known.addToken(e.gained)
	return e.known.all()
}

// text makes what somebody else says fit for a finding.
func (e *examination) text(s string) string { return redact.Text(s, e.secrets()...) }

// redacted is the list without the secrets.
func redacted(list []string, secrets ...string) []string {
	clean := make([]string, 0, len(list))
	for _, s := range list {
		clean = append(clean, redact.Text(s, secrets...))
	}
	return clean
}

// printable is the finding without anything that a terminal obeys. Only a remedy has lines.
func (f Finding) printable() Finding {
	f.Message, f.Code, f.RequestID, f.shared = clean(f.Message), clean(f.Code), clean(f.RequestID), clean(f.shared)
	lines := strings.Split(f.Remedy, "\n")
	for i := range lines {
		lines[i] = clean(lines[i])
	}
	f.Remedy = strings.Join(lines, "\n")
	f.Fields, f.Causes = slices.Clone(f.Fields), slices.Clone(f.Causes)
	for i := range f.Fields {
		own := &f.Fields[i]
		own.Name, own.Observed, own.Expected = clean(own.Name), clean(own.Observed), clean(own.Expected)
	}
	for i := range f.Causes {
		f.Causes[i] = clean(f.Causes[i])
	}
	return f
}

func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}
