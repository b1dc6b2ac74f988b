package gcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	"github.com/workloadid/workloadid/internal/oauth"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

const (
	opControllerToken = "find own GCP credentials"
	noIdentity        = "give this process an identity (Workload Identity Federation for GKE, or " +
		credentialsVariable + "), or name a ServiceAccount"
)

// NewControllerToken returns an access token of the controller's own identity, from where Google's libraries look for
// application default credentials: the file that GOOGLE_APPLICATION_CREDENTIALS names, that of the gcloud command, the
// metadata server. With WithIDTokenAudience it returns an ID token, which only the metadata server gives.
func (p *Provider) NewControllerToken(ctx context.Context, opts *auth.Options) (auth.Token, error) {
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
			Message: redact.Text(err.Error()), Err: err}
	}
	if e.Remedy == "" {
		e.Cause, e.Remedy = cmp.Or(e.Cause, auth.CauseNoOwnIdentity), noIdentity
	}
	return e
}

const defaultAccount = "instance/service-accounts/default/"

func (p *Provider) metadataToken(ctx context.Context, opts *auth.Options) (*Token, error) {
	path := query(defaultAccount+"token", url.Values{"scopes": {strings.Join(scopes(opts), ",")}})
	answer, err := p.metadata.get(ctx, p, opts, opControllerToken, path)
	if err != nil {
		return nil, err
	}
	body, err := oauth.ParseAnswer(answer.Body)
	if err != nil {
		return nil, unusable(opControllerToken, "it is not the JSON that it should be")
	}
	now := time.Now()
	return newToken(opControllerToken, body.AccessToken, body.TokenType, "", expiry(now, body.ExpiresIn), now)
}

func (p *Provider) metadataIDToken(ctx context.Context, opts *auth.Options, audience string) (auth.Token, error) {
	path := query(defaultAccount+"identity", url.Values{"audience": {audience}, "format": {"full"}})
	answer, err := p.metadata.get(ctx, p, opts, opControllerToken, path)
	if err != nil {
		return nil, controllerError(err)
	}
	token, err := newIDToken(opControllerToken, strings.TrimSpace(string(answer.Body)), audience, time.Now())
	if err != nil {
		return nil, err
	}
	return token, nil
}

const (
	credentialsVariable = "GOOGLE_APPLICATION_CREDENTIALS"
	maxCredentialsFile  = 1 << 20
)

// credentialsFile returns the file of application default credentials, or no name if there is none. It is read anew each
// time, since whoever mounted it may replace it.
func credentialsFile() (content []byte, name string, err error) {
	if name = os.Getenv(credentialsVariable); name != "" {
		content, err = readFile(name)
		if err != nil {
			return nil, "", &auth.Error{Provider: ProviderName, Operation: opControllerToken, Reason: auth.ErrMisconfigured, Err: err,
				Message: fmt.Sprintf("cannot read the file %q: %v", name, err),
				Remedy:  "correct " + credentialsVariable + " or unset it"}
		}
		return content, name, nil
	}
	name = wellKnownFile()
	content, err = readFile(name)
	if err != nil {
		return nil, "", nil //nolint:nilerr // it is optional
	}
	return content, name, nil
}

// wellKnownFile is where "gcloud auth application-default login" writes to.
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

func readFile(name string) ([]byte, error) {
	file, err := os.Open(name) //nolint:gosec // whoever runs the controller names the file
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	content, err := io.ReadAll(io.LimitReader(file, maxCredentialsFile+1))
	if err == nil && len(content) > maxCredentialsFile {
		err = fmt.Errorf("it is larger than %d bytes", maxCredentialsFile)
	}
	return content, err
}

// fileToken has the library of Google read the file and get a token. The library's source is used once: it would keep the
// context of its first call.
func (p *Provider) fileToken(ctx context.Context, opts *auth.Options, name string, content []byte) (*Token, error) {
	badFile := func(err error) *auth.Error {
		return &auth.Error{Provider: ProviderName, Operation: opControllerToken, Reason: auth.ErrMisconfigured, Err: err,
			Message: fmt.Sprintf("the credentials in the file %q cannot be used: %s", name, redact.Text(err.Error())),
			Remedy:  "write them anew, or unset " + credentialsVariable}
	}
	if err := refuseShellOut(content, opts); err != nil {
		return nil, badFile(err)
	}
	client, err := self.HTTPClient(&p.transports, opts)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, fileTokenTimeout)
	defer cancel()
	params := google.CredentialsParams{Scopes: scopes(opts), UniverseDomain: p.UniverseDomain}
	requests := &boundTransport{ctx: ctx, next: client.Transport}
	bound := context.WithValue(ctx, oauth2.HTTPClient, &http.Client{Transport: requests, CheckRedirect: transport.NoRedirect})
	credentials, err := google.CredentialsFromJSONWithParams(bound, content, params)
	if err != nil {
		return nil, badFile(errors.New("they are not of a kind that is known"))
	}
	token, err := credentials.TokenSource.Token()
	if err != nil {
		return nil, requests.explain(err)
	}
	return newToken(opControllerToken, token.AccessToken, token.TokenType, "", token.Expiry, time.Now())
}

// fileTokenTimeout bounds all requests that one token takes.
const fileTokenTimeout = time.Minute

// boundTransport ends requests with the context of the call, since the library makes some without one. It keeps the last
// refusal or failure, which the library gives back as text only. It is for one goroutine.
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
	_ = resp.Body.Close() // was read to its end or is of no use
	if err != nil {
		return nil, err
	}
	t.refusal = &transport.Answer{Status: resp.StatusCode, Header: resp.Header, Body: body}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// explain classifies an error of the library without repeating the bodies that it quotes.
func (t *boundTransport) explain(err error) *auth.Error {
	if cause := t.ctx.Err(); cause != nil {
		return unreachable(opControllerToken, cause)
	}
	if t.refusal != nil {
		e, _ := classify(opControllerToken, *t.refusal)
		e.Err = err
		return e
	}
	if t.failure != nil {
		return unreachable(opControllerToken, t.failure)
	}
	return &auth.Error{Provider: ProviderName, Operation: opControllerToken, Reason: auth.ErrUnavailable,
		Message: "the credentials in the file gave no token", Err: err}
}

var errShellOut = errors.New("they name a program to run, which is not allowed here")

// credentialsSource is what is looked at of a file of credentials, before the library of Google reads it.
type credentialsSource struct {
	Source struct {
		Executable json.RawMessage `json:"executable"`
	} `json:"credential_source"`
	// Next are the credentials that impersonate a service account. These may be of any kind again.
	Next *credentialsSource `json:"source_credentials"`
}

// refuseShellOut knows external accounts whose tokens come from a program, wherever they are in the file.
func refuseShellOut(content []byte, opts *auth.Options) error {
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
