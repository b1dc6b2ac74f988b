package registration

// Names selects names on the wire where OCM's proposals and released OCM differ. It changes nothing else. Readers accept both.
type Names string

const (
	// ProposedNames selects the names of the proposals, the default.
	ProposedNames Names = ""
	// OCMNames selects the names of Open Cluster Management as of June 2026.
	OCMNames Names = "ocm"
)

// AuthTypeAWS returns the auth type of the AWS IAM driver. AuthTypeCSR is the same for both.
func (n Names) AuthTypeAWS() string {
	if n == OCMNames {
		return "awsirsa"
	}
	return "aws-irsa"
}

// AddOnServiceAccount returns the name of the ServiceAccount whose tokens an add-on of a cluster uses.
func (n Names) AddOnServiceAccount(cluster, addOn string) string {
	if n == OCMNames {
		return addOn + "-agent"
	}
	return cluster + "-" + addOn + "-agent"
}

// TokenCondition returns the type of the condition in which an add-on's agent reports its token.
func (n Names) TokenCondition() string {
	if n == OCMNames {
		return "TokenRefreshed"
	}
	return "AddonTokenRefreshed"
}

// Auth types under all Names.
const (
	// AuthTypeCSR is the auth type of the driver for client certificates.
	AuthTypeCSR = "csr"
	// AuthTypeToken is the auth type of the driver for ServiceAccount tokens, which registers only add-ons.
	AuthTypeToken = "token"
)
