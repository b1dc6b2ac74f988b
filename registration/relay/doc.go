// Package relay stands in front of a hub's API server for agents that have no route to it. Agents and drivers do not change: the server of
// their bootstrap kubeconfig is the relay.
//
//	agent ── client certificate ──▶ relay ── own credential, impersonation ──▶ hub
//	agent ── bearer token ────────▶ relay ── the same bearer token ──────────▶ hub
//
// TLS ends at the relay, so the hub never sees the agent's certificate. The relay verifies it, on each request, and impersonates its user
// and groups. The hub's RBAC and admission then decide as they do for the certificate itself, so that a revoked cluster has no access here either.
//
//	handler, err := relay.New(relay.Options{Hub: config, ClientCAs: clientCAs})
//	server := &http.Server{Handler: handler, TLSConfig: relay.TLSConfig(clientCAs)}
//
// # Trust
//
// RBAC cannot limit impersonation to a prefix of names, so the relay's own credential could impersonate an administrator of the hub. Only
// the relay limits it: it impersonates users and groups that begin with "system:open-cluster-management:" and no others. Protect the
// relay and its credential like an administrator's.
//
// The relay builds the request to the hub anew from method, path, query, body and the few headers that the Kubernetes API needs. No
// other header of a client reaches the hub. A request with Impersonate-* headers, or with both a certificate and an Authorization header, is
// refused; the relay does not drop the header and go on.
//
// # Memory
//
// The bodies in flight share 64 MB for requests with certificates and 64 MB for requests with tokens. The relay answers 429 to more. The
// server in front limits the rest: set ReadHeaderTimeout, MaxHeaderBytes and HTTP2.MaxConcurrentStreams, and limit connections.
package relay
