// Package awsname knows the names of Amazon Web Services: partitions, regions, accounts, hosts.
package awsname

import "strings"

// Suffixes returns the DNS suffixes of AWS's partitions, and those of their dual-stack endpoints.
func Suffixes() (plain, dualStack []string) {
	return []string{"amazonaws.com", "amazonaws.com.cn", "amazonaws.eu",
			"c2s.ic.gov", "sc2s.sgov.gov", "cloud.adc-e.uk", "csp.hci.ic.gov"},
		[]string{"api.aws", "api.amazonwebservices.com.cn", "api.amazonwebservices.eu",
			"api.aws.ic.gov", "api.aws.scloud", "api.cloud-aws.adc-e.uk", "api.aws.hci.ic.gov"}
}

// KnownPartition reports whether AWS has a partition of that name.
func KnownPartition(p string) bool {
	switch p {
	case "aws", "aws-cn", "aws-us-gov", "aws-iso", "aws-iso-b", "aws-iso-e", "aws-iso-f", "aws-eusc":
		return true
	}
	return false
}

// IsSTSHost accepts
//
//	sts[-fips][.<region>].<suffix>
//	sts[-fips].<region>.<dual-stack suffix>
//	<VPC endpoint>.sts.<region>.vpce.<suffix>
func IsSTSHost(host string) bool {
	plain, dualStack := Suffixes()
	for _, suffix := range plain {
		labels, ok := strings.CutSuffix(host, "."+suffix)
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
	for _, suffix := range dualStack {
		if labels, ok := strings.CutSuffix(host, "."+suffix); ok {
			return isRegionalSTS(labels)
		}
	}
	return false
}

// STSRegion returns the region for the signature of requests to a host that IsSTSHost accepts: us-east-1 for the global endpoint of the
// commercial partition, "" for other hosts without a region.
func STSRegion(host string) string {
	service, rest := cut(host, '.')
	if !strings.HasPrefix(service, "sts") {
		_, rest = cut(rest, '.') // of a VPC endpoint
	}
	if region, _ := cut(rest, '.'); ValidRegion(region) {
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

// ValidRegion accepts the form of regions: us-east-1, us-gov-west-1, eusc-de-east-1. It has at least two words of letters and a number of
// up to two digits, with hyphens between them. There is no list, because AWS adds regions.
func ValidRegion(region string) bool { return wordsOfRegion(region) != 0 }

// wordsOfRegion counts the words of a region, with the number at its end. It returns 0 for anything else.
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

// ValidClusterName reports whether s can be the name of an EKS cluster: a letter or digit, then letters, digits, "-" and
// "_", 100 characters in all.
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
