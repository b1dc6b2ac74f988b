package awsname

import "strings"

// Partition is a part of AWS with accounts, regions and DNS names of its own.
type Partition struct {
	// Name is that in ARNs.
	Name string
	// Suffix ends the names of services, DualStack those of the endpoints that have IPv6 addresses too.
	Suffix, DualStack string
	// Registries ends the dual-stack names of ECR's registries. Empty: there are none.
	Registries string
}

// PartitionOf returns the partition that a region lies in, by the names that AWS gives its regions: three words in the
// commercial partition (eu-central-1), and a prefix of their own in the others. A region that no partition claims has none.
func PartitionOf(region string) (Partition, bool) {
	if !ValidRegion(region) {
		return Partition{}, false
	}
	n := words(region)
	switch first, rest := cut(region, '-'); {
	case first == "cn":
		return Partition{"aws-cn", "amazonaws.com.cn", "api.amazonwebservices.com.cn", "on.amazonwebservices.com.cn"}, n == 3
	case first == "eusc":
		return Partition{"aws-eusc", "amazonaws.eu", "api.amazonwebservices.eu", ""}, n == 4
	case n == 3:
		return Partition{"aws", "amazonaws.com", "api.aws", "on.aws"}, true
	case n == 4:
		second, _ := cut(rest, '-')
		return restricted(first, second)
	}
	return Partition{}, false
}

// IsCommercialRegion reports whether PartitionOf finds the partition aws, quicker.
func IsCommercialRegion(region string) bool {
	return wordsOfRegion(region) == 3 && !strings.HasPrefix(region, "cn-") && !strings.HasPrefix(region, "eusc-")
}

func restricted(first, second string) (Partition, bool) {
	switch {
	case first == "us" && second == "gov":
		return Partition{"aws-us-gov", "amazonaws.com", "api.aws", "on.aws"}, true
	case first == "us" && second == "iso":
		return Partition{"aws-iso", "c2s.ic.gov", "api.aws.ic.gov", ""}, true
	case first == "us" && second == "isob":
		return Partition{"aws-iso-b", "sc2s.sgov.gov", "api.aws.scloud", ""}, true
	case first == "eu" && second == "isoe":
		return Partition{"aws-iso-e", "cloud.adc-e.uk", "api.cloud-aws.adc-e.uk", ""}, true
	case first == "us" && second == "isof":
		return Partition{"aws-iso-f", "csp.hci.ic.gov", "api.aws.hci.ic.gov", ""}, true
	}
	return Partition{}, false
}

func words(region string) int { return strings.Count(region, "-") + 1 }

// cut is strings.Cut at a byte, quicker: this runs on every hit of the cache.
func cut(s string, at byte) (before, after string) {
	if i := strings.IndexByte(s, at); i >= 0 {
		return s[:i], s[i+1:]
	}
	return s, ""
}

// Endpoint is the host of a service in a region.
type Endpoint struct {
	Service, Region string
	DualStack       bool
}

// ParseEndpoint takes <service>.<region>.<suffix> apart. The service is one of those given, and the suffix one of the
// region's own partition.
func ParseEndpoint(host string, services ...string) (Endpoint, bool) {
	for _, service := range services {
		if len(host) <= len(service) || host[:len(service)] != service || host[len(service)] != '.' {
			continue
		}
		region, suffix := cut(host[len(service)+1:], '.')
		p, ok := PartitionOf(region)
		if ok && (suffix == p.Suffix || suffix == p.DualStack) {
			return Endpoint{service, region, suffix == p.DualStack}, true
		}
	}
	return Endpoint{}, false
}

// ParseGitHost takes the host of CodeCommit apart, git-codecommit[-fips].<region>.<suffix>.
func ParseGitHost(host string) (region string, ok bool) {
	e, ok := ParseEndpoint(host, "git-codecommit", "git-codecommit-fips")
	return e.Region, ok && !e.DualStack
}

// Registry is what the host of an ECR registry says of it.
type Registry struct {
	// Account is empty if it is Public.
	Account string
	Region  string
	// Public is the one public registry.
	Public bool
	// FIPS and DualStack say which endpoints the host is of.
	FIPS, DualStack bool
}

const (
	publicRegion  = "us-east-1"
	accountLength = 12
)

// ParseRegistry knows the hosts of ECR:
//
//	<account>.dkr.ecr[-fips].<region>.<suffix>
//	<account>.dkr-ecr.<region>.<dual-stack suffix of registries>
//	public.ecr.aws, ecr-public.aws.com
//
// where the suffix is that of the region's own partition.
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

// RegionOfPlainRegistry knows the usual form of a repository, <account>.dkr.ecr.<region>.amazonaws.com[/<repository>] in the
// commercial partition, without taking it apart: this runs on every hit of the cache. ParseRegistry knows the others.
func RegionOfPlainRegistry(repository string) (region string, ok bool) {
	const infix, suffix = ".dkr.ecr.", ".amazonaws.com"
	host, _ := cut(repository, '/')
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
	default:
		return Registry{}, false
	}
	region, suffix := cut(s, '.')
	p, ok := PartitionOf(region)
	want := p.Suffix
	if r.DualStack {
		want = p.Registries
	}
	r.Region = region
	return r, ok && want != "" && suffix == want
}
