// Package azblob keeps the documents of an issuer in a container of Azure Blob Storage.
//
//	store, err := azblob.Open("myaccount", "$web", azblob.Options{Prefix: "cluster-1"})
//
// The container $web is the static website of its account. The issuer is the website's address and the prefix, such as
// https://myaccount.z1.web.core.windows.net/cluster-1, so that the account needs no anonymous access to blobs. The publisher needs the
// role Storage Blob Data Contributor on the container.
//
// The package speaks REST itself: two requests do not need an SDK.
package azblob

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/workloadid/workloadid/auth/issuer"
	"github.com/workloadid/workloadid/auth/issuer/internal/object"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/azurename"
	"github.com/workloadid/workloadid/internal/providers"
	"github.com/workloadid/workloadid/internal/transport"
)

const (
	self = providers.Name("azblob")
	// apiVersion is a version of the REST API that accepts bearer tokens.
	apiVersion = "2021-12-02"
)

// Options holds what Open can do without.
type Options struct {
	// Prefix stands before the names of the files. It is the path of the issuer's URL.
	Prefix string
	// Credential signs in. Nil: azidentity.NewDefaultAzureCredential, which reads the environment.
	Credential azcore.TokenCredential
	// HTTPClient sends the requests to the container. Nil: one with the proxies of the environment.
	HTTPClient *http.Client
}

// Store is an issuer.Store. A version is an ETag.
type Store struct {
	client     *http.Client
	credential azcore.TokenCredential
	base       url.URL // with the prefix and a slash at its end
}

var _ issuer.Store = (*Store)(nil)

var (
	accountName   = regexp.MustCompile(`^[a-z0-9]{3,24}$`)
	containerName = regexp.MustCompile(`^(\$web|[a-z0-9](-?[a-z0-9]){2,62})$`)
)

// Open returns the Store of a container. The account is a name in the public cloud, or a whole host, such as
// myaccount.blob.core.usgovcloudapi.net. Open sends no request.
func Open(account, container string, opts Options) (*Store, error) {
	host, err := hostOf(account)
	if err != nil {
		return nil, err
	}
	if !containerName.MatchString(container) {
		return nil, fmt.Errorf("azblob: %.200q is not the name of a container, such as \"$web\"", container)
	}
	prefix, err := object.Prefix(opts.Prefix)
	if err != nil {
		return nil, fmt.Errorf("azblob: %w", err)
	}
	if opts.Credential == nil {
		if opts.Credential, err = azidentity.NewDefaultAzureCredential(nil); err != nil {
			return nil, signIn("find own Azure credentials", err)
		}
	}
	return &Store{client: new(transport.Pool).For(opts.HTTPClient, nil), credential: opts.Credential,
		base: url.URL{Scheme: "https", Host: host, Path: "/" + container + "/" + prefix}}, nil
}

// hostOf accepts the hosts of Microsoft's clouds only: others would get a token for all accounts of the identity.
func hostOf(account string) (string, error) {
	name, domain, whole := strings.Cut(account, ".")
	if accountName.MatchString(name) {
		for _, c := range azurename.Clouds() {
			if !whole || domain == c.BlobSuffix {
				return name + "." + c.BlobSuffix, nil
			}
		}
	}
	return "", fmt.Errorf("azblob: %.200q is neither the name of a storage account nor its host, <name>.blob.core.windows.net", account)
}

// Read implements issuer.Store.
func (s *Store) Read(ctx context.Context, path string) (content []byte, version string, err error) {
	operation, target := s.locate("read", path)
	answer, err := s.send(ctx, operation, func() (*http.Request, error) {
		return http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	}, notFound)
	switch {
	case err != nil:
		return nil, "", err
	case answer.Status != http.StatusOK:
		return nil, "", fmt.Errorf("%s: %w", operation, issuer.ErrNotExist)
	case answer.Header.Get("ETag") == "":
		return nil, "", self.Unusable(operation, "Blob storage", "it has no ETag")
	}
	return answer.Body, answer.Header.Get("ETag"), nil
}

// Write implements issuer.Store.
func (s *Store) Write(ctx context.Context, path string, content []byte, version string) error {
	operation, target := s.locate("write", path)
	if err := object.CheckSize(content); err != nil {
		return fmt.Errorf("azblob: %s: %w", operation, err)
	}
	answer, err := s.send(ctx, operation, func() (*http.Request, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, target, bytes.NewReader(content))
		if err != nil {
			return nil, err
		}
		req.Header.Set("x-ms-blob-type", "BlockBlob")
		req.Header.Set("x-ms-blob-content-type", issuer.ContentType(path))
		req.Header.Set("x-ms-blob-cache-control", object.CacheControl)
		if version == "" {
			req.Header.Set("If-None-Match", "*")
		} else {
			req.Header.Set("If-Match", version)
		}
		return req, nil
	}, conditionNotMet, alreadyExists)
	if err == nil && answer.Status != http.StatusCreated {
		err = fmt.Errorf("%s: %w", operation, issuer.ErrChanged)
	}
	return err
}

// locate returns the name of an operation on a file, for errors, and the file's URL.
func (s *Store) locate(verb, path string) (operation, target string) {
	u := s.base
	u.Path += path
	return fmt.Sprintf("%s %q", verb, u.Host+u.Path), u.String()
}

// send returns a successful answer, or one with an expected error code.
func (s *Store) send(ctx context.Context, operation string, newRequest func() (*http.Request, error), expected ...string) (transport.Answer, error) {
	token, err := s.credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{azurename.StorageAudience + "/.default"}})
	if err != nil {
		return transport.Answer{}, signIn(operation, err)
	}
	answer, err := transport.Send(ctx, s.client, func() (*http.Request, error) {
		req, err := newRequest()
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+token.Token)
		req.Header.Set("x-ms-version", apiVersion)
		return req, nil
	}, nil)
	switch {
	case err != nil:
		return answer, self.Unanswered(operation, err, token.Token)
	case answer.Status/100 == 2, slices.Contains(expected, answer.Header.Get(errorCode)):
		return answer, nil
	}
	return answer, refused(operation, answer, token.Token)
}

func signIn(operation string, err error) error {
	e := self.Unavailable(operation, "give this process an Azure identity, such as that of \"az login\" or Microsoft Entra Workload ID",
		"%s", provider.Redact(err.Error()))
	e.Err = err
	return e
}
