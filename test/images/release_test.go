package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// A release has everything that the documents download. Each program starts
// from its image as a node starts it: as the image's user, with nothing but the
// image's files.
func TestRelease(t *testing.T) {
	address, env := newRegistry(t)
	dir, version := t.TempDir(), "v"+newestRelease(t)
	runMake(t, "release", dir, append(env, "KO_DOCKER_REPO="+address+"/some/where"), "VERSION="+version)
	dir = filepath.Join(dir, "release")
	references := readReferences(t, filepath.Join(dir, "images.txt"))
	if got, want := slices.Sorted(maps.Keys(references)), programs(t); !slices.Equal(got, want) {
		t.Fatalf("images of %q, want %q", got, want)
	}
	for program, reference := range references {
		t.Run("image of "+program, func(t *testing.T) {
			if prefix := address + "/some/where/" + program + ":" + version + "@sha256:"; !strings.HasPrefix(reference, prefix) {
				t.Errorf("reference %q, want %s…", reference, prefix)
			}
			image := pull(t, reference)
			checkConfig(t, program, image)
			checkSBOM(t, reference)
			files := unpack(t, image)
			checkBinary(t, program, filepath.Join(files, "ko-app", program))
			start(t, files, program)
		})
	}
	t.Run("manifest", func(t *testing.T) {
		manifest := read(t, filepath.Join(dir, "iam-credentials-provider.yaml"))
		if !strings.Contains(manifest, references["iam-credentials-pod"]) ||
			!strings.Contains(manifest, references["iam-credentials-provider"]) {
			t.Errorf("the manifest lacks %q or %q", references["iam-credentials-pod"], references["iam-credentials-provider"])
		}
	})
	t.Run("wid", func(t *testing.T) {
		if out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "wid-linux-"+runtime.GOARCH),
			"--version").Output(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("documents", func(t *testing.T) { checkDownloads(t, dir) })
	t.Run("checksums", func(t *testing.T) { checkChecksums(t, dir) })
	t.Run("notes", func(t *testing.T) {
		notes := read(t, filepath.Join(filepath.Dir(dir), "notes.md"))
		if !strings.Contains(notes, "\n### ") || strings.Contains(notes, "\n## ") {
			t.Errorf("the notes are not one section of CHANGELOG.md:\n%s", notes)
		}
	})
}

// newestRelease returns the first version that CHANGELOG.md has.
func newestRelease(t *testing.T) string {
	t.Helper()
	version := regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+)`).
		FindStringSubmatch(read(t, filepath.Join(root, "CHANGELOG.md")))
	if version == nil {
		t.Fatal("CHANGELOG.md has no section of a release")
	}
	return version[1]
}

// checkDownloads looks for each file that a document downloads.
func checkDownloads(t *testing.T, dir string) {
	t.Helper()
	documents, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	download := regexp.MustCompile(`github\.com/workloadid/workloadid/releases/download/v[^/\s]+/([^\s"` + "`" + `)]+)`)
	found := 0
	for _, document := range append(documents, filepath.Join(root, "README.md")) {
		for _, match := range download.FindAllStringSubmatch(read(t, document), -1) {
			found++
			for _, name := range alternatives(match[1]) {
				if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
					t.Errorf("%s: %v", document, err)
				}
			}
		}
	}
	if found < 2 {
		t.Errorf("only %d downloads were found", found)
	}
}

// Documents and bases under config name the newest release of CHANGELOG.md.
func TestVersionsAreThoseOfTheNewestRelease(t *testing.T) {
	files, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "*.md", "config/**.yaml").Output()
	if err != nil {
		t.Fatal(err)
	}
	version, named := newestRelease(t),
		regexp.MustCompile(`(?:\?ref=|newTag: |workloadid@|releases/download/|ghcr\.io/workloadid/[a-z-]+:)v(\d+\.\d+\.\d+)`)
	found := 0
	for file := range strings.Lines(string(files)) {
		for _, match := range named.FindAllStringSubmatch(read(t, filepath.Join(root, strings.TrimSpace(file))), -1) {
			if found++; match[1] != version {
				t.Errorf("%s has %q, but the newest release is %s", strings.TrimSpace(file), match[0], version)
			}
		}
	}
	if found == 0 {
		t.Error("no version was found")
	}
}

// alternatives returns the names in an address that curl expands, such as
// {wid-linux-amd64,checksums.txt}. The test builds wid for one platform.
func alternatives(name string) []string {
	names := strings.Split(strings.Trim(name, "{}"), ",")
	for i, name := range names {
		if strings.HasPrefix(name, "wid-") {
			names[i] = strings.ReplaceAll(name, "amd64", runtime.GOARCH)
		}
	}
	return names
}

// checkChecksums verifies a download as README.md says.
func checkChecksums(t *testing.T, dir string) {
	t.Helper()
	verify := regexp.MustCompile(`(?m)^sha256sum .*checksums\.txt$`).FindString(read(t, filepath.Join(root, "README.md")))
	if verify == "" {
		t.Fatal("README.md verifies no checksum")
	}
	run := func() error {
		cmd := exec.CommandContext(t.Context(), "bash", "-c", verify)
		cmd.Dir = dir
		return cmd.Run()
	}
	if err := run(); err != nil {
		t.Errorf("%s: %v", verify, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "wid-linux-"+runtime.GOARCH), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(); err == nil {
		t.Errorf("%s accepts a changed file", verify)
	}
}
