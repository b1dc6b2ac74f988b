// Package registration joins managed clusters to a hub, with the objects of Open Cluster Management. It holds the contract of drivers.
// Package agent holds the reconcilers of the managed cluster and its add-ons, package hub the reconciler of the hub. Package manifests
// installs both programs.
//
// A hub, and an agent that joins it:
//
//	import (
//		"context"
//		"errors"
//
//		"k8s.io/apimachinery/pkg/runtime"
//		clientgoscheme "k8s.io/client-go/kubernetes/scheme"
//		"k8s.io/client-go/rest"
//		ctrl "sigs.k8s.io/controller-runtime"
//		"sigs.k8s.io/controller-runtime/pkg/client"
//
//		"github.com/workloadid/workloadid/registration"
//		"github.com/workloadid/workloadid/registration/agent"
//		"github.com/workloadid/workloadid/registration/csr"
//		"github.com/workloadid/workloadid/registration/hub"
//		"github.com/workloadid/workloadid/registration/ocm"
//	)
//
//	// runHub registers clusters by client certificate until ctx ends. Its ServiceAccount is in manifests.HubRBAC.
//	func runHub(ctx context.Context, config *rest.Config) error {
//		scheme := runtime.NewScheme()
//		if err := errors.Join(clientgoscheme.AddToScheme(scheme), ocm.AddToScheme(scheme)); err != nil {
//			return err
//		}
//		mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme, Cache: hub.CacheOptions()})
//		if err != nil {
//			return err
//		}
//		driver, err := csr.NewHubDriver(csr.HubDriverOptions{
//			Client:          mgr.GetClient(),
//			Reader:          mgr.GetAPIReader(),
//			BootstrapGroups: []string{registration.BootstrapGroup},
//		})
//		if err != nil {
//			return err
//		}
//		clusters, err := hub.New(hub.Options{
//			Client:  mgr.GetClient(),
//			Drivers: []registration.HubDriver{driver},
//			Default: driver.Name(),
//		})
//		if err != nil {
//			return err
//		}
//		if err := clusters.SetupWithManager(mgr, 8); err != nil {
//			return err
//		}
//		return mgr.Start(ctx)
//	}
//
//	// runAgent joins a cluster until ctx ends. Its ServiceAccount is in manifests.AgentRBAC. The Secret bootstrap-hub-kubeconfig
//	// holds the address of the hub and a bootstrap credential.
//	func runAgent(ctx context.Context, config *rest.Config, cluster string) error {
//		mgr, err := ctrl.NewManager(config, ctrl.Options{})
//		if err != nil {
//			return err
//		}
//		local, err := client.New(config, client.Options{HTTPClient: mgr.GetHTTPClient()}) // no cache: it would watch all Secrets
//		if err != nil {
//			return err
//		}
//		joining, err := agent.New(agent.Options{Cluster: cluster, Local: local, Driver: csr.New(csr.Options{})})
//		if err != nil {
//			return err
//		}
//		if err := joining.SetupWithManager(mgr); err != nil {
//			return err
//		}
//		return mgr.Start(ctx)
//	}
//
// manifests.BootstrapRBAC on the hub gives bootstrap users their rights. The command wid hub init installs a hub, wid join installs an agent, and wid
// hub accept accepts its cluster.
//
// # Flow
//
// The agent on the managed cluster first uses a bootstrap credential, which can do little more than create a ManagedCluster. An
// administrator of the hub accepts the cluster. The hub then grants a namespace and RBAC, and the agent's driver gets a credential of the
// cluster's own. It is a client certificate (package csr) or an AWS IAM role (package awsirsa).
//
// agent.AddOns then registers the cluster's add-ons, by client certificate or by ServiceAccount token (package token).
//
//	managed cluster                                   hub
//	agent.Agent ── bootstrap credential ──▶ ManagedCluster ◀── wid hub accept
//	  │                                        │
//	Driver ── request, own identity ──▶     HubDriver: Claim, Approves, Grant, Revoke
//	  │                                        │
//	Secret hub-kubeconfig-secret            hub.Hub: namespace, RBAC, conditions, finalizer
//
// # Trust
//
// The hub believes no claim of a cluster until an administrator, or the driver's own configuration, accepts it. The hub then records the
// claim where the agent cannot write, and revokes by that record.
//
// # Rules for drivers
//
// A driver has two halves. Driver runs in the agent, and HubDriver runs in the hub.
//
//   - A credential authenticates as a member of one of the [ClusterGroups], or Grant binds its user itself. The admission policies treat
//     every other user as a bootstrap user, which cannot change an accepted cluster.
//   - Next returns a new key in Step.State, and uses it once Input.State holds it. A restart then repeats no request.
//   - Next bounds renewals by the time since the last answer too. A wrong clock must not cause a loop of requests.
//   - Claim is pure. Grant and Revoke get the recorded claim, are idempotent, and touch only objects with the driver's labels or tags.
//   - A new name is a new auth type. Users pick a driver by its name, and an unknown name is an error.
package registration
