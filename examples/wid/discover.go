package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/workloadid/workloadid/bootstrap"
)

type discoverFlags struct {
	token, file, output string
	pins                []string
	unsafe              bool
	timeout             time.Duration
}

func newDiscover() *cobra.Command {
	var f discoverFlags
	cmd := &cobra.Command{
		Use:   "discover [server]",
		Short: "Find out how to reach a cluster, and write a kubeconfig without credentials",
		Example: "  wid bootstrap discover 10.0.0.1:6443 --token $TOKEN --ca-cert-hash sha256:… -f cluster.yaml\n" +
			"  wid bootstrap discover --discovery-file https://example.com/cluster.yaml -f cluster.yaml\n" +
			"  curl https://example.com/cluster.yaml | wid bootstrap discover --discovery-file -",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			info, err := f.run(cmd, args)
			if err != nil {
				return err
			}
			if f.output != "" {
				return info.Save(f.output)
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
	flags.StringSliceVar(&f.pins, "ca-cert-hash", nil, "pin of the cluster's certificate authority, sha256:<hex>; may be repeated")
	flags.BoolVar(&f.unsafe, "unsafe-skip-ca-verification", false, "trust whoever knows the token, without a pin")
	flags.StringVarP(&f.output, "file", "f", "", "file to write, mode 0600; standard output otherwise")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Minute, "how long to wait for the cluster")
	return cmd
}

func (f *discoverFlags) run(cmd *cobra.Command, args []string) (*bootstrap.ClusterInfo, error) {
	switch {
	case (f.token == "") == (f.file == ""):
		return nil, errors.New("pass one of --token and --discovery-file")
	case f.file != "" && (len(args) > 0 || len(f.pins) > 0):
		return nil, errors.New("--discovery-file takes neither a server nor pins: the file is what is trusted")
	case f.file != "":
		return bootstrap.Load(cmd.Context(), f.file, cmd.InOrStdin())
	case len(args) != 1:
		return nil, errors.New("name the server, as host:port")
	case len(f.pins) == 0 && !f.unsafe:
		return nil, errors.New("pass --ca-cert-hash, or --unsafe-skip-ca-verification to trust whoever knows the token")
	}
	token, err := bootstrap.ParseToken(f.token)
	if err != nil {
		return nil, err
	}
	pins, err := bootstrap.ParsePins(f.pins...)
	if err != nil {
		return nil, err
	}
	opts := []bootstrap.DiscoverOption{bootstrap.WithPins(pins), bootstrap.WithTimeout(f.timeout),
		bootstrap.WithProgress(func(s string) { cmd.PrintErrln("waiting:", s) })}
	if f.unsafe {
		opts = append(opts, bootstrap.WithoutPins())
	}
	return bootstrap.Discover(cmd.Context(), args[0], token, opts...)
}
