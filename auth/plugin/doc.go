// Package plugin implements the wire formats of credential plugins: for kubectl and client-go, docker and go-containerregistry,
// git, the AWS SDKs, and the kubelet. It parses requests and encodes answers. Package auth supplies the credential in between:
//
//	request, err := plugin.ReadKubeletRequest(ctx, os.Stdin)
//	...
//	serviceAccount, err := plugin.ServiceAccountOf(request.ServiceAccountToken, request.ServiceAccountAnnotations)
//	...
//	credentials, err := auth.GetArtifactRegistryCredentials(ctx, provider, request.Image,
//		auth.WithSubjectToken(auth.NewStaticTokenSource(request.ServiceAccountToken), serviceAccount))
//	...
//	answer, err := plugin.EncodeKubeletResponse(request, user, password, credentials.ExpiresAt())
//
// Each Encode function or method returns a whole answer. Write it in one call and only on success, because a part could be mistaken for a
// credential. Reading is bounded in size and by the context. All functions are safe for concurrent use. Errors are *auth.Error
// and hold no input except names.
package plugin
