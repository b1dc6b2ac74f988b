package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/bootstrapcause"
	"github.com/workloadid/workloadid/internal/shell"
)

// pinFlags returns the flags by which the doctor trusts the same CAs.
func pinFlags(cmd *cobra.Command) (flags string) {
	pins, _ := cmd.Flags().GetStringSlice("ca-cert-hash") // every caller has the flag
	for _, pin := range pins {
		flags += " --ca-cert-hash " + shell.Word(pin, "PIN")
	}
	if flags == "" {
		return " --unsafe-skip-ca-verification"
	}
	return flags
}

// Discover finds a cluster by token, and says what it waits for. Its error names the doctor, which has a remedy for each cause. The reader fills
// in the token, which no text repeats.
func Discover(ctx context.Context, cmd *cobra.Command, servers []string, token bootstrap.Token, opts ...bootstrap.DiscoverOption) (info *bootstrap.ClusterInfo, err error) {
	var progress atomic.Value
	progress.Store("its first answer")
	opts = append(slices.Clone(opts), bootstrap.WithProgress(func(s string) {
		if ctx.Err() == nil { // an interrupt is no state of the cluster
			progress.Store(s)
		}
	}))
	err = During(ctx, cmd, func() string { return fmt.Sprintf("for cluster-info: %s", progress.Load()) }, func() (err error) {
		info, err = bootstrap.Discover(ctx, servers, token, opts...)
		return err
	})
	if err == nil || errors.Is(err, ErrInterrupted) {
		return info, err
	}
	e := Problem(auth.ErrMisconfigured, "to find the cause, run: wid doctor bootstrap --server "+shell.Word(servers[0], "HOST:PORT")+" --token TOKEN"+pinFlags(cmd), "%s", OneLine(err.Error()))
	e.Operation, e.Err = "find the cluster's CA", err
	var address *bootstrap.AddressError
	switch {
	case errors.As(err, &address) && address.Cause == bootstrapcause.CertificateName && cmd.Flags().Lookup("tls-server-name") != nil:
		e.Reason, e.Remedy = auth.ErrDenied, "pass the name with --tls-server-name"
	case errors.Is(err, context.DeadlineExceeded):
		e.Reason = auth.ErrUnavailable
	case errors.Is(err, bootstrap.ErrPins) || errors.Is(err, bootstrap.ErrSignature):
		e.Reason = auth.ErrDenied
	}
	return nil, e
}
