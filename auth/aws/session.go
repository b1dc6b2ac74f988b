package aws

import (
	"crypto/sha256"
	"encoding/hex"
)

const (
	maxSessionName = 64
	sessionHash    = 32 // hexadecimal digits
)

// controllerSession is the session of a role that the controller assumes for itself. It has no dot and no "@", as those of
// ServiceAccounts do.
const controllerSession = "workloadid"

// sessionName returns the role session name of a ServiceAccount. No two ServiceAccounts share one: neither prefix nor
// namespace hold a dot, "=" or "@", so "[<prefix>=]<namespace>.<name>" can be taken apart, and names that are too long for
// AWS hold an "@", which no part can.
func sessionName(prefix, namespace, name string) string {
	whole := namespace + "." + name
	if prefix != "" {
		whole = prefix + "=" + whole
	}
	if len(whole) <= maxSessionName {
		return whole
	}
	sum := sha256.Sum256([]byte(whole))
	return whole[:maxSessionName-sessionHash-1] + "@" + hex.EncodeToString(sum[:])[:sessionHash]
}

// validSessionPart is what AWS lets session names and source identities hold.
func validSessionPart(s string) bool { return len(s) <= maxSessionName && allOf(s, "+=,.@-_") }
