package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	caFile = "etc/ssl/certs/ca-certificates.crt"
	passwd = "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/tmp:/sbin/nologin\n"
	group  = "root:x:0:\nnonroot:x:65532:\n"
)

// pushBase pushes a base image for amd64 and arm64, and returns its reference.
func pushBase(ctx context.Context, registry string) (string, error) {
	certificates, err := machineCAs()
	if err != nil {
		return "", err
	}
	index, err := baseIndex(certificates)
	if err != nil {
		return "", err
	}
	tag, err := name.NewTag(registry + "/static:nonroot")
	if err != nil {
		return "", err
	}
	return tag.String(), remote.WriteIndex(tag, index, remote.WithContext(ctx))
}

// machineCAs returns the CA certificates that programs on this machine trust.
func machineCAs() ([]byte, error) {
	for _, file := range []string{os.Getenv("SSL_CERT_FILE"), "/" + caFile, "/etc/pki/tls/certs/ca-bundle.crt",
		"/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"} {
		content, err := os.ReadFile(file)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return content, err
		}
	}
	return nil,
		errors.New(
			"no CA certificates on this machine: install the package ca-certificates, or name a PEM file in SSL_CERT_FILE")
}

func baseIndex(certificates []byte) (v1.ImageIndex, error) {
	content, err := baseFiles(certificates)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range []string{"amd64", "arm64"} {
		platform := v1.Platform{OS: "linux", Architecture: arch}
		image, err := mutate.ConfigFile(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
			&v1.ConfigFile{OS: platform.OS, Architecture: arch,
				Config: v1.Config{User: "65532", Env: []string{"PATH=/usr/bin:/bin", "SSL_CERT_FILE=/" + caFile}}})
		if err != nil {
			return nil, err
		}
		if image, err = mutate.AppendLayers(image, layer); err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index,
			mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &platform}})
	}
	return index, nil
}

// baseFiles returns a tar archive of the files that a static program needs. Its
// bytes depend on the certificates alone.
func baseFiles(certificates []byte) ([]byte, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	add := func(header tar.Header, content string) error {
		header.Size = int64(len(content))
		if err := w.WriteHeader(&header); err != nil {
			return fmt.Errorf("%s: %w", header.Name, err)
		}
		_, err := io.WriteString(w, content)
		return err
	}
	dir := func(name string, mode int64) error {
		return add(tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode}, "")
	}
	file := func(name, content string) error {
		return add(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, content)
	}
	err := errors.Join(dir("tmp", 0o1777), dir("etc", 0o755), dir("etc/ssl", 0o755), dir("etc/ssl/certs", 0o755),
		file("etc/passwd", passwd), file("etc/group", group), file(caFile, string(certificates)), w.Close())
	return archive.Bytes(), err
}
