// Command images runs a command beside an image registry on loopback, so that
// images are built without a network:
//
//	go -C test/images run . make images                     writes tarballs
//	go -C test/images run . make release-dry-run            builds everything that a release has
//
// The registry holds a base image like gcr.io/distroless/static:nonroot, with
// the CA certificates of this machine. The command runs in the root of the
// repository. It finds the base in KO_DEFAULTBASEIMAGE and the address of the
// registry in LOOPBACK_REGISTRY.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit): // the command printed why
		os.Exit(max(1, exit.ExitCode()))
	case err != nil:
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("pass a command, such as make images")
	}
	address, end, err := serveRegistry(ctx)
	if err != nil {
		return err
	}
	defer end()
	base, err := pushBase(ctx, address)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Dir = filepath.Join("..", "..")
	// the user's base wins
	cmd.Env = append([]string{"KO_DEFAULTBASEIMAGE=" + base}, append(os.Environ(), "LOOPBACK_REGISTRY="+address)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

// serveRegistry starts a registry, which keeps its blobs in a temporary folder.
// The returned function ends it.
func serveRegistry(ctx context.Context) (address string, end func(), err error) {
	dir, err := os.MkdirTemp("", "registry")
	if err != nil {
		return "", nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: registry.New(
		registry.WithBlobHandler(registry.NewDiskBlobHandler(dir)), registry.Logger(log.New(io.Discard, "", 0)))}
	ended := make(chan error)
	go func() { ended <- server.Serve(listener) }()
	return listener.Addr().String(), func() {
		_ = server.Close() // nothing waits for its answers
		<-ended
		_ = os.RemoveAll(dir) // a temporary folder
	}, nil
}
