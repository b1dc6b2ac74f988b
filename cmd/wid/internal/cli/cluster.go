package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/kubeerror"
	"github.com/workloadid/workloadid/internal/pages"
	"github.com/workloadid/workloadid/registration/ocm"
)

// Side is the hub or the managed cluster, as a command reaches it.
type Side struct {
	KubeFile
	Timeout time.Duration
	// Notices receives a line for a request that takes long. Nil: none.
	Notices io.Writer
}

// Config is for clients of the cluster. It also returns the namespace of the context.
func (s *Side) Config() (*rest.Config, string, error) {
	config, namespace, err := s.config(pages.MaxBytes)
	if err != nil {
		return nil, "", Problem(auth.ErrMisconfigured, "pass --kubeconfig, or set KUBECONFIG", "cannot read the kubeconfig: %s", KubeconfigMistake(err))
	}
	Announce(config, s.Notices)
	return config, namespace, err
}

// Connect makes no request.
func (s *Side) Connect() (client.Client, *rest.Config, error) {
	config, _, err := s.Config()
	if err != nil {
		return nil, nil, err
	}
	c, err := NewRegistrationClient(config)
	return c, config, err
}

// Info describes the cluster for other machines. A server that is not empty replaces the address. flag is the name of its flag.
func Info(config *rest.Config, server, flag string) (*bootstrap.ClusterInfo, error) {
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, Usagef("the kubeconfig cannot be used: %s", KubeconfigMistake(err))
	}
	info := &bootstrap.ClusterInfo{Server: cmp.Or(server, config.Host), CAData: config.CAData, TLSServerName: config.ServerName}
	if _, err := info.Encode(); err != nil {
		return nil, Usagef("--%s: %v", flag, err)
	}
	return info, nil
}

// Command returns a command whose work ends in time.
func (s *Side) Command(cmd *cobra.Command, of string, work func(ctx context.Context, cmd *cobra.Command) error) *cobra.Command {
	s.Bind(cmd.Flags(), of)
	cmd.Flags().DurationVar(&s.Timeout, "timeout", 5*time.Minute, "time for everything together")
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if s.Timeout <= 0 {
			return Usagef("--timeout is more than 0, not %s", s.Timeout)
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), s.Timeout)
		defer cancel()
		s.Notices = cmd.ErrOrStderr()
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
	var known *auth.Error
	var usage *UsageError
	if err == nil || errors.As(err, &known) || errors.As(err, &usage) {
		return err
	}
	e := &auth.Error{Operation: operation, Err: err, Message: OneLine(kubeerror.Message(err))}
	switch status := apierrors.APIStatus(nil); {
	case meta.IsNoMatchError(err) || errors.As(err, new(*meta.NoKindMatchError)):
		e.Reason, e.Remedy = auth.ErrMisconfigured, "prepare the hub with wid hub init --apply, or pick another cluster with --context"
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
		e.Reason, e.Remedy = auth.ErrUnavailable, "check the address of the cluster and the network, and try kubectl version with the same kubeconfig"
	}
	return e
}

// WarnOfLoopback warns of addresses of kind or of a tunnel, which other machines cannot reach.
func WarnOfLoopback(cmd *cobra.Command, server, flag string) {
	u, err := url.Parse(server)
	if err != nil {
		return
	}
	if ip := net.ParseIP(u.Hostname()); u.Hostname() == "localhost" || ip.IsLoopback() {
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

// NewRegistrationClient returns a client that knows the kinds of a hub and of a managed cluster.
func NewRegistrationClient(config *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), ocm.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.UserAgent, config.QPS = "wid", -1 // a few requests that a person waits for
	c, err := client.New(config, client.Options{Scheme: scheme})
	return c, AnswerOf(err, "connect to "+config.Host)
}
