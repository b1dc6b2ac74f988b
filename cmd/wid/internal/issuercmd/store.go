package issuercmd

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/issuer"
	"github.com/workloadid/workloadid/auth/issuer/azblob"
	"github.com/workloadid/workloadid/auth/issuer/directory"
	"github.com/workloadid/workloadid/auth/issuer/gcppool"
	"github.com/workloadid/workloadid/auth/issuer/s3"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// store is the value of --to.
type store struct{ url, region, owner, endpoint string }

func (s *store) addTo(cmd *cobra.Command, usage string) {
	cmd.Flags().StringVar(&s.url, "to", "", usage)
}

// addOptionsTo adds what an address does not hold.
func (s *store) addOptionsTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.owner, "bucket-owner", "", "with s3://: account that owns the bucket; S3 refuses another owner's")
	cmd.Flags().StringVar(&s.region, "region", "", "with s3://: region of the bucket; that of the environment otherwise")
	cmd.Flags().StringVar(&s.endpoint, "endpoint", "", "with s3://: https URL of a compatible service")
	cli.Rare(cmd.Flags(), "endpoint")
}

// open reads credentials from the environment.
func (s *store) open(ctx context.Context) (issuer.Store, error) {
	u, err := url.Parse(s.url)
	if s.url == "" {
		return nil, cli.Usagef("--to is missing: pass file:///DIR, s3://BUCKET/PREFIX, azblob://ACCOUNT/CONTAINER/PREFIX or gcp://PROVIDER")
	}
	if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" {
		return nil, cli.Usagef("--to %.300q is malformed", s.url)
	}
	opened, err := s.openURL(ctx, u)
	if err != nil {
		var known *auth.Error
		if errors.As(err, &known) {
			return nil, err
		}
		return nil, cli.Usagef("--to %.300q: %v", s.url, err)
	}
	return opened, nil
}

func (s *store) openURL(ctx context.Context, u *url.URL) (issuer.Store, error) {
	path := strings.Trim(u.Path, "/")
	switch {
	case u.Scheme == "file" && u.Host == "" && path != "":
		return directory.Open(u.Path)
	case u.Scheme == "s3" && u.Host != "":
		return s3.Open(ctx, u.Host, s3.Options{Prefix: path, Region: s.region, Owner: s.owner, Endpoint: s.endpoint})
	case u.Scheme == "azblob" && u.Host != "":
		container, prefix, _ := strings.Cut(path, "/")
		return azblob.Open(u.Host, container, azblob.Options{Prefix: prefix})
	case u.Scheme == "gcp":
		return gcppool.Open(u.Host+"/"+path, gcppool.Options{})
	}
	return nil, errors.New("pass file:///DIR, s3://BUCKET/PREFIX, azblob://ACCOUNT/CONTAINER/PREFIX or gcp://PROVIDER")
}
