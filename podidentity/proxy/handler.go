package proxy

import (
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/workloadid/workloadid/internal/podidentity"
)

// ServeHTTP answers from memory. The body of a 200 has AccessKeyId,
// SecretAccessKey, Token and Expiration.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if refused := refuse(r, p.secret); refused != nil {
		refused.write(w)
		return
	}
	s := p.state.Load()
	if !s.credentials.validAt(time.Now()) {
		s.failure.write(w)
		return
	}
	podidentity.Write(w, http.StatusOK, s.credentials.body)
}

// Guard returns a handler that refuses the requests that a [Proxy] refuses, and
// passes the others on to next. It serves programs that answer the SDKs with
// credentials of another origin. The secret is the value of
// AWS_CONTAINER_AUTHORIZATION_TOKEN.
func Guard(secret string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refused := refuse(r, []byte(secret)); refused != nil {
			refused.write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// refuse returns the answer to a request that must not get credentials. A web
// page in a browser, a server-side request forgery through the application, and
// a neighbour of the pod can make such requests.
func refuse(r *http.Request, secret []byte) *failure {
	authorization := strings.Join(r.Header["Authorization"], "\n") // two values never match
	switch {
	case !fromOwnPod(r):
		return &failure{status: http.StatusForbidden, Code: "Forbidden",
			Message: "the connection must start in the proxy's own pod, and Host must be the address of the proxy"}
	case forwarded(r.Header):
		return &failure{status: http.StatusForbidden, Code: "Forbidden",
			Message: "the proxy refuses forwarded requests: exclude its address from the HTTP proxy of the application"}
	case r.Method != http.MethodGet:
		return &failure{status: http.StatusMethodNotAllowed, Code: "MethodNotAllowed", Message: "use GET"}
	case r.URL.Path == podidentity.Path && !isSecret(authorization, secret):
		return &failure{status: http.StatusUnauthorized, Code: "Unauthorized",
			Message: "send the value of AWS_CONTAINER_AUTHORIZATION_TOKEN as Authorization"}
	case r.URL.Path != podidentity.Path && !isSecret(strings.TrimPrefix(r.URL.Path, podidentity.Path+"/"), secret):
		return &failure{status: http.StatusNotFound, Code: "NotFound", Message: "no such path"}
	}
	return nil
}

func isSecret(value string, secret []byte) bool {
	return subtle.ConstantTimeCompare([]byte(value), secret) == 1
}

// fromOwnPod compares addresses of the connection. 169.254.170.2 on the
// loopback interface also answers packets that a neighbour sends to the pod's
// network interface. A Host other than the address belongs to a web page (DNS
// rebinding).
func fromOwnPod(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if !ok || err != nil {
		return false
	}
	own := local.AddrPort().Addr().Unmap()
	if peer.Addr() != own && !peer.Addr().IsLoopback() {
		return false
	}
	return r.Host == local.String() || local.Port == 80 && r.Host == own.String()
}

func forwarded(header http.Header) bool {
	for _, name := range []string{"X-Forwarded-For", "Forwarded", "Via"} {
		if _, ok := header[name]; ok {
			return true
		}
	}
	return false
}

func (f *failure) write(w http.ResponseWriter) {
	if f.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", http.MethodGet)
	}
	podidentity.Write(w, f.status, podidentity.Error{Code: f.Code, Message: f.Message})
}
