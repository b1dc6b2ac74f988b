package ocm

// Types of registration items, and drivers of kubeClient items.
const (
	KubeClient   = "kubeClient"
	CustomSigner = "customSigner"

	DriverCSR   = "csr"
	DriverToken = "token"
)

// Registration is one item of an add-on's status.registrations, in the form of v1beta1 flattened. It is what drivers see, whichever
// version of the API the hub serves.
type Registration struct {
	// Type is KubeClient or CustomSigner.
	Type string
	// Driver is DriverCSR or DriverToken, "" until the agent has declared it. Only of kubeClient items.
	Driver string
	// SignerName is that of a customSigner item, such as example.com/signer.
	SignerName string
	// Subject is the identity that the credential says, empty until the agent has declared it.
	Subject Subject
}

// Subject is the identity that a credential says.
type Subject struct {
	// +optional
	User string `json:"user,omitempty"`
	// +optional
	// +listType=atomic
	Groups []string `json:"groups,omitempty"`
	// OrganizationUnits are only of customSigner items.
	// +optional
	// +listType=atomic
	OrganizationUnits []string `json:"organizationUnits,omitempty"`
}
