package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/plugin"
	"github.com/workloadid/workloadid/cache"
)

// identity is who asks and how: the flags that all commands for credentials share. Without a ServiceAccount and a token it
// is the program's own ("controller level").
type identity struct {
	*app
	flags *pflag.FlagSet

	provider                string
	serviceAccount          string
	kubeconfig, kubeContext string
	inCluster               bool
	tokenFile               string
	tokenStdin              bool
	annotations             []string
	audiences, scopes       []string
	region, stsEndpoint     string
	proxyURL                string
	exchangeEndpoint        string
	exchangeIssuer          string
	exchangeAudience        string
	exchangeResource        string
	cacheDir                string
	noCache                 bool
	timeout                 time.Duration

	// clusterAddress is that of --cluster-address, for the commands that have it.
	clusterAddress string
}

const defaultTimeout = time.Minute

// newIdentity adds the flags to a command. Each can come from the environment too, as WID_<NAME>: some programs call their
// plugins without arguments.
func (a *app) newIdentity(cmd *cobra.Command) *identity {
	id := &identity{app: a, flags: pflag.NewFlagSet("identity", pflag.ContinueOnError)}
	f := id.flags
	f.StringVar(&id.provider, "provider", "", "aws, azure, gcp, generic or exchange; found by the host where there is one")
	f.StringVar(&id.serviceAccount, "service-account", "", "ServiceAccount to act as, namespace/name")
	f.StringVar(&id.kubeconfig, "kubeconfig", "", "kubeconfig of its cluster; else KUBECONFIG, ~/.kube/config, the pod's own")
	f.StringVar(&id.kubeContext, "context", "", "context of the kubeconfig")
	f.BoolVar(&id.inCluster, "in-cluster", false, "reach its cluster as the pod that wid runs in, never by a kubeconfig")
	f.StringVar(&id.tokenFile, "token-file", "", "file with a token of the ServiceAccount; no cluster is asked then")
	f.BoolVar(&id.tokenStdin, "token-stdin", false, "read that token from standard input, if nothing else is read there")
	f.StringArrayVar(&id.annotations, "annotation", nil, "its annotation, key=value, if there is only a token; may be repeated")
	f.StringSliceVar(&id.audiences, "audience", nil, "audience of the ServiceAccount's token instead of the provider's own")
	f.StringSliceVar(&id.scopes, "scope", nil, "scope of the access token")
	f.StringVar(&id.region, "region", "", "region of AWS STS; else AWS_REGION, or that of registry, cluster, repository")
	f.StringVar(&id.stsEndpoint, "sts-endpoint", "", "address of the provider's token service")
	f.StringVar(&id.proxyURL, "proxy-url", "", "proxy for the provider's services; else HTTPS_PROXY")
	f.StringVar(&id.exchangeEndpoint, "exchange-endpoint", "", "token endpoint of the provider exchange (RFC 8693)")
	f.StringVar(&id.exchangeIssuer, "exchange-issuer", "", "issuer of the provider exchange, instead of its endpoint")
	f.StringVar(&id.exchangeAudience, "exchange-audience", "", "audience of the token that the provider exchange issues")
	f.StringVar(&id.exchangeResource, "exchange-resource", "", "resource of the token that the provider exchange issues")
	f.StringVar(&id.cacheDir, "cache-dir", "", "directory that keeps credentials; else workloadid in the user's cache directory")
	f.BoolVar(&id.noCache, "no-cache", false, "keep nothing on disk")
	f.DurationVar(&id.timeout, "timeout", defaultTimeout, "time for everything together")
	f.VisitAll(func(flag *pflag.Flag) { flag.Usage += " (" + variableOf(flag.Name) + ")" })
	cmd.Flags().AddFlagSet(f)
	return id
}

func variableOf(flag string) string {
	return "WID_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// complete takes from the environment what no flag says, and refuses what contradicts itself.
func (id *identity) complete() (err error) {
	id.flags.VisitAll(func(f *pflag.Flag) {
		value, ok := os.LookupEnv(variableOf(f.Name))
		if !ok || value == "" || f.Changed || err != nil {
			return
		}
		if setErr := id.flags.Set(f.Name, value); setErr != nil {
			err = usagef("the environment variable %s cannot be used: %v", variableOf(f.Name), setErr)
		}
	})
	if err != nil {
		return err
	}
	if err := id.checkText(); err != nil {
		return err
	}
	token := id.hasToken()
	cluster := id.kubeconfig != "" || id.kubeContext != "" || id.inCluster
	switch {
	case id.tokenFile != "" && id.tokenStdin:
		return usagef("--token-file and --token-stdin exclude each other")
	case id.inCluster && (id.kubeconfig != "" || id.kubeContext != ""):
		return usagef("--in-cluster excludes --kubeconfig and --context")
	case token && cluster:
		return usagef("with a token no cluster is asked: leave --kubeconfig, --context and --in-cluster out")
	case !token && len(id.annotations) > 0:
		return usagef("--annotation goes with --token-file or --token-stdin; otherwise the ServiceAccount's own count")
	case cluster && id.serviceAccount == "":
		return usagef("name the ServiceAccount with --service-account namespace/name")
	case id.timeout <= 0:
		return usagef("--timeout has to be more than 0, not %s", id.timeout)
	}
	return nil
}

// checkText refuses what is not UTF-8: in the key of the cache, two such texts could look the same.
func (id *identity) checkText() (err error) {
	id.flags.VisitAll(func(f *pflag.Flag) {
		if !utf8.ValidString(f.Value.String()) {
			err = usagef("--%s is not UTF-8", f.Name)
		}
	})
	for _, name := range shaping {
		if !utf8.ValidString(os.Getenv(name)) {
			err = usagef("the environment variable %s is not UTF-8", name)
		}
	}
	return err
}

func (id *identity) hasToken() bool { return id.tokenFile != "" || id.tokenStdin }

func parseServiceAccount(s string) (client.ObjectKey, error) {
	namespace, name, ok := strings.Cut(s, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return client.ObjectKey{}, usagef("--service-account is namespace/name, not %.300q", s)
	}
	return client.ObjectKey{Namespace: namespace, Name: name}, nil
}

// source is where the identity comes from, once it is known.
type source struct {
	opts []auth.Option
	// serviceAccount is nil for the program's own identity.
	serviceAccount *corev1.ServiceAccount
	// key is what of the source shapes credentials. Nil: they are not kept on disk.
	key *sourceKey
}

// sourceKey is written as JSON, which keeps its parts apart.
type sourceKey struct {
	Namespace, Name, UID string
	Annotations          map[string]string
	// TokenSHA256 is set if the caller holds a token: only who holds the same one shares what it was exchanged for.
	TokenSHA256 []byte
	// Cluster is set otherwise: where the ServiceAccount was read, and as whom.
	Cluster *clusterKey
}

// resolve finds the identity. With a ServiceAccount of a cluster it reads that, so that deleting or re-annotating it takes
// effect at once, also on what is kept on disk.
func (id *identity) resolve(ctx context.Context, in stdin) (*source, error) {
	opts, err := id.options()
	if err != nil {
		return nil, err
	}
	var s *source
	switch {
	case id.hasToken():
		s, err = id.fromToken(ctx, in)
	case id.serviceAccount != "":
		s, err = id.fromCluster(ctx)
	default:
		s = id.own()
	}
	if err != nil {
		return nil, err
	}
	s.opts = append(opts, s.opts...)
	return s, nil
}

// options are those that do not depend on the identity. Audiences are the caller's own choice here, annotations are not.
func (id *identity) options() ([]auth.Option, error) {
	opts := []auth.Option{auth.WithPolicy(auth.Policy{Audiences: id.audiences, AllowClusterAddress: id.allowsAddress})}
	if len(id.audiences) > 0 {
		opts = append(opts, auth.WithAudiences(id.audiences...))
	}
	if len(id.scopes) > 0 {
		opts = append(opts, auth.WithScopes(id.scopes...))
	}
	if id.region != "" {
		opts = append(opts, auth.WithSTSRegion(id.region))
	}
	if id.stsEndpoint != "" {
		opts = append(opts, auth.WithSTSEndpoint(id.stsEndpoint))
	}
	if id.proxyURL != "" {
		proxy, err := url.Parse(id.proxyURL)
		if err != nil {
			return nil, usagef("--proxy-url is not a URL")
		}
		opts = append(opts, auth.WithProxyURL(*proxy))
	}
	if id.httpClient != nil {
		opts = append(opts, auth.WithHTTPClient(id.httpClient))
	}
	return opts, nil
}

// allowsAddress lets wid's own identity go to the address that the caller has named, not to what a kubeconfig may say.
func (id *identity) allowsAddress(_ cache.InvolvedObject, address string) bool {
	own, err := auth.ParseClusterAddress(id.clusterAddress)
	return err == nil && own == address
}

// fromToken is for callers that hold a token. Who it speaks for stands in it.
func (id *identity) fromToken(ctx context.Context, in stdin) (*source, error) {
	token, err := id.readToken(ctx, in)
	if err != nil {
		return nil, err
	}
	annotations, err := parseAnnotations(id.annotations)
	if err != nil {
		return nil, err
	}
	s, err := sourceOfToken(token, annotations)
	if err != nil || id.serviceAccount == "" {
		return s, err
	}
	want, err := parseServiceAccount(id.serviceAccount)
	if got := client.ObjectKeyFromObject(s.serviceAccount); err == nil && got != want {
		return nil, &auth.Error{Reason: auth.ErrDenied, Remedy: "pass a token of the ServiceAccount",
			Message: fmt.Sprintf("the token is of the ServiceAccount %.300q, not of %q", got.String(), want.String())}
	}
	return s, err
}

func (id *identity) readToken(ctx context.Context, in stdin) (string, error) {
	if id.tokenFile != "" {
		token, _, err := auth.NewFileTokenSource(id.tokenFile).Token(ctx, nil)
		return token, err
	}
	content, err := plugin.Read(ctx, in)
	if err != nil {
		return "", err
	}
	token, _, err := auth.NewStaticTokenSource(string(content)).Token(ctx, nil)
	return token, err
}

func sourceOfToken(token string, annotations map[string]string) (*source, error) {
	sa, err := plugin.ServiceAccountOf(token, annotations)
	if err != nil {
		return nil, err
	}
	return &source{
		opts:           []auth.Option{auth.WithSubjectToken(auth.NewStaticTokenSource(token), sa)},
		serviceAccount: &sa,
		key: &sourceKey{Namespace: sa.Namespace, Name: sa.Name, UID: string(sa.UID),
			Annotations: annotations, TokenSHA256: sum(token)},
	}, nil
}

func parseAnnotations(list []string) (map[string]string, error) {
	annotations := map[string]string{}
	for _, entry := range list {
		key, value, ok := strings.Cut(entry, "=")
		if !ok || key == "" {
			return nil, usagef("--annotation is key=value, not %.100q", entry)
		}
		if _, twice := annotations[key]; twice {
			return nil, usagef("--annotation %.300q is given twice", key)
		}
		annotations[key] = value
	}
	return annotations, nil
}

// own is the program's own identity. What it is depends on the whole environment, so nothing of it is kept on disk.
func (id *identity) own() *source {
	s := &source{}
	// The provider generic asks the API server for its own tokens.
	if kube, err := id.podClient(); err == nil {
		s.opts = append(s.opts, auth.WithClient(kube))
	}
	return s
}

// owner is the object that the library's policy judges: whoever runs wid acts for the ServiceAccount itself.
func owner(sa client.ObjectKey) auth.Option {
	return auth.WithOwner(cache.InvolvedObject{Kind: "ServiceAccount", Namespace: sa.Namespace, Name: sa.Name})
}
