package registration

import "strings"

// Auth types.
const (
	// AuthTypeCSR is the auth type of the driver for client certificates.
	AuthTypeCSR = "csr"
	// AuthTypeAWS is the auth type of the driver for AWS IAM roles. Open
	// Cluster Management writes "awsirsa".
	AuthTypeAWS = "aws-irsa"
	// AuthTypeToken is the auth type of the driver for ServiceAccount tokens,
	// which registers only add-ons.
	AuthTypeToken = "token"
)

// AddOnServiceAccounts returns the names that the ServiceAccount of an add-on's
// tokens may have on the hub. The first name comes from the specification, the
// second from Open Cluster Management. A cluster c1 has no second name for an
// add-on c1-x, because it equals the first name of the add-on x.
func AddOnServiceAccounts(cluster, addOn string) []string {
	names := []string{cluster + "-" + addOn + "-agent", addOn + "-agent"}
	if strings.HasPrefix(addOn, cluster+"-") {
		return names[:1]
	}
	return names
}

// BootstrapGroup is the group of bootstrap users. A bootstrap token names it in
// auth-extra-groups.
const BootstrapGroup = "system:bootstrappers:managedcluster"
