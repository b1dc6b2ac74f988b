// Package plugin speaks the protocols of programs that take credentials from plugins: kubectl and client-go, docker and
// go-containerregistry, git, the AWS SDKs, the kubelet. It reads what they ask and writes what they expect; the credential in
// between comes from package auth:
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
// Each Encode function returns a whole answer, which is to be written at once and only if all went well: half an answer
// could be mistaken for a credential. Reading is bounded, in size and by the context. Everything here is safe for concurrent
// use. Errors are *auth.Error and hold nothing of what was read but names.
package plugin
