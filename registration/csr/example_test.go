package csr_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
)

// A hub operator decides about the requests that wait by a policy of its own.
// examples/approve accepts the clusters too.
func ExampleList() {
	ctx, hub, inventory := context.Background(), hubWith("shop", "stranger"), []string{"shop"}
	requests, err := csr.List(ctx, hub, "", func(r *csr.Request) bool { return r.IsPending() && !r.IsRenewal() })
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, request := range requests {
		if slices.Contains(inventory, request.Cluster) &&
			slices.Contains(request.Object.Spec.Groups, registration.BootstrapGroup) {
			err = request.Approve(ctx, hub, "the cluster is in the inventory")
		} else {
			err = request.Deny(ctx, hub, "the cluster is not in the inventory")
		}
		fmt.Println(request.Cluster, request.Agent, err)
	}
	// Output:
	// shop agent1 <nil>
	// stranger agent1 <nil>
}

// hubWith returns a hub where the agent of each cluster has asked.
func hubWith(clusters ...string) client.Client {
	scheme := runtime.NewScheme()
	must(certificatesv1.AddToScheme(scheme))
	must(rbacv1.AddToScheme(scheme))
	hub, agent := fake.NewClientBuilder().WithScheme(scheme).Build(), csr.New(csr.Options{})
	for _, cluster := range clusters {
		in := registration.Input{Now: time.Now(), Cluster: cluster, Agent: "agent1", Hub: hub}
		key, err := agent.Next(context.Background(), in)
		must(err)
		in.State = key.State
		_, err = agent.Next(context.Background(), in)
		must(err)
	}
	return hub
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
