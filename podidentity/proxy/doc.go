// Package proxy serves a pod's AWS credentials to the unmodified AWS SDKs of
// that pod. The sidecar of KEP-14 runs it.
//
// The proxy fetches credentials from the server with the pod's projected token,
// keeps them in memory, and answers the container-credentials protocol on the
// pod's loopback. [New] returns a [Proxy], [Proxy.Run] fetches, and [Listen]
// and [Serve] answer. The example of the package is a complete sidecar.
//
// Applications need two variables:
//
//	AWS_CONTAINER_CREDENTIALS_FULL_URI=http://127.0.0.1:2020/v1/credentials
//	AWS_CONTAINER_AUTHORIZATION_TOKEN=<secret>
//
// An SDK that knows only AWS_CONTAINER_CREDENTIALS_RELATIVE_URI sends no
// Authorization. It needs a proxy on 169.254.170.2:80, and
// /v1/credentials/<secret> as the relative URI.
//
// # Freshness
//
// [Proxy.Run] renews credentials when 7/12 of their lifetime are left: 35 of 60
// minutes. An application's request never waits for the server. The proxy
// serves credentials until a minute before their expiry, so applications do not
// notice an outage of 30 minutes.
//
// After a 403 with a code of the server, the proxy drops its credentials at
// once and answers 403 with the reason. After every other failure, also a 401,
// it keeps the credentials and retries.
//
// # CAs
//
// An answer with credentials may contain the CAs that the server publishes. The
// proxy accepts them only over a verified connection, and only if they verify
// that connection too. From the next connection on, it trusts only them. A new
// process begins with [Options.CA].
//
// # Requests
//
// The proxy answers a GET with the secret, from its own pod, whose Host is the
// address of the connection. It refuses forwarded requests. Errors have the
// form {"Code","Message"}.
package proxy
