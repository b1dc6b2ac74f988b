package ocm

// Types of registration items.
const (
	KubeClient   = "kubeClient"
	CustomSigner = "customSigner"
)

// Registration is one item of an add-on's status.registrations, in the
// flattened form of v1beta1. Drivers see this form for every version of the
// API.
type Registration struct {
	// Type is KubeClient or CustomSigner.
	Type string
	// Driver is an auth type, "csr" or "token", and "" until the agent has
	// declared it. Only kubeClient items have one.
	Driver string
	// SignerName is the signer of a customSigner item, such as
	// example.com/signer.
	SignerName string
	// Subject is the identity in the credential. It is empty until the agent
	// has declared it.
	Subject Subject
}

// Subject is the identity in a credential.
type Subject struct {
	// +optional
	User string `json:"user,omitempty"`
	// +optional
	// +listType=atomic
	Groups []string `json:"groups,omitempty"`
	// OrganizationUnits applies only to customSigner items.
	// +optional
	// +listType=atomic
	OrganizationUnits []string `json:"organizationUnits,omitempty"`
}
