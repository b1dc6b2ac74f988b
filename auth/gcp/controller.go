package gcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/internal/oauth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/input"
	"github.com/workloadid/workloadid/internal/transport"
)

const (
	opControllerToken = "find own GCP credentials"
	noIdentity        = "give this process an identity (Workload Identity Federation for GKE, or " +
		credentialsVariable + "), or name a ServiceAccount"
)

// NewControllerToken returns an access token of the application default
// credentials: the file that GOOGLE_APPLICATION_CREDENTIALS names, else the
// file of the gcloud command, else the metadata server. With
// [WithIDTokenAudience] it returns an ID token, which only the metadata server
// issues.
func (p *Provider) NewControllerToken(ctx context.Context, opts *provider.Options) (auth.Token, error) {
	if audience, ok := idTokenAudience(opts); ok {
		return p.metadataIDToken(ctx, opts, audience)
	}
	content, name, err := credentialsFile()
	if err != nil {
		return nil, controllerError(err)
	}
	var token *Token
	if name == "" {
		token, err = p.metadataToken(ctx, opts)
	} else {
		token, err = p.fileToken(ctx, opts, name, content)
	}
	if err != nil {
		return nil, controllerError(err)
	}
	return token, nil
}

func controllerError(err error) error {
	var e *auth.Error
	if !errors.As(err, &e) {
		e = &auth.Error{Provider: ProviderName, Operation: opControllerToken, Reason: auth.ErrUnavailable,
			Message: provider.Redact(err.Error()), Err: err}
	}
	e.Operation = opControllerToken
	if e.Remedy == "" {
		e.Cause, e.Remedy, e.Option = cmp.Or(e.Cause, provider.CauseNoOwnIdentity), noIdentity, "auth.WithServiceAccount"
	}
	return e
}

const defaultAccount = "instance/service-accounts/default/"

func (p *Provider) metadataToken(ctx context.Context, opts *provider.Options) (*Token, error) {
	path := defaultAccount + "token?" + url.Values{"scopes": {strings.Join(scopes(opts), ",")}}.Encode()
	text, err := getMetadata(ctx, p.metadata.httpClient(opts), opControllerToken, path)
	if err != nil {
		return nil, err
	}
	body, err := oauth.ParseAnswer([]byte(text))
	if err != nil {
		return nil, self.Unusable(opControllerToken, service, "%v", err)
	}
	now := time.Now()
	return newToken(opControllerToken, body.AccessToken, body.TokenType, "", expiry(now, body.ExpiresIn), now)
}

func (p *Provider) metadataIDToken(ctx context.Context, opts *provider.Options, audience string) (auth.Token, error) {
	path := defaultAccount + "identity?" + url.Values{"audience": {audience}, "format": {"full"}}.Encode()
	text, err := getMetadata(ctx, p.metadata.httpClient(opts), opControllerToken, path)
	if err != nil {
		return nil, controllerError(err)
	}
	token, err := newIDToken(opControllerToken, strings.TrimSpace(text), audience, time.Now())
	if err != nil {
		return nil, err
	}
	return token, nil
}

const credentialsVariable = "GOOGLE_APPLICATION_CREDENTIALS"

// credentialsFile reads the file of application default credentials anew each
// time, because it can change. The name is empty if no file exists.
func credentialsFile() (content []byte, name string, err error) {
	if name = os.Getenv(credentialsVariable); name != "" {
		content, err = input.ReadFile(name)
		if err != nil {
			e := self.Misconfigured("correct "+credentialsVariable+" or unset it", "cannot read the file %q: %v", name, err)
			e.Err = err
			return nil, "", e
		}
		return content, name, nil
	}
	name = wellKnownFile()
	content, err = input.ReadFile(name)
	if err != nil {
		return nil, "", nil //nolint:nilerr // the file is optional
	}
	return content, name, nil
}

// wellKnownFile is the file that "gcloud auth application-default login"
// writes.
func wellKnownFile() string {
	const name = "application_default_credentials.json"
	if runtime.GOOS == "windows" {
		return filepath.Join(os.Getenv("APPDATA"), "gcloud", name)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return name + ".missing"
	}
	return filepath.Join(home, ".config", "gcloud", name)
}

// fileToken gets a token through Google's library. A token source of the
// library keeps the context of its first call, so each call makes a new source.
func (p *Provider) fileToken(ctx context.Context, opts *provider.Options, name string, content []byte) (*Token, error) {
	badFile := func(err error) *auth.Error {
		return self.Misconfigured("write them anew, or unset "+credentialsVariable,
			"the credentials in the file %q cannot be used: %v", name, err)
	}
	switch err := refuseShellOut(content, opts); {
	case errors.Is(err, errShellOut):
		e := badFile(err).About("auth.WithAllowShellOut")
		e.Remedy = "allow programs where a person runs this one, or unset " + credentialsVariable
		return nil, e
	case err != nil:
		return nil, badFile(err)
	}
	client := p.clients.ForTokens(opts)
	ctx, cancel := context.WithTimeout(ctx, fileTokenTimeout)
	defer cancel()
	params := google.CredentialsParams{Scopes: scopes(opts), UniverseDomain: p.UniverseDomain}
	requests := &boundTransport{ctx: ctx, next: client.Transport}
	bound := context.WithValue(ctx, oauth2.HTTPClient,
		&http.Client{Transport: requests, CheckRedirect: transport.NoRedirect})
	credentials, err := google.CredentialsFromJSONWithParams(bound, content, params)
	if err != nil {
		return nil, badFile(errors.New("their kind is unknown"))
	}
	token, err := credentials.TokenSource.Token()
	if err != nil {
		return nil, requests.explain(err)
	}
	return newToken(opControllerToken, token.AccessToken, token.TokenType, "", token.Expiry, time.Now())
}

// fileTokenTimeout bounds all requests for one token.
const fileTokenTimeout = time.Minute

// boundTransport ends requests with the context of the call, because the
// library makes some requests without one. It keeps the last refusal or
// failure, which the library returns as text only. It serves one goroutine.
type boundTransport struct {
	ctx     context.Context
	next    http.RoundTripper
	refusal *transport.Answer
	failure *url.Error
}

func (t *boundTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.refusal, t.failure = nil, nil
	resp, err := t.next.RoundTrip(r.WithContext(t.ctx))
	if err != nil {
		t.failure = &url.Error{Op: r.Method, URL: r.URL.Scheme + "://" + r.URL.Host, Err: err}
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // nothing was written
	if err != nil {
		return nil, err
	}
	t.refusal = &transport.Answer{Status: resp.StatusCode, Header: resp.Header, Body: body}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// explain classifies an error of the library, and drops the bodies that it
// quotes.
func (t *boundTransport) explain(err error) *auth.Error {
	if cause := t.ctx.Err(); cause != nil {
		return self.Unanswered(opControllerToken, cause)
	}
	if t.refusal != nil {
		e, _ := classify(*t.refusal, opControllerToken)
		e.Err = provider.Bounded(err)
		return e
	}
	if t.failure != nil {
		return self.Unanswered(opControllerToken, t.failure)
	}
	e := self.Unavailable(opControllerToken, "", "the credentials in the file gave no token")
	e.Err = provider.Bounded(err)
	return e
}

// credentialsSource holds the fields of a file of credentials that decide
// whether a program runs.
type credentialsSource struct {
	Source struct {
		Executable json.RawMessage `json:"executable"`
	} `json:"credential_source"`
	// Next holds the credentials that impersonate a service account. They can
	// be of any kind.
	Next *credentialsSource `json:"source_credentials"`
}

var errShellOut = errors.New("they name a program to run, which is not allowed")

// refuseShellOut refuses external accounts whose tokens come from a program, at
// any depth.
func refuseShellOut(content []byte, opts *provider.Options) error {
	var file credentialsSource
	if json.Unmarshal(content, &file) != nil {
		return errors.New("they are not JSON")
	}
	for c := &file; c != nil && !opts.AllowShellOut; c = c.Next {
		if len(c.Source.Executable) > 0 && string(c.Source.Executable) != "null" {
			return errShellOut
		}
	}
	return nil
}
