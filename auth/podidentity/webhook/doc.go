// Package webhook injects the proxy of package proxy into pods whose ServiceAccount has an IAMBinding.
//
// New returns an http.Handler for a MutatingWebhookConfiguration on the creation of pods, with failurePolicy Fail,
// reinvocationPolicy IfNeeded, sideEffects None, and a namespaceSelector: only namespaces that opt in ask the webhook.
//
// A pod gets a native sidecar, first among its init containers, a projected ServiceAccount token with the server's audience, and the
// variables by which AWS SDKs find the sidecar. The sidecar's startup probe succeeds when it has credentials, so the other
// containers start after that. The handler changes nothing else, and nothing if it is called again. Everything that it adds passes
// the Pod Security level restricted, except in the mode that AnnotationRedirect asks for.
package webhook
