package registration

// Names picks the names on the wire where the proposals that this module implements and the released Open Cluster Management
// differ. It changes names only. Readers accept both.
type Names string

const (
	// ProposedNames are those of the proposals, the default.
	ProposedNames Names = ""
	// OCMNames are those of Open Cluster Management as released in June 2026.
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

// Auth types that are the same for all Names.
const (
	// AuthTypeCSR is that of the driver for client certificates.
	AuthTypeCSR = "csr"
	// AuthTypeToken is that of the driver for ServiceAccount tokens, which registers add-ons alone.
	AuthTypeToken = "token"
)
