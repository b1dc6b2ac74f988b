package aws

import (
	"crypto/sha256"
	"encoding/hex"
)

const (
	maxSessionName = 64
	sessionHash    = 32 // hexadecimal digits
)

// sessionName returns the role session name of a ServiceAccount. No two ServiceAccounts share one: a namespace holds
// no dot, so "<namespace>.<name>" can be taken apart, and names that are too long for AWS hold an "@", which neither
// part can.
func sessionName(namespace, name string) string {
	whole := namespace + "." + name
	if len(whole) <= maxSessionName {
		return whole
	}
	sum := sha256.Sum256([]byte(whole))
	return whole[:maxSessionName-sessionHash-1] + "@" + hex.EncodeToString(sum[:])[:sessionHash]
}
