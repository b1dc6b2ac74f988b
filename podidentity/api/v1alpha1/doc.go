// Package v1alpha1 holds the API of pod identity (KEP-14), for programs that
// write or read its objects. An [IAMBinding] binds a ServiceAccount in its
// namespace to an IAM role. The [IAMRoleAllowList] of the cluster's
// administrator lists the roles that each namespace may use. The example of the
// package makes both.
//
// Without an IAMRoleAllowList Kubernetes admits no binding, and the server
// serves none. Install [BindingCRD], [AllowListCRD] and [Policy]. Policy needs
// Kubernetes 1.30 or newer.
//
// +kubebuilder:object:generate=true
// +groupName=iam.aws.k8s.io
package v1alpha1
