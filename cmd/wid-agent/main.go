// Command wid-agent joins the managed cluster that it runs on to a hub, and
// keeps it joined.
//
//	go run ./cmd/wid-agent --cluster-name cluster1
//
// Copy main.go and agent.go.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/workloadid/workloadid"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	logTo(os.Stderr)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "wid-agent:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parseFlags(args, out)
	if err != nil {
		return err
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("%w: run the agent in a cluster, or set KUBECONFIG", err)
	}
	if config.Proxy == nil { // HTTPS_PROXY is for services outside the cluster
		config.Proxy = http.ProxyURL(nil)
	}
	return runAgent(ctx, config, o)
}

// logTo sends the logs of controller-runtime and client-go to a writer, as
// text.
func logTo(log io.Writer) {
	logger := logr.FromSlogHandler(slog.NewTextHandler(log, nil))
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
}

func parseFlags(args []string, out io.Writer) (o options, err error) {
	var auth string
	fs := pflag.NewFlagSet("wid-agent", pflag.ContinueOnError)
	fs.SetOutput(out)
	fs.StringVar(&o.cluster, "cluster-name", "", "name of this cluster on the hub, a DNS label; required")
	fs.StringVar(&auth, "registration-auth", registration.AuthTypeCSR, "auth type by which this cluster reaches the hub")
	fs.StringVar(&o.hubARN, "eks-hub-cluster-arn", "", "ARN of the hub; required for aws-irsa")
	fs.StringVar(&o.managedARN, "eks-managed-cluster-arn", "", "ARN of this cluster; required for aws-irsa")
	fs.StringVar(&o.addOnAuth, "addon-kubeclient-registration-auth", registration.AuthTypeCSR,
		"auth type by which add-ons reach the hub's API server, csr or token")
	fs.Int64Var(&o.addOnTokenSeconds, "addon-token-expiration-seconds", 0,
		"lifetime of add-on tokens that the auth type token asks for, in seconds; 0 for one year")
	fs.StringVar(&o.namespace, "namespace", agent.DefaultNamespace, "namespace of the agent and of its Secrets")
	fs.StringVar(&o.bootstrapSecret, "bootstrap-secret", agent.DefaultBootstrapSecret,
		"Secret with the hub's address and CA and the bootstrap credential")
	fs.BoolVar(&o.clusterStatus, "cluster-status", true,
		"report the capacity and the allocatable resources of nodes, and ClusterClaims, to the hub")
	fs.BoolVar(&o.leaderElect, "leader-elect", false, "elect a leader among several replicas")
	fs.StringVar(&o.metricsAddress, "metrics-bind-address", ":8080", "address of /metrics; 0 turns it off")
	version := fs.Bool("version", false, "print the version")
	fs.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081",
		"address of /healthz and /readyz; 0 turns them off")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if *version {
		_, err := fmt.Fprintln(out, "wid-agent version", workloadid.Version())
		return o, cmp.Or(err, pflag.ErrHelp) // there is nothing else to do
	}
	switch {
	case fs.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q: see --help", fs.Arg(0))
	case o.cluster == "":
		return o, errors.New("--cluster-name is missing: choose a DNS label that no other cluster of the hub has")
	}
	if err := registration.CheckClusterName(o.cluster); err != nil {
		return o, fmt.Errorf("--cluster-name: %w", err)
	}
	if auth == registration.AuthTypeToken {
		return o,
			errors.New(
				"--registration-auth: token registers add-ons only: use --addon-kubeclient-registration-auth=token, and another auth type for the cluster")
	}
	if _, err := newAddOnDriver(o, nil); err != nil {
		return o, err
	}
	kind, err := registration.Pick(authTypes(), auth)
	if err != nil {
		return o, fmt.Errorf("--registration-auth: %w", err)
	}
	o.driver, err = kind.make(o)
	return o, err
}
