// Package spiffe makes JWT-SVIDs the subject tokens of package auth: the
// clouds, and the services of package exchange, trust the issuer of a SPIFFE
// trust domain instead of the cluster's issuer.
//
// A BrokerIssuer serves tenants. It gets the JWT-SVID of a ServiceAccount from
// the agent's Broker API (incubating at SPIFFE, an experiment of SPIRE since
// 1.15). The controller states which SPIFFE ID a ServiceAccount has:
//
//	x509, err := workloadapi.NewX509Source(ctx) // the controller's own X.509-SVID; waits for the agent
//	...
//	defer x509.Close()
//	td := spiffeid.RequireTrustDomainFromString("example.org")
//	conn, err := spiffe.NewBrokerConn("", x509, tlsconfig.AuthorizeMemberOf(td)) // at SPIFFE_BROKER_SOCKET
//	...
//	defer conn.Close()
//	source, err := spiffe.NewBrokerIssuer(conn, spiffe.IDs(td), spiffe.Config{Issuer: "https://oidc.example.org"})
//	...
//	token, err := auth.GetAccessToken(ctx, provider, auth.WithServiceAccount(key, kube), auth.WithSubjectIssuer(source))
//
// A WorkloadIssuer serves the controller itself, in calls without a
// ServiceAccount. It gets the controller's own JWT-SVID from the Workload API.
// Each source refuses the calls of the other, so no tenant acts as the
// controller.
//
// # Trust
//
// The agent compares namespace, name and UID of the ServiceAccount with the
// cluster, and its registration entries decide which SPIFFE IDs the
// ServiceAccount has. The sources verify no signature: the agent is
// authenticated by the connection, and the receiver of the token verifies it.
// They compare all else that an agent answers: exactly one SVID, its SPIFFE ID,
// subject, issuer, audiences and expiry.
//
// # Lifetime
//
// JWT-SVIDs often live 5 minutes. The sources return their expiry, so no
// credential stays in the cache for longer.
package spiffe
