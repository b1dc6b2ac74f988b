// Package webhook injects the proxy of package proxy into pods whose
// ServiceAccount has an IAMBinding, for programs that run pod identity in a
// cluster. The example of the package admits a pod.
//
// [New] returns an [http.Handler] for a MutatingWebhookConfiguration on the
// creation of pods. The configuration needs failurePolicy Fail,
// reinvocationPolicy IfNeeded, sideEffects None, and a namespaceSelector for
// the namespaces that opt in.
//
// A second rule may send the creation and update of IAMBindings to the handler,
// with failurePolicy Ignore. The handler warns if a ServiceAccount has two.
//
// The handler adds three things to a pod:
//
//   - a native sidecar, first among the init containers; its startup probe
//     succeeds once it has credentials
//   - a projected ServiceAccount token with the server's audience
//   - the variables by which AWS SDKs find the sidecar
//
// The other containers start after the sidecar. A second call changes nothing.
// The additions pass the Pod Security level restricted, unless the pod has
// [AnnotationRedirect].
package webhook
