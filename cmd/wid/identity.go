package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/plugin"
	"github.com/workloadid/workloadid/cache"
)

// identity holds the flags that all commands for credentials share. Without a ServiceAccount and a token it is the program's own
// identity ("controller level").
type identity struct {
	*app
	flags *pflag.FlagSet
	given map[string]bool // flags of the command line

	provider                string
	serviceAccount          string
	kubeconfig, kubeContext string
	inCluster               bool
	tokenFile               string
	tokenStdin              bool
	annotations             repeated
	audiences, scopes       []string
	region, stsEndpoint     string
	proxyURL                string
	cacheDir                string
	noCache                 bool
	timeout                 time.Duration
	extras
	// noEnvironment ignores the variables of other plugins.
	noEnvironment bool

	// clientSecret reads the file of the flag once: it may be a pipe.
	clientSecret func() ([]byte, error)

	// examines marks wid doctor, which asks the cluster about a token too, and takes the ServiceAccount from a pod.
	examines bool
	pod      string

	// cluster is the cluster that the flags of exec-credential name.
	cluster target

	relay atomic.Pointer[relay]
	sent  sent
}

const defaultTimeout = time.Minute

// complete applies the environment to flags that are not set, and refuses contradictions.
func (id *identity) complete(cmd *cobra.Command) error {
	id.given = map[string]bool{}
	id.flags.VisitAll(func(f *pflag.Flag) { id.given[f.Name] = f.Changed })
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
	token := id.hasToken()
	cluster := id.namesCluster()
	switch {
	case id.tokenFile != "" && id.tokenStdin:
		return usagef("--token-file and --token-stdin exclude each other")
	case id.inCluster && (id.kubeconfig != "" || id.kubeContext != ""):
		return usagef("--in-cluster excludes --kubeconfig and --context")
	case token && cluster && !id.examines:
		return usagef("with a token no cluster is asked: leave --kubeconfig, --context and --in-cluster out")
	case !token && len(id.annotations) > 0:
		return usagef("--annotation goes with --token-file or --token-stdin; otherwise the ServiceAccount's own count")
	case token && cluster && len(id.annotations) > 0:
		return usagef("with a cluster the ServiceAccount's own annotations count: leave --annotation out, or --kubeconfig, " +
			"--context and --in-cluster")
	case cluster && id.examines && id.serviceAccount == "" && id.pod == "" && !token:
		return usagef("name the ServiceAccount with --service-account namespace/name, or its pod with --pod namespace/name")
	case cluster && id.serviceAccount == "" && !id.examines:
		return usagef("name the ServiceAccount with --service-account namespace/name")
	case id.timeout <= 0:
		return usagef("--timeout has to be more than 0, not %s", id.timeout)
	}
	return nil
}

func (id *identity) namesCluster() bool {
	return id.kubeconfig != "" || id.kubeContext != "" || id.inCluster
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
	// serviceAccount is nil for the program's own identity. After readErr it is empty.
	serviceAccount *corev1.ServiceAccount
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
func (id *identity) resolve(ctx context.Context, cmd *cobra.Command) (*source, error) {
	opts, err := id.options()
	if err != nil {
		return nil, err
	}
	var s *source
	switch {
	case id.hasToken():
		s, err = id.fromToken(ctx, cmd)
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

// allowsCluster allows wid's own identity for the cluster that the flags name. A cluster that only the kubeconfig names is refused.
func (id *identity) allowsCluster(r auth.ClusterRequest) bool {
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
func (id *identity) fromToken(ctx context.Context, cmd *cobra.Command) (*source, error) {
	token, err := id.readToken(ctx, cmd)
	if err != nil {
		return nil, err
	}
	annotations, err := parseAnnotations(id.annotations)
	if err != nil {
		return nil, err
	}
	s, err := sourceOfToken(ctx, token, annotations)
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

func (id *identity) readToken(ctx context.Context, cmd *cobra.Command) (string, error) {
	if id.tokenFile != "" {
		token, _, err := auth.NewFileTokenSource(id.tokenFile).Token(ctx, nil)
		return token, err
	}
	in, err := inputOf(cmd)
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

func sourceOfToken(ctx context.Context, token string, annotations map[string]string) (*source, error) {
	sa, err := plugin.ServiceAccountOf(token, annotations)
	if err != nil {
		return nil, err
	}
	held := auth.NewStaticTokenSource(token)
	_, expires, err := held.Token(ctx, nil)
	if err != nil {
		return nil, err
	}
	return &source{
		opts:           []auth.Option{auth.WithSubjectToken(held, sa)},
		serviceAccount: &sa,
		expires:        expires,
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

// own returns the program's own identity. It depends on the whole environment, so nothing of it is kept on disk.
func (id *identity) own() *source {
	s := &source{}
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
