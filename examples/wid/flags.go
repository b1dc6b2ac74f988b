package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/auth/gcp"
)

// setting is a flag that all commands for credentials have.
type setting struct {
	// group is the heading that --help puts it under: the name of the one provider that it is for, or one of those below.
	group string
	name  string
	// target is where the value goes, a pointer to a string, a list, a duration or a bool. It holds the default.
	target any
	// option is what the library calls it, if it knows it: names of Go, apart by blanks.
	option string
	usage  string
	marks  mark
}

type mark int

const (
	// aboutSource is for what does not change a credential, or is in the key of its source anyway (sourceKey).
	aboutSource mark = 1 << iota
	// isPath is for names of files and directories.
	isPath
	// shapesByContent is for files whose content shapes the credential.
	shapesByContent
)

// Groups of flags that are not for one provider.
const (
	groupIdentity = "identity"
	groupRequest  = "request"
	groupProgram  = "program"
)

var groupTitles = [][2]string{{groupIdentity, "Whose identity"}, {groupRequest, "What to ask for"}, {aws.ProviderName, "AWS"},
	{azure.ProviderName, "Azure"}, {gcp.ProviderName, "Google Cloud"}, {exchange.ProviderName, "Token exchange (RFC 8693)"},
	{groupProgram, "This program"}}

// repeated is a list whose values may hold commas.
type repeated []string

// settings are all flags of an identity, in the order of --help. docs/wid.md has them too.
func (id *identity) settings() []setting {
	return []setting{
		{groupIdentity, "service-account", &id.serviceAccount, "auth.WithServiceAccount", "ServiceAccount to act as, namespace/name", aboutSource},
		{groupIdentity, "kubeconfig", &id.kubeconfig, "auth.WithClient", "kubeconfig of its cluster; else KUBECONFIG, ~/.kube/config, the pod's own", aboutSource | isPath},
		{groupIdentity, "context", &id.kubeContext, "", "context of the kubeconfig", aboutSource},
		{groupIdentity, "in-cluster", &id.inCluster, "", "reach its cluster as the pod that wid runs in, never by a kubeconfig", aboutSource},
		{groupIdentity, "token-file", &id.tokenFile, "auth.WithSubjectToken exchange.Provider.TokenFile", "file with a token of the ServiceAccount; no cluster is asked then", aboutSource | isPath},
		{groupIdentity, "token-stdin", &id.tokenStdin, "", "read that token from standard input, if nothing else is read there", aboutSource},
		{groupIdentity, "annotation", &id.annotations, "", "its annotation, key=value, if there is only a token; may be repeated", aboutSource},
		{groupIdentity, "allow-shell-out", &id.allowShellOut, "auth.WithAllowShellOut", "without a ServiceAccount: let az, a credential_process and the like be run", 0},

		{groupRequest, "provider", &id.provider, "", "aws, azure, gcp, generic or exchange; found by the host where there is one", aboutSource},
		{groupRequest, "audience", &id.audiences, "auth.WithAudiences auth.Policy.Audiences", "audience of the ServiceAccount's token instead of the provider's own", 0},
		{groupRequest, "scope", &id.scopes, "auth.WithScopes", "scope of the access token", 0},
		{groupRequest, "token-lifetime", &id.tokenLifetime, "auth.WithTokenLifetime", "lifetime to ask of the ServiceAccount's token, 10m at least", 0},
		{groupRequest, "bound-object", &id.boundObject, "auth.WithBoundObject", "have that token end with an object: Pod, Secret or Node/name/UID", 0},
		{groupRequest, "region", &id.region, "auth.WithSTSRegion", "region of AWS STS; else AWS_REGION, or that of registry, cluster, repository", 0},
		{groupRequest, "sts-endpoint", &id.stsEndpoint, "auth.WithSTSEndpoint", "address of the provider's token service", 0},
		{groupRequest, "proxy-url", &id.proxyURL, "auth.WithProxyURL", "proxy for the provider's services; else HTTPS_PROXY", 0},

		{aws.ProviderName, "assume-role", &id.role.RoleARN, "aws.WithAssumeRole", "ARN of a further role, to assume with the first one (role chaining)", 0},
		{aws.ProviderName, "external-id", &id.role.ExternalID, "aws.WithAssumeRole", "external ID that the trust policy of that role demands", 0},
		{aws.ProviderName, "session-policy", &id.role.Policy, "aws.WithAssumeRole", "session policy in JSON that limits that role", 0},
		{aws.ProviderName, "session-tag", &id.sessionTags, "aws.WithAssumeRole", "session tag of that role, key=value", 0},
		{aws.ProviderName, "transitive-tag-key", &id.role.TransitiveTagKeys, "aws.WithAssumeRole", "key of a session tag that goes on to further roles", 0},
		{aws.ProviderName, "source-identity", &id.role.SourceIdentity, "aws.WithAssumeRole", "source identity of that role's sessions", 0},
		{aws.ProviderName, "session-duration", &id.sessionDuration, "aws.WithSessionDuration", "life of the session, 15m to 12h, 1h at most with --assume-role", 0},
		{aws.ProviderName, "session-name-prefix", &id.sessionNamePrefix, "aws.WithSessionNamePrefix", "what CloudTrail shows before the name of the ServiceAccount", 0},
		{aws.ProviderName, "fips-endpoint", &id.fips, "aws.Provider.UseFIPSEndpoint", "use endpoints that conform to FIPS 140", 0},
		{aws.ProviderName, "dual-stack-endpoint", &id.dualStack, "aws.Provider.UseDualStackEndpoint", "use endpoints that IPv6 reaches too", 0},

		{azure.ProviderName, "authority-host", &id.authorityHost, "azure.WithAuthorityHost azure.Provider.AuthorityHost", "authority, https://<host>, and so the cloud; else AZURE_AUTHORITY_HOST", 0},

		{gcp.ProviderName, "delegate", &id.delegates, "gcp.WithDelegates", "service account on the way to that of the annotation, its e-mail address", 0},
		{gcp.ProviderName, "access-token-lifetime", &id.accessTokenLifetime, "gcp.WithLifetime gcp.Provider.AllowExtendedLifetime", "life of the access token; more than 1h only where the organization allows it", 0},
		{gcp.ProviderName, "id-token-audience", &id.idTokenAudience, "gcp.WithIDTokenAudience", "get an ID token for this audience instead of an access token", 0},
		{gcp.ProviderName, "universe-domain", &id.universe, "gcp.Provider.UniverseDomain", "domain of the cloud's services, if not googleapis.com", 0},

		{exchange.ProviderName, "exchange-endpoint", &id.exchange.Endpoint, "exchange.Provider.Endpoint", "token endpoint of the server", 0},
		{exchange.ProviderName, "exchange-issuer", &id.exchange.IssuerURL, "exchange.Provider.IssuerURL", "issuer, whose metadata name the token endpoint, instead of it", 0},
		{exchange.ProviderName, "exchange-allowed-host", &id.exchange.AllowedEndpointHosts, "exchange.Provider.AllowedEndpointHosts", "host that the issuer's token endpoint may be at besides the issuer's own", 0},
		{exchange.ProviderName, "exchange-audience", &id.exchange.Audience, "exchange.WithAudience exchange.Provider.Audience exchange.Provider.AllowedAudiences", "audience of the token that is issued", 0},
		{exchange.ProviderName, "exchange-resource", &id.exchange.Resource, "exchange.WithResource exchange.Provider.Resource exchange.Provider.AllowedResources", "resource of the token that is issued, a URI", 0},
		{exchange.ProviderName, "exchange-token-type", &id.exchange.RequestedTokenType, "exchange.Provider.RequestedTokenType", "type of token to ask for, a URN of RFC 8693", 0},
		{exchange.ProviderName, "exchange-subject-token-type", &id.exchange.SubjectTokenType, "exchange.Provider.SubjectTokenType", "what the ServiceAccount's token is to the server, a URN", 0},
		{exchange.ProviderName, "exchange-assumed-lifetime", &id.exchange.AssumedLifetime, "exchange.Provider.AssumedLifetime", "life of tokens of which the server does not tell it", 0},
		{exchange.ProviderName, "exchange-client-id", &id.clientID, "exchange.Provider.Client", "client that wid is registered as at the server", 0},
		{exchange.ProviderName, "exchange-client-secret-file", &id.clientSecretFile, "exchange.ClientSecretBasic", "file with that client's secret", isPath | shapesByContent},

		{groupProgram, "cache-dir", &id.cacheDir, "", "directory that keeps credentials; else workloadid in the user's cache directory", aboutSource | isPath},
		{groupProgram, "no-cache", &id.noCache, "", "keep nothing on disk", aboutSource},
		{groupProgram, "timeout", &id.timeout, "", "time for everything together", aboutSource},
	}
}

// newIdentity adds the flags to a command. Each can come from the environment too, as WID_<NAME>: some programs call their
// plugins without arguments.
func (a *app) newIdentity(cmd *cobra.Command) *identity {
	id := &identity{app: a, flags: pflag.NewFlagSet("identity", pflag.ContinueOnError), timeout: defaultTimeout}
	id.flags.SortFlags, cmd.Flags().SortFlags = false, false
	for _, s := range id.settings() {
		usage := s.usage + " (" + variableOf(s.name) + ")"
		switch p := s.target.(type) {
		case *string:
			id.flags.StringVar(p, s.name, *p, usage)
		case *[]string:
			id.flags.StringSliceVar(p, s.name, *p, usage)
		case *repeated:
			id.flags.StringArrayVar((*[]string)(p), s.name, *p, usage)
		case *bool:
			id.flags.BoolVar(p, s.name, *p, usage)
		case *time.Duration:
			id.flags.DurationVar(p, s.name, *p, usage)
		default:
			panic(fmt.Sprintf("the flag %s is a %T", s.name, s.target)) // a mistake in the table
		}
	}
	cmd.Flags().AddFlagSet(id.flags)
	cmd.SetUsageFunc(id.printUsage)
	return id
}

func variableOf(flag string) string {
	return "WID_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnvironment takes from there what no flag says.
func (id *identity) fromEnvironment() (err error) {
	id.flags.VisitAll(func(f *pflag.Flag) {
		value, ok := os.LookupEnv(variableOf(f.Name))
		if !ok || value == "" || f.Changed || err != nil {
			return
		}
		if setErr := id.flags.Set(f.Name, value); setErr != nil {
			err = usagef("the environment variable %s cannot be used: %v", variableOf(f.Name), setErr)
		}
	})
	return err
}

// checkText refuses what is not UTF-8: in the key of the cache, two such texts could look the same.
func (id *identity) checkText(cmd *cobra.Command) (err error) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !utf8.ValidString(f.Value.String()) {
			err = usagef("--%s is not UTF-8", f.Name)
		}
	})
	for _, v := range shaping {
		if !utf8.ValidString(os.Getenv(v.name)) {
			err = usagef("the environment variable %s is not UTF-8", v.name)
		}
	}
	return err
}

// given are the names of the flags that are set.
func (id *identity) given() (names []string) {
	id.flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			names = append(names, f.Name)
		}
	})
	return names
}

// ofOther reports whether the flag is for one provider only, and not for this one.
func (s *setting) ofOther(provider string) bool {
	switch s.group {
	case groupIdentity, groupRequest, groupProgram, provider:
		return false
	}
	return true
}

// checkGiven refuses flags of the command line that the provider would ignore. The environment may be for all providers.
func (id *identity) checkGiven(given []string, provider string) error {
	for _, s := range id.settings() {
		if slices.Contains(given, s.name) && s.ofOther(provider) {
			return usagef("--%s is for the provider %s, not for %.100q; leave it out", s.name, s.group, provider)
		}
	}
	return nil
}

// flagValues are the flags that are set, on the command line or by the environment.
func (id *identity) flagValues() map[string]any {
	values := map[string]any{}
	id.flags.VisitAll(func(f *pflag.Flag) {
		if !f.Changed {
			return
		}
		values[f.Name] = f.Value.String()
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values[f.Name] = list.GetSlice()
		}
	})
	return values
}

// printUsage is that of cobra, with the flags in groups.
func (id *identity) printUsage(cmd *cobra.Command) error {
	var b strings.Builder
	section := func(title, text string) {
		if text != "" {
			_, _ = fmt.Fprintf(&b, "\n%s:\n%s", title, text) // buffers take everything
		}
	}
	_, _ = fmt.Fprintf(&b, "Usage:\n  %s\n", cmd.UseLine())
	if cmd.Example != "" {
		section("Examples", strings.TrimRight(cmd.Example, "\n")+"\n")
	}
	own := pflag.NewFlagSet("own", pflag.ContinueOnError)
	own.SortFlags = false
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if id.flags.Lookup(f.Name) == nil {
			own.AddFlag(f)
		}
	})
	section("Flags", own.FlagUsages())
	for _, group := range groupTitles {
		set := pflag.NewFlagSet(group[0], pflag.ContinueOnError)
		set.SortFlags = false
		for _, s := range id.settings() {
			if s.group == group[0] {
				set.AddFlag(id.flags.Lookup(s.name))
			}
		}
		section(group[1], set.FlagUsages())
	}
	_, err := fmt.Fprint(cmd.OutOrStderr(), b.String())
	return err
}
