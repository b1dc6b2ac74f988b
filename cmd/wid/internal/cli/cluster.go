package cli

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/address"
	"github.com/workloadid/workloadid/internal/apiserver"
	"github.com/workloadid/workloadid/internal/kubeerror"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/internal/transport"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// Side is the hub or the managed cluster, as a command reaches it.
type Side struct {
	KubeFile
	Timeout time.Duration
	// Notices receives a line for a request that takes long. Nil: none.
	Notices io.Writer
}

// Config is for clients of the cluster, whose answers become trust elsewhere.
// It also returns the namespace of the context.
func (s *Side) Config() (*rest.Config, string, error) {
	config, namespace, err := s.KubeFile.Config()
	switch {
	case errors.As(err, new(*auth.Error)):
		return nil, "", err
	case err != nil:
		return nil, "", Problem(auth.ErrMisconfigured, "pass --kubeconfig, or set KUBECONFIG",
			"cannot read the kubeconfig: %s", KubeconfigMistake(err))
	}
	Announce(config, s.Notices)
	if err := apiserver.CheckVerified(config); err != nil {
		return nil, "", Problem(auth.ErrMisconfigured, "", "%v", err)
	}
	return config, namespace, nil
}

// Connect makes no request.
func (s *Side) Connect() (client.Client, *rest.Config, error) {
	config, _, err := s.Config()
	if err != nil {
		return nil, nil, err
	}
	c, err := NewClient(config)
	return c, config, err
}

// Info describes the cluster for other machines. A server that is not empty
// replaces the address. flag is the name of its flag.
func Info(config *rest.Config, server, flag string) (*bootstrap.ClusterInfo, error) {
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, Usagef("the kubeconfig cannot be used: %s", KubeconfigMistake(err))
	}
	info := &bootstrap.ClusterInfo{Server: cmp.Or(server, config.Host), CAData: config.CAData,
		TLSServerName: config.ServerName}
	if _, err := info.Encode(); err != nil {
		return nil, Usagef("--%s: %v", flag, err)
	}
	return info, nil
}

// Command returns a command for a cluster, whose work ends in time.
func (s *Side) Command(cmd *cobra.Command, of string,
	work func(ctx context.Context, cmd *cobra.Command) error) *cobra.Command {
	s.Bind(cmd.Flags(), of)
	return s.Limited(cmd, 5*time.Minute, work)
}

// Limited ends the work of a command after --timeout, also if it reads a named
// pipe, which ignores contexts.
func (s *Side) Limited(cmd *cobra.Command, timeout time.Duration,
	work func(ctx context.Context, cmd *cobra.Command) error) *cobra.Command {
	limit := cmd.Flags().Duration("timeout", timeout, "time for everything together")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s.Timeout, s.Notices = *limit, cmd.ErrOrStderr()
		if s.Timeout <= 0 {
			return Usagef("--timeout is more than 0, not %s", s.Timeout)
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), s.Timeout)
		defer cancel()
		_, err := Within(ctx, func(ctx context.Context) ([]byte, error) { return nil, work(ctx, cmd) })
		return err
	}
	return cmd
}

// Problem returns an error that names the problem by format, and its remedy.
func Problem(reason provider.Reason, remedy, format string, args ...any) *auth.Error {
	return &auth.Error{Reason: reason, Message: fmt.Sprintf(format, args...), Remedy: remedy}
}

// AnswerOf classifies the error of an API server, and says what to do about it.
func AnswerOf(err error, operation string) error {
	if err == nil || errors.As(err, new(*auth.Error)) || errors.As(err, new(*UsageError)) {
		return err
	}
	e := &auth.Error{Operation: operation, Err: err, Message: OneLine(kubeerror.Message(err))}
	switch status := apierrors.APIStatus(nil); {
	case meta.IsNoMatchError(err) || errors.As(err, new(*meta.NoKindMatchError)):
		e.Reason, e.Remedy = auth.ErrMisconfigured,
			"prepare the hub with wid hub init --apply, or pick another cluster with --context"
	case apierrors.IsUnauthorized(err):
		e.Reason, e.Remedy = auth.ErrUnavailable, "log in again, or renew the token"
	case apierrors.IsForbidden(err):
		e.Reason, e.Remedy = auth.ErrDenied, "use a user who has that right"
	case apierrors.IsTooManyRequests(err):
		e.Reason, e.Remedy = auth.ErrThrottled, "try again later"
	case apierrors.IsConflict(err):
		e.Reason, e.Remedy = auth.ErrUnavailable, "it has changed meanwhile: run the command again"
	case errors.As(err, &status) && status.Status().Code < 500:
		e.Reason, e.Remedy = auth.ErrMisconfigured, "correct what the API server refuses"
	default:
		e.Reason, e.Remedy = auth.ErrUnavailable,
			"check the address of the cluster and the network, and try kubectl version with the same kubeconfig"
	}
	return e
}

// WarnOfLoopback warns of addresses of kind or of a tunnel, which other
// machines cannot reach.
func WarnOfLoopback(cmd *cobra.Command, server, flag string) {
	u, err := url.Parse(server)
	if err != nil {
		return
	}
	if address.IsLoopback(u.Hostname()) {
		cmd.PrintErrf("wid: other machines cannot reach %s; name an address that they can with --%s\n", server, flag)
	}
}

// End returns the text of an expiry.
func End(expires time.Time) string {
	if expires.IsZero() {
		return "never"
	}
	return expires.UTC().Format(time.RFC3339)
}

// NewClient returns a client that knows the kinds of hubs, managed clusters and
// pod identity. It bounds answers.
func NewClient(config *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	err := errors.Join(clientgoscheme.AddToScheme(scheme), ocm.AddToScheme(scheme), addon.AddToScheme(scheme),
		v1alpha1.AddToScheme(scheme))
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	BoundAnswers(config)
	config.UserAgent, config.QPS = "wid", -1 // a few requests that a person waits for
	c, err := client.New(config, client.Options{Scheme: scheme})
	return c, AnswerOf(err, "connect to "+config.Host)
}

// KubeFile names a kubeconfig and a context. Empty fields mean the defaults of
// kubectl.
type KubeFile struct{ Path, Context string }

// Bind adds --kubeconfig and --context.
func (k *KubeFile) Bind(f *pflag.FlagSet, of string) {
	f.StringVar(&k.Path, "kubeconfig", "", "kubeconfig of "+of+"; KUBECONFIG and ~/.kube/config otherwise")
	f.StringVar(&k.Context, "context", "", "context of the kubeconfig")
}

// Rules returns the order in which kubectl reads files.
func (k KubeFile) Rules() *clientcmd.ClientConfigLoadingRules {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = k.Path
	return rules
}

// Config is for clients of the cluster. It also returns the namespace of the
// context, "default" if it names none. It reads a pipe once.
func (k KubeFile) Config() (*rest.Config, string, error) {
	loader, err := k.Load()
	if err != nil {
		return nil, "", err
	}
	if err := k.check(loader); err != nil {
		return nil, "", err
	}
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, "", err
	}
	BoundAnswers(config)
	namespace, _, err := loader.Namespace()
	return config, namespace, err
}

// check finds the mistakes for which client-go has no words, or none that name
// the value.
func (k KubeFile) check(loader clientcmd.ClientConfig) error {
	config, err := loader.RawConfig()
	if err != nil || clientcmdapi.IsConfigEmpty(&config) {
		return nil //nolint:nilerr // client-go reports it
	}
	name, what := k.Context, "context"
	if name == "" {
		name, what = config.CurrentContext, "current-context"
	}
	picking := "name a context that exists: " + k.Kubectl("kubectl config get-contexts") + " lists them"
	at, ok := config.Contexts[name]
	if !ok {
		return Problem(auth.ErrMisconfigured, picking, "the %s %.200q does not exist in the kubeconfig", what, name)
	}
	cluster, ok := config.Clusters[at.Cluster]
	switch {
	case !ok:
		return Problem(auth.ErrMisconfigured, "correct it, or "+picking,
			"the %s %.200q of the kubeconfig names the cluster %.200q, which does not exist", what, name, at.Cluster)
	case address.LacksBrackets(cluster.Server):
		return Problem(auth.ErrMisconfigured, "put the IPv6 address in brackets, as in https://[<address>]:<port>",
			"the kubeconfig's cluster %.200q has the server %.200q", at.Cluster, cluster.Server)
	}
	return nil
}

// Load reads the files once, since a pipe such as <(…) of the shell has no
// second time.
func (k KubeFile) Load() (clientcmd.ClientConfig, error) {
	rules, overrides := k.Rules(), &clientcmd.ConfigOverrides{CurrentContext: k.Context}
	config, err := rules.Load()
	switch {
	case err != nil:
		return nil, err
	case clientcmdapi.IsConfigEmpty(config): // the pod's own serves as well
		return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides), nil
	}
	return clientcmd.NewNonInteractiveClientConfig(*config, "", overrides, rules), nil
}

// BoundAnswers bounds size and waiting time of answers.
func BoundAnswers(config *rest.Config) {
	wrap(config, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		return patient(transport.BoundedTo(next, maxAnswer), r)
	})
}

// wrap changes how clients of a config send requests.
func wrap(config *rest.Config, send func(next http.RoundTripper, r *http.Request) (*http.Response, error)) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) { return send(next, r) })
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// patient removes a Retry-After that exceeds the deadline: client-go then
// returns the error of the server.
func patient(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	resp, err := next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	// Without it no client follows a redirect with the user's credentials.
	resp.Header.Del("Location")
	deadline, limited := r.Context().Deadline()
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	// client-go knows seconds only.
	if err == nil && limited && time.Until(deadline) < time.Duration(seconds)*time.Second+Grace {
		resp.Header.Del("Retry-After")
	}
	return resp, nil
}

// Current returns the name of the context, "" if it cannot be told. A pipe is
// not read twice.
func (k KubeFile) Current() string {
	isPipe := func(file string) bool { info, err := os.Stat(file); return err == nil && !info.Mode().IsRegular() }
	if k.Context != "" || slices.ContainsFunc(k.Rules().GetLoadingPrecedence(), isPipe) {
		return k.Context
	}
	raw, err := k.Rules().Load()
	if err != nil {
		return ""
	}
	return raw.CurrentContext
}

// Kubectl adds the kubeconfig and the context to a command of kubectl or of
// wid.
func (k KubeFile) Kubectl(command string) string {
	program, arguments, _ := strings.Cut(command, " ")
	if program != "kubectl" && program != "wid" || strings.HasPrefix(arguments, "--kubeconfig ") {
		return command
	}
	flags := ""
	if k.Path != "" {
		flags += " --kubeconfig " + shell.Word(k.Path, "KUBECONFIG")
	}
	if k.Context != "" && !strings.HasPrefix(arguments, "config ") {
		flags += " --context " + shell.Word(k.Context, "CONTEXT")
	}
	if program == "wid" {
		return command + flags
	}
	return program + flags + " " + arguments
}

// KubeconfigMistake leaves out texts that repeat an address, because a proxy's
// address may hold a password.
func KubeconfigMistake(err error) string {
	text := err.Error()
	var parsing *url.Error
	switch {
	case strings.Contains(text, "proxy-url"), strings.Contains(text, "could not parse"),
		strings.Contains(text, "unsupported scheme"):
		return "a proxy-url of the kubeconfig is malformed: it has to begin with http://, https:// or socks5://"
	case errors.As(err, &parsing):
		return "an address of the kubeconfig is malformed"
	}
	return OneLine(text)
}

// Clients watches the clients of kubeconfigs. Its methods are safe for
// concurrent use.
type Clients struct {
	mu        sync.Mutex
	secrets   []string // sent to API servers, since the error of a server may repeat them
	endRelays []func()
}

// Watch records the credentials of the config's clients, including credentials
// of plugins, and relays the output of exec plugins.
func (c *Clients) Watch(config *rest.Config, stderr io.Writer) error {
	wrap(config, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		c.note(r.Header.Get("Authorization"))
		return next.RoundTrip(r)
	})
	end, err := relay(config, stderr)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endRelays = append(c.endRelays, end)
	return err
}

// End waits for the output of exec plugins that have ended.
func (c *Clients) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, end := range c.endRelays {
		end()
	}
}

func (c *Clients) note(header string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, credential, found := strings.Cut(header, " ")
	if !found {
		credential = header
	}
	if credential == "" || slices.Contains(c.secrets, credential) {
		return
	}
	c.secrets = append(c.secrets, credential)
	if pair, err := base64.StdEncoding.DecodeString(credential); err == nil {
		_, password, _ := strings.Cut(string(pair), ":")
		c.secrets = append(c.secrets, password, string(pair))
	}
}

// Clean returns the text without these credentials.
func (c *Clients) Clean(text string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return redact.Clean(text, c.secrets...)
}
