package v1alpha1

import _ "embed"

var (
	//go:embed iam.aws.k8s.io_iambindings.yaml
	bindingCRD string
	//go:embed iam.aws.k8s.io_iamroleallowlists.yaml
	allowListCRD string
	//go:embed policy.yaml
	policy string
)

// BindingCRD is the CustomResourceDefinition of IAMBindings, in YAML.
func BindingCRD() string { return bindingCRD }

// AllowListCRD is the CustomResourceDefinition of the [IAMRoleAllowList], in
// YAML.
func AllowListCRD() string { return allowListCRD }

// Policy holds the ValidatingAdmissionPolicies with their bindings, in YAML.
// They refuse IAMBindings that the [IAMRoleAllowList] does not allow. They also
// refuse IAMBindings with more than 32,768 characters of metadata, or with a
// time in their status that Go cannot read.
func Policy() string { return policy }
