package doctorcmd

import (
	"context"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/doctor"
	bootstrapdoctor "github.com/workloadid/workloadid/internal/doctor/bootstrap"
	"github.com/workloadid/workloadid/internal/stdin"
)

// bootstrapDoctor are the flags of wid doctor bootstrap.
type bootstrapDoctor struct {
	examiner

	server, serverName string
	token, tokenFile   string
	pins               []string
	unsafe             bool
	kube               cli.KubeFile
}

// tokenVariable keeps the token out of the list of processes.
const tokenVariable = "WID_BOOTSTRAP_TOKEN"

func newDoctorBootstrap() *cobra.Command {
	d := &bootstrapDoctor{examiner: examiner{checks: bootstrapdoctor.Checks()}}
	cmd := &cobra.Command{
		Use:   "bootstrap",
		Short: "Find out why a machine cannot discover or join a cluster by token",
		Long: "Find out why a machine cannot discover or join a cluster by token, as kubeadm join and wid bootstrap discover do. The\n" +
			"token's secret is neither shown nor sent. With --kubeconfig it also examines the cluster: cluster-info, the right to read it,\n" +
			"the token and the signature. Then --server may be left out.",
		Example: "  wid doctor bootstrap --server 10.0.0.1:6443 --token-file token --ca-cert-hash sha256:…\n" +
			"  wid doctor bootstrap --kubeconfig admin.conf --token abcdef\n" +
			"  wid doctor bootstrap --server 10.0.0.1:6443 --token-file - --ca-cert-hash sha256:… --kubeconfig admin.conf <token\n" +
			"  wid doctor bootstrap --server 10.0.0.1:6443 --token abcdef --unsafe-skip-ca-verification",
	}
	d.addTo(cmd)
	d.addTimeoutTo(cmd)
	f := cmd.Flags()
	f.StringVar(&d.server, "server", "", "the API server, as host:port")
	f.StringVar(&d.token, "token", "", "bootstrap token, <id>.<secret>, or its ID; also "+tokenVariable)
	f.StringVar(&d.tokenFile, "token-file", "", "file with the token, - for standard input")
	f.StringSliceVar(&d.pins, "ca-cert-hash", nil, "pin of the cluster's CA, sha256:<hex>; may be repeated")
	f.BoolVar(&d.unsafe, "unsafe-skip-ca-verification", false, "trust every server that knows the token, without a pin")
	f.StringVar(&d.serverName, "tls-server-name", "", "name in the server's certificate, if it differs from the address")
	f.StringVar(&d.kube.Path, "kubeconfig", "", "kubeconfig of an administrator of that cluster, to examine its objects")
	f.StringVar(&d.kube.Context, "context", "", "context of the kubeconfig")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return d.run(cmd, func(ctx context.Context) (*doctor.Report, error) { return d.examine(ctx, cmd) })
	}
	return cmd
}

func (d *bootstrapDoctor) examine(ctx context.Context, cmd *cobra.Command) (*doctor.Report, error) {
	switch {
	case d.server == "" && d.kube == (cli.KubeFile{}):
		return nil, cli.Usagef("name the API server with --server, as host:port, or the cluster with --kubeconfig or --context")
	case d.token != "" && d.tokenFile != "":
		return nil, cli.Usagef("--token and --token-file exclude each other")
	case len(d.pins) > 0 && d.unsafe:
		return nil, cli.Usagef("--ca-cert-hash and --unsafe-skip-ca-verification exclude each other")
	}
	token, err := d.readToken(ctx, cmd)
	if err != nil {
		return nil, err
	}
	cluster, err := d.open(d.kube)
	if err != nil {
		return nil, err
	}
	config := bootstrapdoctor.Config{Server: d.server, ServerName: d.serverName, Token: token, Pins: d.pins, WithoutPins: d.unsafe,
		Skip: d.skip, Timeout: d.timeout, Progress: d.waiting.begin}
	if cluster != nil {
		config.Cluster, config.Client, config.Flags = cluster.name, cluster, flagsOf(d.kube)
	}
	return bootstrapdoctor.Run(ctx, config), nil
}

// readToken checks nothing, because a malformed token is a finding.
func (d *bootstrapDoctor) readToken(ctx context.Context, cmd *cobra.Command) (string, error) {
	switch {
	case d.token != "":
		return d.token, nil
	case d.tokenFile == "":
		return strings.TrimSpace(os.Getenv(tokenVariable)), nil
	}
	in, err := d.openToken(cmd)
	if err != nil {
		return "", err
	}
	defer in.Close() //nolint:errcheck // nothing was written
	content, err := stdin.Read(ctx, in)
	if err != nil {
		return "", cli.Usagef("--token-file: %v", err)
	}
	return strings.TrimSpace(string(content)), nil
}

func (d *bootstrapDoctor) openToken(cmd *cobra.Command) (io.ReadCloser, error) {
	if d.tokenFile == "-" {
		in, err := cli.InputOf(cmd)
		return io.NopCloser(in), err
	}
	file, err := os.Open(d.tokenFile)
	if err != nil {
		return nil, cli.Usagef("--token-file: %v", err)
	}
	return file, nil
}
