package aws

import (
	"errors"
	"fmt"
	"strings"

	"github.com/workloadid/workloadid/internal/awsname"
)

// RoleARN is the name of an IAM role:
// arn:<partition>:iam::<account>:role<path><name>.
type RoleARN struct {
	// Partition is one of AWS's, such as "aws" or "aws-cn".
	Partition string
	// Account has 12 digits.
	Account string
	// Path begins and ends with a slash; mostly it is "/".
	Path string
	// Name has at most 64 characters.
	Name string
}

// String returns the ARN.
func (a RoleARN) String() string {
	return "arn:" + a.Partition + ":iam::" + a.Account + ":role" + a.Path + a.Name
}

// isPlainRole recognizes the usual form of a role ARN, with the partition aws
// and no path. It runs on every hit of the cache.
func isPlainRole(arn string) bool {
	const prefix, infix = "arn:aws:iam::", ":role/"
	const account, name = len(prefix) + accountLength, len(prefix) + accountLength + len(infix)
	return len(arn) > name && len(arn) <= name+maxRoleName && arn[:len(prefix)] == prefix && arn[account:name] == infix &&
		awsname.ValidAccount(arn[len(prefix):account]) && validRoleName(arn[name:])
}

const (
	maxRolePath   = 512
	maxRoleName   = 64
	accountLength = 12
	maxARN        = 2048 // of IAM
)

// ParseRoleARN parses the ARN of an IAM role. The error does not repeat the
// ARN.
func ParseRoleARN(s string) (RoleARN, error) { return parseRoleARN(s, false) }

// parseRoleARN also accepts names of services other than AWS, if other is set.
// MinIO writes arn:minio:iam:<region>::role/<name>, Ceph
// arn:aws:iam::<tenant>:role<path><name>. Region and tenant are mostly empty.
func parseRoleARN(s string, other bool) (RoleARN, error) {
	partition, service, region, account, resource := awsname.SplitARN(s)
	a := RoleARN{Partition: partition, Account: account}
	rest, ok := strings.CutPrefix(resource, "role/")
	switch {
	case !strings.HasPrefix(s, "arn:"):
		return a, awsname.ErrNoARN
	case !awsname.KnownPartition(partition) && (!other || partition == "" || !allOf(partition, "-")):
		return a, fmt.Errorf("AWS has no partition %.100q", partition)
	case service != "iam":
		return a, wrongService(service)
	case region != "" && (!other || !allOf(region, "-")):
		return a, fmt.Errorf("roles have no region, but it has %.100q", region)
	case !awsname.ValidAccount(account) && (!other || !allOf(account, "-_")):
		return a, fmt.Errorf("the account has to be 12 digits, not %.100q", account)
	case !ok:
		return a, wrongResource(resource)
	}
	slash := strings.LastIndexByte(rest, '/')
	a.Path, a.Name = resource[len("role"):len("role/")+slash+1], rest[slash+1:]
	return a, a.check()
}

// isPlainCluster recognizes the usual form of a cluster's ARN, in the partition
// aws. It runs on every hit of the cache.
func isPlainCluster(arn string) bool {
	const prefix, infix = "arn:aws:eks:", ":cluster/"
	if len(arn) < len(prefix) || arn[:len(prefix)] != prefix {
		return false
	}
	region, rest, _ := strings.Cut(arn[len(prefix):], ":")
	const name = accountLength + len(infix)
	return len(rest) > name && rest[accountLength:name] == infix && awsname.ValidAccount(rest[:accountLength]) &&
		awsname.ValidClusterName(rest[name:]) && awsname.IsCommercialRegion(region)
}

// cutSession parses
// arn:<partition>:sts::<account>:assumed-role/<role>/<session>. It returns
// nothing for another ARN. Services other than AWS have no account.
func cutSession(arn, session string) (partition, account, role string) {
	partition, service, region, account, resource := awsname.SplitARN(arn)
	resource, isSession := strings.CutSuffix(resource, "/"+session)
	role, isRole := strings.CutPrefix(resource, "assumed-role/")
	if len(arn) > maxARN || !strings.HasPrefix(arn, "arn:") || service != "sts" || region != "" ||
		account != "" && !awsname.ValidAccount(account) ||
		!isSession || !isRole || role == "" || strings.Contains(role, ":") {
		return "", "", ""
	}
	return partition, account, role
}

func (a RoleARN) check() error {
	switch {
	case a.Name == "":
		return errors.New("the name of the role is missing")
	case len(a.Name) > maxRoleName:
		return fmt.Errorf("the name of the role has %d characters, at most %d are allowed", len(a.Name), maxRoleName)
	case !validRoleName(a.Name):
		return fmt.Errorf("the name of the role may hold letters, digits and +=,.@_- only, but is %q", a.Name)
	case len(a.Path) > maxRolePath:
		return fmt.Errorf("the path of the role has %d characters, at most %d are allowed", len(a.Path), maxRolePath)
	case !validRolePath(a.Path):
		return fmt.Errorf("the path of the role may hold printable ASCII without blanks or empty parts only, but is %q",
			a.Path)
	}
	return nil
}

// wrongService and wrongResource name the most frequent mistakes.
func wrongService(service string) error {
	if service == "sts" {
		return errors.New("it names a session (sts); give the role itself (iam)")
	}
	return fmt.Errorf("the service has to be iam, not %.100q", service)
}

func wrongResource(resource string) error {
	kind, _, _ := strings.Cut(resource, "/")
	switch kind {
	case "oidc-provider":
		return errors.New("it names an OIDC provider; give the role that trusts it")
	case "user", "group", "policy", "instance-profile", "saml-provider":
		return fmt.Errorf("it names a %s, not a role", kind)
	}
	return fmt.Errorf("the resource has to be role/<name>, not %.100q", resource)
}

func validRoleName(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '-', c == '_', c == '.', c == '+', c == '=', c == ',', c == '@':
		default:
			return false
		}
	}
	return true
}

func validRolePath(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f || i > 0 && s[i] == '/' && s[i-1] == '/' {
			return false
		}
	}
	return true
}
