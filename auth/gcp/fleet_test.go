package gcp_test

import (
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

const gateway = "https://connectgateway.googleapis.com:443/v1/projects/" + number + "/locations/global/"

// newFleet returns an environment whose project has a GKE cluster, an attached
// cluster, and a cluster in a region.
func newFleet(t *testing.T) *environment {
	w := newEnvironment(t)
	viewers := []string{"serviceAccount:" + email("tenant-a")}
	w.Cloud.GCP().SetProject("project", number)
	for name, gke := range map[string]bool{"global/memberships/prod": true, "global/memberships/attached": false,
		"europe-west1/memberships/prod": true} {
		for _, project := range []string{"project", number} {
			w.Cloud.GCP().SetMembership("projects/"+project+"/locations/"+name,
				cloudtest.FleetMembership{GKE: gke, Viewers: viewers})
		}
	}
	return w
}

func TestMembershipsOfAFleet(t *testing.T) {
	w := newFleet(t)
	const prod, attached = "projects/project/locations/global/memberships/prod",
		"projects/project/locations/global/memberships/attached"
	for name, row := range map[string]struct{ cluster, address, ca, host string }{
		"GKE":      {prod, "", "", gateway + "gkeMemberships/prod"},
		"attached": {attached, "", "", gateway + "memberships/attached"},
		"project by its number": {"projects/" + number + "/locations/global/memberships/prod", "", "",
			gateway + "gkeMemberships/prod"},
		"region": {"projects/project/locations/europe-west1/memberships/prod", "", "", "https://europe-west1-connectgateway." +
			"googleapis.com:443/v1/projects/" + number + "/locations/europe-west1/gkeMemberships/prod"},
		"with its address": {prod, gateway + "gkeMemberships/prod", "",
			gateway + "gkeMemberships/prod"},
		"address alone":     {"", gateway + "gkeMemberships/prod", "", gateway + "gkeMemberships/prod"},
		"attached, alone":   {"", gateway + "memberships/1", "", gateway + "memberships/1"},
		"a proxy with a CA": {"", gateway + "memberships/1", "pem", gateway + "memberships/1"},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := w.config(t, "tenant-a", row.cluster, row.address, row.ca)
			if err != nil || config.Host() != row.host || string(config.CAData()) != row.ca {
				t.Errorf("got %v, %v, want the host %q and the CA %q", config, err, row.host, row.ca)
			}
		})
	}
}

func TestMembershipsThatAreRefused(t *testing.T) {
	w := newFleet(t)
	for name, row := range map[string]struct {
		tenant, cluster, address string
		reason                   provider.Reason
		want                     string
	}{
		"unknown": {"tenant-a", "projects/project/locations/global/memberships/other", "", auth.ErrMisconfigured,
			"the membership's region or global"},
		"without the role": {"tenant-b", "projects/project/locations/global/memberships/prod", "", auth.ErrDenied,
			"grant roles/gkehub.viewer"},
		"another's address": {"tenant-a", "projects/project/locations/global/memberships/prod",
			gateway + "gkeMemberships/other", auth.ErrMisconfigured, "or leave the address out"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.config(t, row.tenant, row.cluster, row.address, "")
			testenv.CheckError(t, err, row.reason, row.want)
		})
	}
}

// A bearer goes to the address. Other paths of the gateway's hosts are other
// APIs.
func TestAddressesOfTheGatewayAreWhole(t *testing.T) {
	const host = "https://connectgateway.googleapis.com/v1/projects/"
	for name, address := range map[string]string{
		"another path":        host + number,
		"below a membership":  gateway + "memberships/prod/api",
		"another kind":        gateway + "clusters/prod",
		"a project's name":    host + "project/locations/global/memberships/prod",
		"another region":      "https://europe-west1-" + strings.TrimPrefix(gateway, "https://") + "memberships/prod",
		"another port":        strings.Replace(gateway, ":443", ":8443", 1) + "memberships/prod",
		"no path":             "https://connectgateway.googleapis.com",
		"a region without it": host + number + "/locations/europe-west1/memberships/prod",
	} {
		t.Run(name, func(t *testing.T) {
			canonical, err := provider.ParseClusterAddress(address)
			if err != nil {
				t.Fatal(err)
			}
			for _, ca := range []string{"", "pem"} {
				_, err = (&gcp.Provider{}).GetAccessTokenOptionsForCluster(
					&provider.Options{ClusterAddress: canonical, CAData: ca})
				testenv.CheckError(t, err, auth.ErrMisconfigured, "names no membership of a fleet")
			}
		})
	}
	for name, address := range map[string]string{
		"another domain": "https://connectgateway.googleapis.com.evil.example:443/v1/projects/1",
		"a longer name":  "https://evilconnectgateway.googleapis.com:443/v1/projects/1",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := (&gcp.Provider{}).GetAccessTokenOptionsForCluster(&provider.Options{ClusterAddress: address})
			testenv.CheckError(t, err, auth.ErrMisconfigured, "does not identify")
		})
	}
}
