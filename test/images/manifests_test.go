package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// makeManifests runs make manifests with a list of images, and returns the
// files by name.
func makeManifests(t *testing.T, references string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "images"), 0o700),
		os.WriteFile(filepath.Join(dir, "images", "references"), []byte(references), 0o600)); err != nil {
		t.Fatal(err)
	}
	runMake(t, "manifests", dir, append(os.Environ(), "MAKEFLAGS="))
	files, err := filepath.Glob(filepath.Join(dir, "manifests", "*"))
	if err != nil {
		t.Fatal(err)
	}
	manifests := map[string]string{}
	for _, file := range files {
		manifests[filepath.Base(file)] = read(t, file)
	}
	return manifests
}

// Each image of each system is the one that was built.
func TestManifestsNameTheBuiltImages(t *testing.T) {
	const repository = "registry.example:5000/some/where/"
	for name, version := range map[string]string{"tag and digest": ":v1.2.3" + digest, "digest": digest,
		"tag": ":v1.2.3"} {
		t.Run(name, func(t *testing.T) {
			var references strings.Builder
			for _, program := range programs(t) {
				references.WriteString(program + " " + repository + program + version + "\n")
			}
			manifests := makeManifests(t, references.String())
			bases, err := filepath.Glob(filepath.Join(root, "config", "*", "kustomization.yaml"))
			if err != nil || len(bases) == 0 || len(manifests) != len(bases) {
				t.Fatalf("%d manifests of the bases %q, %v", len(manifests), bases, err)
			}
			for _, base := range bases {
				file := filepath.Base(filepath.Dir(base)) + ".yaml"
				checkImages(t, file, manifests[file], repository, version)
			}
		})
	}
}

// checkImages looks at the images of containers, and at the one of the sidecar,
// which is in a ConfigMap.
func checkImages(t *testing.T, file, manifest, repository, version string) {
	t.Helper()
	count := map[string]int{}
	for line := range strings.Lines(manifest) {
		key, image, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "- "), ": ")
		if key != "image" && key != "POD_IMAGE" {
			continue
		}
		count[key]++
		program, _ := strings.CutPrefix(image, repository)
		if program, _ = strings.CutSuffix(program, version); image != repository+program+version ||
			!slices.Contains(programs(t), program) {
			t.Errorf("%s: %s is %q, want %sPROGRAM%s", file, key, image, repository, version)
		}
	}
	if count["image"] == 0 || count["POD_IMAGE"] == 0 && file == "iam-credentials-provider.yaml" {
		t.Errorf("%s has the images %v", file, count)
	}
}
