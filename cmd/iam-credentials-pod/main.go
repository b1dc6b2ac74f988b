//go:build linux

// Command iam-credentials-pod is the part of the IAM credentials provider that
// runs in each pod.
//
//	iam-credentials-pod proxy --server=https://iam-credentials-provider.iam-system.svc:8443
//	iam-credentials-pod proxy --check
//	iam-credentials-pod redirect
//
// proxy is the sidecar. With --check it is the sidecar's startup probe: it
// fails with the reason until the sidecar has credentials. redirect is an init
// container for SDKs that know only AWS_CONTAINER_CREDENTIALS_RELATIVE_URI; the
// sidecar then needs --listen=169.254.170.2:80.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"

	"github.com/workloadid/workloadid"
	"github.com/workloadid/workloadid/podidentity/proxy"
)

const (
	// secretVariable is the variable of the applications, so that every
	// container has the same one.
	secretVariable = "AWS_CONTAINER_AUTHORIZATION_TOKEN"
	caVariable     = "WORKLOADID_SERVER_CA"

	// linkLocal is the address that SDKs use for
	// AWS_CONTAINER_CREDENTIALS_RELATIVE_URI.
	linkLocal = "169.254.170.2"
	// credentialsPath is the path that the proxy serves.
	credentialsPath = "/v1/credentials"

	// checkTimeout is below the default of the kubelet's probes, so that the
	// reason still reaches the pod's Events.
	checkTimeout = 900 * time.Millisecond
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "iam-credentials-pod:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, getenv func(string) string, out, log io.Writer) error {
	switch {
	case len(args) == 1 && args[0] == "redirect":
		return addLoopbackAddress(linkLocal)
	case len(args) > 0 && args[0] == "proxy":
		return runProxy(ctx, args[1:], getenv, log)
	case len(args) == 1 && (args[0] == "--help" || args[0] == "-h"):
		_, err := fmt.Fprintln(out,
			"Usage: iam-credentials-pod redirect, or iam-credentials-pod proxy [flags]. iam-credentials-pod proxy --help lists the flags.")
		return err
	case len(args) == 1 && args[0] == "--version":
		_, err := fmt.Fprintln(out, "iam-credentials-pod version", workloadid.Version())
		return err
	}
	return errors.New("use one of the commands proxy and redirect")
}

func runProxy(ctx context.Context, args []string, getenv func(string) string, log io.Writer) error {
	fs := flag.NewFlagSet("iam-credentials-pod proxy", flag.ContinueOnError)
	fs.SetOutput(log)
	server := fs.String("server", "",
		"address of the server, https://host:port; the variable "+caVariable+" holds its CA as PEM")
	token := fs.String("token-file", "/var/run/secrets/iam.aws.k8s.io/token", "file of the projected ServiceAccount token")
	listen := fs.String("listen", "127.0.0.1:2020", "loopback address for the applications, or "+linkLocal+":80")
	check := fs.Bool("check", false, "exit with 0 if the proxy at the listen address has credentials")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unknown argument %.100q", fs.Arg(0))
	}
	if *check {
		return checkProxy(ctx, *listen, getenv(secretVariable))
	}
	p, err := proxy.New(proxy.Options{
		Server: *server, CA: []byte(getenv(caVariable)), TokenFile: *token, Secret: getenv(secretVariable),
		Logger: logr.FromSlogHandler(slog.NewJSONHandler(log, nil)),
	})
	if err != nil {
		return err
	}
	return serve(ctx, p, *listen)
}

// serve answers before the first fetch, so that the startup probe sees why
// credentials are missing.
func serve(ctx context.Context, p *proxy.Proxy, address string) error {
	listeners, err := proxy.Listen(ctx, address)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	fetched := make(chan error)
	go func() { fetched <- p.Run(ctx) }()
	err = proxy.Serve(ctx, p, listeners)
	cancel()
	return errors.Join(err, <-fetched)
}

// checkProxy asks as an application does. It prints no part of the credentials.
func checkProxy(ctx context.Context, address, secret string) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+credentialsPath, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", secret)
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end or dropped
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	var reason struct{ Code, Message string }
	if err := json.NewDecoder(resp.Body).Decode(&reason); err != nil {
		return fmt.Errorf("the proxy answers with HTTP %d", resp.StatusCode)
	}
	return fmt.Errorf("%s: %s", reason.Code, reason.Message)
}
