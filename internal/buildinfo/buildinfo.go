// Package buildinfo says which version of this module a program was built of.
package buildinfo

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Info holds the records of the build.
type Info struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// module is the path of this module.
const module = "github.com/workloadid/workloadid"

// OfModule returns the records of this module, also in a program of another
// one.
func OfModule() Info {
	v := Read()
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Path == module {
		return v
	}
	for _, dependency := range info.Deps {
		if dependency.Path == module {
			return Info{Version: dependency.Version, Go: v.Go, Platform: v.Platform}
		}
	}
	return v
}

// Read returns the records of the running program. Version is "unknown" without
// them.
func Read() Info {
	v := Info{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version = info.Main.Version
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

// String has no name of the program.
func (v Info) String() string {
	s := v.Version
	if v.Commit != "" {
		s += fmt.Sprintf(" (commit %.12s of %s)", v.Commit, v.Time)
	}
	if v.Modified {
		s += ", modified"
	}
	return s + ", " + v.Go + ", " + v.Platform
}
