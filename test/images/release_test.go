package main

import (
	"bytes"
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

// A release has everything that the documents download. Each program starts from its image as a node starts it: as the image's user, with
// nothing but the image's files.
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
		manifest, err := os.ReadFile(filepath.Join(dir, "iam-credentials-provider.yaml"))
		if err != nil || !bytes.Contains(manifest, []byte(references["iam-credentials-pod"])) || !bytes.Contains(manifest, []byte(references["iam-credentials-provider"])) {
			t.Errorf("%v: the manifest lacks %q or %q", err, references["iam-credentials-pod"], references["iam-credentials-provider"])
		}
	})
	t.Run("wid", func(t *testing.T) {
		if out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "wid-linux-"+runtime.GOARCH), "--version").Output(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("documents", func(t *testing.T) { checkDownloads(t, dir) })
	t.Run("checksums", func(t *testing.T) { checkChecksums(t, dir) })
	t.Run("notes", func(t *testing.T) {
		notes, err := os.ReadFile(filepath.Join(filepath.Dir(dir), "notes.md"))
		if err != nil || !bytes.Contains(notes, []byte("\n### ")) || bytes.Contains(notes, []byte("\n## ")) {
			t.Errorf("%v: the notes are not one section of CHANGELOG.md:\n%s", err, notes)
		}
	})
}

// newestRelease returns the first version that CHANGELOG.md has.
func newestRelease(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+)`).FindSubmatch(content)
	if version == nil {
		t.Fatal("CHANGELOG.md has no section of a release")
	}
	return string(version[1])
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
		content, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range download.FindAllStringSubmatch(string(content), -1) {
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
	version, named := newestRelease(t), regexp.MustCompile(`(?:\?ref=|newTag: |workloadid@|releases/download/|ghcr\.io/workloadid/[a-z-]+:)v(\d+\.\d+\.\d+)`)
	found := 0
	for file := range strings.Lines(string(files)) {
		content, err := os.ReadFile(filepath.Join(root, strings.TrimSpace(file)))
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range named.FindAllStringSubmatch(string(content), -1) {
			if found++; match[1] != version {
				t.Errorf("%s has %q, but the newest release is %s", strings.TrimSpace(file), match[0], version)
			}
		}
	}
	if found == 0 {
		t.Error("no version was found")
	}
}

// alternatives returns the names in an address that curl expands, such as {wid-linux-amd64,checksums.txt}. The test builds wid for one platform.
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
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	verify := regexp.MustCompile(`(?m)^sha256sum .*checksums\.txt$`).FindString(string(readme))
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
