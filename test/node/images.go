//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Images of the project, as its releases name them, and the application of the
// checks.
const (
	repository    = "ghcr.io/workloadid/"
	appRepository = "node.test"
	appImage      = appRepository + "/app:v1"
)

// build makes the node's CA, images and wid in dir.
func build(ctx context.Context, dir string) error {
	certificate, key, err := newCertificate()
	if err != nil {
		return err
	}
	if err := errors.Join(writeFile(filepath.Join(dir, "ca.pem"), string(certificate)),
		writeFile(filepath.Join(dir, "cloud.key"), string(key)),
		os.MkdirAll(filepath.Join(dir, "images"), 0o700)); err != nil {
		return err
	}
	base, err := files(map[string]file{
		"etc/ssl/certs/ca-certificates.crt": {content: certificate, mode: 0o644},
		"etc/passwd": {content: []byte("root:x:0:0:root:/:\nnonroot:x:65532:65532:nonroot:/:\n"),
			mode: 0o644},
	}, v1.Config{User: "65532"})
	if err != nil {
		return err
	}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	baseName := strings.TrimPrefix(server.URL, "http://") + "/base:v1"
	reference, err := name.NewTag(baseName)
	if err != nil {
		return err
	}
	if err := remote.Write(reference, base, remote.WithContext(ctx)); err != nil {
		return err
	}
	if err := errors.Join(makeImages(ctx, dir, baseName), ko(ctx, dir, baseName), tools(dir)); err != nil {
		return err
	}
	_, err = command(ctx, "go", "-C", root, "build", "-o", filepath.Join(dir, "bin", "wid"), "./cmd/wid")
	return err
}

// root is the root of the repository.
const root = "../.."

// makeImages builds the images as releases do, with another base and for this
// machine only.
func makeImages(ctx context.Context, dir, base string) error {
	if err := building(ctx, base, "make", "-C", root, "images", "VERSION=v1", "PLATFORMS=linux/"+runtime.GOARCH,
		"OUT="+dir); err != nil {
		return err
	}
	_, err := os.Stat(filepath.Join(dir, "images", "wid-hub-"+runtime.GOARCH+".tar"))
	return err
}

// ko builds the application.
func ko(ctx context.Context, dir, base string) error {
	modfile, err := filepath.Abs(filepath.Join(root, "tools", "go.mod"))
	if err != nil {
		return err
	}
	return building(ctx, base, "go", "tool", "-modfile="+modfile, "ko", "build", "--push=false", "--base-import-paths",
		"--sbom=none", "--tags=v1",
		"--platform=linux/"+runtime.GOARCH, "--tarball="+filepath.Join(dir, "images", "app.tar"), "./app")
}

// building runs a program that runs ko. ko keeps what it builds in a cache.
func building(ctx context.Context, base string, args ...string) error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // make and ko
	cmd.Env = append(os.Environ(), "MAKEFLAGS=", "KO_DEFAULTBASEIMAGE="+base,
		"KOCACHE="+filepath.Join(cache, "workloadid", "ko"), "KO_DOCKER_REPO=")
	if args[0] != "make" {
		cmd.Env = append(cmd.Env, "KO_DOCKER_REPO="+appRepository)
	}
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, text)
	}
	return nil
}

// tools writes the images of a pod's sandbox and of a shell.
func tools(dir string) error {
	content, err := os.ReadFile(busybox)
	if err != nil {
		return err
	}
	shell := map[string]file{"bin/busybox": {content: content, mode: 0o755}}
	for _, applet := range []string{"sh", "sleep", "cat", "wget", "nslookup", "env"} {
		shell["bin/"+applet] = file{link: "busybox"}
	}
	return errors.Join(
		save(filepath.Join(dir, "images", "pause.tar"), pauseImage, map[string]file{"bin/busybox": shell["bin/busybox"]},
			v1.Config{Entrypoint: []string{"/bin/busybox", "sleep", "2147483647"}, User: "65532"}),
		save(filepath.Join(dir, "images", "busybox.tar"), busyboxImage, shell,
			v1.Config{Env: []string{"PATH=/bin"}, Cmd: []string{"sh"}, User: "65532"}))
}

func save(out, image string, content map[string]file, config v1.Config) error {
	built, err := files(content, config)
	if err != nil {
		return err
	}
	tag, err := name.NewTag(image)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(out, tag, built)
}

// file is a file of an image, or a symbolic link.
type file struct {
	content []byte
	link    string
	mode    int64
}

// files returns an image of one layer.
func files(content map[string]file, config v1.Config) (v1.Image, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for path, f := range content {
		header := &tar.Header{Name: path, Mode: f.mode, Size: int64(len(f.content)), Typeflag: tar.TypeReg}
		if f.link != "" {
			header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, f.link, 0o777
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(layer.Bytes())), nil
	})
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		return nil, err
	}
	built, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	built = built.DeepCopy()
	built.OS, built.Architecture, built.Config = "linux", runtime.GOARCH, config
	return mutate.ConfigFile(image, built)
}
