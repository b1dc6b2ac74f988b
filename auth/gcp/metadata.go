package gcp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/compute/metadata"
	"golang.org/x/sync/singleflight"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/gcpname"
	"github.com/workloadid/workloadid/internal/transport"
)

const (
	opMetadata = "ask the metadata server about the GKE cluster"

	metadataHost = "metadata.google.internal"
	// metadataHostVariable names another host, as in Google's libraries.
	metadataHostVariable = "GCE_METADATA_HOST"
	metadataDialTimeout  = 2 * time.Second
	metadataTimeout      = 5 * time.Second
)

// metadataClient asks the metadata server, never through a proxy: that would
// ask for the identity of the proxy's machine.
type metadataClient struct {
	once   sync.Once
	client *http.Client
}

func (m *metadataClient) httpClient(opts *provider.Options) *http.Client {
	if opts.HTTPClient != nil {
		return transport.ForTokens(transport.Guard(opts.HTTPClient))
	}
	m.once.Do(func() {
		direct := &http.Transport{
			DialContext:     (&net.Dialer{Timeout: metadataDialTimeout}).DialContext,
			IdleConnTimeout: metadataTimeout, // it is asked once an hour
		}
		m.client = &http.Client{Timeout: metadataTimeout, CheckRedirect: transport.NoRedirect,
			Transport: transport.BoundedTo(direct, transport.MaxToken)}
	})
	return m.client
}

// getMetadata returns the value at a path of the metadata server. It refuses
// the answer of any other server.
func getMetadata(ctx context.Context, client *http.Client, operation, path string) (string, error) {
	sender := &metadataSender{client: client}
	text, err := metadata.NewClient(&http.Client{Transport: sender}).GetWithContext(ctx, path)
	switch answer := sender.answer; {
	case err != nil && answer.Status == 0:
		e := self.Unanswered(operation, cmp.Or(sender.err, err))
		e.Cause = provider.CauseMetadataServer
		return "", e
	case err != nil:
		return "", metadataError(operation, path, answer)
	case answer.Header.Get("Metadata-Flavor") != "Google":
		return "", metadataUnusable(operation, "what answers at %q is not a metadata server", sender.host)
	}
	return text, nil
}

// metadataSender carries out one request of [metadata.Client]. That client
// drops headers, never repeats a 404, and repeats other failures too early. So
// the retries are here, and the client sees values only.
type metadataSender struct {
	client *http.Client
	host   string // that was asked
	answer transport.Answer
	err    error
}

// RoundTrip asks by name where the client asks 169.254.169.254: other clouds
// have servers at this address. None of them has the name.
func (s *metadataSender) RoundTrip(r *http.Request) (*http.Response, error) {
	if os.Getenv(metadataHostVariable) == "" {
		r = r.Clone(r.Context())
		r.Host, r.URL.Host = metadataHost, metadataHost
	}
	s.host = r.URL.Host
	s.answer, s.err = transport.Send(r.Context(), s.client, func() (*http.Request, error) { return r, nil }, isNotFound)
	if s.err != nil || s.answer.Status != http.StatusOK {
		return nil, errors.New("no value")
	}
	return &http.Response{StatusCode: http.StatusOK, Header: s.answer.Header,
		Body: io.NopCloser(bytes.NewReader(s.answer.Body))}, nil
}

func metadataUnusable(operation, format string, args ...any) *auth.Error {
	e := self.Unavailable(operation, "", format, args...)
	e.Cause = provider.CauseMetadataServer
	return e
}

// isNotFound is also the answer of GKE's metadata server in the first seconds
// of a pod.
func isNotFound(answer transport.Answer) bool { return answer.Status == http.StatusNotFound }

// metadataError takes the reason from the text, which is all there is.
func metadataError(operation, path string, answer transport.Answer) *auth.Error {
	e := &auth.Error{Provider: ProviderName, Operation: operation, StatusCode: answer.Status, Reason: auth.ErrUnavailable,
		Cause: provider.CauseMetadataServer, Message: fmt.Sprintf("the metadata server does not tell %.200q", path),
		Wait: transport.RetryAfter(answer.Header, time.Now())}
	text := string(answer.Body)
	switch status := metadataStatus(answer.Status, text); {
	case status == http.StatusTooManyRequests:
		e.Reason, e.Message = auth.ErrThrottled, "the metadata server asks to slow down"
	case answer.Status == http.StatusNotFound:
		e.Reason = auth.ErrMisconfigured
	case status == http.StatusForbidden, status != answer.Status && status/100 == 4 &&
		!isTemporary(status, serviceError{}):
		e.Reason = auth.ErrDenied
	}
	if strings.HasPrefix(text, "Unable to generate access token") {
		e.Message = provider.Redact(text)
		if provider.Permanent(e) {
			e.Remedy = "grant roles/iam.workloadIdentityUser on the service account to the controller's ServiceAccount, or " +
				"remove its annotation"
		}
	}
	return e
}

// metadataStatus is the status of IAM where a text of the metadata server
// quotes it, whose own says less.
func metadataStatus(status int, text string) int {
	const quote, digits = "IAM returned ", 3
	_, rest, ok := strings.Cut(text, quote)
	if !ok || len(rest) < digits {
		return status
	}
	if n, err := strconv.Atoi(rest[:digits]); err == nil {
		return n
	}
	return status
}

// gkeCluster is the GKE cluster that the program runs in.
type gkeCluster struct {
	project     string
	audiences   [1]string // of ServiceAccount tokens: the workload identity pool
	stsAudience string
}

func (c *gkeCluster) pool() string { return c.audiences[0] }

// clusterLoader learns the cluster on first need, with one request at a time.
// It remembers a failure for up to half a minute, as the cache does: callers
// wait for a server that hangs five seconds in that time, no more.
type clusterLoader struct {
	loaded atomic.Pointer[gkeCluster]
	failed atomic.Pointer[learnFailure]
	flight singleflight.Group
}

// learnFailure is the last failure.
type learnFailure struct {
	err   error
	until time.Time
	delay time.Duration
}

const (
	// learnTimeout bounds the requests that callers share. They do not end with
	// the caller that caused them, and take as long as the cache lets a caller
	// wait.
	learnTimeout = 5 * time.Second

	minLearnDelay, maxLearnDelay = time.Second, 30 * time.Second
)

// held returns the failure while no new request is due.
func (l *clusterLoader) held(now time.Time) error {
	f := l.failed.Load()
	if f == nil || !now.Before(f.until) {
		return nil
	}
	var known *auth.Error
	if !errors.As(f.err, &known) {
		return f.err
	}
	held := *known // callers share the original
	held.Wait = max(held.Wait, f.until.Sub(now))
	return &held
}

// fail remembers a failure. It serves one request at a time.
func (l *clusterLoader) fail(err error, now time.Time) {
	f := &learnFailure{err: err, delay: minLearnDelay}
	if last := l.failed.Load(); last != nil {
		f.delay = min(2*last.delay, maxLearnDelay)
	}
	f.until = now.Add(f.delay)
	l.failed.Store(f)
}

// gkeCluster returns early if the context of the caller ends.
func (p *Provider) gkeCluster(ctx context.Context, opts *provider.Options) (*gkeCluster, error) {
	if c := p.cluster.loaded.Load(); c != nil {
		return c, nil
	}
	if err := p.cluster.held(time.Now()); err != nil {
		return nil, err
	}
	client := p.metadata.httpClient(opts) // the options belong to the caller
	done := p.cluster.flight.DoChan("", func() (_ any, err error) {
		defer func() {
			if problem := recover(); problem != nil {
				err = &cache.PanicError{Type: fmt.Sprintf("%T", problem), Stack: string(debug.Stack())}
			}
		}()
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), learnTimeout)
		defer stop()
		c, err := p.loadCluster(ctx, client)
		if err != nil {
			err = outsideGKE(err)
			p.cluster.fail(err, time.Now())
			return nil, err
		}
		p.cluster.loaded.Store(c)
		return c, nil
	})
	select {
	case result := <-done:
		c, _ := result.Val.(*gkeCluster)
		return c, result.Err
	case <-ctx.Done():
		return nil, self.Unanswered(opMetadata, ctx.Err())
	}
}

func (p *Provider) loadCluster(ctx context.Context, client *http.Client) (*gkeCluster, error) {
	var values [3]string
	paths := [...]string{"project/project-id", "instance/attributes/cluster-location", "instance/attributes/cluster-name"}
	for i, path := range paths {
		value, err := getMetadata(ctx, client, opMetadata, path)
		if err != nil {
			return nil, err
		}
		values[i] = strings.TrimSpace(value)
	}
	project, location, name := values[0], values[1], values[2]
	switch {
	case !gcpname.ValidProject(project):
		return nil, metadataUnusable(opMetadata, "the metadata server gives %.100q as the project's ID", project)
	case !gcpname.ValidLocation(location):
		return nil, metadataUnusable(opMetadata, "the metadata server gives %.100q as the cluster's location", location)
	case !gcpname.ValidClusterName(name):
		return nil, metadataUnusable(opMetadata, "the metadata server gives %.100q as the cluster's name", name)
	}
	c := &gkeCluster{project: project, audiences: [1]string{project + ".svc.id.goog"}}
	c.stsAudience = "identitynamespace:" + c.pool() + ":https://container." + p.universe() + "/v1/projects/" + project +
		"/locations/" + location + "/clusters/" + name
	return c, nil
}

// outsideGKE adds the remedy for other clusters. If the name of the metadata
// server does not exist, trying again is pointless.
func outsideGKE(err error) error {
	var known *auth.Error
	if !errors.As(err, &known) {
		return err
	}
	var dns *net.DNSError
	if errors.As(err, &dns) && dns.IsNotFound {
		known.Reason = auth.ErrMisconfigured
	}
	if known.Remedy == "" {
		known.Remedy = fmt.Sprintf("outside GKE set the annotation %q on the ServiceAccount",
			WorkloadIdentityProviderAnnotation)
	}
	return known
}
