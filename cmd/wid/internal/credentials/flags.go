package credentials

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/input"
)

// Setting is a flag that all commands for credentials have.
type Setting struct {
	Group string // one of those below, or the name of the only provider that the flag serves
	Name  string
	// target receives the value: a pointer to a string, a list, a duration or a
	// bool. It holds the default.
	target any
	option string // names of the same option in the library, separated by blanks
	Usage  string
	marks  mark
}

type mark int

const (
	// aboutSource marks flags that do not change a credential, or that are in
	// the key of its source already (keyOf).
	aboutSource mark = 1 << iota
	// isPath marks names of files and directories.
	isPath
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
	return map[string]string{GroupIdentity: "Whose identity", groupRequest: "What to request",
		GroupProgram:     "This program",
		aws.ProviderName: "AWS", azure.ProviderName: "Azure", gcp.ProviderName: "Google Cloud",
		exchange.ProviderName: "Token exchange (RFC 8693)"}[s.Group]
}

// repeated is a list whose values may hold commas.
type repeated []string

// lastRole begins the options of the flags that shape the last role of
// --assume-role.
const lastRole = "aws.AssumeRole."

// Settings are all flags of an identity, in the order of --help. docs/wid.md
// lists them too.
func (id *Identity) Settings() []Setting {
	return []Setting{
		{GroupIdentity, "service-account", &id.ServiceAccount, "auth.WithServiceAccount",
			"ServiceAccount to act as, namespace/name", aboutSource | common},
		{GroupIdentity, "kubeconfig", &id.Kubeconfig, "auth.WithClient",
			"kubeconfig of its cluster; else KUBECONFIG, ~/.kube/config, the pod's own", aboutSource | isPath | common},
		{GroupIdentity, "context", &id.kubeContext, "", "context of the kubeconfig", aboutSource | common},
		{GroupIdentity, "in-cluster", &id.InCluster, "",
			"use the cluster and the login of the pod that wid runs in, and no kubeconfig", aboutSource},
		{GroupIdentity, "token-file", &id.TokenFile, "auth.WithSubjectToken exchange.Provider.TokenFile",
			"file with a token of the ServiceAccount, instead of a cluster; /dev/stdin is standard input",
			aboutSource | isPath | common},
		{GroupIdentity, "annotation", &id.Annotations, "auth.WithAnnotations",
			"annotation of the ServiceAccount, key=value, with a token; may be repeated", aboutSource | common},
		{GroupIdentity, "allow-shell-out", &id.allowShellOut, "auth.WithAllowShellOut",
			"without a ServiceAccount: run az, a credential_process and similar programs", 0},

		{groupRequest, "provider", &id.Provider, "",
			"aws, azure, gcp, generic or exchange; else found by the host or the ServiceAccount's annotations",
			aboutSource | common},
		{groupRequest, "audience", &id.audiences,
			"auth.WithAudiences auth.Policy.Audiences exchange.Provider.KubernetesAudience azure.Provider.Audience azure.Cloud.Audience",
			"audience of the ServiceAccount's token instead of the provider's own", common},
		{groupRequest, "api-server-audience", &id.apiServerAudiences, "auth.Policy.APIServerAudiences",
			"an audience of the cluster's own API server, as in its --api-audiences: no token with it is sent out", 0},
		{groupRequest, "scope", &id.scopes, "auth.WithScopes", "scope of the access token", common},
		{groupRequest, "token-lifetime", &id.tokenLifetime, "auth.WithTokenLifetime",
			"lifetime of the ServiceAccount's token, 10m at least", 0},
		{groupRequest, "region", &id.region, "auth.WithSTSRegion",
			"region of AWS STS; else AWS_REGION, or that of registry, cluster, repository", common},
		{groupRequest, "sts-endpoint", &id.stsEndpoint, "auth.WithSTSEndpoint", "address of the provider's token service", 0},
		{groupRequest, "proxy-url", &id.proxyURL, "auth.WithProxyURL",
			"proxy for the provider's services; else HTTPS_PROXY", 0},

		{aws.ProviderName, "assume-role", &id.assumeRoles, "aws.WithAssumeRole",
			"ARN of a further role to assume (role chaining); the next six flags shape the last one", 0},
		{aws.ProviderName, "session-name", &id.role.SessionName, "aws.AssumeRole.SessionName",
			"exact name of that role's session", 0},
		{aws.ProviderName, "external-id", &id.role.ExternalID, "aws.AssumeRole.ExternalID",
			"external ID that the trust policy of that role requires", 0},
		{aws.ProviderName, "session-policy", &id.role.Policy, "aws.AssumeRole.Policy",
			"session policy in JSON that limits that role", 0},
		{aws.ProviderName, "session-tag", &id.sessionTags, "aws.AssumeRole.Tags", "session tag of that role, key=value", 0},
		{aws.ProviderName, "transitive-tag-key", &id.role.TransitiveTagKeys, "aws.AssumeRole.TransitiveTagKeys",
			"key of a session tag that further roles inherit", 0},
		{aws.ProviderName, "source-identity", &id.role.SourceIdentity, "aws.AssumeRole.SourceIdentity",
			"source identity of that role's sessions", 0},
		{aws.ProviderName, "session-duration", &id.sessionDuration, "aws.WithSessionDuration",
			"lifetime of the session, 15m to 12h, 1h at most with --assume-role", 0},
		{aws.ProviderName, "session-name-prefix", &id.sessionNamePrefix, "aws.WithSessionNamePrefix",
			"prefix of the session name in CloudTrail", 0},
		{aws.ProviderName, "fips-endpoint", &id.aws.UseFIPSEndpoint, "aws.Provider.UseFIPSEndpoint",
			"use endpoints that conform to FIPS 140", 0},
		{aws.ProviderName, "dual-stack-endpoint", &id.aws.UseDualStackEndpoint, "aws.Provider.UseDualStackEndpoint",
			"use endpoints that support IPv6 too", 0},

		{azure.ProviderName, "authority-host", &id.azure.AuthorityHost,
			"azure.WithAuthorityHost azure.Provider.AuthorityHost",
			"authority, such as https://login.microsoftonline.us, which selects the cloud; else AZURE_AUTHORITY_HOST", 0},

		{gcp.ProviderName, "delegate", &id.delegates, "gcp.WithDelegates",
			"e-mail address of a service account that delegates to that of the annotation", 0},
		{gcp.ProviderName, "access-token-lifetime", &id.accessTokenLifetime,
			"gcp.WithLifetime gcp.Provider.AllowExtendedLifetime",
			"lifetime of the access token; more than 1h only where the organization allows it", 0},
		{gcp.ProviderName, "id-token-audience", &id.idTokenAudience, "gcp.WithIDTokenAudience",
			"get an ID token for this audience instead of an access token", 0},
		{gcp.ProviderName, "universe-domain", &id.gcp.UniverseDomain, "gcp.Provider.UniverseDomain",
			"domain of the cloud's services, if not googleapis.com", 0},

		{exchange.ProviderName, "service", &id.service.service, "",
			"service that trusts the cluster's issuer: " + serviceNames(), common},
		{exchange.ProviderName, "service-address", &id.service.address, "",
			"address of that service, where it has one of its own", 0},
		{exchange.ProviderName, "service-parameter", &id.service.parameters,
			"exchange.Provider.Parameters exchange.Provider.AnnotatedParameters",
			"parameter of that service, name=value, instead of an annotation; may be repeated", 0},
		{exchange.ProviderName, "exchange-endpoint", &id.exchange.Endpoint, "exchange.Provider.Endpoint",
			"token endpoint of the server", 0},
		{exchange.ProviderName, "exchange-issuer", &id.exchange.IssuerURL, "exchange.Provider.IssuerURL",
			"issuer whose metadata name the token endpoint, instead of it", 0},
		{exchange.ProviderName, "exchange-allowed-host", &id.exchange.AllowedEndpointHosts,
			"exchange.Provider.AllowedEndpointHosts", "host that the issuer's token endpoint may have besides the issuer's own",
			0},
		{exchange.ProviderName, "exchange-audience", &id.exchange.Audience,
			"exchange.WithAudience exchange.Provider.Audience exchange.Provider.AllowedAudiences",
			"audience of the issued token", 0},
		{exchange.ProviderName, "exchange-resource", &id.exchange.Resource,
			"exchange.WithResource exchange.Provider.Resource exchange.Provider.AllowedResources",
			"resource of the issued token, a URI", 0},
		{exchange.ProviderName, "exchange-token-type", &id.exchange.RequestedTokenType,
			"exchange.Provider.RequestedTokenType", "requested token type, a URN of RFC 8693", 0},
		{exchange.ProviderName, "exchange-subject-token-type", &id.exchange.SubjectTokenType,
			"exchange.Provider.SubjectTokenType", "type of the ServiceAccount's token, a URN", 0},
		{exchange.ProviderName, "exchange-assumed-lifetime", &id.exchange.AssumedLifetime,
			"exchange.Provider.AssumedLifetime", "lifetime of tokens for which the server returns none", 0},
		{exchange.ProviderName, "exchange-client-id", &id.clientID, "exchange.Provider.Client",
			"client ID of wid at the server", 0},
		{exchange.ProviderName, "exchange-client-secret-file", &id.clientSecretFile, "exchange.ClientSecretBasic",
			"file with that client's secret", isPath},

		{GroupProgram, "cache-dir", &id.cacheDir, "",
			"directory of kept credentials; else workloadid in the user's cache directory", aboutSource | isPath},
		{GroupProgram, "no-cache", &id.noCache, "", "keep nothing on disk", aboutSource | common},
		{GroupProgram, "timeout", &id.Timeout, "", "time for everything together", aboutSource | common},
	}
}

// otherFlags are the flags of some commands, and a variable, by the Go option.
var otherFlags = map[string]string{
	"auth.WithClusterResource": "--cluster", "auth.WithClusterAddress": "--cluster-address",
	"auth.WithCAData":              "--cluster-ca-file",
	"aws.WithClusterName":          "--cluster-name",
	"azure.Provider.PrivateClouds": "AZURE_ENVIRONMENT_FILEPATH",
}

// NewIdentity adds the flags to a command. The environment holds each one too,
// as WID_<NAME>, since some programs call their plugins without arguments.
func (a *App) NewIdentity(cmd *cobra.Command) *Identity {
	id := &Identity{App: a, cmd: cmd, Flags: pflag.NewFlagSet("identity", pflag.ContinueOnError),
		Timeout: cli.DefaultTimeout}
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
	cmd.Flags().AddFlagSet(id.Flags)
	cli.Offer(cmd, "provider", providerNames()...)
	cmd.Flags().BoolVar(&id.noEnvironment, "no-environment", false,
		"ignore WID_ variables, except those for the cache and the timeout")
	cli.Rare(cmd.Flags(), "no-environment")
	id.clientSecret = sync.OnceValues(func() ([]byte, error) {
		return ReadNamed("exchange-client-secret-file", id.clientSecretFile, "name a file with nothing but the secret")
	})
	return id
}

func variableOf(flag string) string {
	return "WID_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// fromEnvironment sets the flags that the command line left out.
func (id *Identity) fromEnvironment() error {
	for _, s := range id.Settings() {
		value, isSet := os.LookupEnv(variableOf(s.Name))
		if !isSet || id.changed(s.Name) || id.noEnvironment && s.Group != GroupProgram {
			continue
		}
		err := cli.CheckValue(value)
		if err == nil {
			err = id.Flags.Set(s.Name, value)
		}
		if err == nil {
			err = cli.CheckFlag(id.Flags.Lookup(s.Name))
		}
		if err != nil {
			return cli.Usagef("the environment variable %s cannot be used: %v", variableOf(s.Name), err)
		}
	}
	return nil
}

func (id *Identity) changed(flag string) bool { return id.Flags.Lookup(flag).Changed }

// OfOther reports whether the flag serves only one provider, and not this one.
func (s *Setting) OfOther(provider string) bool {
	return !slices.Contains([]string{GroupIdentity, groupRequest, GroupProgram, provider}, s.Group)
}

// ReadNamed reads the file of a flag, if there is one.
func ReadNamed(flag, path, remedy string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	content, err := input.ReadFile(path)
	if err != nil {
		return nil, &auth.Error{Reason: auth.ErrMisconfigured, Err: err, Remedy: remedy,
			Message: "--" + flag + " cannot be read: " + cli.OneLine(err.Error())}
	}
	return content, nil
}

// FlagsOf returns the flags of the Go options in an auth.Error. It leaves out
// options without a flag.
func (id *Identity) FlagsOf(options string) string {
	var flags []string
	for option := range strings.SplitSeq(options, ", ") {
		flag := otherFlags[option]
		for _, s := range id.Settings() {
			if flag == "" && slices.Contains(strings.Fields(s.option), option) {
				flag = "--" + s.Name
			}
		}
		if flag != "" && !slices.Contains(flags, flag) {
			flags = append(flags, flag)
		}
	}
	return strings.Join(flags, ", ")
}

// InTermsOfFlags puts flags in place of Go options into the text of an error.
func (id *Identity) InTermsOfFlags(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	var known *auth.Error
	if errors.As(err, &known) {
		own := *known
		own.Remedy, own.Option = remedyFor(err, known), id.FlagsOf(known.Option)
		if known.Cause == provider.CauseAudienceNotAllowed && id.chosen != nil { // no flag mends it
			own.Remedy, own.Option = id.chosen(), ""
		}
		text = strings.Replace(text, known.Error(), own.Error(), 1) // err may wrap it
	}
	return &reworded{err, id.Clients.Clean(text)}
}

type reworded struct {
	error
	text string
}

func (r *reworded) Error() string { return r.text }
func (r *reworded) Unwrap() error { return r.error }

// remedyFor returns the error's own remedy, or one that only the command knows.
func remedyFor(err error, e *auth.Error) string {
	var cluster *unreached
	switch {
	case e.Remedy == "" && errors.Is(err, context.DeadlineExceeded):
		return "raise --timeout, or check what does not answer"
	case e.Remedy == "" && errors.As(err, &cluster):
		return "check the cluster's address in the kubeconfig, and that its user can log in: try kubectl get serviceaccounts"
	case e.Remedy == "" && strings.HasPrefix(e.Code, "AADSTS"):
		return "look the code up at https://login.microsoftonline.com/error"
	}
	return e.Remedy
}
