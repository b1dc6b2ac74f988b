package apiserver_test

import (
	"net/http"
	"net/url"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/internal/apiserver"
)

// Plain http is safe on the loopback interface of this machine alone.
func TestCheckVerifiedOfLoopback(t *testing.T) {
	for name, row := range map[string]struct {
		proxy *url.URL
		fails bool
	}{
		"without a proxy": {nil, false},
		"of a proxy":      {&url.URL{Scheme: "http", Host: "proxy"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			config := &rest.Config{Host: "http://127.0.0.1:8001", Proxy: http.ProxyURL(row.proxy)}
			if err := apiserver.CheckVerified(config); (err != nil) != row.fails {
				t.Errorf("error %v", err)
			}
		})
	}
}
