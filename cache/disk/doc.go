// Package disk keeps short-lived credentials in files of one user, for programs
// that run for a moment and are called often: plugins of kubectl, docker, git
// and of cloud SDKs. They [Open] a directory and call [Cache.GetOrMint]. The
// example of the package runs such a program twice.
//
// However many processes ask at once, one of them mints. An entry is fresh for
// 80 % of its lifetime. Then it is replaced, but is still served while that
// fails for now. No entry is used for longer than an hour. The next call for
// any key removes entries that may no longer be used.
//
// The directory belongs to the user of the program and is closed to other users
// (mode 0700, files 0600). A directory or file that belongs to another user, is
// a symbolic link or is open to others is refused, not repaired: it may have
// been read. A damaged file counts as missing. The files are not encrypted,
// like the user's other credentials.
//
// On Windows, Plan 9 and the like, owner and mode do not protect a file, and
// [Open] fails with [ErrUnsupported].
package disk
