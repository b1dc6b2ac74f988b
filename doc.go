// Package workloadid is the root of a library that turns a Kubernetes identity
// into any other credential, without a stored secret. The root holds only
// Version. Import what you need:
//
//	auth                          a credential for a ServiceAccount, or for the controller itself
//	auth/aws, azure, gcp          the clouds: access tokens, registries, clusters, Git, adapters for their SDKs
//	auth/exchange                 any OAuth 2.0 server (RFC 8693, RFC 7523), and services that trust the issuer
//	auth/token                    the ServiceAccount's own token
//	auth/github                   installation tokens of GitHub Apps
//	auth/spiffe                   JWT-SVIDs as subject tokens, a module of its own
//	auth/grpccreds                credentials for RPCs of gRPC, a module of its own
//	auth/clientgo                 a client for controllers without controller-runtime
//	auth/plugin                   the wire formats of kubectl, kubelet, docker, git and AWS process plugins
//	auth/provider                 what writers of providers see
//	auth/clusterprofile           clusters of an inventory
//	auth/cause                    names the causes of errors, for conditions
//	auth/authtest                 a conformance suite for providers
//	cache                         keeps credentials until shortly before they expire
//	cache/metrics, cache/disk     Prometheus metrics of the cache; a cache on disk for command lines
//	registration                  managed clusters and their add-ons join a hub
//	registration/agent, hub       the reconcilers of each side
//	registration/manifests        what is installed on each side
//	registration/csr, awsirsa     register by client certificate, or by AWS IAM
//	registration/token            add-ons register by ServiceAccount token
//	registration/kubeconfig       reads and writes the kubeconfigs of a hub's agent
//	registration/relay            a proxy in front of the hub
//	registration/ocm, ocm/addon   wire types and names of Open Cluster Management
//	podidentity                   AWS credentials for pods (KEP-14): start here
//	podidentity/api/v1alpha1      IAMBinding and IAMRoleAllowList
//	podidentity/server            AWS credentials for attested pods
//	podidentity/webhook           injects the sidecar
//	podidentity/proxy             the sidecar, which serves the SDKs
//	issuer                        publishes and verifies a cluster's issuer; its folders are stores
//	bootstrap                     tokens, signatures, pins and discovery of a cluster
//	bootstrap/controllers         signs, publishes and cleans up
//	bootstrap/tokens              creates and lists bootstrap tokens
//	bootstrap/authenticator       authenticates them as a webhook
//	cloudtest                     an issuer and clouds for tests
//
// Importing auth compiles no cloud SDK, and importing one provider compiles no
// other cloud's.
package workloadid
