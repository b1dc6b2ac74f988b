// Package gcpname knows the names of Google Cloud: projects, locations, service
// accounts, hosts.
package gcpname

import "strings"

// DefaultUniverse is the domain of Google's own cloud. Sovereign clouds that
// Google's partners run have others.
const DefaultUniverse = "googleapis.com"

// ValidUniverse reports whether s can be the domain of a universe: a DNS name
// of two labels or more, in lower case. Its last label is not a number, unlike
// an IP address's.
func ValidUniverse(s string) bool {
	const maxName = 200 // leaves room for the names of services before it
	dot := strings.LastIndexByte(s, '.')
	return len(s) <= maxName && dot > 0 && validLabels(s) && !all(s[dot+1:], isDigit)
}

// IsSTSHost accepts the hosts of the security token service in a universe:
//
//	sts.<universe>
//	sts.<location>.rep.<universe>
//	sts-<endpoint>.p.<universe>
func IsSTSHost(host, universe string) bool {
	labels, ok := strings.CutSuffix(host, "."+universe)
	if !ok {
		return false
	}
	if labels == "sts" {
		return true
	}
	if location, ok := strings.CutSuffix(labels, ".rep"); ok {
		location, ok = strings.CutPrefix(location, "sts.")
		return ok && ValidLocation(location)
	}
	if endpoint, ok := strings.CutSuffix(labels, ".p"); ok {
		endpoint, ok = strings.CutPrefix(endpoint, "sts-")
		return ok && validLabel(endpoint)
	}
	return false
}

// s3nsUniverse is the universe of S3NS, a company in France.
const s3nsUniverse = "s3nsapis.fr"

// RegistryUniverse returns the universe whose registries have a host, in lower
// case, or "" if it is not the host of any:
//
//	googleapis.com  gcr.io, us.gcr.io, eu.gcr.io, asia.gcr.io, <location>-docker.pkg.dev
//	s3nsapis.fr     docker.s3nsregistry.fr, <location>-docker.s3nsregistry.fr
//
// Universes belong to different companies: none receives the tokens of another
// one.
func RegistryUniverse(host string) string {
	switch host {
	case "gcr.io", "us.gcr.io", "eu.gcr.io", "asia.gcr.io":
		return DefaultUniverse
	case "docker.s3nsregistry.fr":
		return s3nsUniverse
	}
	if location, ok := strings.CutSuffix(host, "-docker.pkg.dev"); ok && ValidLocation(location) {
		return DefaultUniverse
	}
	if location, ok := strings.CutSuffix(host, "-docker.s3nsregistry.fr"); ok && ValidLocation(location) {
		return s3nsUniverse
	}
	return ""
}

// LooksLikeRegistry reports whether a host is named as a registry of a
// universe, also if RegistryUniverse does not know its form. Names below gcr.io
// do not count: Container Registry gets no new ones, and some are public
// mirrors.
func LooksLikeRegistry(host string) bool {
	return RegistryUniverse(host) != "" || strings.HasSuffix(host, "-docker.pkg.dev") ||
		strings.HasSuffix(host, ".s3nsregistry.fr")
}

// IsGitHost accepts the hosts of Git over HTTPS of Secure Source Manager, which
// the default universe alone has, in lower case:
//
//	<instance>-<project number>-git.<location>.sourcemanager.dev
//	<instance>-<project number>-git.<location>.p.sourcemanager.dev
func IsGitHost(host string) bool {
	labels, ok := strings.CutSuffix(host, ".sourcemanager.dev")
	if !ok {
		return false
	}
	labels, _ = strings.CutSuffix(labels, ".p")
	name, location, _ := strings.Cut(labels, ".")
	name, ok = strings.CutSuffix(name, "-git")
	dash := strings.LastIndexByte(name, '-')
	return ok && dash > 0 && validLabel(name[:dash]) && ValidProjectNumber(name[dash+1:]) && ValidLocation(location) &&
		len(name)+len("-git") <= maxLabel
}

// IsDNSEndpoint accepts the DNS endpoints of GKE's control planes, names below
// gke.goog in lower case.
func IsDNSEndpoint(host string) bool {
	labels, ok := strings.CutSuffix(host, ".gke.goog")
	const maxName = 253
	return ok && validLabels(labels) && len(host) <= maxName
}

// ValidProjectNumber reports whether s is the number of a project, without a
// leading zero.
func ValidProjectNumber(s string) bool {
	const most = 20
	return s != "" && len(s) <= most && s[0] != '0' && all(s, isDigit)
}

// ValidProject reports whether s is the ID of a project, [<domain>:]<name>, or
// its number.
func ValidProject(s string) bool {
	if domain, name, _ := strings.Cut(s, ":"); name != "" {
		return validLabels(domain) && validLabel(name)
	}
	return validLabel(s)
}

// ValidLocation reports whether s can be a region, a zone or a multi-region,
// such as "europe-west1" or "us".
func ValidLocation(s string) bool { return validLabel(s) && s[0] >= 'a' }

// ValidMembership reports whether s can be the name of a cluster in a fleet.
func ValidMembership(s string) bool { return validLabel(s) }

// ValidClusterName reports whether s can be the name of a GKE cluster.
func ValidClusterName(s string) bool { return validLabel(s) && s[0] >= 'a' }

// validPoolPart reports whether s can be the ID of a workload identity pool, or
// of a provider in it.
func validPoolPart(s string) bool {
	const least, most = 4, 32
	return len(s) >= least && len(s) <= most && all(s, isNameChar)
}

const maxLabel = 63

// validLabel is a DNS label of RFC 1123 in lower case.
func validLabel(s string) bool {
	return s != "" && len(s) <= maxLabel && s[0] != '-' && s[len(s)-1] != '-' && all(s, isNameChar)
}

func validLabels(s string) bool {
	for {
		label, rest, _ := strings.Cut(s, ".")
		if !validLabel(label) {
			return false
		}
		if len(label) == len(s) {
			return true
		}
		s = rest
	}
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isNameChar(c byte) bool { return c >= 'a' && c <= 'z' || isDigit(c) || c == '-' }

func all(s string, is func(byte) bool) bool {
	for i := range len(s) {
		if !is(s[i]) {
			return false
		}
	}
	return true
}
