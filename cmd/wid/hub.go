package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/kubeerror"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/token"
)

func newHub() *cobra.Command {
	return group("hub", "Set up a hub, and decide which clusters join it (Open Cluster Management)",
		newHubInit(), newHubAccept(), newHubDeny(), newHubStatus(), newHubPolicies(), newHubCleanup())
}

// bindKubeFile adds --kubeconfig and --context.
func bindKubeFile(f *pflag.FlagSet, k *kubeFile, of string) {
	f.StringVar(&k.path, "kubeconfig", "", "kubeconfig of "+of+"; KUBECONFIG and ~/.kube/config otherwise")
	f.StringVar(&k.context, "context", "", "context of the kubeconfig")
}

// side is the hub or the managed cluster, as a command reaches it.
type side struct {
	cluster
	timeout time.Duration
}

// command returns a command whose work ends in time.
func (s *side) command(cmd *cobra.Command, of string, work func(ctx context.Context, cmd *cobra.Command) error) *cobra.Command {
	bindKubeFile(cmd.Flags(), &s.kubeFile, of)
	cmd.Flags().DurationVar(&s.timeout, "timeout", 5*time.Minute, "time for everything together")
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if s.timeout <= 0 {
			return usagef("--timeout is more than 0, not %s", s.timeout)
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), s.timeout)
		defer cancel()
		_, err := within(ctx, func(ctx context.Context) ([]byte, error) { return nil, work(ctx, cmd) })
		return err
	}
	return cmd
}

// connect reads the kubeconfig. It makes no request.
func (s *side) connect() (client.Client, *rest.Config, error) {
	config, err := s.config()
	if err != nil {
		return nil, nil, err
	}
	c, err := newRegistrationClient(config)
	return c, config, err
}

func newRegistrationClient(config *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), ocm.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.UserAgent, config.QPS = "wid", -1 // a few requests that a person waits for
	c, err := client.New(config, client.Options{Scheme: scheme})
	return c, answerOf(err, "connect to "+config.Host)
}

// answerOf classifies the error of an API server, and says what to do about it.
func answerOf(err error, operation string) error {
	var known *auth.Error
	var usage *usageError
	if err == nil || errors.As(err, &known) || errors.As(err, &usage) {
		return err
	}
	e := &auth.Error{Operation: operation, Err: err, Message: oneLine(kubeerror.Message(err))}
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

// agentDriver and hubDrivers know the auth types of this program.
func agentDriver(authType string, arns *clusterARNs) (registration.Driver, error) {
	if err := checkAuthType(authType); err != nil {
		return nil, err
	}
	if err := arns.check(authType); err != nil {
		return nil, err
	}
	if authType == authTypeAWS {
		return arns.driver()
	}
	return csr.New(csr.Options{}), nil
}

func checkAuthType(authType string) error {
	if authType == registration.AuthTypeToken {
		return usagef("--registration-auth: token registers add-ons only: use --addon-registration-auth=token in wid hub init, --%s=token in wid join", addOnAuthFlag)
	}
	if _, err := registration.Pick([]namedDriver{csr.New(csr.Options{}), awsClaims{}}, authType); err != nil {
		return usagef("--registration-auth: %v", err)
	}
	return nil
}

// Flags of the agent for add-ons.
const (
	addOnAuthFlag    = "addon-kubeclient-registration-auth"
	addOnSecondsFlag = "addon-token-expiration-seconds"
)

// checkAddOns judges auth types of add-ons that a flag names, and the lifetime of tokens.
func checkAddOns(flag string, seconds int64, authTypes ...string) error {
	tokens, err := token.New(token.Options{ExpirationSeconds: seconds})
	if err != nil {
		return usagef("--%s: %v", addOnSecondsFlag, err)
	}
	for _, authType := range authTypes {
		if _, err := registration.Pick([]namedDriver{csr.New(csr.Options{}), tokens}, authType); err != nil {
			return usagef("--%s: %v", flag, err)
		}
	}
	return nil
}

type namedDriver interface{ Name() string }

// claimReader is the part of a registration.HubDriver that needs no login.
type claimReader interface {
	namedDriver
	Claim(cluster *ocm.ManagedCluster) (claim string, ok bool, err error)
}

func hubDrivers(c client.Client) ([]claimReader, error) {
	driver, err := csr.NewHub(csr.HubOptions{Client: c})
	return []claimReader{driver, awsClaims{}}, err
}

// checkClusters judges --clusters.
func checkClusters(names []string) error {
	if len(names) == 0 {
		return usagef("name the clusters with --clusters, as a,b")
	}
	for _, name := range names {
		if err := registration.CheckClusterName(name); err != nil {
			return usagef("--clusters: %v", err)
		}
	}
	return nil
}

const pollInterval = 250 * time.Millisecond

// await polls until done, or until the time is up. done says what it waits for.
func await(ctx context.Context, cmd *cobra.Command, done func() (waitingFor string, err error)) error {
	said := ""
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		waitingFor, err := done()
		switch {
		case said != "" && ctx.Err() != nil:
			return &auth.Error{Reason: auth.ErrUnavailable, Err: ctx.Err(), Message: "gave up waiting " + said,
				Remedy: "mend that, or give it more time with --timeout"}
		case err != nil || waitingFor == "":
			return err
		case waitingFor != said:
			cmd.PrintErrln("wid: waiting", waitingFor)
			said = waitingFor
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}
