package main

import (
	"context"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/workloadid/workloadid/auth/plugin"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

// bootstrapDoctor are the flags of wid doctor bootstrap.
type bootstrapDoctor struct {
	examiner

	server, serverName      string
	token, tokenFile        string
	pins                    []string
	unsafe                  bool
	kubeconfig, kubeContext string
}

// tokenVariable is for those who do not want the token in the list of processes.
const tokenVariable = "WID_BOOTSTRAP_TOKEN"

func newDoctorBootstrap() *cobra.Command {
	d := &bootstrapDoctor{examiner: examiner{checks: doctor.BootstrapChecks()}}
	cmd := &cobra.Command{
		Use:   "bootstrap",
		Short: "Find out why a machine cannot discover or join a cluster by token",
		Long: "Find out why a machine cannot discover or join a cluster by token: what kubeadm join and wid bootstrap discover\n" +
			"need, one check for each part. The token's secret is never shown, and sent only to a cluster that has proved who it\n" +
			"is. With the ID of a token alone, or without an administrator's kubeconfig, it looks as far as that goes.\n\n" +
			doctorCodes,
		Example: "  wid doctor bootstrap --server 10.0.0.1:6443 --token-file token --ca-cert-hash sha256:…\n" +
			"  wid doctor bootstrap --server 10.0.0.1:6443 --token-file - --ca-cert-hash sha256:… --kubeconfig admin.conf <token\n" +
			"  wid doctor bootstrap --server 10.0.0.1:6443 --token abcdef --unsafe-skip-ca-verification",
		Args: exactly(cobra.NoArgs),
	}
	d.addTo(cmd)
	f := cmd.Flags()
	f.StringVar(&d.server, "server", "", "the API server, as host:port")
	f.StringVar(&d.token, "token", "", "bootstrap token, <id>.<secret>, or its ID; also "+tokenVariable)
	f.StringVar(&d.tokenFile, "token-file", "", "file with the token, - for standard input")
	f.StringSliceVar(&d.pins, "ca-cert-hash", nil, "pin of the cluster's certificate authority, sha256:<hex>; may be repeated")
	f.BoolVar(&d.unsafe, "unsafe-skip-ca-verification", false, "trust whoever knows the token, without a pin")
	f.StringVar(&d.serverName, "tls-server-name", "", "name to check the server's certificate against, if it is not that of "+
		"the address")
	f.StringVar(&d.kubeconfig, "kubeconfig", "", "kubeconfig of an administrator of that cluster, to read the token's Secret")
	f.StringVar(&d.kubeContext, "context", "", "context of the kubeconfig")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return d.run(cmd, func(ctx context.Context) (*doctor.Report, error) { return d.examine(ctx, cmd) })
	}
	return cmd
}

func (d *bootstrapDoctor) examine(ctx context.Context, cmd *cobra.Command) (*doctor.Report, error) {
	switch {
	case d.server == "":
		return nil, usagef("name the API server with --server, as host:port")
	case d.token != "" && d.tokenFile != "":
		return nil, usagef("--token and --token-file exclude each other")
	case len(d.pins) > 0 && d.unsafe:
		return nil, usagef("--ca-cert-hash and --unsafe-skip-ca-verification exclude each other")
	}
	token, err := d.readToken(ctx, cmd)
	if err != nil {
		return nil, err
	}
	config := doctor.BootstrapConfig{Server: d.server, ServerName: d.serverName, Token: token, Pins: d.pins,
		WithoutPins: d.unsafe, Skip: d.skip, Timeout: d.timeout}
	if config.Client, config.RESTConfig, err = d.readerOf(d.kubeconfig, d.kubeContext); err != nil {
		return nil, err
	}
	return doctor.RunBootstrap(ctx, config), nil
}

// readToken judges nothing: what is malformed is a finding.
func (d *bootstrapDoctor) readToken(ctx context.Context, cmd *cobra.Command) (string, error) {
	switch {
	case d.token != "":
		return d.token, nil
	case d.tokenFile == "":
		return strings.TrimSpace(os.Getenv(tokenVariable)), nil
	}
	in, err := d.open(cmd)
	if err != nil {
		return "", err
	}
	defer in.Close() //nolint:errcheck // nothing was written
	content, err := plugin.Read(ctx, in)
	if err != nil {
		return "", usagef("--token-file: %v", err)
	}
	return strings.TrimSpace(string(content)), nil
}

func (d *bootstrapDoctor) open(cmd *cobra.Command) (io.ReadCloser, error) {
	if d.tokenFile == "-" {
		in, err := inputOf(cmd)
		return io.NopCloser(in), err
	}
	file, err := os.Open(d.tokenFile)
	if err != nil {
		return nil, usagef("--token-file: %v", err)
	}
	return file, nil
}
