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
	case !fromBootstrapUser(request):
		return "denied", request.Deny(ctx, hub, "the requester has no bootstrap token")
	case slices.ContainsFunc(waiting, func(other *csr.Request) bool {
		return other.Cluster == request.Cluster && other.Identity != request.Identity && fromBootstrapUser(other)
	}):
		return "left: another agent asks too, so a person decides", nil
	}
	if replaces, err := request.Replaces(ctx, hub); err != nil || replaces != "" {
		return "left: the cluster has the agent " + replaces, err
	}
	if reason, err := accept(ctx, hub, request.Cluster); err != nil || reason != "" {
		return "left: " + reason, err
	}
	err = request.Approve(ctx, hub, "the cluster is in the inventory")
	if apierrors.IsConflict(err) { // the hub approves it too, once the cluster is accepted
		return "left: decided by the hub or another administrator", nil
	}
	return "approved", err
}

func fromBootstrapUser(request *csr.Request) bool {
	return slices.Contains(request.Object.Spec.Groups, registration.BootstrapGroup)
}

// accept lets a cluster in that is new and registers by certificate, or says
// why it does not. It fails if the cluster changes meanwhile.
func accept(ctx context.Context, hub client.Client, name string) (reason string, err error) {
	cluster := &ocm.ManagedCluster{}
	if err := hub.Get(ctx, client.ObjectKey{Name: name}, cluster); err != nil {
		return "", err
	}
	role, err := registration.GetClusterRole(ctx, hub, name)
	if err != nil {
		return "", err
	}
	switch state := registration.StateOf(cluster, role, registration.Claim{}); {
	case state.Stage != registration.StagePending:
		return "the cluster is " + string(state.Stage), nil
	case state.Claim.AuthType == "":
		return "the hub has not read the claim of the cluster yet", nil
	case state.Claim.AuthType != registration.AuthTypeCSR:
		return "the cluster claims " + state.Claim.String(), nil
	}
	before := cluster.DeepCopy()
	cluster.Spec.HubAcceptsClient = true
	return "", hub.Patch(ctx, cluster, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}
