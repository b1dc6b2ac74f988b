package main

import (
	"slices"

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
	// shapesByContent is for the file whose content shapes the credential: that of the client's secret.
	shapesByContent
)

// Groups of flags that are not for one provider.
const (
	groupIdentity = "identity"
	groupRequest  = "request"
	groupProgram  = "program"
)

var groupTitles = [][2]string{{groupIdentity, "Whose identity"}, {groupRequest, "What to ask for"},
	{aws.ProviderName, "AWS"}, {azure.ProviderName, "Azure"}, {gcp.ProviderName, "Google Cloud"}, {exchange.ProviderName, "Token exchange (RFC 8693)"},
	{groupProgram, "This program"}}

// repeated is a list whose values may hold commas.
type repeated []string

// settings are all flags of an identity, in the order of --help. docs/wid.md has them too.
func (id *identity) settings() []setting {
	return slices.Concat(id.identitySettings(), id.requestSettings(), id.awsSettings(),
		id.azureSettings(), id.gcpSettings(), id.exchangeSettings(), id.programSettings())
}

func (id *identity) identitySettings() []setting {
	const g = groupIdentity
	return []setting{
		{g, "service-account", &id.serviceAccount, "auth.WithServiceAccount",
			"ServiceAccount to act as, namespace/name", aboutSource},
		{g, "kubeconfig", &id.kubeconfig, "auth.WithClient",
			"kubeconfig of its cluster; else KUBECONFIG, ~/.kube/config, the pod's own", aboutSource | isPath},
		{g, "context", &id.kubeContext, "", "context of the kubeconfig", aboutSource},
		{g, "in-cluster", &id.inCluster, "", "reach its cluster as the pod that wid runs in, never by a kubeconfig",
			aboutSource},
		{g, "token-file", &id.tokenFile, "auth.WithSubjectToken exchange.Provider.TokenFile",
			"file with a token of the ServiceAccount; no cluster is asked then", aboutSource | isPath},
		{g, "token-stdin", &id.tokenStdin, "", "read that token from standard input, if nothing else is read there",
			aboutSource},
		{g, "annotation", &id.annotations, "", "its annotation, key=value, if there is only a token; may be repeated",
			aboutSource},
		{g, "allow-shell-out", &id.allowShellOut, "auth.WithAllowShellOut",
			"without a ServiceAccount: let az, a credential_process and the like be run", 0},
	}
}

func (id *identity) requestSettings() []setting {
	const g = groupRequest
	return []setting{
		{g, "provider", &id.provider, "", "aws, azure, gcp, generic or exchange; found by the host where there is one",
			aboutSource},
		{g, "audience", &id.audiences, "auth.WithAudiences auth.Policy.Audiences",
			"audience of the ServiceAccount's token instead of the provider's own", 0},
		{g, "scope", &id.scopes, "auth.WithScopes", "scope of the access token", 0},
		{g, "token-lifetime", &id.tokenLifetime, "auth.WithTokenLifetime",
			"lifetime to ask of the ServiceAccount's token, 10m at least", 0},
		{g, "bound-object", &id.boundObject, "auth.WithBoundObject",
			"have that token end with an object: Pod, Secret or Node/name/UID", 0},
		{g, "region", &id.region, "auth.WithSTSRegion",
			"region of AWS STS; else AWS_REGION, or that of registry, cluster, repository", 0},
		{g, "sts-endpoint", &id.stsEndpoint, "auth.WithSTSEndpoint", "address of the provider's token service", 0},
		{g, "proxy-url", &id.proxyURL, "auth.WithProxyURL", "proxy for the provider's services; else HTTPS_PROXY", 0},
	}
}

func (id *identity) awsSettings() []setting {
	const g = aws.ProviderName
	return []setting{
		{g, "assume-role", &id.assumeRoles, "aws.WithAssumeRole",
			"ARN of a further role to assume with the one before (role chaining); the next flags shape the last one", 0},
		{g, "session-name", &id.role.SessionName, "aws.WithAssumeRole", "exact name of that role's session", 0},
		{g, "external-id", &id.role.ExternalID, "aws.WithAssumeRole",
			"external ID that the trust policy of that role demands", 0},
		{g, "session-policy", &id.role.Policy, "aws.WithAssumeRole", "session policy in JSON that limits that role", 0},
		{g, "session-tag", &id.sessionTags, "aws.WithAssumeRole", "session tag of that role, key=value", 0},
		{g, "transitive-tag-key", &id.role.TransitiveTagKeys, "aws.WithAssumeRole",
			"key of a session tag that goes on to further roles", 0},
		{g, "source-identity", &id.role.SourceIdentity, "aws.WithAssumeRole",
			"source identity of that role's sessions", 0},
		{g, "session-duration", &id.sessionDuration, "aws.WithSessionDuration",
			"life of the session, 15m to 12h, 1h at most with --assume-role", 0},
		{g, "session-name-prefix", &id.sessionNamePrefix, "aws.WithSessionNamePrefix",
			"what CloudTrail shows before the name of the ServiceAccount", 0},
		{g, "fips-endpoint", &id.fips, "aws.Provider.UseFIPSEndpoint", "use endpoints that conform to FIPS 140", 0},
		{g, "dual-stack-endpoint", &id.dualStack, "aws.Provider.UseDualStackEndpoint",
			"use endpoints that IPv6 reaches too", 0},
	}
}

func (id *identity) azureSettings() []setting {
	const g = azure.ProviderName
	return []setting{
		{g, "authority-host", &id.authorityHost, "azure.WithAuthorityHost azure.Provider.AuthorityHost",
			"authority, such as https://login.microsoftonline.us, and so the cloud; else AZURE_AUTHORITY_HOST", 0},
	}
}

func (id *identity) gcpSettings() []setting {
	const g = gcp.ProviderName
	return []setting{
		{g, "delegate", &id.delegates, "gcp.WithDelegates",
			"service account on the way to that of the annotation, its e-mail address", 0},
		{g, "access-token-lifetime", &id.accessTokenLifetime, "gcp.WithLifetime gcp.Provider.AllowExtendedLifetime",
			"life of the access token; more than 1h only where the organization allows it", 0},
		{g, "id-token-audience", &id.idTokenAudience, "gcp.WithIDTokenAudience",
			"get an ID token for this audience instead of an access token", 0},
		{g, "universe-domain", &id.universe, "gcp.Provider.UniverseDomain",
			"domain of the cloud's services, if not googleapis.com", 0},
	}
}

func (id *identity) exchangeSettings() []setting {
	const g = exchange.ProviderName
	return []setting{
		{g, "exchange-endpoint", &id.exchange.Endpoint, "exchange.Provider.Endpoint", "token endpoint of the server",
			0},
		{g, "exchange-issuer", &id.exchange.IssuerURL, "exchange.Provider.IssuerURL",
			"issuer, whose metadata name the token endpoint, instead of it", 0},
		{g, "exchange-allowed-host", &id.exchange.AllowedEndpointHosts, "exchange.Provider.AllowedEndpointHosts",
			"host that the issuer's token endpoint may be at besides the issuer's own", 0},
		{g, "exchange-audience", &id.exchange.Audience,
			"exchange.WithAudience exchange.Provider.Audience exchange.Provider.AllowedAudiences",
			"audience of the token that is issued", 0},
		{g, "exchange-resource", &id.exchange.Resource,
			"exchange.WithResource exchange.Provider.Resource exchange.Provider.AllowedResources",
			"resource of the token that is issued, a URI", 0},
		{g, "exchange-token-type", &id.exchange.RequestedTokenType, "exchange.Provider.RequestedTokenType",
			"type of token to ask for, a URN of RFC 8693", 0},
		{g, "exchange-subject-token-type", &id.exchange.SubjectTokenType, "exchange.Provider.SubjectTokenType",
			"what the ServiceAccount's token is to the server, a URN", 0},
		{g, "exchange-assumed-lifetime", &id.exchange.AssumedLifetime, "exchange.Provider.AssumedLifetime",
			"life of tokens of which the server does not tell it", 0},
		{g, "exchange-client-id", &id.clientID, "exchange.Provider.Client",
			"client that wid is registered as at the server", 0},
		{g, "exchange-client-secret-file", &id.clientSecretFile, "exchange.ClientSecretBasic",
			"file with that client's secret", isPath | shapesByContent},
	}
}

func (id *identity) programSettings() []setting {
	const g = groupProgram
	return []setting{
		{g, "cache-dir", &id.cacheDir, "",
			"directory that keeps credentials; else workloadid in the user's cache directory", aboutSource | isPath},
		{g, "no-cache", &id.noCache, "", "keep nothing on disk", aboutSource},
		{g, "timeout", &id.timeout, "", "time for everything together", aboutSource},
	}
}
