// Package podidentity explains pod identity (KEP-14): pods get the AWS
// credentials of an IAM role on any Kubernetes cluster, with an unmodified AWS
// SDK. It supports AWS alone. Operators install the programs, as
// docs/podidentity.md shows. This package has no code. Authors of such programs
// use the four packages below it:
//
//   - [github.com/workloadid/workloadid/podidentity/api/v1alpha1] has
//     IAMBinding, which binds a ServiceAccount to a role, and IAMRoleAllowList,
//     which lists the roles that each namespace may use.
//   - [github.com/workloadid/workloadid/podidentity/webhook] adds a sidecar and
//     a token to each new pod whose ServiceAccount has an IAMBinding.
//   - [github.com/workloadid/workloadid/podidentity/proxy] is that sidecar. It
//     fetches credentials, keeps them in memory and answers the SDK on the
//     pod's loopback.
//   - [github.com/workloadid/workloadid/podidentity/server] attests the pod by
//     its token, assumes the role of the IAMBinding, and returns the
//     credentials.
//
// The example of the package runs server and proxy with a simulated cluster and
// AWS: an administrator allows roles, a team binds one of them to a
// ServiceAccount, and a pod calls AWS. The example named Program is a program
// with server, webhook and sidecar in a real cluster.
package podidentity
