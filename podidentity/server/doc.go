// Package server issues AWS credentials to pods (KEP-14), for programs that run
// pod identity in a cluster. A pod presents its projected ServiceAccount token,
// the API server attests the pod, and an IAMBinding names the role. The server
// answers with the JSON of the container-credentials protocol:
//
//	POST /v1/credentials
//	Authorization: Bearer <token of the audience in Options.Audience alone, bound to the pod>
//
//	200 {"AccessKeyId":"…","SecretAccessKey":"…","Token":"…","Expiration":"2026-01-02T15:04:05Z"}
//	401 {"Code":"NotAttested","Message":"…"}
//	403 {"Code":"NotBound","Message":"…"}      or Conflict, RoleNotAllowed, or the code of AWS
//	503 {"Code":"Unavailable","Message":"…"}   with Retry-After; or Throttled
//
// The answer also has the member CABundle if [Options.CA] returns CAs.
//
// A program runs the server in a manager of controller-runtime, with any number
// of replicas. [Server.SetupWithManager] adds the index of bindings, and their
// status, which the leader writes. [Server.Listen] serves HTTPS on every
// replica, and [Server.Ready] is the readiness check. The examples of package
// podidentity show a server that answers, and the whole program.
//
// The server's own identity comes from the SDK's chain, such as IAM roles for
// service accounts. It needs sts:AssumeRole and sts:TagSession on the roles.
// [TrustPolicy] returns the trust policies of the roles: see its example.
//
// In the cluster the server needs these rights, beside the rights of leader
// election:
//
//   - create on tokenreviews
//   - get, list and watch on iambindings and iamroleallowlists
//   - patch on iambindings/status
//   - create and patch on events
package server
