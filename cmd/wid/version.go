package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/workloadid/workloadid/auth"
)

// version is what the build has recorded.
type version struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func buildVersion() version {
	v := version{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
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

func (v version) String() string {
	s := "wid " + v.Version
	if v.Commit != "" {
		s += fmt.Sprintf(" (commit %.12s of %s)", v.Commit, v.Time)
	}
	if v.Modified {
		s += ", modified"
	}
	return s + ", " + v.Go + ", " + v.Platform
}

func newVersion() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print the version and commit of this program", Example: "  wid version -o json", Args: cobra.NoArgs}
	o := outputFlag(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		v := buildVersion()
		return o.print(cmd, v, func(w io.Writer) { row(w, v.String()) })
	}
	return cmd
}

func newMan(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:     "man <directory>",
		Short:   "Write manual pages, one for each command",
		Example: "  wid man ~/.local/share/man/man1 && man wid-token",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil { //nolint:gosec // everybody may read manuals
				return badDirectory(err)
			}
			root.DisableAutoGenTag = true // the pages do not change from day to day
			return writePages(root, args[0])
		},
	}
}

// writePages writes one page for the command and for each below it.
func writePages(cmd *cobra.Command, dir string) error {
	for _, child := range cmd.Commands() {
		if !child.IsAvailableCommand() || child.IsAdditionalHelpTopicCommand() {
			continue
		}
		if err := writePages(child, dir); err != nil {
			return err
		}
	}
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	header := &doc.GenManHeader{Title: strings.ToUpper(name), Section: "1", Source: buildVersion().Version,
		Manual: "workloadid"}
	var page bytes.Buffer
	if err := doc.GenMan(cmd, header, &page); err != nil {
		return err
	}
	if err := replaceFile(filepath.Join(dir, name+".1"), page.Bytes(), 0o644); err != nil {
		return badDirectory(err)
	}
	return nil
}

func badDirectory(err error) error {
	return &auth.Error{Reason: auth.ErrMisconfigured, Err: err, Remedy: "choose another directory",
		Message: "the manuals cannot be written: " + oneLine(err.Error())}
}
