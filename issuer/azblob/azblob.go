package azblob

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/azurename"
	"github.com/workloadid/workloadid/internal/transport"
	"github.com/workloadid/workloadid/issuer"
	"github.com/workloadid/workloadid/issuer/internal/object"
)

const (
	self = provider.Name("azblob")
	// apiVersion is a version of the REST API that accepts bearer tokens.
	apiVersion = "2021-12-02"
)

// Options holds the optional settings of [Open].
type Options struct {
	// Prefix precedes the names of the files. It is the path of the issuer's
	// URL.
	Prefix string
	// Credential signs in. Nil: azidentity.NewDefaultAzureCredential, which
	// reads the environment.
	Credential azcore.TokenCredential
	// HTTPClient sends the requests to the container. Nil: a client with the
	// proxies of the environment.
	HTTPClient *http.Client
}

// Store is an [issuer.Store]. A version is an ETag.
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

// Open returns the [Store] of a container. The account is a name in the public
// cloud, or a whole host, such as myaccount.blob.core.usgovcloudapi.net. Open
// sends no request.
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

// hostOf accepts the hosts of Microsoft's clouds only. Any other host would
// receive a token for all accounts of the identity.
func hostOf(account string) (string, error) {
	name, domain, whole := strings.Cut(account, ".")
	if accountName.MatchString(name) {
		for _, c := range azurename.Clouds() {
			if !whole || domain == c.BlobSuffix {
				return name + "." + c.BlobSuffix, nil
			}
		}
	}
	return "",
		fmt.Errorf("azblob: %.200q is neither the name of a storage account nor its host, <name>.blob.core.windows.net",
			account)
}

// Read implements [issuer.Store].
func (s *Store) Read(ctx context.Context, path string) (content []byte, version string, err error) {
	answer, err := s.send(ctx, http.MethodGet, path, nil, http.Header{})
	switch code, etag := answer.Header.Get(errorCode), answer.Header.Get("ETag"); {
	case err != nil && code == "BlobNotFound":
		return nil, "", issuer.ErrNotExist
	case err != nil:
		return nil, "", err
	case etag == "":
		return nil, "", self.Unusable("read "+path, "Blob storage", "it has no ETag")
	default:
		return answer.Body, etag, nil
	}
}

// Write implements [issuer.Store].
func (s *Store) Write(ctx context.Context, path string, content []byte, version string) error {
	header := http.Header{"X-Ms-Blob-Type": {"BlockBlob"}, "X-Ms-Blob-Content-Type": {issuer.ContentType(path)},
		"X-Ms-Blob-Cache-Control": {object.CacheControl}}
	if version == "" {
		header.Set("If-None-Match", "*")
	} else {
		header.Set("If-Match", version)
	}
	answer, err := s.send(ctx, http.MethodPut, path, content, header)
	if code := answer.Header.Get(errorCode); err != nil && (code == "ConditionNotMet" || code == "BlobAlreadyExists") {
		return issuer.ErrChanged
	}
	return err
}

// send returns an error for every unsuccessful answer.
func (s *Store) send(ctx context.Context, method, path string, content []byte,
	header http.Header) (transport.Answer, error) {
	u := s.base
	u.Path += path
	operation := fmt.Sprintf("%s %q", map[string]string{http.MethodGet: "read", http.MethodPut: "write"}[method],
		u.Host+u.Path)
	token, err := s.credential.GetToken(ctx,
		policy.TokenRequestOptions{Scopes: []string{azurename.StorageAudience + "/.default"}})
	if err != nil {
		return transport.Answer{}, signIn(operation, err)
	}
	header.Set("Authorization", "Bearer "+token.Token)
	header.Set("x-ms-version", apiVersion)
	answer, err := transport.Send(ctx, s.client, func() (*http.Request, error) {
		req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(content))
		if err == nil {
			req.Header = header.Clone()
		}
		return req, err
	}, nil)
	switch {
	case err != nil:
		return answer, self.Unanswered(operation, err, token.Token)
	case answer.Status/100 != 2:
		return answer, refused(operation, answer, token.Token)
	}
	return answer, nil
}

func signIn(operation string, err error) error {
	e := self.Unavailable(operation,
		"give this process an Azure identity, such as that of \"az login\" or Microsoft Entra Workload ID",
		"%s", provider.Redact(err.Error()))
	e.Err = err
	return e
}

// errorCode is the header that holds the code of a refusal.
const errorCode = "x-ms-error-code"

var refusals = object.Refusals{
	"ContainerNotFound": {provider.ErrMisconfigured,
		"create the container; \"az storage blob service-properties update --static-website\" creates $web"},
	"AuthorizationPermissionMismatch": {provider.ErrDenied,
		"assign the role Storage Blob Data Contributor on the container"},
	"AuthorizationFailure": {provider.ErrDenied,
		"let this network through the firewall of the storage account"},
	"InvalidAuthenticationInfo": {provider.ErrDenied,
		"check that the identity belongs to the tenant of the storage account"},
	"LeaseIdMissing": {provider.ErrMisconfigured, "break the lease of the blob"},
	"ServerBusy":     {provider.ErrThrottled, ""},
}

func refused(operation string, answer transport.Answer, token string) error {
	e := self.Refused(operation, answer.Status, answer.Header)
	e.Code, e.Message = provider.Redact(answer.Header.Get(errorCode), token), "Blob storage refuses"
	if e.Code == "" {
		e.Message = "the answer is not one of Blob storage"
	}
	return refusals.Explain(e)
}
