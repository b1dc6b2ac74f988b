// Package awsname knows the names of Amazon Web Services: partitions, regions,
// accounts, hosts.
package awsname

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Partition is a part of AWS with accounts, regions and DNS names of its own.
type Partition struct {
	// Name is the partition in ARNs.
	Name string
	// Suffix ends the names of services, DualStack the names of endpoints with
	// IPv6 addresses.
	Suffix, DualStack string
	// Registries ends the dual-stack names of ECR's registries. Empty: there
	// are none.
	Registries string

	// Names of regions begin with prefix and have so many words, the number at
	// their end included.
	prefix string
	words  int
}

// partitions never changes. It is a variable, because hits of the cache would
// allocate a function's result.
var partitions = [...]Partition{
	{"aws", "amazonaws.com", "api.aws", "on.aws", "", 3},
	{"aws-cn", "amazonaws.com.cn", "api.amazonwebservices.com.cn", "on.amazonwebservices.com.cn", "cn-", 3},
	{"aws-us-gov", "amazonaws.com", "api.aws", "on.aws", "us-gov-", 4},
	{"aws-eusc", "amazonaws.eu", "api.amazonwebservices.eu", "", "eusc-", 4},
	{"aws-iso", "c2s.ic.gov", "api.aws.ic.gov", "", "us-iso-", 4},
	{"aws-iso-b", "sc2s.sgov.gov", "api.aws.scloud", "", "us-isob-", 4},
	{"aws-iso-e", "cloud.adc-e.uk", "api.cloud-aws.adc-e.uk", "", "eu-isoe-", 4},
	{"aws-iso-f", "csp.hci.ic.gov", "api.aws.hci.ic.gov", "", "us-isof-", 4},
}

// KnownPartition reports whether AWS has a partition of that name.
func KnownPartition(name string) bool {
	return slices.ContainsFunc(partitions[:], func(p Partition) bool { return p.Name == name })
}

// PartitionOf returns the partition of a region.
func PartitionOf(region string) (Partition, bool) {
	words := wordsOfRegion(region)
	for i := range partitions {
		p := &partitions[i]
		if words == p.words && strings.HasPrefix(region, p.prefix) && (p.prefix != "" || !hasOwnPrefix(region)) {
			return *p, true
		}
	}
	return Partition{}, false
}

// IsCommercialRegion reports whether the partition is aws. It is quicker than
// PartitionOf.
func IsCommercialRegion(region string) bool {
	return wordsOfRegion(region) == 3 && !hasOwnPrefix(region)
}

// hasOwnPrefix recognizes regions of other partitions that could have as many
// words as regions of aws.
func hasOwnPrefix(region string) bool {
	return strings.HasPrefix(region, "cn-") || strings.HasPrefix(region, "eusc-")
}

// IsSTSHost accepts
//
//	sts[-fips][.<region>].<suffix>
//	sts[-fips].<region>.<dual-stack suffix>
//	<VPC endpoint>.sts.<region>.vpce.<suffix>
func IsSTSHost(host string) bool {
	for _, p := range partitions {
		if labels, ok := strings.CutSuffix(host, "."+p.DualStack); ok && isRegionalSTS(labels) {
			return true
		}
		labels, ok := strings.CutSuffix(host, "."+p.Suffix)
		if !ok {
			continue
		}
		if labels == "sts" || labels == "sts-fips" || isRegionalSTS(labels) {
			return true
		}
		if endpoint, ok := strings.CutSuffix(labels, ".vpce"); ok {
			vpce, rest, _ := strings.Cut(endpoint, ".")
			return isVPCEndpoint(vpce) && isRegionalSTS(rest)
		}
	}
	return false
}

// STSRegion returns the region for the signature of requests to a host that
// IsSTSHost accepts: us-east-1 for the global endpoint of the commercial
// partition, "" for other hosts without a region.
func STSRegion(host string) string {
	service, rest, _ := strings.Cut(host, ".")
	if !strings.HasPrefix(service, "sts") {
		_, rest, _ = strings.Cut(rest, ".") // of a VPC endpoint
	}
	if region, _, _ := strings.Cut(rest, "."); ValidRegion(region) {
		return region
	}
	if rest == "amazonaws.com" {
		return "us-east-1"
	}
	return ""
}

func isRegionalSTS(labels string) bool {
	service, region, ok := strings.Cut(labels, ".")
	return ok && (service == "sts" || service == "sts-fips") && ValidRegion(region)
}

// isVPCEndpoint accepts vpce-<hex>-<letters and digits>[-<availability zone>].
func isVPCEndpoint(label string) bool {
	rest, ok := strings.CutPrefix(label, "vpce-")
	id, rest, _ := strings.Cut(rest, "-")
	return ok && len(id) >= 8 && len(label) <= 63 && all(id, isHex) && rest != "" && all(rest, isRegionChar)
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' }

func isRegionChar(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' }

// ValidRegion accepts the form of regions: us-east-1, us-gov-west-1,
// eusc-de-east-1. It has at least two words of letters and a number of up to
// two digits, with hyphens between them. It does not compare with a list,
// because AWS adds regions.
func ValidRegion(region string) bool { return wordsOfRegion(region) != 0 }

// wordsOfRegion counts the words of a region, with the number at its end. It
// returns 0 for anything else.
func wordsOfRegion(region string) int {
	const maxLength = 32
	if len(region) > maxLength {
		return 0
	}
	words, start := 0, 0
	for i := range len(region) {
		switch c := region[i]; {
		case c >= 'a' && c <= 'z':
		case c == '-' && i > start:
			words, start = words+1, i+1
		case isDigit(c) && words >= 2 && i == start:
			if i == len(region)-1 || i == len(region)-2 && isDigit(region[i+1]) {
				return words + 1
			}
			return 0
		default:
			return 0
		}
	}
	return 0
}

// ValidAccount reports whether s has the form of an account ID: 12 digits.
func ValidAccount(s string) bool {
	if len(s) != 12 {
		return false
	}
	for i := range len(s) { // this runs on every hit of the cache
		if !isDigit(s[i]) {
			return false
		}
	}
	return true
}

// ValidClusterName reports whether s can be the name of an EKS cluster: a
// letter or digit, then letters, digits, "-" and "_", 100 characters in all.
func ValidClusterName(s string) bool {
	const maxLength = 100
	return s != "" && len(s) <= maxLength && s[0] != '-' && s[0] != '_' &&
		all(s, func(c byte) bool { return isRegionChar(c) || c >= 'A' && c <= 'Z' || c == '_' })
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func all(s string, ok func(byte) bool) bool {
	for i := range len(s) {
		if !ok(s[i]) {
			return false
		}
	}
	return true
}

// Endpoint is the host of a service in a region.
type Endpoint struct {
	Service, Region string
	DualStack       bool
}

// ParseEndpoint parses <service>.<region>.<suffix>. It accepts the given
// services, and the suffixes of the region's own partition.
func ParseEndpoint(host string, services ...string) (Endpoint, bool) {
	for _, service := range services {
		if len(host) <= len(service) || host[:len(service)] != service || host[len(service)] != '.' {
			continue
		}
		region, suffix, _ := strings.Cut(host[len(service)+1:], ".")
		p, ok := PartitionOf(region)
		if ok && (suffix == p.Suffix || suffix == p.DualStack) {
			return Endpoint{service, region, suffix == p.DualStack}, true
		}
	}
	return Endpoint{}, false
}

// ParseGitHost parses the host of CodeCommit,
// git-codecommit[-fips].<region>.<suffix>.
func ParseGitHost(host string) (region string, ok bool) {
	e, ok := ParseEndpoint(host, "git-codecommit", "git-codecommit-fips")
	return e.Region, ok && !e.DualStack
}

// Registry is a parsed host of ECR.
type Registry struct {
	// Account is empty for the public registry.
	Account string
	Region  string
	// Public is the one public registry.
	Public bool
	// FIPS and DualStack select the endpoint.
	FIPS, DualStack bool
}

const (
	publicRegion  = "us-east-1"
	accountLength = 12
)

// ParseRegistry parses the hosts of ECR:
//
//	<account>.dkr.ecr[-fips].<region>.<suffix>
//	<account>.dkr-ecr[-fips].<region>.<dual-stack suffix of registries>
//	public.ecr.aws, ecr-public.aws.com
//
// where the suffix belongs to the region's partition.
func ParseRegistry(host string) (Registry, bool) {
	if host == "public.ecr.aws" || host == "ecr-public.aws.com" {
		return Registry{Region: publicRegion, Public: true}, true
	}
	if len(host) <= accountLength || host[accountLength] != '.' || !ValidAccount(host[:accountLength]) {
		return Registry{}, false
	}
	r, ok := parseRegional(host[accountLength+1:])
	r.Account = host[:accountLength]
	return r, ok
}

// LooksLikeRegistry reports whether a host is AWS's and named as a registry of
// ECR, also if ParseRegistry does not know its form.
func LooksLikeRegistry(host string) bool {
	of := func(suffix string) bool { return suffix != "" && strings.HasSuffix(host, "."+suffix) }
	if host == "public.ecr.aws" || host == "ecr-public.aws.com" || of("ecr.aws") {
		return true
	}
	return (strings.Contains(host, ".dkr.ecr") || strings.Contains(host, ".dkr-ecr")) &&
		slices.ContainsFunc(partitions[:], func(p Partition) bool {
			return of(p.Suffix) || of(p.DualStack) || of(p.Registries)
		})
}

// RegionOfPlainRegistry recognizes the usual form of a repository,
// <account>.dkr.ecr.<region>.amazonaws.com[/<repository>] in the commercial
// partition. It runs on every hit of the cache. ParseRegistry accepts all
// forms.
func RegionOfPlainRegistry(repository string) (region string, ok bool) {
	const infix, suffix = ".dkr.ecr.", ".amazonaws.com"
	host, _, _ := strings.Cut(repository, "/")
	start, end := accountLength+len(infix), len(host)-len(suffix)
	if start > end || host[accountLength:start] != infix || host[end:] != suffix || !ValidAccount(host[:accountLength]) {
		return "", false
	}
	return host[start:end], IsCommercialRegion(host[start:end])
}

func parseRegional(s string) (Registry, bool) {
	var r Registry
	switch {
	case strings.HasPrefix(s, "dkr.ecr."):
		s = s[len("dkr.ecr."):]
	case strings.HasPrefix(s, "dkr.ecr-fips."):
		s, r.FIPS = s[len("dkr.ecr-fips."):], true
	case strings.HasPrefix(s, "dkr-ecr."):
		s, r.DualStack = s[len("dkr-ecr."):], true
	case strings.HasPrefix(s, "dkr-ecr-fips."):
		s, r.FIPS, r.DualStack = s[len("dkr-ecr-fips."):], true, true
	default:
		return Registry{}, false
	}
	region, suffix, _ := strings.Cut(s, ".")
	p, ok := PartitionOf(region)
	want := p.Suffix
	if r.DualStack {
		want = p.Registries
	}
	r.Region = region
	return r, ok && want != "" && suffix == want
}

// ErrNoARN refuses a string that is not an ARN.
var ErrNoARN = errors.New(`it does not begin with "arn:"`)

// SplitARN returns the fields after "arn". Missing ones are empty.
func SplitARN(s string) (partition, service, region, account, resource string) {
	const fields = 6
	f := append(strings.SplitN(s, ":", fields), make([]string, fields)...)
	return f[1], f[2], f[3], f[4], f[5]
}

// ClusterARN holds the parts of
// arn:<partition>:eks:<region>:<account>:cluster/<name>.
type ClusterARN struct{ Partition, Region, Account, Name string }

// String returns the ARN.
func (a ClusterARN) String() string {
	return "arn:" + a.Partition + ":eks:" + a.Region + ":" + a.Account + ":cluster/" + a.Name
}

// ParseClusterARN parses the ARN of an EKS cluster. The error does not repeat
// the ARN.
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
