package issuercmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/issuer"
	"github.com/workloadid/workloadid/issuer/azblob"
	"github.com/workloadid/workloadid/issuer/directory"
	"github.com/workloadid/workloadid/issuer/gcppool"
	"github.com/workloadid/workloadid/issuer/s3"
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
	cmd.Flags().StringVar(&p.store.url, "to", "",
		"where the issuer is served from: file:///DIR, s3://BUCKET/PREFIX, azblob://ACCOUNT/CONTAINER/PREFIX, or gcp:// with the name of a pool provider; required")
	cmd.Flags().StringVar(&p.store.owner, "bucket-owner", "",
		"with s3://: account that owns the bucket; S3 refuses another owner's")
	cmd.Flags().StringVar(&p.store.region, "region", "",
		"with s3://: region of the bucket; that of the environment otherwise")
	cmd.Flags().StringVar(&p.store.endpoint, "endpoint", "", "with s3://: https URL of a compatible service")
	cli.Rare(cmd.Flags(), "endpoint")
	cmd.Flags().BoolVar(&p.watch, "watch", false,
		"publish every minute until the program is interrupted; it logs changes and failures")
	cmd.Flags().StringVar(&p.removeKey, "remove-key", "",
		"ID of a leaked key to unpublish at once, and for ever; with gcp:// until the next publication")
	p.addTokensTo(cmd)
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
		return answerOf(err, "publish the issuer")
	}
	result.Warnings = append(p.warningsOf(ctx, publisher.Store), result.Warnings...)
	done := &published{publisher.Issuer, result}
	if p.output.Format != "text" {
		return p.output.Print(cmd, done, nil)
	}
	return done.say(cmd.OutOrStdout())
}

// warningsOf says what the removal of a key does not do.
func (p *publish) warningsOf(ctx context.Context, s issuer.Store) (warnings []string) {
	if p.removeKey == "" {
		return nil
	}
	if strings.HasPrefix(p.store.url, "gcp://") {
		warnings = append(warnings,
			"Google keeps no record, so a running publisher and the API servers bring the key back: stop the one, take the key from the others")
	}
	if content, _, err := s.Read(ctx, issuer.KeysFile); err == nil && !bytes.Contains(content, []byte(`"kid"`)) {
		warnings = append(warnings,
			"no key is published now, so clouds accept no token: let the API servers sign with another key")
	}
	return warnings
}

func (p *publish) forever(cmd *cobra.Command) error {
	if p.removeKey != "" {
		return cli.Usagef("--remove-key and --watch exclude each other: remove the key, and then watch")
	}
	publisher, err := p.publisher(cmd.Context())
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	publisher.Logger = logr.FromSlogHandler(log.Handler())
	log.Info("watching the keys of the cluster", "issuer", publisher.Issuer)
	if err := publisher.Start(cmd.Context()); err != nil {
		return answerOf(err, "publish the issuer")
	}
	return cli.ErrInterrupted
}

type published struct {
	Issuer string `json:"issuer"`
	issuer.Result
}

func (p *published) say(w io.Writer) error {
	var lines []string
	add := func(format string, values []string) {
		for _, value := range values {
			lines = append(lines, fmt.Sprintf(format, value))
		}
	}
	add("wrote %s", p.Written)
	if len(p.Written) == 0 {
		lines = append(lines, "nothing to change")
	}
	add("added key %q", p.Added)
	add("removed key %q", p.Removed)
	for _, id := range slices.Sorted(maps.Keys(p.Leaving)) {
		lines = append(lines, fmt.Sprintf("key %q leaves at %s unless an API server shows it again", id,
			p.Leaving[id].UTC().Format(time.RFC3339)))
	}
	add("warning: %s", p.Warnings)
	_, err := fmt.Fprintf(w, "%s\nissuer %s\n", strings.Join(lines, "\n"), p.Issuer)
	return err
}

// store is the value of --to.
type store struct{ url, region, owner, endpoint string }

const stores = "pass file:///DIR, s3://BUCKET/PREFIX, azblob://ACCOUNT/CONTAINER/PREFIX or gcp://PROVIDER"

// open reads credentials from the environment.
func (s *store) open(ctx context.Context) (opened issuer.Store, err error) {
	if s.url == "" {
		return nil, cli.Usagef("--to is missing: %s", stores)
	}
	u, err := url.Parse(s.url)
	if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" {
		return nil, cli.Usagef("--to %.300q is malformed", s.url)
	}
	path := strings.Trim(u.Path, "/")
	switch {
	case u.Scheme == "file" && u.Host == "" && path != "":
		opened, err = directory.Open(u.Path)
	case u.Scheme == "s3" && u.Host != "":
		opened, err = s3.Open(ctx, u.Host, s3.Options{Prefix: path, Region: s.region, Owner: s.owner, Endpoint: s.endpoint})
	case u.Scheme == "azblob" && u.Host != "":
		container, prefix, _ := strings.Cut(path, "/")
		opened, err = azblob.Open(u.Host, container, azblob.Options{Prefix: prefix})
	case u.Scheme == "gcp":
		opened, err = gcppool.Open(u.Host+"/"+path, gcppool.Options{})
	default:
		err = errors.New(stores)
	}
	if err != nil && !errors.As(err, new(*auth.Error)) {
		err = cli.Usagef("--to %.300q: %v", s.url, err)
	}
	return opened, err
}
