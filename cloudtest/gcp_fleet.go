package cloudtest

import (
	"fmt"
	"net/http"
	"strings"
)

// FleetMembership is a cluster's membership of a fleet.
type FleetMembership struct {
	// GKE says that the cluster is one of GKE, and not an attached one.
	GKE bool
	// Viewers are the members with the permissions of roles/gkehub.viewer.
	Viewers []string
}

// SetProject gives a project its number.
func (g *GCP) SetProject(id, number string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.projects[id] = number
}

// SetMembership creates a membership,
// projects/<project>/locations/<location>/memberships/<membership>, or replaces
// it.
func (g *GCP) SetMembership(name string, membership FleetMembership) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.memberships[name] = membership
}

// serveHub is the method projects.locations.memberships.get of the GKE Hub API,
// v1.
func (g *GCP) serveHub(w http.ResponseWriter, r *http.Request, host string) {
	name := strings.TrimPrefix(r.URL.Path, "/v1/")
	call := Call{Service: "gkehub", Action: "memberships.get", Host: host, Parameters: map[string]string{"name": name}}
	g.serveAPI(w, r, call, func() (any, *googleError) {
		caller, err := g.bearer(r)
		if err != nil {
			return nil, err
		}
		g.mu.Lock()
		membership, ok := g.memberships[name]
		g.mu.Unlock()
		switch {
		case r.Method != http.MethodGet || !ok:
			return nil, googleNotFound(fmt.Sprintf("Resource '%s' was not found", name))
		case !caller.isOneOf(membership.Viewers):
			return nil, &googleError{status: http.StatusForbidden,
				message: fmt.Sprintf("Permission 'gkehub.memberships.get' denied on '%s'", name)}
		}
		document := map[string]any{"name": name, "state": map[string]any{"code": "READY"}}
		if membership.GKE {
			document["endpoint"] = map[string]any{"gkeCluster": map[string]any{
				"resourceLink": "//container.googleapis.com/projects/p/locations/l/clusters/c"}}
		}
		return selected(document, r.URL.Query().Get("fields")), nil
	})
}

// serveResourceManager is the method projects.get of the Resource Manager API,
// v3, which anybody with a membership of the project may call.
func (g *GCP) serveResourceManager(w http.ResponseWriter, r *http.Request, host string) {
	id := strings.TrimPrefix(r.URL.Path, "/v3/projects/")
	call := Call{Service: "cloudresourcemanager", Action: "projects.get", Host: host,
		Parameters: map[string]string{"project": id}}
	g.serveAPI(w, r, call, func() (any, *googleError) {
		caller, err := g.bearer(r)
		if err != nil {
			return nil, err
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		for name, membership := range g.memberships {
			if strings.HasPrefix(name, "projects/"+id+"/") && caller.isOneOf(membership.Viewers) && g.projects[id] != "" {
				return map[string]any{"name": "projects/" + g.projects[id], "projectId": id, "state": "ACTIVE"}, nil
			}
		}
		return nil, &googleError{status: http.StatusForbidden, message: "The caller does not have permission"}
	})
}
