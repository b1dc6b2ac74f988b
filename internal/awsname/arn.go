package awsname

import (
	"errors"
	"fmt"
	"strings"
)

// ErrNoARN refuses a string that is no ARN at all.
var ErrNoARN = errors.New(`it does not begin with "arn:"`)

// SplitARN returns the fields after "arn". Missing ones are empty.
func SplitARN(s string) (partition, service, region, account, resource string) {
	const fields = 6
	f := append(strings.SplitN(s, ":", fields), make([]string, fields)...)
	return f[1], f[2], f[3], f[4], f[5]
}

// ClusterARN holds the parts of arn:<partition>:eks:<region>:<account>:cluster/<name>.
type ClusterARN struct{ Partition, Region, Account, Name string }

// String returns the ARN.
func (a ClusterARN) String() string {
	return "arn:" + a.Partition + ":eks:" + a.Region + ":" + a.Account + ":cluster/" + a.Name
}

// ParseClusterARN parses the ARN of an EKS cluster. The error does not repeat the ARN.
func ParseClusterARN(s string) (ClusterARN, error) {
	partition, service, region, account, resource := SplitARN(s)
	name, ok := strings.CutPrefix(resource, "cluster/")
	a := ClusterARN{Partition: partition, Region: region, Account: account, Name: name}
	of, known := PartitionOf(region)
	switch {
	case !strings.HasPrefix(s, "arn:"):
		return a, ErrNoARN
	case !KnownPartition(partition):
		return a, fmt.Errorf("AWS has no partition %.100q", partition)
	case service != "eks":
		return a, fmt.Errorf("the service has to be eks, not %.100q", service)
	case !known || of.Name != partition:
		return a, fmt.Errorf("%.100q is not a region of the partition %q", region, partition)
	case !ValidAccount(account):
		return a, fmt.Errorf("the account has to be 12 digits, not %.100q", account)
	case !ok || !ValidClusterName(name):
		return a, fmt.Errorf("the resource has to be cluster/<name>, not %.200q", resource)
	}
	return a, nil
}
