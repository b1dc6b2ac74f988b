// Package object holds the code that the stores of objects share.
package object

import (
	"fmt"
	"strings"

	"github.com/workloadid/workloadid/auth/provider"
)

// CacheControl is the header of every published file.
const CacheControl = "public, max-age=300"

// Prefix returns a prefix that can precede a path: empty, or with one slash at
// its end.
func Prefix(prefix string) (string, error) {
	prefix = strings.Trim(prefix, "/")
	if prefix == "" {
		return "", nil
	}
	for segment := range strings.SplitSeq(prefix, "/") {
		if segment == "" || segment == "." || segment == ".." || strings.ContainsFunc(segment, isInvalid) {
			return "", fmt.Errorf("the prefix %.200q is refused: use the path of the issuer's URL, such as \"cluster-1\"",
				prefix)
		}
	}
	return prefix + "/", nil
}

// isInvalid reports characters that URLs and object names encode in different
// ways.
func isInvalid(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`\"<>?#%*|`, r) }

// Refusals holds reason and remedy by the code of a service.
type Refusals map[string]struct {
	Reason provider.Reason
	Remedy string
}

// Explain completes an error by its code. An error with an unknown code stays
// unavailable.
func (r Refusals) Explain(e *provider.Error) *provider.Error {
	if known, ok := r[e.Code]; ok {
		e.Reason, e.Remedy = known.Reason, known.Remedy
	}
	return e
}
