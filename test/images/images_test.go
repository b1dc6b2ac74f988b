package main

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// root is the root of the repository.
var root = filepath.Join("..", "..")

// limits are the sizes in MB that the programs in the images stay below.
var limits = map[string]int64{"wid-hub": 50, "iam-credentials-pod": 25}

// newRegistry starts a registry that holds the base image. It returns its
// address and the environment of make.
func newRegistry(t *testing.T) (address string, env []string) {
	t.Helper()
	address, end, err := serveRegistry(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	base, err := pushBase(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	return address, append(os.Environ(), "KO_DEFAULTBASEIMAGE="+base, "MAKEFLAGS=", "KO_DOCKER_REPO=")
}

// runMake runs a target, which writes to the folder, for the platform of this
// machine.
func runMake(t *testing.T, target, dir string, env []string, variables ...string) {
	t.Helper()
	platform := "linux/" + runtime.GOARCH
	args := append([]string{"-C", root, target, "OUT=" + dir, "PLATFORMS=" + platform, "WID_PLATFORMS=" + platform},
		variables...)
	cmd := exec.CommandContext(t.Context(), "make", args...)
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make %s: %v\n%s", target, err, out)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// readReferences reads the list of images, by program.
func readReferences(t *testing.T, file string) map[string]string {
	t.Helper()
	references := map[string]string{}
	for line := range strings.Lines(read(t, file)) {
		program, reference, _ := strings.Cut(strings.TrimSpace(line), " ")
		references[program] = reference
	}
	return references
}

// makeImages runs make images, and returns what it lists.
func makeImages(t *testing.T, dir string, env []string, variables ...string) map[string]string {
	t.Helper()
	runMake(t, "images", dir, env, variables...)
	return readReferences(t, filepath.Join(dir, "images", "references"))
}

// programs are those that make images builds.
func programs(t *testing.T) []string {
	t.Helper()
	dirs, err := os.ReadDir(filepath.Join(root, "cmd"))
	if err != nil {
		t.Fatal(err)
	}
	all := []string{"controller"}
	for _, dir := range dirs {
		all = append(all, dir.Name())
	}
	slices.Sort(all)
	return all
}

func pull(t *testing.T, reference string) v1.Image {
	t.Helper()
	ref, err := name.ParseReference(reference)
	if err != nil {
		t.Fatal(err)
	}
	image, err := remote.Image(ref, remote.WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func checkConfig(t *testing.T, program string, image v1.Image) {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != "65532:65532" || !slices.Equal(config.Config.Entrypoint, []string{"/ko-app/" + program}) ||
		len(config.Config.Cmd) > 0 {
		t.Errorf("user %q, entrypoint %q, arguments %q", config.Config.User, config.Config.Entrypoint, config.Config.Cmd)
	}
}

// checkSBOM reads the SBOM where cosign expects it.
func checkSBOM(t *testing.T, reference string) {
	t.Helper()
	repository, digest, _ := strings.Cut(reference, "@")
	repository = repository[:strings.LastIndex(repository, ":")]
	layers, err := pull(t, repository+":"+strings.ReplaceAll(digest, ":", "-")+".sbom").Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	var sbom struct {
		SPDXVersion string
		Packages    []struct{ Name string }
	}
	if err := json.NewDecoder(content).Decode(&sbom); err != nil || !strings.HasPrefix(sbom.SPDXVersion, "SPDX-") ||
		len(sbom.Packages) < 3 {
		t.Errorf("SBOM %.300v, %v", sbom, err)
	}
}

// unpack writes the files of an image into a folder.
func unpack(t *testing.T, image v1.Image) string {
	t.Helper()
	dir := t.TempDir()
	files := mutate.Extract(image)
	defer files.Close()
	for r := tar.NewReader(files); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir
		} else if err != nil {
			t.Fatal(err)
		}
		if err := write(filepath.Join(dir, filepath.FromSlash(header.Name)), header, r); err != nil {
			t.Fatal(err)
		}
	}
}

func write(path string, header *tar.Header, content io.Reader) error {
	if header.Typeflag == tar.TypeDir {
		return errors.Join(os.MkdirAll(path, 0o755), os.Chmod(path, 0o755)) // the owner is not that of the image
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, header.FileInfo().Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}

// checkBinary checks that the program needs no other file, holds no path of
// this machine, and is small.
func checkBinary(t *testing.T, program, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d MB", info.Size()/1e6)
	if limit := limits[program]; limit > 0 && info.Size() > limit*1e6 {
		t.Errorf("%s has %d bytes, more than %d MB", program, info.Size(), limit)
	}
	binary, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	if binary.Section(".symtab") != nil || binary.Section(".interp") != nil {
		t.Error("the program has symbols or needs an interpreter")
	}
	build, err := buildinfo.ReadFile(path)
	if err != nil || !slices.Contains(build.Settings, debug.BuildSetting{Key: "-trimpath", Value: "true"}) {
		t.Errorf("%v\n%v", err, build)
	}
}

// start runs the program with the folder as its file system, which needs root.
// Others run it directly.
func start(t *testing.T, dir, program string) {
	t.Helper()
	version := program + " version "
	// Go records the version in clones, not in work trees
	if git, err := os.Stat(filepath.Join(root, ".git")); err == nil && git.IsDir() {
		version += "v"
	}
	for flag, want := range map[string]string{"--version": version, "--help": "usage"} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "ko-app", program), flag)
		if os.Getuid() == 0 {
			cmd.Path, cmd.Dir = "/ko-app/"+program, "/"
			cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: dir, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
		}
		cmd.Env = []string{}
		out, err := cmd.Output()
		if err != nil || !bytes.Contains(bytes.ToLower(out), []byte(want)) {
			t.Errorf("%s: %v\n%s", flag, err, out)
		}
		if flag == "--version" && (bytes.Count(out, []byte("\n")) != 1 || !bytes.Contains(out, []byte(runtime.Version()))) {
			t.Errorf("--version prints %q, want one line with the version of Go", out)
		}
	}
}

// Two builds of a commit have the same digest.
func TestImagesAreReproducible(t *testing.T) {
	const only = "PROGRAMS=./cmd/iam-credentials-pod"
	address, env := newRegistry(t)
	env = append(env, "KO_DOCKER_REPO="+address)
	first, again := makeImages(t, t.TempDir(), env, only), makeImages(t, t.TempDir(), env, only)
	if len(first) != 1 || !maps.Equal(first, again) {
		t.Errorf("%q, then %q", first, again)
	}
}

// Without a registry of its own a user loads the images into nodes.
func TestImagesWithoutARegistryAreTarballs(t *testing.T) {
	_, env := newRegistry(t)
	dir := t.TempDir()
	got := makeImages(t, dir, env, "PROGRAMS=./cmd/iam-credentials-pod", "VERSION=v1.2.3")
	const reference = "ghcr.io/workloadid/iam-credentials-pod:v1.2.3"
	if want := map[string]string{"iam-credentials-pod": reference}; !maps.Equal(got, want) {
		t.Errorf("references %q, want %q", got, want)
	}
	tag, err := name.NewTag(reference)
	if err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(filepath.Join(dir, "images", "iam-credentials-pod-"+runtime.GOARCH+".tar"), &tag)
	if err != nil {
		t.Fatal(err)
	}
	checkConfig(t, "iam-credentials-pod", image)
}
