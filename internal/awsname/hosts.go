package awsname

import "strings"

// Partition is a part of AWS with accounts, regions and DNS names of its own.
type Partition struct {
	// Name is the partition in ARNs.
	Name string
	// Suffix ends the names of services, DualStack the names of endpoints with IPv6 addresses.
	Suffix, DualStack string
	// Registries ends the dual-stack names of ECR's registries. Empty: there are none.
	Registries string
}

// PartitionOf returns the partition of a region. The names of regions have three words in the commercial partition (eu-central-1), and a
// prefix of their own in the others.
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

// IsCommercialRegion reports whether the partition is aws. It is quicker than PartitionOf.
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

// cut is a quicker strings.Cut. It runs on every hit of the cache.
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

// ParseEndpoint parses <service>.<region>.<suffix>. It accepts the given services, and the suffixes of the region's own partition.
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

// ParseGitHost parses the host of CodeCommit, git-codecommit[-fips].<region>.<suffix>.
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

// RegionOfPlainRegistry recognizes the usual form of a repository, <account>.dkr.ecr.<region>.amazonaws.com[/<repository>] in the
// commercial partition. It runs on every hit of the cache. ParseRegistry accepts all forms.
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
