package awsirsa

import "fmt"

// Keys of the hub's own tags.
const (
	// tagOwnerHub and tagOwnerCluster identify the hub's own objects with its
	// ARN and the name of the ManagedCluster. The hub changes and deletes only
	// objects with both tags.
	tagOwnerHub     = "registration.open-cluster-management.io/hub-cluster-arn"
	tagOwnerCluster = "registration.open-cluster-management.io/managed-cluster"
	// tagRoleID holds the unique ID of an access entry's role. The entry does
	// not work for another role of the same name.
	tagRoleID = "registration.open-cluster-management.io/role-id"
)

// checkPair refuses clusters that no role can connect: AWS accepts no role of
// one partition in another.
func checkPair(hub, managed ClusterARN) error {
	if hub.Partition != managed.Partition {
		return fmt.Errorf(
			"the managed cluster %q lies in the partition %q and the hub %q in %q: roles cannot be assumed across partitions, so use a hub in the cluster's own",
			managed.String(), managed.Partition, hub.String(), hub.Partition)
	}
	return nil
}
