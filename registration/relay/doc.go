// Package relay forwards requests to a hub's API server, for agents without a
// route to it. Agents and drivers stay the same: only the bootstrap kubeconfig
// names the relay as the server.
//
//	agent ── client certificate ──▶ relay ── own credential, impersonation ──▶ hub
//	agent ── bearer token ────────▶ relay ── the same bearer token ──────────▶ hub
//
// TLS ends at the relay, so the hub never sees the agent's certificate. The
// relay verifies it on each request and impersonates its user and groups. The
// hub's RBAC and admission decide as without a relay, so a denied cluster loses
// its access here too.
//
//	handler, err := relay.New(relay.Options{Hub: config, ClientCAs: clientCAs})
//	server := &http.Server{Handler: handler, TLSConfig: relay.TLSConfig(clientCAs)}
//
// # Trust
//
// The relay impersonates only users and groups that begin with
// "system:open-cluster-management:". RBAC cannot limit its credential to a
// prefix of names. On API servers since 1.36, hub.Options.Relay names the
// agents of accepted clusters, and a stolen credential acts as these agents.
// The right of manifests.RelayLegacyRBAC equals an administrator's.
//
// The relay builds each request to the hub anew, from method, path, query, body
// and the few headers that the Kubernetes API needs: Accept, Accept-Encoding,
// Content-Type, If-None-Match, User-Agent and a bearer token.
//
// # Refusals
//
// Refusals have the form of the API server's errors, except a 429 without a
// body.
//
//	400  a certificate together with Authorization; any Impersonate-* header
//	400  exec, attach, port-forward and other upgrades; CONNECT
//	400  a path that the hub would read differently; a body of GET or HEAD; a body that takes more than 30 s
//	400  a client certificate with more than one intermediate CA
//	401  no credential; a certificate that has expired, has another CA or is not for clients
//	403  a certificate with a user or group outside of the prefix above
//	413  a body of more than 3 MB
//	429  a body or a request beyond the limits below, with Retry-After
//	502  the hub is down, redirects, hangs, or refuses the relay's own credential; the relay's log says why
//
// A 401 makes an agent request another certificate. The relay therefore never
// forwards a 401 about its own credential. If the hub does not let the relay
// impersonate, agents get the hub's 403 and report WaitingForAcceptance.
//
// # Memory
//
// A body stays in memory until the hub has answered. Bodies in flight share 64
// MB for requests with certificates, and another 64 MB for requests with
// tokens. One cluster with its add-ons holds at most 4 MB, under whichever
// certificates. Clients with tokens hold at most 4 MB per remote address, which
// is a /64 for IPv6. Bytes count as they arrive, not as announced.
//
// Clients without a valid credential therefore cannot use up the memory of
// joined agents. From 16 addresses they can still block bodies of requests with
// tokens. Behind a load balancer that hides addresses, one client suffices.
//
// # Connections and requests
//
// A request is unproven until its certificate is verified or the hub has
// accepted a token of its connection with a 2xx answer. Unproven requests share
// 4,096 slots, and one address holds at most 256. Requests with certificates
// share [Options.MaxRequests] slots, 5,000 by default, and one cluster with its
// add-ons holds at most a tenth. Requests with accepted tokens share half as
// many, and one address holds at most four fifths of these. The relay refuses
// others with 429 and no body, because HTTP/2 lets a client delay a body. A
// client that reads nothing for 30 s loses its stream or its connection.
//
// Clients without a valid credential delay no request with a certificate, and
// none on a connection with an accepted token. From 16 addresses they can block
// the first request of a connection with a token.
//
// A watch takes about 40 KiB, a connection 70 KiB, and an unproven request 14
// KiB. The answer of the hub to a client that does not read can take 4 MB for
// 30 s. So the limits do not bound the memory that a joined cluster can take.
//
// [LimitListener] bounds connections. It closes connections without an accepted
// credential first, so a flood displaces no connection of a joined agent.
// Clients behind one NAT address share the bound of an address.
//
// The server in front limits the rest. Set ReadHeaderTimeout, MaxHeaderBytes
// and HTTP2.MaxConcurrentStreams as the program wid-hub relay does.
//
// # Time
//
// The relay ends each answer after 10 minutes, like a watch that the hub ends.
// The client opens another watch, and the hub checks its rights again. A watch
// on the hub itself lasts as long as the client asks, also after the cluster
// was denied or deleted.
package relay
