package doctor

import (
	"context"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// sides are what people mix up about the two clusters.
type sides struct {
	// swapped says that what was given as the cluster itself is a hub, unlike what was given as the hub.
	swapped bool
	// managed says that what was given as the hub is a cluster that is managed, or can be.
	managed bool
}

const (
	swapThem  = "exchange the two kubeconfigs: the one of the hub is given as the cluster's, and the other way round"
	elsewhere = "both kubeconfigs lead to the same API server: pass the kubeconfig of the cluster that is to be managed"
)

// compare looks at the sides only if the hub is none.
func (e *enrolment) compare(ctx context.Context) (s sides) {
	if e.Hub == nil || !absentKind(e.clusterErr) {
		return s
	}
	if e.Spoke != nil {
		_, err := getObject(ctx, e.Spoke, clusterAPI, "ManagedCluster", client.ObjectKey{Name: e.ClusterName})
		s.swapped = err == nil || apierrors.IsNotFound(err) && !absentKind(err)
	}
	_, _, err := listObjects(ctx, e.Hub, operatorAPI, "Klusterlet")
	s.managed = err == nil
	return s
}

// noHubThere never proposes to make a hub of a cluster that is managed.
func (e *enrolment) noHubThere() Finding {
	missing := differs("ManagedCluster", "no such kind", clusterAPI)
	switch {
	case e.sides.swapped:
		return fail("O1", swapThem, "the kubeconfigs are swapped: this is no hub, but the cluster itself knows ManagedClusters").
			with(missing)
	case e.sameServer():
		return fail("O1", "pass the hub's kubeconfig", "this is no hub: both kubeconfigs lead to the same API server, which does not "+
			"know ManagedClusters").with(missing)
	case e.sides.managed:
		return fail("O1", "pass the hub's kubeconfig", "this is no hub but a cluster to be managed: it knows Klusterlets, but no "+
			"ManagedClusters").with(missing)
	}
	return fail("O1", "pass the hub's kubeconfig, or make it a hub: clusteradm init",
		"this is no hub: it does not know ManagedClusters").with(missing)
}

// sameServer is normal for a hub that manages itself, and a mistake for all others.
func (e *enrolment) sameServer() bool {
	if e.HubRESTConfig == nil || e.SpokeRESTConfig == nil || e.Hub == nil || e.Spoke == nil {
		return false
	}
	return sameHost(e.HubRESTConfig.Host, e.SpokeRESTConfig.Host)
}

// sameHost compares addresses of API servers, with or without a scheme.
func sameHost(a, b string) bool { return hostAndPort(a) == hostAndPort(b) }

func hostAndPort(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		if u, err = url.Parse("https://" + address); err != nil {
			return address
		}
	}
	port := u.Port()
	if port == "" && u.Scheme != "http" {
		port = "443"
	}
	return u.Hostname() + ":" + port + strings.TrimSuffix(u.Path, "/")
}

// misnamed says that the cluster registers, but under another name: what the hub holds under this one is somebody else's, or
// left over.
func (e *enrolment) misnamed() bool {
	return e.Spoke != nil && e.klusterletErr == nil && e.klusterlet == nil && len(e.otherNames) > 0
}

// named has a check of the hub's objects fail only if they can be this cluster's: otherwise its remedy would let in a cluster
// that nobody here knows, or delete it.
func (e *enrolment) named(check func(context.Context) Finding) func(context.Context) Finding {
	return func(ctx context.Context) Finding {
		f := check(ctx)
		if f.Result == Fail && e.misnamed() {
			f.Result, f.Causes = Warn, nil
			f.Message += "; but the cluster registers under another name"
			f.Remedy = seeAgent
		}
		return f
	}
}

// wrongCluster says that what is to be seen in the cluster itself is not about this enrolment.
func (e *enrolment) wrongCluster() bool {
	seen := e.klusterletErr == nil || absentKind(e.klusterletErr)
	return e.misnamed() || seen && e.klusterlet == nil && e.sameServer()
}

const seeAgent = "see enrolment-agent"

// notAsked says that accepting cannot help yet: there is no request, and the agent cannot make one.
func (e *enrolment) notAsked(ctx context.Context) bool {
	if e.csrErr != nil || e.moreCSRs || len(e.own()) > 0 || e.Spoke == nil || e.usesIAM() {
		return false
	}
	f := e.checkKlusterlet(ctx)
	return f.Result == Fail && f.Class != "O20" // which is about the credential that accepting brings
}
