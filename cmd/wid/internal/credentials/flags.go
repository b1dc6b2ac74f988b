package credentials

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// Setting is a flag that all commands for credentials have.
type Setting struct {
	Group string // one of those below, or the name of the only provider that the flag serves
	Name  string
	// target receives the value: a pointer to a string, a list, a duration or a bool. It holds the default.
	target any
	option string // names of the same option in the library, separated by blanks
	Usage  string
	marks  mark
}

type mark int

const (
	// aboutSource marks flags that do not change a credential, or that are in the key of its source already (sourceKey).
	aboutSource mark = 1 << iota
	// isPath marks names of files and directories.
	isPath
	// shapesByContent marks the file whose content shapes the credential: the client's secret.
	shapesByContent
	// common marks flags that --help shows.
	common
)

// Groups of flags that serve every provider.
const (
	GroupIdentity = "identity"
	groupRequest  = "request"
	GroupProgram  = "program"
)

// Title is the heading of --help.
func (s *Setting) Title() string {
	return map[string]string{GroupIdentity: "Whose identity", groupRequest: "What to request", GroupProgram: "This program",
		aws.ProviderName: "AWS", azure.ProviderName: "Azure", gcp.ProviderName: "Google Cloud", exchange.ProviderName: "Token exchange (RFC 8693)"}[s.Group]
}

// repeated is a list whose values may hold commas.
type repeated []string

// Settings are all flags of an identity, in the order of --help. docs/wid.md lists them too.
func (id *Identity) Settings() []Setting {
	return slices.Concat(id.generalSettings(), id.awsSettings(), id.otherSettings(), id.exchangeSettings(), id.programSettings())
}

func (id *Identity) generalSettings() []Setting {
	return []Setting{
		{GroupIdentity, "service-account", &id.ServiceAccount, "auth.WithServiceAccount", "ServiceAccount to act as, namespace/name", aboutSource | common},
		{GroupIdentity, "kubeconfig", &id.Kubeconfig, "auth.WithClient", "kubeconfig of its cluster; else KUBECONFIG, ~/.kube/config, the pod's own", aboutSource | isPath | common},
		{GroupIdentity, "context", &id.kubeContext, "", "context of the kubeconfig", aboutSource | common},
		{GroupIdentity, "in-cluster", &id.InCluster, "", "use the cluster and the login of the pod that wid runs in, and no kubeconfig", aboutSource},
		{GroupIdentity, "token-file", &id.TokenFile, "auth.WithSubjectToken exchange.Provider.TokenFile", "file with a token of the ServiceAccount, instead of a cluster", aboutSource | isPath | common},
		{GroupIdentity, "token-stdin", &id.TokenStdin, "", "read that token from standard input, if nothing else is read there", aboutSource},
		{GroupIdentity, "annotation", &id.Annotations, "auth.WithAnnotations", "annotation of the ServiceAccount, key=value, with a token; may be repeated", aboutSource | common},
		{GroupIdentity, "allow-shell-out", &id.allowShellOut, "auth.WithAllowShellOut", "without a ServiceAccount: run az, a credential_process and similar programs", 0},

		{groupRequest, "provider", &id.Provider, "", "aws, azure, gcp, generic or exchange; else found by the host or the ServiceAccount's annotations", aboutSource | common},
		{groupRequest, "audience", &id.audiences, "auth.WithAudiences auth.Policy.Audiences", "audience of the ServiceAccount's token instead of the provider's own", common},
		{groupRequest, "scope", &id.scopes, "auth.WithScopes", "scope of the access token", common},
		{groupRequest, "token-lifetime", &id.tokenLifetime, "auth.WithTokenLifetime", "lifetime of the ServiceAccount's token, 10m at least", 0},
		{groupRequest, "bound-object", &id.boundObject, "auth.WithBoundObject", "object that the token is bound to: Pod, Secret or Node/name/UID", 0},
		{groupRequest, "region", &id.region, "auth.WithSTSRegion", "region of AWS STS; else AWS_REGION, or that of registry, cluster, repository", common},
		{groupRequest, "sts-endpoint", &id.stsEndpoint, "auth.WithSTSEndpoint", "address of the provider's token service", 0},
		{groupRequest, "proxy-url", &id.proxyURL, "auth.WithProxyURL", "proxy for the provider's services; else HTTPS_PROXY", 0},
	}
}

func (id *Identity) awsSettings() []Setting {
	const g, role = aws.ProviderName, "aws.WithAssumeRole"
	return []Setting{
		{g, "assume-role", &id.assumeRoles, role, "ARN of a further role to assume (role chaining); the next six flags shape the last one", 0},
		{g, "session-name", &id.role.SessionName, role, "exact name of that role's session", 0},
		{g, "external-id", &id.role.ExternalID, role, "external ID that the trust policy of that role requires", 0},
		{g, "session-policy", &id.role.Policy, role, "session policy in JSON that limits that role", 0},
		{g, "session-tag", &id.sessionTags, role, "session tag of that role, key=value", 0},
		{g, "transitive-tag-key", &id.role.TransitiveTagKeys, role, "key of a session tag that further roles inherit", 0},
		{g, "source-identity", &id.role.SourceIdentity, role, "source identity of that role's sessions", 0},
		{g, "session-duration", &id.sessionDuration, "aws.WithSessionDuration", "lifetime of the session, 15m to 12h, 1h at most with --assume-role", 0},
		{g, "session-name-prefix", &id.sessionNamePrefix, "aws.WithSessionNamePrefix", "prefix of the session name in CloudTrail", 0},
		{g, "fips-endpoint", &id.aws.UseFIPSEndpoint, "aws.Provider.UseFIPSEndpoint", "use endpoints that conform to FIPS 140", 0},
		{g, "dual-stack-endpoint", &id.aws.UseDualStackEndpoint, "aws.Provider.UseDualStackEndpoint", "use endpoints that support IPv6 too", 0},
	}
}

func (id *Identity) otherSettings() []Setting {
	return []Setting{
		{azure.ProviderName, "authority-host", &id.azure.AuthorityHost, "azure.WithAuthorityHost azure.Provider.AuthorityHost", "authority, such as https://login.microsoftonline.us, which selects the cloud; else AZURE_AUTHORITY_HOST", 0},

		{gcp.ProviderName, "delegate", &id.delegates, "gcp.WithDelegates", "e-mail address of a service account that delegates to that of the annotation", 0},
		{gcp.ProviderName, "access-token-lifetime", &id.accessTokenLifetime, "gcp.WithLifetime gcp.Provider.AllowExtendedLifetime", "lifetime of the access token; more than 1h only where the organization allows it", 0},
		{gcp.ProviderName, "id-token-audience", &id.idTokenAudience, "gcp.WithIDTokenAudience", "get an ID token for this audience instead of an access token", 0},
		{gcp.ProviderName, "universe-domain", &id.gcp.UniverseDomain, "gcp.Provider.UniverseDomain", "domain of the cloud's services, if not googleapis.com", 0},
	}
}

func (id *Identity) exchangeSettings() []Setting {
	const g = exchange.ProviderName
	x := &id.exchange
	return []Setting{
		{g, "exchange-endpoint", &x.Endpoint, "exchange.Provider.Endpoint", "token endpoint of the server", 0},
		{g, "exchange-issuer", &x.IssuerURL, "exchange.Provider.IssuerURL", "issuer whose metadata name the token endpoint, instead of it", 0},
		{g, "exchange-allowed-host", &x.AllowedEndpointHosts, "exchange.Provider.AllowedEndpointHosts", "host that the issuer's token endpoint may have besides the issuer's own", 0},
		{g, "exchange-audience", &x.Audience, "exchange.WithAudience exchange.Provider.Audience exchange.Provider.AllowedAudiences", "audience of the issued token", 0},
		{g, "exchange-resource", &x.Resource, "exchange.WithResource exchange.Provider.Resource exchange.Provider.AllowedResources", "resource of the issued token, a URI", 0},
		{g, "exchange-token-type", &x.RequestedTokenType, "exchange.Provider.RequestedTokenType", "requested token type, a URN of RFC 8693", 0},
		{g, "exchange-subject-token-type", &x.SubjectTokenType, "exchange.Provider.SubjectTokenType", "type of the ServiceAccount's token, a URN", 0},
		{g, "exchange-assumed-lifetime", &x.AssumedLifetime, "exchange.Provider.AssumedLifetime", "lifetime of tokens for which the server returns none", 0},
		{g, "exchange-client-id", &id.clientID, "exchange.Provider.Client", "client ID of wid at the server", 0},
		{g, "exchange-client-secret-file", &id.clientSecretFile, "exchange.ClientSecretBasic", "file with that client's secret", isPath | shapesByContent},
	}
}

func (id *Identity) programSettings() []Setting {
	return []Setting{
		{GroupProgram, "cache-dir", &id.cacheDir, "", "directory of kept credentials; else workloadid in the user's cache directory", aboutSource | isPath},
		{GroupProgram, "no-cache", &id.noCache, "", "keep nothing on disk", aboutSource | common},
		{GroupProgram, "timeout", &id.Timeout, "", "time for everything together", aboutSource | common},
	}
}

// otherFlags are the flags of some commands, and a variable, by the Go option.
var otherFlags = map[string]string{
	"auth.WithClusterResource": "--cluster", "auth.WithClusterAddress": "--cluster-address", "auth.WithCAData": "--cluster-ca-file",
	"auth.Policy.AllowCluster": "--cluster or --cluster-address", "aws.WithClusterName": "--cluster-name",
	"azure.Provider.PrivateClouds": "AZURE_ENVIRONMENT_FILEPATH",
}

// NewIdentity adds the flags to a command. The environment holds each one too, as WID_<NAME>, since some programs call their
// plugins without arguments.
func (a *App) NewIdentity(cmd *cobra.Command) *Identity {
	id := &Identity{App: a, Flags: pflag.NewFlagSet("identity", pflag.ContinueOnError), Timeout: cli.DefaultTimeout}
	id.Flags.SortFlags, cmd.Flags().SortFlags = false, false
	for _, s := range id.Settings() {
		usage := s.Usage + " (" + variableOf(s.Name) + ")"
		switch p := s.target.(type) {
		case *string:
			id.Flags.StringVar(p, s.Name, *p, usage)
		case *[]string:
			id.Flags.StringSliceVar(p, s.Name, *p, usage)
		case *repeated:
			id.Flags.StringArrayVar((*[]string)(p), s.Name, *p, usage)
		case *bool:
			id.Flags.BoolVar(p, s.Name, *p, usage)
		case *time.Duration:
			id.Flags.DurationVar(p, s.Name, *p, usage)
		default:
			panic(fmt.Sprintf("the flag %s is a %T", s.Name, s.target)) // a mistake in the table
		}
		cli.Headed(id.Flags, s.Name, s.Title())
		if s.marks&common == 0 {
			cli.Rare(id.Flags, s.Name)
		}
	}
	cli.Offer(id.Flags, "provider", providerNames()...)
	cmd.Flags().AddFlagSet(id.Flags)
	cmd.Flags().BoolVar(&id.noEnvironment, "no-environment", false, "ignore WID_ variables, except those for the cache and the timeout")
	cli.Rare(cmd.Flags(), "no-environment")
	id.clientSecret = sync.OnceValues(func() ([]byte, error) { return cli.ReadBounded(id.clientSecretFile) })
	return id
}

func variableOf(flag string) string {
	return "WID_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnvironment sets the flags that the command line left out.
func (id *Identity) fromEnvironment() error {
	for _, s := range id.Settings() {
		value := os.Getenv(variableOf(s.Name))
		if value == "" || id.changed(s.Name) || id.noEnvironment && s.Group != GroupProgram {
			continue
		}
		if err := id.Flags.Set(s.Name, value); err != nil {
			return cli.Usagef("the environment variable %s cannot be used: %v", variableOf(s.Name), err)
		}
	}
	return nil
}

// checkText refuses text that is not UTF-8, since the key of the cache encodes two such texts alike.
func (id *Identity) checkText(cmd *cobra.Command) (err error) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !utf8.ValidString(f.Value.String()) {
			err = cli.Usagef("--%s is not UTF-8", f.Name)
		}
	})
	for _, v := range shaping {
		if !utf8.ValidString(os.Getenv(v.name)) {
			err = cli.Usagef("the environment variable %s is not UTF-8", v.name)
		}
	}
	return err
}

func (id *Identity) changed(flag string) bool { return id.Flags.Lookup(flag).Changed }

// OfOther reports whether the flag serves only one provider, and not this one.
func (s *Setting) OfOther(provider string) bool {
	return !slices.Contains([]string{GroupIdentity, groupRequest, GroupProgram, provider}, s.Group)
}

// checkGiven refuses flags of the command line that the provider would ignore. The environment may serve several providers.
func (id *Identity) checkGiven(provider string) error {
	for _, s := range id.Settings() {
		if id.given[s.Name] && s.OfOther(provider) {
			return cli.Usagef("--%s is for the provider %s, not for %.100q; leave it out", s.Name, s.Group, provider)
		}
	}
	return nil
}

// flagValues returns the flags that are set, on the command line or by the environment.
func (id *Identity) flagValues() map[string]any {
	values := map[string]any{}
	id.Flags.VisitAll(func(f *pflag.Flag) {
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
