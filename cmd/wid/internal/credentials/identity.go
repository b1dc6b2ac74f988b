// Package credentials holds the commands for credentials of an identity: wid
// token, kubeconfig and the plugins of other programs.
package credentials

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kubeletv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/auth/plugin"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// App holds what the commands for credentials share.
type App struct {
	// HTTPClient makes the requests to providers. Nil: theirs.
	HTTPClient *http.Client
	Stderr     io.Writer
}

func (a *App) warn(format string, args ...any) {
	_, _ = fmt.Fprintf(a.Stderr, "wid: "+format+"\n", args...)
}

// Identity holds the flags that all commands for credentials share. Without a
// ServiceAccount and a token it is the program's own identity ("controller
// level").
type Identity struct {
	*App
	cmd   *cobra.Command
	Flags *pflag.FlagSet
	given map[string]bool // flags of the command line

	Provider                string
	ServiceAccount          string
	Kubeconfig, kubeContext string
	InCluster               bool
	TokenFile               string
	Annotations             repeated
	audiences, scopes       []string
	apiServerAudiences      []string
	region, stsEndpoint     string
	proxyURL                string
	cacheDir                string
	noCache                 bool
	Timeout                 time.Duration

	// The flags of a provider's fields lead to the provider.
	aws      aws.Provider
	azure    azure.Provider
	gcp      gcp.Provider
	exchange exchange.Provider
	service  serviceFlags

	allowShellOut bool
	tokenLifetime time.Duration

	assumeRoles       []string
	role              aws.AssumeRole // shapes the last of them
	sessionTags       []string
	sessionDuration   time.Duration
	sessionNamePrefix string

	delegates           []string
	accessTokenLifetime time.Duration
	idTokenAudience     string

	clientID, clientSecretFile string

	// noEnvironment ignores the variables of other plugins.
	noEnvironment bool

	// clientSecret reads the file of the flag once: it may be a pipe.
	clientSecret func() ([]byte, error)

	// Examines marks wid doctor, which asks the cluster about a token too, and
	// takes the ServiceAccount from a pod.
	Examines bool
	Pod      string

	// puller is the kubelet's request, whose token takes the place of
	// --token-file.
	puller *kubeletv1.CredentialProviderRequest

	Clients cli.Clients

	// chosen returns the remedy for an audience that the ServiceAccount's
	// annotation chose.
	chosen func() string
}

// Complete applies the environment to flags that are not set, and refuses
// contradictions.
func (id *Identity) Complete() error {
	id.given = map[string]bool{}
	id.Flags.VisitAll(func(f *pflag.Flag) { id.given[f.Name] = f.Changed })
	if err := id.fromEnvironment(); err != nil {
		return err
	}
	id.Provider = strings.ToLower(id.Provider)
	if id.service.service != "" && id.Provider == "" {
		id.Provider = exchange.ProviderName
	}
	if id.Provider != "" {
		if _, err := id.Named(); err != nil {
			return err
		}
	}
	token, cluster := id.HasToken(), id.NamesCluster()
	for _, mistake := range []struct {
		made bool
		text string
	}{
		{id.InCluster && (id.Kubeconfig != "" || id.kubeContext != ""), "--in-cluster excludes --kubeconfig and --context"},
		{token && cluster && !id.Examines,
			"with a token no cluster is asked: leave --kubeconfig, --context and --in-cluster out"},
		{len(id.Annotations) > 0 && (!token || cluster),
			"the ServiceAccount's own annotations count in its cluster: leave --annotation out, or pass a token without a cluster"},
		{cluster && id.ServiceAccount == "" && id.Pod == "" && !token,
			"name the ServiceAccount with --service-account namespace/name"},
		{id.clientSecretFile != "" && id.clientID == "", "--exchange-client-secret-file goes with --exchange-client-id"},
		{id.service.service != "" && id.givesExchange(),
			"--service sets what the service needs: leave out --exchange-… flags"},
		{id.service.service == "" && (id.service.address != "" || len(id.service.parameters) > 0),
			"--service-address and --service-parameter go with --service"},
		{id.allowShellOut && !id.isOwn(),
			"--allow-shell-out applies to wid's own identity; leave it out, or --service-account and the token"},
		{id.Timeout <= 0, "--timeout has to be more than 0"},
	} {
		if mistake.made {
			return cli.Usagef("%s", mistake.text)
		}
	}
	return id.checkEffect()
}

// checkEffect refuses flags without effect. The environment may serve several
// providers.
func (id *Identity) checkEffect() error {
	for _, s := range id.Settings() {
		switch {
		case id.Provider != "" && id.given[s.Name] && s.OfOther(id.Provider):
			return cli.Usagef("--%s is for the provider %s, not for %.100q; leave it out", s.Name, s.Group, id.Provider)
		case len(id.assumeRoles) == 0 && strings.HasPrefix(s.option, lastRole) && id.changed(s.Name):
			return cli.Usagef("--%s goes with --assume-role", s.Name)
		}
	}
	return nil
}

// NamesCluster reports whether a flag names the cluster of the ServiceAccount.
func (id *Identity) NamesCluster() bool {
	return id.Kubeconfig != "" || id.kubeContext != "" || id.InCluster
}

// HasToken reports whether the caller holds a token of the ServiceAccount.
func (id *Identity) HasToken() bool {
	return id.TokenFile != "" || id.puller != nil && id.puller.ServiceAccountToken != ""
}

func (id *Identity) isOwn() bool { return id.ServiceAccount == "" && !id.HasToken() }

// ParseKey parses the value of a flag. It returns the zero key for an empty
// one.
func ParseKey(flag, s string) (client.ObjectKey, error) {
	namespace, name, ok := strings.Cut(s, "/")
	if s != "" && (!ok || namespace == "" || name == "" || strings.Contains(name, "/") ||
		strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })) {
		return client.ObjectKey{}, cli.Usagef("--%s is namespace/name, not %.300q", flag, s)
	}
	return client.ObjectKey{Namespace: namespace, Name: name}, nil
}

// Pairs parses the values of a flag.
func Pairs(flag string, list []string) (map[string]string, error) {
	pairs := map[string]string{}
	for _, entry := range list {
		key, value, ok := strings.Cut(entry, "=")
		if _, twice := pairs[key]; !ok || key == "" || twice {
			return nil, cli.Usagef("--%s is key=value, each key once, not %.300q", flag, entry)
		}
		pairs[key] = value
	}
	return pairs, nil
}

// source is where the identity comes from, once it is known.
type source struct {
	opts []auth.Option
	// live is the source of a program that goes on: it reads the ServiceAccount
	// and the token again for each credential.
	live auth.Option
	// account is nil for the program's own identity. After readErr it is empty.
	account *corev1.ServiceAccount
	readErr error
	// expires is when a token in hand expires.
	expires time.Time
	// key holds the parts of the source that shape credentials. Without it
	// nothing is kept on disk.
	key string
}

// resolve finds the identity. With a ServiceAccount of a cluster it reads that,
// so that deleting or re-annotating it takes effect at once, also on what is
// kept on disk.
func (id *Identity) resolve(ctx context.Context) (*source, error) {
	opts, err := id.Options()
	if err != nil {
		return nil, err
	}
	s := &source{}
	switch {
	case id.HasToken():
		s, err = id.fromToken(ctx)
	case id.ServiceAccount != "":
		s, err = id.fromCluster(ctx)
	default:
		// It depends on the whole environment, so nothing of it is kept. The
		// provider generic asks the API server for its own tokens.
		if config, err := id.PodConfig(); err == nil {
			if kube, err := newKubeClient(config); err == nil {
				s.opts = []auth.Option{auth.WithClient(kube)}
			}
		}
	}
	if err != nil {
		return nil, err
	}
	if sa := s.account; sa != nil && sa.Annotations[aws.AudienceAnnotation] != "" {
		id.chosen = func() string {
			text, command := cli.ChosenAudience(sa.Namespace, sa.Name, sa.Annotations[aws.AudienceAnnotation])
			return text + " " + id.KubeFile().Kubectl(command)
		}
	}
	s.opts = append(opts, s.opts...)
	return s, nil
}

// fromToken serves callers that hold a token, which names its ServiceAccount.
func (id *Identity) fromToken(ctx context.Context) (*source, error) {
	annotations, err := Pairs("annotation", id.Annotations)
	if err != nil {
		return nil, err
	}
	if id.puller != nil {
		return sourceOfToken(ctx, id.puller.ServiceAccountToken, id.puller.ServiceAccountAnnotations)
	}
	token, _, err := auth.NewFileTokenSource(id.TokenFile).Token(ctx, nil)
	if err != nil {
		return nil, err
	}
	s, err := sourceOfToken(ctx, token, annotations)
	if err != nil {
		return nil, err
	}
	s.live = auth.WithSubjectToken(auth.NewFileTokenSource(id.TokenFile), *s.account)
	if id.ServiceAccount == "" {
		return s, nil
	}
	want, err := ParseKey("service-account", id.ServiceAccount)
	if got := client.ObjectKeyFromObject(s.account); err == nil && got != want {
		return nil, &auth.Error{Reason: auth.ErrDenied, Remedy: "pass a token of the ServiceAccount",
			Message: fmt.Sprintf("the token is of the ServiceAccount %.300q, not of %q", got.String(), want.String())}
	}
	return s, err
}

func sourceOfToken(ctx context.Context, token string, annotations map[string]string) (*source, error) {
	sa, err := plugin.ServiceAccountOf(token, annotations)
	if err != nil {
		return nil, err
	}
	held := auth.NewStaticTokenSource(token)
	_, expires, err := held.Token(ctx, nil)
	return &source{opts: []auth.Option{auth.WithSubjectToken(held, sa)}, account: &sa, expires: expires,
		key: keyOf(&sa, "token", token)}, err
}

// keyOf holds the parts of a ServiceAccount that shape credentials. Only
// callers with the same token or login share them.
func keyOf(sa *corev1.ServiceAccount, login ...string) string {
	return fmt.Sprintf("%q", []any{sa.Namespace, sa.Name, string(sa.UID), sa.Annotations, login})
}

// fromCluster reads the ServiceAccount. After a failure the library gets the
// same answer and reports it.
func (id *Identity) fromCluster(ctx context.Context) (*source, error) {
	key, err := ParseKey("service-account", id.ServiceAccount)
	if err != nil {
		return nil, err
	}
	config, err := id.ClusterConfig()
	if err != nil {
		return nil, err
	}
	kube, err := newKubeClient(config)
	if err != nil {
		return nil, noCluster(err)
	}
	read := &pinned{KubernetesClient: kube, key: key}
	read.err = kube.Get(ctx, key, &read.sa)
	if answer := apierrors.APIStatus(nil); read.err != nil && !errors.As(read.err, &answer) {
		read.err = &unreached{read.err}
	}
	// The user of wid acts for the ServiceAccount itself.
	owner := cache.InvolvedObject{Kind: "ServiceAccount", Namespace: key.Namespace, Name: key.Name}
	s := &source{opts: []auth.Option{auth.WithServiceAccount(key, read), auth.WithOwner(owner)}, account: &read.sa,
		readErr: read.err, live: auth.WithServiceAccount(key, kube)}
	if login, err := loginOf(config); err == nil && read.err == nil {
		s.key = keyOf(&read.sa, "cluster", login)
	}
	return s, nil
}

// pinned is a client that has read one ServiceAccount: what is minted is for
// what the key of the cache says.
type pinned struct {
	auth.KubernetesClient
	key client.ObjectKey
	sa  corev1.ServiceAccount
	err error
}

func (p *pinned) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	sa, ok := obj.(*corev1.ServiceAccount)
	switch {
	case !ok || key != p.key:
		return fmt.Errorf("the %T %.300q was not read, but the ServiceAccount %q", obj, key.String(), p.key.String())
	case p.err == nil:
		p.sa.DeepCopyInto(sa)
	}
	return p.err
}

// unreached marks the error of an API server of the ServiceAccount that gave no
// answer.
type unreached struct{ error }

func (e *unreached) Unwrap() error { return e.error }

// command completes the flags of a command, bounds the time, and writes the
// whole answer, or nothing after an error.
func (a *App) command(cmd *cobra.Command,
	work func(ctx context.Context, id *Identity, args []string) ([]byte, error)) *cobra.Command {
	id := a.NewIdentity(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		a.Stderr = cmd.ErrOrStderr()
		content, err := id.answer(cmd.Context(), func(ctx context.Context) ([]byte, error) { return work(ctx, id, args) })
		if err == nil {
			_, err = cmd.OutOrStdout().Write(content)
		}
		return id.InTermsOfFlags(err)
	}
	return cmd
}

func (id *Identity) answer(ctx context.Context, work func(ctx context.Context) ([]byte, error)) ([]byte, error) {
	if err := id.Complete(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, id.Timeout)
	defer cancel()
	defer id.Clients.End()
	return cli.Within(ctx, work)
}
