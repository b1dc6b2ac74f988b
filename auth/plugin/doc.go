// Package plugin implements the wire formats of credential plugins, for authors
// of such programs: for kubectl and client-go, docker and go-containerregistry,
// git, the AWS SDKs, and the kubelet. It parses requests and encodes answers.
// Package auth supplies the credential in between, as the example of the
// package shows for the kubelet.
//
// Each Encode function or method returns a whole answer. Write it in one call
// and only on success, because a part could be mistaken for a credential.
// Reading is bounded in size and by the context. All functions are safe for
// concurrent use. Errors are [*auth.Error] and hold no input except names.
package plugin
