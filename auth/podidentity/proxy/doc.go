// Package proxy serves a pod's AWS credentials to the unmodified AWS SDKs of that pod. It is the sidecar of KEP-14.
//
// The proxy fetches credentials from the server with the pod's projected token, keeps them in memory, and answers the
// container-credentials protocol on the pod's loopback. New makes a Proxy, Run fetches, and Listen and Serve answer.
//
// Applications need two variables: AWS_CONTAINER_CREDENTIALS_FULL_URI=http://127.0.0.1:2020/v1/credentials, and
// AWS_CONTAINER_AUTHORIZATION_TOKEN with the secret. An SDK that knows only AWS_CONTAINER_CREDENTIALS_RELATIVE_URI sends no
// Authorization. It needs a proxy on 169.254.170.2:80, and /v1/credentials/<secret> as the relative URI.
//
// # Freshness
//
// Run renews credentials when 7/12 of their lifetime are left, which are 35 of 60 minutes. A request of an application never
// waits for the server. The proxy serves what it holds until a minute before the expiry, so an outage of 30 minutes goes
// unnoticed. A 403 of the server is a decision: the proxy drops its credentials at once and answers 403 with the reason.
// Every other failure, a 401 included, keeps the credentials and retries.
//
// # Requests
//
// The proxy answers a GET whose connection starts in its own pod, whose Host is the address of the connection, and which
// carries the secret. It refuses a request that any intermediary has forwarded. Errors have the form {"Code","Message"}.
package proxy
