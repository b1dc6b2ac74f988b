// Package v1alpha1 has the API of pod identity (KEP-14): the IAMBinding, which binds a ServiceAccount of its namespace to an IAM role,
// and the IAMRoleAllowList, in which the administrator of the cluster says which namespaces may use which roles.
//
// The zero state grants nothing: without an IAMRoleAllowList no binding is admitted, and none is served. CRDs and Policy are the
// manifests to install, the second with Kubernetes 1.30 or newer.
//
// +kubebuilder:object:generate=true
// +groupName=iam.aws.k8s.io
package v1alpha1
