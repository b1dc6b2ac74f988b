// Command wid-hub accepts managed clusters and grants them access to the hub
// that it runs on. Its subcommand relay serves agents without a route to the
// hub.
//
//	go run ./cmd/wid-hub --registration-auth csr
//
// Copy main.go, hub.go and relay.go. examples/registration shows a whole join
// with nothing to set up.
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
	"slices"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/workloadid/workloadid"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/awsirsa"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "wid-hub:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, log io.Writer) error {
	if len(args) > 0 && args[0] == "relay" {
		o, err := parseRelayFlags(args[1:], out)
		return runAs(ctx, log, err, func(ctx context.Context, hub *rest.Config) error { return runRelay(ctx, hub, o) })
	}
	o, err := parseFlags(args, out)
	return runAs(ctx, log, err, func(ctx context.Context, hub *rest.Config) error { return runHub(ctx, hub, o) })
}

// runAs runs a program as its user of the hub.
func runAs(ctx context.Context, log io.Writer, err error, program func(context.Context, *rest.Config) error) error {
	if err != nil {
		return err
	}
	logTo(log)
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("%w: run the program in a cluster, or set KUBECONFIG", err)
	}
	if config.Insecure { // the package refuses it too, after a manager has asked for the kinds that it caches
		return fmt.Errorf("insecure-skip-tls-verify is set for the API server %q: set certificate-authority-data instead",
			config.Host)
	}
	if config.Proxy == nil { // HTTPS_PROXY is for services outside the cluster
		config.Proxy = http.ProxyURL(nil)
	}
	return program(ctx, config)
}

// logTo sends the logs of controller-runtime and client-go to a writer, as
// text.
func logTo(log io.Writer) {
	logger := logr.FromSlogHandler(slog.NewTextHandler(log, nil))
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
}

func parseFlags(args []string, out io.Writer) (o options, err error) {
	var auth, addOnAuth []string
	fs := pflag.NewFlagSet("wid-hub", pflag.ContinueOnError)
	fs.SetOutput(out)
	fs.Usage = func() {
		_,
			_ = fmt.Fprintf(out,
			"Accept managed clusters and grant them access to the hub. wid-hub relay --help describes the relay.\n\nUsage of wid-hub:\n%s", fs.FlagUsages())
	}
	fs.StringSliceVar(&auth, "registration-auth", []string{registration.AuthTypeCSR},
		"auth type that clusters may use; may be repeated")
	fs.StringVar(&o.defaultAuth, "default-registration-auth", registration.AuthTypeCSR,
		"auth type of clusters that name none, if it is enabled; empty refuses them")
	fs.StringSliceVar(&addOnAuth, "addon-registration-auth", []string{registration.AuthTypeCSR},
		"auth types of add-ons, of csr and token; may be repeated; csr only by default, and none if clusters use aws-irsa alone")
	fs.StringArrayVar(&o.bootstrapUsers, "bootstrap-user", []string{bootstrapUser},
		"user who may ask for a cluster's first certificate; may be repeated")
	fs.StringArrayVar(&o.bootstrapGroups, "bootstrap-group", []string{registration.BootstrapGroup},
		"group of such users; may be repeated")
	fs.StringArrayVar(&o.autoApproveUsers, "auto-approve-user", nil,
		"bootstrap user whose clusters are accepted without a person; may be repeated")
	fs.StringVar(&o.hubARN, "eks-hub-cluster-arn", "", "ARN of this hub; required for aws-irsa")
	fs.StringArrayVar(&o.autoApproveARNs, "auto-approve-arn", nil,
		"pattern of ARNs of EKS clusters that are accepted without a person, with * and ?; may be repeated")
	fs.BoolVar(&o.ocmAgents, "ocm-agents", false,
		"grant clusters what agents of Open Cluster Management need, among it to see the requests of all others; needs the RBAC of wid hub init --ocm-agents")
	fs.BoolVar(&o.grantRelay, "grant-relay", false,
		"let the relay act as the agents of accepted clusters, and as no other user; needs the RBAC of wid hub init --relay and Kubernetes 1.36")
	fs.BoolVar(&o.leaderElect, "leader-elect", false, "elect a leader among several replicas")
	fs.StringVar(&o.metricsAddress, "metrics-bind-address", ":8080", "address of /metrics; 0 turns it off")
	version := fs.Bool("version", false, "print the version")
	fs.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081",
		"address of /healthz and /readyz; 0 turns them off")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if *version {
		_, err := fmt.Fprintln(out, "wid-hub version", workloadid.Version())
		return o, cmp.Or(err, pflag.ErrHelp) // there is nothing else to do
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q: see --help", fs.Arg(0))
	}
	if err := o.setAuth(fs, auth, addOnAuth); err != nil {
		return o, err
	}
	if !o.has(registration.AuthTypeCSR) {
		for _, name := range []string{"auto-approve-user", "bootstrap-user", "bootstrap-group"} {
			if f := fs.Lookup(name); f.Value.String() != f.DefValue {
				o.unread = append(o.unread, "--"+name)
			}
		}
	}
	return o, nil
}

// setAuth picks the auth types, and finds mistakes before the hub starts.
func (o *options) setAuth(fs *pflag.FlagSet, auth, addOnAuth []string) (err error) {
	if slices.Contains(auth, registration.AuthTypeToken) {
		return errors.New(
			"--registration-auth: token registers add-ons only: use --addon-registration-auth=token, and another auth type for clusters")
	}
	if o.auth, err = pick(authTypes(), auth, "registration-auth"); err != nil {
		return err
	}
	if !fs.Changed("addon-registration-auth") && !o.has(registration.AuthTypeCSR) {
		addOnAuth = nil
	}
	if o.addOnAuth, err = pick(addOnAuthTypes(), addOnAuth, "addon-registration-auth"); err != nil {
		return err
	}
	if err := o.checkAWS(); err != nil {
		return err
	}
	if !fs.Changed("default-registration-auth") && !o.has(o.defaultAuth) {
		o.defaultAuth = ""
	}
	if o.defaultAuth != "" {
		if _, err := registration.Pick(o.auth, o.defaultAuth); err != nil {
			return fmt.Errorf("--default-registration-auth: %w", err)
		}
	}
	return nil
}

func pick[D interface{ Name() string }](known []D, names []string, flag string) (picked []D, err error) {
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		d, err := registration.Pick(known, name)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
		}
		picked = append(picked, d)
	}
	return picked, nil
}

func (o options) checkAWS() error {
	switch _, err := awsirsa.ParseClusterARN(o.hubARN); {
	case !o.has(registration.AuthTypeAWS) && (o.hubARN != "" || len(o.autoApproveARNs) > 0):
		return errors.New(
			"--eks-hub-cluster-arn and --auto-approve-arn are for --registration-auth=aws-irsa: pass that, or leave them out")
	case !o.has(registration.AuthTypeAWS):
		return nil
	case o.hubARN == "":
		return errors.New("--eks-hub-cluster-arn is missing: aws-irsa needs the ARN of this hub")
	case err != nil:
		return fmt.Errorf("--eks-hub-cluster-arn: %w", err)
	}
	return nil
}
