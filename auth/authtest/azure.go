package authtest

import "net/http"

// Azure is the Microsoft side of a Cloud.
type Azure struct {
	cloud *Cloud
}

func newAzure(c *Cloud) *Azure { return &Azure{cloud: c} }

func (*Azure) services() []service { return nil }

// serveIMDS answers at http://169.254.169.254/metadata/.
func (*Azure) serveIMDS(w http.ResponseWriter, r *http.Request, _ string) { http.NotFound(w, r) }
