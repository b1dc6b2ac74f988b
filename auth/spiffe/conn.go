package spiffe

import (
	"errors"
	"os"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"

	"github.com/workloadid/workloadid/auth"
)

// BrokerSocketEnv is the environment variable with the address of the Broker
// API.
const BrokerSocketEnv = "SPIFFE_BROKER_SOCKET"

// X509Source is the controller's own X.509-SVID with the bundles of its trust
// domain, such as a *workloadapi.X509Source.
type X509Source interface {
	x509svid.Source
	x509bundle.Source
}

// NewBrokerConn returns a connection to the Broker API with mutual TLS. The
// address is unix:///<path> or tcp://<IP address>:<port> (SPIFFE Broker
// Endpoint, section 4). Empty: the value of SPIFFE_BROKER_SOCKET. agent checks
// the agent's SPIFFE ID. tlsconfig.AuthorizeIDPrefix is the strictest choice
// for many nodes. tlsconfig.AuthorizeMemberOf trusts every workload that can
// listen at the address.
//
// It connects at the first request, and again after the connection is lost. It
// ignores proxies of the environment. The caller closes the connection, and
// then own. The options add to the package's own, such as a
// grpc.WithStatsHandler. Malformed arguments are ErrMisconfigured.
func NewBrokerConn(address string, own X509Source, agent tlsconfig.Authorizer, opts ...grpc.DialOption,
) (*grpc.ClientConn, error) {
	if address == "" {
		address = os.Getenv(BrokerSocketEnv)
	}
	if own == nil || agent == nil || address == "" {
		return nil, fail(auth.ErrMisconfigured, "pass all of them, or the address in "+BrokerSocketEnv,
			"an address, the controller's X.509-SVID and the agent's SPIFFE ID are required").About(optionConn)
	}
	target, err := workloadapi.TargetFromAddress(address)
	if err == nil && strings.HasPrefix(target, "unix:") && !strings.HasPrefix(target, "unix:///") {
		err = errors.New("a socket has an absolute path and no host") // gRPC reports it at the first request
	}
	if err != nil {
		return nil, refusedAddress(address, err)
	}
	mutual := credentials.NewTLS(tlsconfig.MTLSClientConfig(own, own, agent))
	conn, err := grpc.NewClient(target, append(opts, grpc.WithTransportCredentials(mutual), grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(), grpc.WithConnectParams(reconnect))...)
	if err != nil {
		return nil, refusedAddress(address, err)
	}
	return conn, nil
}

// reconnect makes an agent that has restarted usable within seconds. The agent
// is local, and gRPC would otherwise wait up to two minutes.
var reconnect = grpc.ConnectParams{MinConnectTimeout: 5 * time.Second, Backoff: backoff.Config{
	BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second}}

func refusedAddress(address string, err error) error {
	e := fail(auth.ErrMisconfigured, "use unix:///<path> or tcp://<IP address>:<port>",
		"the address %.300q of the Broker API is refused", address)
	e.Err = err
	return e.About(optionConn)
}
