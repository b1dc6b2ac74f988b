// Package credentials holds the commands for credentials of an identity: wid token, kubeconfig and the plugins of other programs.
package credentials

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/plugin"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// Identity holds the flags that all commands for credentials share. Without a ServiceAccount and a token it is the program's own
// identity ("controller level").
type Identity struct {
	*App
	Flags *pflag.FlagSet
	given map[string]bool // flags of the command line

	Provider                string
	ServiceAccount          string
	Kubeconfig, kubeContext string
	InCluster               bool
	TokenFile               string
	TokenStdin              bool
	Annotations             repeated
	audiences, scopes       []string
	region, stsEndpoint     string
	proxyURL                string
	cacheDir                string
	noCache                 bool
	Timeout                 time.Duration
	extras
	// noEnvironment ignores the variables of other plugins.
	noEnvironment bool

	// clientSecret reads the file of the flag once: it may be a pipe.
	clientSecret func() ([]byte, error)

	// Examines marks wid doctor, which asks the cluster about a token too, and takes the ServiceAccount from a pod.
	Examines bool
	Pod      string

	// cluster is the cluster that the flags of exec-credential name.
	cluster target

	Relay atomic.Pointer[cli.Relay]
	Sent  cli.Sent
}

// Complete applies the environment to flags that are not set, and refuses contradictions.
func (id *Identity) Complete(cmd *cobra.Command) error {
	id.given = map[string]bool{}
	id.Flags.VisitAll(func(f *pflag.Flag) { id.given[f.Name] = f.Changed })
	if err := id.fromEnvironment(); err != nil {
		return err
	}
	if err := id.checkText(cmd); err != nil {
		return err
	}
	if err := id.checkProvider(); err != nil {
		return err
	}
	if err := id.checkExtras(); err != nil {
		return err
	}
	token := id.HasToken()
	cluster := id.NamesCluster()
	switch {
	case id.TokenFile != "" && id.TokenStdin:
		return cli.Usagef("--token-file and --token-stdin exclude each other")
	case id.InCluster && (id.Kubeconfig != "" || id.kubeContext != ""):
		return cli.Usagef("--in-cluster excludes --kubeconfig and --context")
	case token && cluster && !id.Examines:
		return cli.Usagef("with a token no cluster is asked: leave --kubeconfig, --context and --in-cluster out")
	case !token && len(id.Annotations) > 0:
		return cli.Usagef("--annotation goes with --token-file or --token-stdin; otherwise the ServiceAccount's own count")
	case token && cluster && len(id.Annotations) > 0:
		return cli.Usagef("with a cluster the ServiceAccount's own annotations count: leave --annotation out, or --kubeconfig, " +
			"--context and --in-cluster")
	case cluster && id.Examines && id.ServiceAccount == "" && id.Pod == "" && !token:
		return cli.Usagef("name the ServiceAccount with --service-account namespace/name, or its pod with --pod namespace/name")
	case cluster && id.ServiceAccount == "" && !id.Examines:
		return cli.Usagef("name the ServiceAccount with --service-account namespace/name")
	case id.Timeout <= 0:
		return cli.Usagef("--timeout has to be more than 0, not %s", id.Timeout)
	}
	return nil
}

// NamesCluster reports whether a flag names the cluster of the ServiceAccount.
func (id *Identity) NamesCluster() bool {
	return id.Kubeconfig != "" || id.kubeContext != "" || id.InCluster
}

// HasToken reports whether the caller holds a token of the ServiceAccount.
func (id *Identity) HasToken() bool { return id.TokenFile != "" || id.TokenStdin }

// ParseServiceAccount parses --service-account.
func ParseServiceAccount(s string) (client.ObjectKey, error) {
	namespace, name, ok := strings.Cut(s, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return client.ObjectKey{}, cli.Usagef("--service-account is namespace/name, not %.300q", s)
	}
	return client.ObjectKey{Namespace: namespace, Name: name}, nil
}

// Source is where the identity comes from, once it is known.
type Source struct {
	opts []auth.Option
	// ServiceAccount is nil for the program's own identity. After readErr it is empty.
	ServiceAccount *corev1.ServiceAccount
	readErr        error
	// expires is when a token in hand expires.
	expires time.Time
	// key holds the parts of the source that shape credentials. With nil, nothing is kept on disk.
	key *sourceKey
}

// sourceKey is written as JSON, which keeps its parts apart.
type sourceKey struct {
	Namespace, Name, UID string
	Annotations          map[string]string
	// TokenSHA256 is set if the caller holds a token: only callers with the same token share its credentials.
	TokenSHA256 []byte
	// Cluster is set otherwise: the cluster of the ServiceAccount, and the user that reads it.
	Cluster *clusterKey
}

// resolve finds the identity. With a ServiceAccount of a cluster it reads that, so that deleting or re-annotating it takes
// effect at once, also on what is kept on disk.
func (id *Identity) resolve(ctx context.Context, cmd *cobra.Command) (*Source, error) {
	opts, err := id.Options()
	if err != nil {
		return nil, err
	}
	var s *Source
	switch {
	case id.HasToken():
		s, err = id.fromToken(ctx, cmd)
	case id.ServiceAccount != "":
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

// allowsCluster allows wid's own identity for the cluster that the flags name. A cluster that only the kubeconfig names is refused.
func (id *Identity) allowsCluster(r auth.ClusterRequest) bool {
	if r.Resource != id.cluster.resource {
		return false
	}
	// The provider's API verifies an address that comes with a resource, unless CA data makes that lookup unnecessary.
	if r.Resource != "" && (r.Address == "" || !r.CAFromObject) {
		return true
	}
	address, err := auth.ParseClusterAddress(id.cluster.address)
	return err == nil && address == r.Address
}

// fromToken serves callers that hold a token, which names its ServiceAccount.
func (id *Identity) fromToken(ctx context.Context, cmd *cobra.Command) (*Source, error) {
	token, err := id.ReadToken(ctx, cmd)
	if err != nil {
		return nil, err
	}
	annotations, err := ParseAnnotations(id.Annotations)
	if err != nil {
		return nil, err
	}
	s, err := sourceOfToken(ctx, token, annotations)
	if err != nil || id.ServiceAccount == "" {
		return s, err
	}
	want, err := ParseServiceAccount(id.ServiceAccount)
	if got := client.ObjectKeyFromObject(s.ServiceAccount); err == nil && got != want {
		return nil, &auth.Error{Reason: auth.ErrDenied, Remedy: "pass a token of the ServiceAccount",
			Message: fmt.Sprintf("the token is of the ServiceAccount %.300q, not of %q", got.String(), want.String())}
	}
	return s, err
}

// ReadToken returns the token that the caller holds.
func (id *Identity) ReadToken(ctx context.Context, cmd *cobra.Command) (string, error) {
	if id.TokenFile != "" {
		token, _, err := auth.NewFileTokenSource(id.TokenFile).Token(ctx, nil)
		return token, err
	}
	in, err := cli.InputOf(cmd)
	if err != nil {
		return "", err
	}
	content, err := plugin.Read(ctx, in)
	if err != nil {
		return "", err
	}
	token, _, err := auth.NewStaticTokenSource(string(content)).Token(ctx, nil)
	return token, err
}

func sourceOfToken(ctx context.Context, token string, annotations map[string]string) (*Source, error) {
	sa, err := plugin.ServiceAccountOf(token, annotations)
	if err != nil {
		return nil, err
	}
	held := auth.NewStaticTokenSource(token)
	_, expires, err := held.Token(ctx, nil)
	if err != nil {
		return nil, err
	}
	return &Source{
		opts:           []auth.Option{auth.WithSubjectToken(held, sa)},
		ServiceAccount: &sa,
		expires:        expires,
		key: &sourceKey{Namespace: sa.Namespace, Name: sa.Name, UID: string(sa.UID),
			Annotations: annotations, TokenSHA256: sum(token)},
	}, nil
}

// ParseAnnotations parses the values of --annotation.
func ParseAnnotations(list []string) (map[string]string, error) {
	annotations := map[string]string{}
	for _, entry := range list {
		key, value, ok := strings.Cut(entry, "=")
		if !ok || key == "" {
			return nil, cli.Usagef("--annotation is key=value, not %.100q", entry)
		}
		if _, twice := annotations[key]; twice {
			return nil, cli.Usagef("--annotation %.300q is given twice", key)
		}
		annotations[key] = value
	}
	return annotations, nil
}

// own returns the program's own identity. It depends on the whole environment, so nothing of it is kept on disk.
func (id *Identity) own() *Source {
	s := &Source{}
	// The provider generic asks the API server for its own tokens.
	if kube, err := id.podClient(); err == nil {
		s.opts = append(s.opts, auth.WithClient(kube))
	}
	return s
}

// owner returns the object that the library's policy judges. The user of wid acts for the ServiceAccount itself.
func owner(sa client.ObjectKey) auth.Option {
	return auth.WithOwner(cache.InvolvedObject{Kind: "ServiceAccount", Namespace: sa.Namespace, Name: sa.Name})
}

// relayPlugin sets up the exec plugin of the kubeconfig, if there is one. client-go reads os.Stderr during the set-up only, and keeps
// the plugin for all clients with the same configuration.
func (id *Identity) relayPlugin(config *rest.Config) error {
	r, err := cli.NewRelay(config, id.Stderr)
	if r != nil {
		id.Relay.Store(r)
	}
	return err
}

// App holds what the commands for credentials share.
type App struct {
	// HTTPClient makes the requests to providers. Nil: theirs.
	HTTPClient *http.Client
	Stderr     io.Writer
}

func (a *App) warn(format string, args ...any) {
	_, _ = fmt.Fprintf(a.Stderr, "wid: "+format+"\n", args...)
}

// run completes the flags, bounds the time, and writes the whole answer, or nothing after an error.
func (id *Identity) run(cmd *cobra.Command, work func(ctx context.Context) ([]byte, error)) error {
	return id.InTermsOfFlags(id.answer(cmd, work))
}

func (id *Identity) answer(cmd *cobra.Command, work func(ctx context.Context) ([]byte, error)) error {
	if id.Stderr == nil {
		id.Stderr = cmd.ErrOrStderr()
	}
	if err := id.Complete(cmd); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), id.Timeout)
	defer cancel()
	content, err := cli.Within(ctx, work)
	id.Relay.Load().End()
	if err != nil {
		return err
	}
	_, err = cmd.OutOrStdout().Write(content)
	return err
}
