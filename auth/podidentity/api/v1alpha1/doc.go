// Package v1alpha1 has the API of pod identity (KEP-14). An IAMBinding binds a ServiceAccount of its namespace to an IAM role. The
// IAMRoleAllowList of the cluster's administrator lists the roles that each namespace may use.
//
// Without an IAMRoleAllowList no binding is admitted, and none is served. BindingCRD, AllowListCRD and Policy are the manifests to
// install. Policy needs Kubernetes 1.30 or newer.
//
// +kubebuilder:object:generate=true
// +groupName=iam.aws.k8s.io
package v1alpha1
