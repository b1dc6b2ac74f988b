// Package awsname knows the names of Amazon Web Services: partitions, regions, accounts, hosts.
package awsname

import "strings"

// Suffixes returns the DNS suffixes of AWS's partitions, and those of their dual-stack endpoints.
func Suffixes() (plain, dualStack []string) {
	return []string{"amazonaws.com", "amazonaws.com.cn", "amazonaws.eu",
			"c2s.ic.gov", "sc2s.sgov.gov", "cloud.adc-e.uk", "csp.hci.ic.gov"},
		[]string{"api.aws", "api.amazonwebservices.com.cn", "api.amazonwebservices.eu"}
}

// KnownPartition reports whether AWS has a partition of that name.
func KnownPartition(p string) bool {
	switch p {
	case "aws", "aws-cn", "aws-us-gov", "aws-iso", "aws-iso-b", "aws-iso-e", "aws-iso-f", "aws-eusc":
		return true
	}
	return false
}

// IsSTSHost knows
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

func isRegionalSTS(labels string) bool {
	service, region, ok := strings.Cut(labels, ".")
	return ok && (service == "sts" || service == "sts-fips") && ValidRegion(region)
}

// isVPCEndpoint knows vpce-<hex>-<letters and digits>[-<availability zone>].
func isVPCEndpoint(label string) bool {
	rest, ok := strings.CutPrefix(label, "vpce-")
	id, rest, _ := strings.Cut(rest, "-")
	return ok && len(id) >= 8 && len(label) <= 63 && all(id, isHex) && rest != "" && all(rest, isRegionChar)
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' }

func isRegionChar(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' }

// ValidRegion knows the shape of regions: us-east-1, us-gov-west-1, eusc-de-east-1. New ones appear, so there is no list.
func ValidRegion(region string) bool {
	last := strings.LastIndexByte(region, '-')
	if last < 0 || len(region) > 32 {
		return false
	}
	number, words := region[last+1:], region[:last]
	return number != "" && len(number) <= 2 && all(number, isDigit) &&
		strings.Contains(words, "-") && !strings.Contains(words, "--") && words[0] != '-' && words[len(words)-1] != '-' &&
		all(words, func(c byte) bool { return c >= 'a' && c <= 'z' || c == '-' })
}

// ValidAccount reports whether s has the form of an account ID: 12 digits.
func ValidAccount(s string) bool { return len(s) == 12 && all(s, isDigit) }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func all(s string, ok func(byte) bool) bool {
	for i := range len(s) {
		if !ok(s[i]) {
			return false
		}
	}
	return true
}
