package gcp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"

	"golang.org/x/oauth2"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

const bucketURL = "https://storage.googleapis.com/storage/v1/b/bucket/o/secret?alt=media"

func (w *environment) setBucket() {
	testenv.NewBuckets(w.Cloud).Set("bucket", testenv.Bucket{Objects: map[string]string{"secret": "of tenant A"},
		Viewers: []string{"serviceAccount:" + email("tenant-a")}})
}

func read(t *testing.T, client *http.Client, address string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(content)
}

// A client of golang.org/x/oauth2 reads a tenant's bucket.
func TestTokenSource(t *testing.T) {
	w := newEnvironment(t)
	w.setBucket()
	tokens := testenv.Cache(t)
	ctx := context.WithValue(t.Context(), oauth2.HTTPClient, w.Cloud.Client())
	source := gcp.NewTokenSource(t.Context(), w.Options("tenant-a", "app", testenv.WithCache(tokens, "tenant-a"))...)
	client := &http.Client{Transport: &oauth2.Transport{Source: source, Base: w.Cloud.Client().Transport}}
	for range 3 {
		if status, body := read(t, client, bucketURL); status != http.StatusOK || body != "of tenant A" {
			t.Errorf("status %d, %q", status, body)
		}
	}
	if n := w.Cloud.Calls("iamcredentials", ""); n != 1 {
		t.Errorf("%d tokens for three requests", n)
	}
	other := oauth2.NewClient(ctx, (&gcp.Provider{}).NewTokenSource(t.Context(), w.Options("tenant-b", "app")...))
	if status, _ := read(t, other, bucketURL); status != http.StatusForbidden {
		t.Errorf("tenant B gets status %d", status)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := gcp.NewTokenSource(ctx, w.Options("tenant-a", "app")...).Token(); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

// The credentials honour the context of each call, not one that they were made
// with.
func TestCredentials(t *testing.T) {
	w := newEnvironment(t)
	w.setBucket()
	tokens := testenv.Cache(t)
	creds := gcp.NewCredentials(w.Options("tenant-a", "app", testenv.WithCache(tokens, "tenant-a"))...)
	client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		token, err := creds.Token(r.Context())
		if err != nil {
			return nil, err
		}
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", token.Type+" "+token.Value)
		return w.Cloud.Client().Transport.RoundTrip(r)
	})}
	for range 2 {
		if status, body := read(t, client, bucketURL); status != http.StatusOK || body != "of tenant A" {
			t.Errorf("status %d, %q", status, body)
		}
	}
	token, err := creds.Token(t.Context())
	if err != nil || !token.IsValid() || token.Expiry.IsZero() || w.Cloud.Calls("iamcredentials", "") != 1 {
		t.Errorf("valid %t, %d calls, %v", token.IsValid(), w.Cloud.Calls("iamcredentials", ""), err)
	}
	if domain, err := creds.UniverseDomain(t.Context()); err != nil || domain != "googleapis.com" {
		t.Errorf("universe %q, %v", domain, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := gcp.NewCredentials(w.Options("tenant-b", "app")...).Token(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

func TestAdaptersWantAccessTokens(t *testing.T) {
	w := newEnvironment(t)
	opts := w.Options("tenant-a", "app", gcp.WithIDTokenAudience(service), allow(service))
	_, err := gcp.NewTokenSource(t.Context(), opts...).Token()
	testenv.CheckError(t, err, auth.ErrMisconfigured, "*gcp.IDToken")
	_, err = gcp.NewCredentials(opts...).Token(t.Context())
	testenv.CheckError(t, err, auth.ErrMisconfigured, "*gcp.IDToken")
}

func TestAdaptersInvalidate(t *testing.T) {
	w := newEnvironment(t)
	synctest.Test(t, func(t *testing.T) {
		n := 0
		sts := &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
			n++
			return answer(http.StatusOK,
				fmt.Sprintf(`{"access_token":"t%d","issued_token_type":"urn:ietf:params:oauth:token-type:access_token",`+
					`"token_type":"Bearer","expires_in":3600}`, n)), nil
		})}
		opts := func() []auth.Option {
			return w.Options("tenant-a", "direct", testenv.Cached(t, "tenant-a"),
				auth.WithHTTPClient(sts))
		}
		source := gcp.NewTokenSource(t.Context(), opts()...)
		testenv.CheckInvalidate(t, source, func() (string, error) {
			token, err := source.Token()
			if err != nil {
				return "", err
			}
			return token.AccessToken, nil
		})
		credentials := gcp.NewCredentials(opts()...)
		testenv.CheckInvalidate(t, credentials, func() (string, error) {
			token, err := credentials.Token(t.Context())
			if err != nil {
				return "", err
			}
			return token.Value, nil
		})
	})
}

// The error comes before there is a client, and the SDK makes no exchange of
// its own.
func TestGetCredentials(t *testing.T) {
	w, p := newEnvironment(t), &gcp.Provider{}
	cached := testenv.Cached(t, "tenant-a")
	_, err := p.GetCredentials(t.Context(), w.Options("tenant-a", "unknown", cached)...)
	testenv.CheckError(t, err, auth.ErrMisconfigured, `"tenant-a/unknown"`, "not found")
	creds, err := p.GetCredentials(t.Context(), w.Options("tenant-a", "app", cached)...)
	if err != nil || w.Cloud.Calls("iamcredentials", "") != 1 {
		t.Fatalf("got %v after %d exchanges, want no error after one", err, w.Cloud.Calls("iamcredentials", ""))
	}
	if token, err := creds.Token(t.Context()); err != nil || token.Value == "" ||
		w.Cloud.Calls("iamcredentials", "") != 1 {
		t.Errorf("%v after %d exchanges, want a token after one", err, w.Cloud.Calls("iamcredentials", ""))
	}
}
