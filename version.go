package workloadid

import "github.com/workloadid/workloadid/internal/buildinfo"

// Version returns the version, commit, Go version and platform of the running
// program on one line, for its flag --version. They belong to the program's own
// module, which Go records when it builds a tag or a clone.
func Version() string { return buildinfo.Read().String() }
