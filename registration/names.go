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

// AuthTypeCSR is the auth type of the driver for client certificates.
const AuthTypeCSR = "csr"
