package awsirsa

import (
	"crypto/md5" //nolint:gosec // the protocol's hash, for names alone
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/workloadid/workloadid/internal/awsname"
)

// ClusterARN names an EKS cluster:
// arn:<partition>:eks:<region>:<account>:cluster/<name>.
type ClusterARN struct{ Partition, Region, Account, Name string }

// String returns the ARN.
func (a ClusterARN) String() string {
	return "arn:" + a.Partition + ":eks:" + a.Region + ":" + a.Account + ":cluster/" + a.Name
}

// ParseClusterARN parses the ARN of an EKS cluster in any partition. It accepts
// only the spelling that [ClusterARN.String] returns.
func ParseClusterARN(s string) (ClusterARN, error) {
	arn, err := awsname.ParseClusterARN(s)
	if err != nil {
		return ClusterARN{},
			fmt.Errorf(
				"%.300q is not the ARN of an EKS cluster: %w; write arn:<partition>:eks:<region>:<account>:cluster/<name>", s, err)
	}
	return ClusterARN(arn), nil
}

// Keys of the tags that describe a pair of clusters. The hub role's trust
// policy requires them.
const (
	tagHubAccount     = "hub_cluster_account_id"
	tagHubName        = "hub_cluster_name"
	tagManagedAccount = "managed_cluster_account_id"
	tagManagedName    = "managed_cluster_name"
)

// Tags returns the tags of a pair of clusters, which both of its roles carry.
func Tags(hub, managed ClusterARN) map[string]string {
	return map[string]string{tagHubAccount: hub.Account, tagHubName: hub.Name, tagManagedAccount: managed.Account,
		tagManagedName: managed.Name}
}

// RoleSuffix returns the hash in the names of a pair's roles, computed from the
// values of its tags. It ignores partition and region, so two clusters with the
// same name and account share it. Ownership tags keep these apart.
func RoleSuffix(hub, managed ClusterARN) string {
	//nolint:gosec // as above
	sum := md5.Sum([]byte(strings.Join([]string{hub.Account, hub.Name, managed.Account, managed.Name},
		"#")))
	return hex.EncodeToString(sum[:])
}

// GrantedRoleName returns the name of the role in the hub's account that a
// managed cluster's agent uses on the hub.
func GrantedRoleName(hub, managed ClusterARN) string {
	return grantedRolePrefix + RoleSuffix(hub, managed)
}

// AgentRoleName returns the name of the agent's first role, in the managed
// cluster's account.
func AgentRoleName(hub, managed ClusterARN) string {
	return "ocm-managed-cluster-" + RoleSuffix(hub, managed)
}

// GrantedRoleARN returns the ARN of the role with [GrantedRoleName].
func GrantedRoleARN(hub, managed ClusterARN) string {
	return roleARN(hub, GrantedRoleName(hub, managed))
}

// AgentRoleARN returns the ARN of the role with [AgentRoleName].
func AgentRoleARN(hub, managed ClusterARN) string {
	return roleARN(managed, AgentRoleName(hub, managed))
}

// grantedRolePrefix begins the names of all roles with GrantedRoleName.
const grantedRolePrefix = "ocm-hub-"

const (
	identityCreatorSuffix = "_managed-cluster-identity-creator"
	maxRoleName           = 64
)

// HubRoleName returns the name of the hub's own role, with which it creates the
// others. It fails for hub names over 31 characters, which are too long for
// IAM.
func HubRoleName(hub ClusterARN) (string, error) {
	const longest = maxRoleName - len(identityCreatorSuffix)
	if len(hub.Name) > longest {
		return "",
			fmt.Errorf(
				"the name of the hub, %q, has %d characters: use a hub with at most %d, since the name of an IAM role has at most %d and that of the hub's role is <hub>%s",
				hub.Name, len(hub.Name), longest, maxRoleName, identityCreatorSuffix)
	}
	return hub.Name + identityCreatorSuffix, nil
}

// HubRoleARN returns the ARN of the role with [HubRoleName].
func HubRoleARN(hub ClusterARN) (string, error) {
	name, err := HubRoleName(hub)
	if err != nil {
		return "", err
	}
	return roleARN(hub, name), nil
}

// RoleARN returns the ARN of a role in the account of a cluster.
func roleARN(of ClusterARN, name string) string {
	return "arn:" + of.Partition + ":iam::" + of.Account + ":role/" + name
}

// DefaultKlusterlet begins the names of the ServiceAccounts that an agent's
// role trusts.
const DefaultKlusterlet = "klusterlet"
