package authtest

import "net/http"

// GCP is the Google side of a Cloud.
type GCP struct {
	cloud *Cloud
}

func newGCP(c *Cloud) *GCP { return &GCP{cloud: c} }

func (*GCP) services() []service { return nil }

// serveMetadata answers at http://metadata.google.internal and at http://169.254.169.254/computeMetadata/.
func (*GCP) serveMetadata(w http.ResponseWriter, r *http.Request, _ string) { http.NotFound(w, r) }
