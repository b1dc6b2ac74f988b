package v1alpha1

import _ "embed"

// BindingCRD is the CustomResourceDefinition of IAMBindings, in YAML.
//
//go:embed iam.aws.k8s.io_iambindings.yaml
var BindingCRD string

// AllowListCRD is the CustomResourceDefinition of the IAMRoleAllowList, in YAML.
//
//go:embed iam.aws.k8s.io_iamroleallowlists.yaml
var AllowListCRD string

// Policy holds the ValidatingAdmissionPolicies with their bindings, in YAML. They refuse IAMBindings that the IAMRoleAllowList does not
// allow, and those with more than 32,768 characters of metadata.
//
//go:embed policy.yaml
var Policy string
