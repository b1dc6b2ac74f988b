// Package podidentity finds out why a pod gets no AWS credentials through an IAMBinding (KEP-14).
//
//	report := podidentity.Run(ctx, podidentity.Config{Namespace: "team-a", Pod: "reporting-0", Reader: c, Tokens: c})
//	fmt.Print(report)
//
// It changes nothing. Without a pod it examines the binding alone.
//
//	pod         P19 there is no such pod
//	binding     P1 the cluster has no IAMBindings, P2 none names the ServiceAccount, P3 two do, P4 there is no ServiceAccount
//	allow-list  P5 the IAMRoleAllowList does not allow the namespace the role
//	server      P6 the server has not judged the binding
//	role        P7 AWS refuses the role to the server, P8 AWS refuses the session, P9 the server cannot ask AWS
//	namespace   P10 the namespace has not opted in to injection
//	webhook     P11 no webhook injects pods
//	injection   P12 the pod has no sidecar, P13 it opts out
//	variables   P14 a container has no variables of the sidecar, P15 one that AWS SDKs prefer
//	token       P16 the pod's token has another audience than the server's, P18 the API server refuses a token of the audience
//	sidecar     P17 the sidecar has no credentials yet
package podidentity
