package registration

import (
	"context"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/kube"
	"github.com/workloadid/workloadid/registration/ocm"
)

// now is the hub's time if this machine's clock differs: the hub's clock decides about expiry.
func (e *examination) now() time.Time { return e.Now().Add(e.ahead) }

func (e *examination) checkTime(ctx context.Context) doctor.Finding {
	server, config := "the hub", e.HubConfig
	if config == nil {
		server, config = "the cluster", e.SpokeConfig
	}
	if config == nil {
		return doctor.Skipped("There is no clock to compare this machine's with.")
	}
	ahead, known := kube.Skew(ctx, config, e.Now)
	switch {
	case !known:
		return doctor.Skipped("The API server of %s tells no time.", server)
	case ahead.Abs() > kube.MaxSkew:
		e.ahead = ahead
		return kube.Off("ClockSkew", server, ahead)
	}
	return doctor.Passed("This machine's clock agrees with that of %s.", server)
}

// readCluster reads the ManagedCluster from one of the sides.
func (e *examination) readCluster(ctx context.Context, from client.Reader) (*ocm.ManagedCluster, error) {
	cluster := &ocm.ManagedCluster{}
	err := kube.Get(ctx, from, ocm.GroupVersion.WithKind("ManagedCluster"), client.ObjectKey{Name: e.ClusterName}, cluster)
	return cluster, err
}

func isServed(err error) bool { return err == nil || apierrors.IsNotFound(err) && !kube.Absent(err) }

// checkSides finds kubeconfigs that were mixed up. Its remedies never make a hub of a managed cluster.
func (e *examination) checkSides(ctx context.Context) doctor.Finding {
	switch errs := validation.IsDNS1123Label(e.ClusterName); {
	case len(errs) > 0:
		return e.fault("InvalidName", "%.100q cannot be the name of a cluster.", e.ClusterName)
	case e.Hub == nil:
		return doctor.Skipped("There is no kubeconfig of the hub.")
	}
	switch _, err := e.readCluster(ctx, e.Hub); {
	case isServed(err):
		return doctor.Passed("The kubeconfig of the hub leads to a hub.")
	case ctx.Err() != nil: // there may be no time for the check "hub"
		return e.unreadCluster(err)
	case !kube.Absent(err):
		return doctor.Skipped("The hub does not show the ManagedCluster.")
	}
	if e.Spoke != nil {
		if _, err := e.readCluster(ctx, e.Spoke); isServed(err) {
			return e.fault("WrongKubeconfig", "The kubeconfigs of hub and cluster are swapped.")
		}
	}
	return e.fault("WrongKubeconfig", "The kubeconfig of the hub does not lead to a hub: the API server has no ManagedClusters.")
}

// isSameServer is normal for a hub that manages itself, and a mistake for all others.
func (e *examination) isSameServer() bool {
	return e.HubConfig != nil && e.SpokeConfig != nil && e.Hub != nil && e.Spoke != nil && hostOf(e.HubConfig) == hostOf(e.SpokeConfig)
}

func hostOf(config *rest.Config) string {
	u, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return config.Host
	}
	return strings.TrimSuffix(u.Host, ":443") + strings.TrimSuffix(u.Path, "/")
}
