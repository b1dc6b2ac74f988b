package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/token"
)

const (
	name = "registration-agent"
	// workers is how many add-ons are registered at a time.
	workers = 8
)

type options struct {
	cluster, namespace, bootstrapSecret string
	hubARN, managedARN                  string
	driver                              registration.Driver
	addOnAuth                           string
	addOnTokenSeconds                   int64
	clusterStatus, leaderElect          bool
	metricsAddress, probeAddress        string
}

type authType struct {
	name string
	make func(options) (registration.Driver, error)
}

func (a authType) Name() string { return a.name }

// authTypes are those that --registration-auth knows. Add your own drivers
// here.
func authTypes() []authType {
	return []authType{{registration.AuthTypeCSR, newCSR}, {registration.AuthTypeAWS, newAWS}}
}

func newCSR(o options) (registration.Driver, error) {
	if o.hubARN != "" || o.managedARN != "" {
		return nil,
			errors.New(
				"--eks-hub-cluster-arn and --eks-managed-cluster-arn are for --registration-auth=aws-irsa: pass that, or leave them out")
	}
	return csr.New(csr.Options{}), nil
}

// newAddOnDriver makes the driver that --addon-kubeclient-registration-auth
// names. Add your own drivers here.
func newAddOnDriver(o options, r prometheus.Registerer) (registration.Driver, error) {
	tokens, err := token.New(token.Options{ExpirationSeconds: o.addOnTokenSeconds, Registerer: r})
	if err != nil {
		return nil, fmt.Errorf("--addon-token-expiration-seconds: %w", err)
	}
	driver, err := registration.Pick([]registration.Driver{csr.New(csr.Options{}), tokens}, o.addOnAuth)
	if err != nil {
		return nil, fmt.Errorf("--addon-kubeclient-registration-auth: %w", err)
	}
	return driver, nil
}

// newAWS makes a driver that finds its login as AWS SDKs do. On EKS it uses the
// login of the agent's ServiceAccount.
func newAWS(o options) (registration.Driver, error) {
	switch {
	case o.hubARN == "":
		return nil, errors.New("--eks-hub-cluster-arn is missing: aws-irsa needs the ARN of the hub")
	case o.managedARN == "":
		return nil, errors.New("--eks-managed-cluster-arn is missing: aws-irsa needs the ARN of this cluster")
	}
	return awsirsa.New(awsirsa.Options{Hub: o.hubARN, Managed: o.managedARN, Connect: connect, Refused: isDenied})
}

// connect reaches the hub as its role for this cluster, by the login that AWS
// SDKs find.
func connect(ctx context.Context, hub awsirsa.HubAccess) (*rest.Config, error) {
	return auth.GetClusterConfig(ctx, &aws.Provider{}, auth.WithClusterResource(hub.Cluster),
		auth.WithClusterAddress(hub.Server),
		auth.WithCAData(string(hub.CAData)), aws.WithAssumeRole(aws.AssumeRole{RoleARN: hub.RoleARN}))
}

func isDenied(err error) bool { return errors.Is(err, auth.ErrDenied) }

// runAgent runs until ctx ends, then lets the running reconcile finish and
// gives up the Lease.
func runAgent(ctx context.Context, config *rest.Config, o options) error {
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              name,
		LeaderElectionNamespace:       o.namespace,
		LeaderElectionReleaseOnCancel: true, // the program exits when Start returns
		Metrics:                       metricsserver.Options{BindAddress: o.metricsAddress},
		HealthProbeBindAddress:        o.probeAddress,
	})
	if err != nil {
		return err
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("ping", healthz.Ping)); err != nil {
		return err
	}
	// Without a cache, which would need the right to list all Secrets.
	local, err := client.New(config, client.Options{HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return err
	}
	version, err := versionOf(config)
	if err != nil {
		return err
	}
	joined, err := agent.New(agent.Options{Cluster: o.cluster, Driver: o.driver, Local: local,
		Namespace: o.namespace, BootstrapSecret: o.bootstrapSecret, Version: version,
		ClusterStatus: o.clusterStatus,
		Recorder:      mgr.GetEventRecorder(name), Registerer: metrics.Registry})
	if err != nil {
		return err
	}
	if err := joined.SetupWithManager(mgr); err != nil {
		return err
	}
	if err := setUpAddOns(mgr, joined, o); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func setUpAddOns(mgr ctrl.Manager, joined *agent.Agent, o options) error {
	driver, err := newAddOnDriver(o, metrics.Registry)
	if err != nil {
		return err
	}
	addOns,
		err := agent.NewAddOns(agent.AddOnOptions{Agent: joined, KubeClient: driver, CustomSigner: csr.New(csr.Options{})})
	if err != nil {
		return err
	}
	return addOns.SetupWithManager(mgr, workers)
}

func versionOf(config *rest.Config) (func(context.Context) (string, error), error) {
	server, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	return func(context.Context) (string, error) {
		info, err := server.ServerVersion() // ends after the discovery client's timeout of 32 s
		if err != nil {
			return "", err
		}
		return info.GitVersion, nil
	}, nil
}
