package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/shell"
)

type discoverFlags struct {
	token, file, output, serverName string
	pins                            []string
	unsafe                          bool
	timeout                         time.Duration
}

func newDiscover() *cobra.Command {
	var f discoverFlags
	cmd := &cobra.Command{
		Use:   "discover [server...]",
		Short: "Find out how to reach a cluster, and write a kubeconfig without credentials",
		Example: "  wid bootstrap discover 10.0.0.1:6443 --token $TOKEN --ca-cert-hash sha256:… -f cluster.yaml\n" +
			"  curl https://example.com/cluster.yaml | wid bootstrap discover --discovery-file -",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			info, err := f.run(cmd, args)
			if err != nil {
				return err
			}
			if f.output != "" {
				return f.save(cmd, info)
			}
			content, err := info.Encode()
			if err == nil {
				_, err = cmd.OutOrStdout().Write(content)
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.token, "token", "", "bootstrap token, <id>.<secret>")
	flags.StringVar(&f.file, "discovery-file", "", "file, https URL, or - for standard input, with the cluster's information")
	flags.StringSliceVar(&f.pins, "ca-cert-hash", nil, "pin of the cluster's CA, sha256:<hex>; may be repeated")
	flags.BoolVar(&f.unsafe, "unsafe-skip-ca-verification", false, "trust every server that knows the token, without a pin")
	flags.StringVar(&f.serverName, "tls-server-name", "", "name to check the server's certificate against, if it is not that of the address")
	flags.StringVarP(&f.output, "file", "f", "", "kubeconfig to write, mode 0600; standard output otherwise")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Minute, "how long to wait for the cluster")
	rare(flags, "unsafe-skip-ca-verification", "tls-server-name")
	return cmd
}

// save writes the kubeconfig. The hint asks for what API servers show without credentials.
func (f *discoverFlags) save(cmd *cobra.Command, info *bootstrap.ClusterInfo) error {
	if err := info.Save(f.output); err != nil {
		return err
	}
	cmd.PrintErrf("wid: wrote %s, which names %s and holds no credentials; try it with kubectl --kubeconfig %s get --raw /version\n", f.output, info.Server, shell.Word(f.output, "FILE"))
	return nil
}

func (f *discoverFlags) run(cmd *cobra.Command, args []string) (*bootstrap.ClusterInfo, error) {
	if err := f.check(args); err != nil {
		return nil, err
	}
	if f.file != "" {
		ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
		defer cancel()
		return bootstrap.Load(ctx, f.file, cmd.InOrStdin())
	}
	token, err := argument(f.token)
	if err != nil {
		return nil, err
	}
	pins, err := bootstrap.ParsePins(f.pins...)
	if err != nil {
		return nil, usagef("%v", err)
	}
	opts := []bootstrap.DiscoverOption{bootstrap.WithPins(pins), bootstrap.WithTimeout(f.timeout), bootstrap.WithServerName(f.serverName),
		bootstrap.WithProgress(func(s string) { cmd.PrintErrln("wid: waiting:", s) })}
	if f.unsafe {
		opts = append(opts, bootstrap.WithoutPins())
	}
	return bootstrap.Discover(cmd.Context(), args, token, opts...)
}

// check finds mistakes before the wait for the cluster.
func (f *discoverFlags) check(args []string) error {
	switch {
	case (f.token == "") == (f.file == ""):
		return usagef("pass one of --token and --discovery-file")
	case f.timeout <= 0:
		return usagef("--timeout is more than 0, not %s", f.timeout)
	case f.file != "" && (len(args) > 0 || len(f.pins) > 0 || f.unsafe || f.serverName != ""):
		return usagef("--discovery-file takes neither a server nor pins nor what goes with them: the file is what is trusted")
	case f.file == "" && len(args) == 0:
		return usagef("name the server, as host:port, or several addresses of it")
	case f.file == "" && len(f.pins) == 0 && !f.unsafe:
		return usagef("pass --ca-cert-hash, or --unsafe-skip-ca-verification to trust every server that knows the token")
	case f.output == "":
		return nil
	}
	folder := filepath.Dir(f.output)
	if stat, err := os.Stat(folder); err != nil || !stat.IsDir() {
		return usagef("--file is in a folder that exists, not in %q", folder)
	}
	return nil
}
