package cloudtest

import (
	"net/http"
	"slices"
	"strings"
)

// metadataService serves the addresses of the clouds' metadata services, over
// plain HTTP.
func (c *Cloud) metadataService() service {
	return service{
		at: func(host string) bool {
			return slices.Contains([]string{"169.254.169.254", "metadata.google.internal", "metadata"}, host)
		},
		serve: func(w http.ResponseWriter, r *http.Request, host string) {
			switch {
			case host != "169.254.169.254" || strings.HasPrefix(r.URL.Path, "/computeMetadata/"):
				c.gcp.serveMetadata(w, r, host)
			case strings.HasPrefix(r.URL.Path, "/metadata/"):
				c.azure.serveIMDS(w, r, host)
			default:
				http.NotFound(w, r)
			}
		},
	}
}
