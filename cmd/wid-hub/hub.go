package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/token"
)

const (
	name = "registration-hub"
	// namespace is the namespace of manifests.HubRBAC. It holds the Lease of
	// the leader.
	namespace = "open-cluster-management-hub"
	// bootstrapUser is the ServiceAccount of manifests.BootstrapRBAC.
	bootstrapUser = "system:serviceaccount:open-cluster-management:agent-registration-bootstrap"
	// workers bounds how many clusters, and how many add-ons, are reconciled at
	// a time. After a restart they make a few requests for each cluster that
	// needs a change, so the API server limits them.
	workers = 32
)

type options struct {
	auth                                              []authType
	addOnAuth                                         []addOnAuthType
	defaultAuth                                       string
	bootstrapUsers, bootstrapGroups, autoApproveUsers []string
	hubARN                                            string
	autoApproveARNs                                   []string
	ocmAgents, grantRelay, leaderElect                bool
	metricsAddress, probeAddress                      string
	unread                                            []string // flags of drivers that are not enabled
}

type authType struct {
	name string
	make func(context.Context, ctrl.Manager, options) (registration.HubDriver, error)
}

func (a authType) Name() string { return a.name }

// authTypes are those that --registration-auth knows. Add your own drivers
// here.
func authTypes() []authType {
	return []authType{{registration.AuthTypeCSR, newCSR}, {registration.AuthTypeAWS, newAWS}}
}

func (o options) has(name string) bool {
	return slices.ContainsFunc(o.auth, func(a authType) bool { return a.name == name })
}

// newAWS finds its login as AWS SDKs do. On EKS it uses the login of the hub's
// ServiceAccount. A hub that signs client certificates too is not on EKS, and
// has no access entries.
func newAWS(ctx context.Context, mgr ctrl.Manager, o options) (registration.HubDriver, error) {
	hub, err := awsirsa.ParseClusterARN(o.hubARN)
	if err != nil {
		return nil, fmt.Errorf("--eks-hub-cluster-arn: %w", err)
	}
	cfg, err := config.LoadDefaultConfig(ctx, config.WithRegion(hub.Region))
	if err != nil {
		return nil, err
	}
	binding := awsirsa.AccessEntries
	if o.has(registration.AuthTypeCSR) {
		binding = awsirsa.AWSAuth
	}
	return awsirsa.NewHubDriver(awsirsa.HubDriverOptions{Hub: o.hubARN, IAM: iam.NewFromConfig(cfg),
		EKS: eks.NewFromConfig(cfg), Client: mgr.GetClient(),
		Binding: binding, AutoApprove: o.autoApproveARNs, Events: mgr.GetEventRecorder(name), Registerer: metrics.Registry})
}

func newCSR(_ context.Context, mgr ctrl.Manager, o options) (registration.HubDriver, error) {
	return csr.NewHubDriver(csr.HubDriverOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(),
		Events:         mgr.GetEventRecorder(name),
		BootstrapUsers: o.bootstrapUsers, BootstrapGroups: o.bootstrapGroups, AutoApproveUsers: o.autoApproveUsers})
}

type addOnAuthType struct {
	name  string
	setUp func(ctrl.Manager) error
}

func (a addOnAuthType) Name() string { return a.name }

// addOnAuthTypes are those that --addon-registration-auth knows. Clusters of
// any auth type may use them.
func addOnAuthTypes() []addOnAuthType {
	tokens := func(mgr ctrl.Manager) error { return setUpTokens(mgr, false) }
	return []addOnAuthType{{registration.AuthTypeCSR, setUpAddOnCSR}, {registration.AuthTypeToken, tokens}}
}

func setUpAddOnCSR(mgr ctrl.Manager) error {
	approver,
		err := csr.NewAddOnApprover(csr.AddOnApproverOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(),
		Events: mgr.GetEventRecorder(name)})
	if err != nil {
		return err
	}
	return approver.SetupWithManager(mgr)
}

// setUpTokens may set up the revocation alone.
func setUpTokens(mgr ctrl.Manager, removeOnly bool) error {
	tokens,
		err := token.NewHub(token.HubOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(),
		Events: mgr.GetEventRecorder(name), RemoveOnly: removeOnly})
	if err != nil {
		return err
	}
	return tokens.SetupWithManager(mgr, workers)
}

// revokeAddOnTokens revokes the tokens that an earlier run of this program let
// add-ons have. Without manifests.TokenRBAC there were none.
func revokeAddOnTokens(ctx context.Context, mgr ctrl.Manager) error {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Resource: "serviceaccounts", Verb: "delete"}}}
	if err := mgr.GetClient().Create(ctx, review); err != nil || !review.Status.Allowed {
		return err
	}
	return setUpTokens(mgr, true)
}

// setUpAddOns asks the hub once whether it serves add-ons. Clusters register
// without them too.
func setUpAddOns(ctx context.Context, mgr ctrl.Manager, o options) error {
	_,
		err := mgr.GetRESTMapper().RESTMapping(schema.GroupKind{Group: addon.GroupVersion.Group, Kind: "ManagedClusterAddOn"})
	if meta.IsNoMatchError(err) {
		if len(o.addOnAuth) > 0 {
			mgr.GetLogger().Info(
				"The hub serves no ManagedClusterAddOns, so no add-ons are registered. Apply addon.CRD, then restart this program.")
		}
		return revokeAddOnTokens(ctx, mgr)
	}
	if err != nil {
		return err
	}
	for _, a := range o.addOnAuth {
		if err := a.setUp(mgr); err != nil {
			return fmt.Errorf("set up add-ons with %s: %w", a.name, err)
		}
	}
	if !slices.ContainsFunc(o.addOnAuth, func(a addOnAuthType) bool { return a.name == registration.AuthTypeToken }) {
		return revokeAddOnTokens(ctx, mgr)
	}
	return nil
}

// runHub runs until ctx ends, then lets running reconciles finish and gives up
// the Lease.
func runHub(ctx context.Context, kube *rest.Config, o options) error {
	for _, flag := range o.unread { // an upgrade does not stop a hub that runs
		ctrl.Log.Info("The flag has no effect without the auth type csr. Add csr to --registration-auth, or remove the flag.",
			"flag", flag)
	}
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(kube, ctrl.Options{
		Scheme: scheme,
		Cache:  hub.CacheOptions(),
		// aws-auth
		Client: client.Options{
			Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.ConfigMap{}}}},
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              name,
		LeaderElectionNamespace:       namespace,
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
	drivers := make([]registration.HubDriver, len(o.auth))
	for i, a := range o.auth {
		if drivers[i], err = a.make(ctx, mgr, o); err != nil {
			return err
		}
	}
	hub,
		err := hub.New(hub.Options{Client: mgr.GetClient(), Drivers: drivers, Default: o.defaultAuth, OCMAgents: o.ocmAgents,
		Relay:    o.grantRelay,
		Recorder: mgr.GetEventRecorder(name), Registerer: metrics.Registry})
	if err != nil {
		return err
	}
	if err := errors.Join(hub.SetupWithManager(mgr, workers), setUpAddOns(ctx, mgr, o)); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(clientgoscheme.AddToScheme(scheme), ocm.AddToScheme(scheme), addon.AddToScheme(scheme))
}
