// Command join shows the TLS bootstrap of a machine. It discovers a cluster
// with a bootstrap token and a pin, requests a client certificate with that
// token, and writes a kubeconfig.
//
//	go run ./examples/join --server 10.0.0.1:6443 --token $TOKEN --ca-cert-hash sha256:… --node-name node-1 -f kubelet.conf
//
// Copy join.go, which knows no flags. docs/bootstrap.md describes the other
// side.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/pflag"

	"github.com/workloadid/workloadid/bootstrap"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "join:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	fs := pflag.NewFlagSet("join", pflag.ContinueOnError)
	servers := fs.StringSlice("server", nil, "address of an API server, host:port; may be repeated")
	tokenText := fs.String("token", "", "bootstrap token, <id>.<secret>")
	pinTexts := fs.StringSlice("ca-cert-hash", nil, "pin of the cluster's certificate authority, sha256:<hex>")
	name := fs.String("node-name", "", "name of the node")
	output := fs.StringP("file", "f", "kubelet.conf", "kubeconfig to write, mode 0600")
	timeout := fs.Duration("timeout", 5*time.Minute, "how long to wait for the cluster and the certificate")
	if err := fs.Parse(args); err != nil {
		return err
	}
	token, err := bootstrap.ParseToken(*tokenText)
	if err != nil {
		return err
	}
	pins, err := bootstrap.ParsePins(*pinTexts...)
	if err != nil {
		return err
	}
	if *name == "" {
		return fmt.Errorf("--node-name is missing")
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	return join(ctx, joinRequest{servers: *servers, token: token, pins: pins, node: *name, kubeconfig: *output})
}
