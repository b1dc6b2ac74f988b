// Package apiserver checks the connection to an API server whose answers become
// trust elsewhere, such as keys that a cloud is given.
package apiserver

import (
	"fmt"
	"net/http"
	"net/url"

	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/internal/address"
	"github.com/workloadid/workloadid/internal/redact"
)

// CheckVerified refuses an API server for which another host on the network
// could answer: its certificate is not verified, or it speaks plain http beyond
// this machine.
func CheckVerified(config *rest.Config) error {
	const remedy = ": use the https address of the API server and its certificate-authority-data"
	u, _, err := rest.DefaultServerUrlFor(config)
	switch {
	case err != nil:
		return fmt.Errorf("the address %q of the API server is malformed%s", redact.URL(config.Host), remedy)
	case config.Insecure:
		return fmt.Errorf("insecure-skip-tls-verify is set for the API server %.300q, so another host could answer for it%s",
			u.Host, remedy)
	// A proxy has a loopback interface of its own.
	case u.Scheme != "https" && (usesProxy(config, u) || !address.IsLoopback(u.Hostname())):
		return fmt.Errorf("the API server %.300q is reached without https, so another host could answer for it%s",
			u.Scheme+"://"+u.Host, remedy)
	}
	return nil
}

func usesProxy(config *rest.Config, u *url.URL) bool {
	if config.Proxy == nil {
		return false // the environment's proxies leave out loopback addresses
	}
	proxy, err := config.Proxy(&http.Request{URL: u})
	return err != nil || proxy != nil
}
