// Package workloadid is the root of a library that turns a Kubernetes identity into any other credential, without a
// stored secret. The root itself holds no code; import what you need:
//
//	I want …                                                     import
//	a credential for a ServiceAccount, or for my controller      github.com/workloadid/workloadid/auth
//	… of AWS                                                     github.com/workloadid/workloadid/auth/aws
//	… that is the ServiceAccount's own token                     github.com/workloadid/workloadid/auth/token
//	to keep credentials until shortly before they expire         github.com/workloadid/workloadid/cache
//	… and to see that in Prometheus                              github.com/workloadid/workloadid/cache/metrics
//	to test my controller without a cloud                        github.com/workloadid/workloadid/auth/authtest
//	to join a cluster given only a bootstrap token               github.com/workloadid/workloadid/bootstrap
//	to join managed clusters to a hub                            github.com/workloadid/workloadid/registration
//	to serve AWS credentials to pods                             github.com/workloadid/workloadid/auth/podidentity/server
//	to write a provider of my own                                auth.Provider, authtest.RunConformance
//
// Importing auth compiles no cloud SDK, and importing one provider compiles no other cloud's.
package workloadid
