package issuercmd

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"

	"github.com/workloadid/workloadid/auth/issuer"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

type publish struct {
	source
	store     store
	watch     bool
	removeKey string
	output    *cli.Output
}

func newPublish() *cobra.Command {
	p := &publish{}
	cmd := &cobra.Command{
		Use:   "publish",
		Short: "Publish the issuer's discovery document and keys",
		Long: "Publish the issuer's discovery document and the API server's public keys. A key that the API server no longer shows stays " +
			"published until the last token that it signed has expired. Publishing again changes nothing.\n\n" +
			"Credentials of the store come from the environment, as the cloud's own programs read them.",
		Example: "  wid issuer publish --to s3://oidc.example.com/cluster-1\n" +
			"  wid issuer publish --to file:///srv/www/cluster-1 --watch\n" +
			"  wid issuer publish --to 'azblob://account/$web/cluster-1' --remove-key KID",
	}
	p.output = cli.OutputFlag(cmd, "text", "json", "yaml")
	p.source.addTo(cmd)
	p.store.addTo(cmd, "where the issuer is served from: file:///DIR, s3://BUCKET/PREFIX, azblob://ACCOUNT/CONTAINER/PREFIX, or gcp:// with the name of a pool provider; required")
	p.store.addOptionsTo(cmd)
	cmd.Flags().BoolVar(&p.watch, "watch", false, "publish every minute until the program is interrupted")
	cmd.Flags().StringVar(&p.removeKey, "remove-key", "", "ID of a leaked key to unpublish at once, and for ever")
	p.addLifetimeTo(cmd)
	p.addProbeTo(cmd)
	cmd = p.Command(cmd, ofCluster, p.once)
	limited := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if p.watch {
			return p.forever(cmd)
		}
		return limited(cmd, args)
	}
	return cmd
}

func (p *publish) publisher(ctx context.Context) (*issuer.Publisher, error) {
	s, err := p.store.open(ctx)
	if err != nil {
		return nil, err
	}
	config, _, err := p.Config()
	if err != nil {
		return nil, err
	}
	of, err := p.findIssuer(ctx)
	if err != nil {
		return nil, err
	}
	return &issuer.Publisher{Cluster: config, Issuer: of, Store: s, MaxTokenLifetime: p.maxLifetime}, nil
}

func (p *publish) once(ctx context.Context, cmd *cobra.Command) error {
	publisher, err := p.publisher(ctx)
	if err != nil {
		return err
	}
	var result issuer.Result
	if p.removeKey != "" {
		result, err = publisher.RemoveKey(ctx, p.removeKey)
	} else {
		result, err = publisher.Publish(ctx)
	}
	if err != nil {
		return cli.AnswerOf(err, "publish the issuer "+publisher.Issuer)
	}
	if p.output.Format != "text" {
		return p.output.Print(cmd, result, nil)
	}
	return say(cmd.OutOrStdout(), publisher.Issuer, result)
}

func (p *publish) forever(cmd *cobra.Command) error {
	if p.removeKey != "" {
		return cli.Usagef("--remove-key and --watch exclude each other: remove the key, and then watch")
	}
	publisher, err := p.publisher(cmd.Context())
	if err != nil {
		return err
	}
	publisher.Logger = logr.FromSlogHandler(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	return cli.AnswerOf(publisher.Start(cmd.Context()), "publish the issuer "+publisher.Issuer)
}

func say(w io.Writer, of string, r issuer.Result) error {
	var b strings.Builder
	for _, file := range r.Written {
		fmt.Fprintf(&b, "wrote %s\n", file)
	}
	if len(r.Written) == 0 {
		fmt.Fprintln(&b, "nothing to change")
	}
	for _, id := range r.Added {
		fmt.Fprintf(&b, "added key %q\n", id)
	}
	for _, id := range r.Removed {
		fmt.Fprintf(&b, "removed key %q\n", id)
	}
	for _, warning := range r.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", warning)
	}
	for _, id := range slices.Sorted(maps.Keys(r.Leaving)) {
		fmt.Fprintf(&b, "key %q leaves at %s unless the API server shows it again\n", id, r.Leaving[id].UTC().Format(time.RFC3339))
	}
	fmt.Fprintf(&b, "issuer %s\n", of)
	_, err := io.WriteString(w, b.String())
	return err
}
