package hubcmd

import (
	"context"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/install"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/manifests"
	"github.com/workloadid/workloadid/registration/ocm"
)

// leaderLease is the one object that the hub program creates beside the objects
// of clusters.
const leaderLease = "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {namespace: " + ocm.HubNamespace +
	", name: registration-hub}\n"

// uninstall removes what init applies with any flags. A hub of Open Cluster
// Management on the same cluster can go on.
func (h *hubInit) uninstall(ctx context.Context, cmd *cobra.Command) error {
	if h.Apply {
		return cli.Usagef("--uninstall and --apply exclude each other")
	}
	c, _, err := h.Connect()
	if err != nil {
		return err
	}
	printed,
		err := manifests.Hub(manifests.HubOptions{Image: "any", CleanupImage: "any",
		AuthTypes:      []string{registration.AuthTypeCSR},
		AddOnAuthTypes: []string{registration.AuthTypeToken}, OCMAgents: true, Relay: manifests.RelayConstrained})
	if err != nil {
		return err
	}
	objects, err := manifests.Parse(leaderLease, awsirsa.AWSAuthRBAC(), manifests.RelayLegacyRBAC(), printed)
	if err != nil {
		return err
	}
	return install.RemoveAll(ctx, cmd, c, slices.DeleteFunc(objects, isOCMsToo))
}

// isOCMsToo reports whether a hub of Open Cluster Management has the object
// under the same name, or clusters are stored in it.
func isOCMsToo(o *unstructured.Unstructured) bool {
	switch o.GetKind() {
	case "CustomResourceDefinition":
		return true
	case "Namespace":
		return o.GetName() != ocm.RelayNamespace
	case "ServiceAccount":
		return o.GetName() == ocm.HubServiceAccount
	case "ClusterRole":
		return o.GetName() == registration.ClusterRoleName("registration") ||
			o.GetName() == registration.ClusterRoleName("work")
	}
	return false
}
