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

// Policy is the ValidatingAdmissionPolicy with its binding, in YAML: it refuses IAMBindings that the IAMRoleAllowList does not allow.
//
//go:embed policy.yaml
var Policy string
