package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
)

// approve decides about the first requests that wait at the hub. One failure
// does not keep the others waiting.
func approve(ctx context.Context, hub client.Client, inventory []string, out io.Writer) error {
	waiting, err := csr.List(ctx, hub, "", func(r *csr.Request) bool { return r.IsPending() && !r.IsRenewal() })
	failures := []error{err}
	for _, request := range waiting {
		verdict, err := decide(ctx, hub, inventory, waiting, request)
		if err == nil {
			_, err = fmt.Fprintf(out, "cluster %s, agent %s: %s\n", request.Cluster, request.Agent, verdict)
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// decide is the policy.
func decide(ctx context.Context, hub client.Client, inventory []string, waiting []*csr.Request,
	request *csr.Request) (verdict string, err error) {
	switch {
	case !slices.Contains(inventory, request.Cluster):
		return "denied", request.Deny(ctx, hub, "the cluster is not in the inventory")
	case !slices.Contains(request.Object.Spec.Groups, registration.BootstrapGroup):
		return "denied", request.Deny(ctx, hub, "the requester has no bootstrap token")
	case slices.ContainsFunc(waiting, func(other *csr.Request) bool {
		return other.Cluster == request.Cluster && other.Identity != request.Identity
	}):
		return "left: another agent asks too, so a person decides", nil
	}
	if replaces, err := request.Replaces(ctx, hub); err != nil || replaces != "" {
		return "left: the cluster has the agent " + replaces, err
	}
	if err := accept(ctx, hub, request.Cluster); err != nil {
		return "", err
	}
	err = request.Approve(ctx, hub, "the cluster is in the inventory")
	if apierrors.IsConflict(err) { // the hub approved it, as it may once the cluster is accepted
		err = nil
	}
	return "approved", err
}

// accept lets a cluster in. It fails if the cluster changes meanwhile. On a hub
// with other drivers than csr, check the claim of the cluster before.
func accept(ctx context.Context, hub client.Client, name string) error {
	cluster := &ocm.ManagedCluster{}
	if err := hub.Get(ctx, client.ObjectKey{Name: name}, cluster); err != nil {
		return err
	}
	before := cluster.DeepCopy()
	cluster.Spec.HubAcceptsClient = true
	return hub.Patch(ctx, cluster, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}
