package aws

import (
	"crypto/sha256"
	"encoding/hex"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
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

// defaultSession is the name of a session that the options do not name.
func defaultSession(opts *auth.Options) string {
	sa := opts.ServiceAccount
	if subject := opts.SubjectServiceAccount; subject != nil {
		sa = &client.ObjectKey{Namespace: subject.Namespace, Name: subject.Name}
	}
	if sa == nil {
		return firstNonEmpty(sessionPrefix(opts), controllerSession)
	}
	return sessionName(sessionPrefix(opts), sa.Namespace, sa.Name)
}

// validSessionPart is what AWS lets session names and source identities hold.
func validSessionPart(s string) bool { return len(s) <= maxSessionName && allOf(s, "+=,.@-_") }
