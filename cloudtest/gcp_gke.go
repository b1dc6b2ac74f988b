package cloudtest

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"strings"
)

// GKECluster is a cluster in the Kubernetes Engine API.
type GKECluster struct {
	// Status is PROVISIONING, RUNNING or another one of GKE. Empty: RUNNING.
	Status string
	// PublicEndpoint and PrivateEndpoint are IP addresses. DNSEndpoint is a
	// name below gke.goog.
	PublicEndpoint, PrivateEndpoint, DNSEndpoint string
	// Legacy leaves controlPlaneEndpointsConfig out, as the API did
	// before 2024.
	Legacy bool
	// CA is the cluster's CA in PEM. Empty leaves masterAuth out.
	CA []byte
	// NodePools are the names of its node pools. Each adds about 20 KiB to a
	// full answer.
	NodePools []string
	// Viewers are the members with the permission container.clusters.get.
	Viewers []string
	// Body replaces the whole answer, if it is set.
	Body string
}

// SetCluster creates a cluster,
// projects/<project>/locations/<location>/clusters/<cluster>, or replaces it.
func (g *GCP) SetCluster(name string, cluster GKECluster) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.clusters[name] = cluster
}

// serveContainer imitates the method projects.locations.clusters.get of the
// Kubernetes Engine API, v1.
func (g *GCP) serveContainer(w http.ResponseWriter, r *http.Request, host string) {
	name := strings.TrimPrefix(r.URL.Path, "/v1/")
	call := Call{Service: "container", Action: "clusters.get", Host: host, Parameters: map[string]string{"name": name}}
	g.serveAPI(w, r, call, func() (any, *googleError) {
		caller, err := g.bearer(r)
		if err != nil {
			return nil, err
		}
		g.mu.Lock()
		cluster, ok := g.clusters[name]
		g.mu.Unlock()
		switch {
		case r.Method != http.MethodGet || !ok && strings.Count(name, "/") != 5:
			return nil, googleNotFound("Method not found.")
		case !ok:
			return nil, googleNotFound("Not found: " + name + ".")
		case !caller.isOneOf(cluster.Viewers):
			return nil, &googleError{status: http.StatusForbidden,
				message: fmt.Sprintf("Required \"container.clusters.get\" permission(s) for %q.", name)}
		case cluster.Body != "":
			return []byte(cluster.Body), nil
		}
		return selected(cluster.document(name), r.URL.Query().Get("fields")), nil
	})
}

// selected drops the members that a partial response does not ask for. It looks
// at the outermost members alone.
func selected(document map[string]any, fields string) map[string]any {
	if fields == "" {
		return document
	}
	asked, depth := map[string]bool{}, 0
	for part := range strings.SplitSeq(fields, ",") {
		if depth == 0 {
			name, _, _ := strings.Cut(part, "(")
			name, _, _ = strings.Cut(name, "/")
			asked[name] = true
		}
		depth += strings.Count(part, "(") - strings.Count(part, ")")
	}
	maps.DeleteFunc(document, func(name string, _ any) bool { return !asked[name] })
	return document
}

func (c GKECluster) document(name string) map[string]any {
	parts := strings.Split(name, "/")
	d := map[string]any{"name": parts[5], "location": parts[3], "status": firstOf(c.Status, "RUNNING"),
		"selfLink": "https://container.googleapis.com/v1/" + name}
	endpoint := firstOf(c.PublicEndpoint, c.PrivateEndpoint)
	if endpoint != "" {
		d["endpoint"] = endpoint
	}
	if c.PrivateEndpoint != "" {
		d["privateClusterConfig"] = map[string]any{"privateEndpoint": c.PrivateEndpoint, "publicEndpoint": c.PublicEndpoint}
	}
	if !c.Legacy {
		config := map[string]any{"ipEndpointsConfig": map[string]any{"enabled": endpoint != "",
			"publicEndpoint": c.PublicEndpoint, "privateEndpoint": c.PrivateEndpoint}}
		if c.DNSEndpoint != "" {
			config["dnsEndpointConfig"] = map[string]any{"endpoint": c.DNSEndpoint, "allowExternalTraffic": true}
		}
		d["controlPlaneEndpointsConfig"] = config
	}
	var pools []any
	for _, pool := range c.NodePools {
		const labels = "a label of a node pool with a long value,"
		pools = append(pools,
			map[string]any{"name": pool,
				"config": map[string]any{"labels": map[string]any{"long": strings.Repeat(labels, 500)}}})
	}
	if len(pools) > 0 {
		d["nodePools"] = pools
	}
	if len(c.CA) > 0 {
		d["masterAuth"] = map[string]any{"clusterCaCertificate": base64.StdEncoding.EncodeToString(c.CA)}
	}
	return d
}
