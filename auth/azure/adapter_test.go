package azure_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

func TestTokenCredential(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	tokens := testenv.Cache(t)
	credential := azure.NewTokenCredential(w.Options("tenant-a", "app", testenv.WithCache(tokens, "tenant-a"),
		auth.WithScopes("https://vault.azure.net/.default"))...)
	ask := func(request policy.TokenRequestOptions) (cloudtest.AzureIdentity, error) {
		got, err := credential.GetToken(t.Context(), request)
		if err != nil {
			return cloudtest.AzureIdentity{}, err
		}
		id, ok := w.Cloud.Azure().Identity(got.Token)
		if !ok || time.Until(got.ExpiresOn) < 50*time.Minute || time.Until(got.ExpiresOn) > time.Hour {
			t.Errorf("expires %s", got.ExpiresOn)
		}
		return id, nil
	}
	storage := []string{"https://storage.azure.com/.default"}
	for range 2 {
		if id, err := ask(policy.TokenRequestOptions{Scopes: storage}); err != nil ||
			id.Audience != "https://storage.azure.com" {
			t.Errorf("the scopes of the call: %+v, %v", id, err)
		}
		if id, err := ask(policy.TokenRequestOptions{TenantID: strings.ToUpper(tenantID)}); err != nil ||
			id.Audience != "https://vault.azure.net" {
			t.Errorf("the scopes of the options: %+v, %v", id, err)
		}
		if id, err := ask(policy.TokenRequestOptions{Scopes: storage, EnableCAE: true}); err != nil ||
			id.Claims != `{"access_token":{"xms_cc":{"values":["CP1"]}}}` {
			t.Errorf("with continuous access evaluation: %+v, %v", id, err)
		}
	}
	if n := w.Cloud.Calls("entra", "token"); n != 3 {
		t.Errorf("%d exchanges", n)
	}
	const claims = `{"access_token":{"nbf":{"essential":true,"value":"1604106651"}}}`
	for range 2 {
		if id, err := ask(policy.TokenRequestOptions{Scopes: storage, Claims: claims}); err != nil || id.Claims != claims {
			t.Errorf("with claims: %+v, %v", id, err)
		}
	}
	if n := w.Cloud.Calls("entra", "token"); n != 4 {
		t.Errorf("%d exchanges: claims get a new token at most every ten seconds", n)
	}
	if id, err := ask(policy.TokenRequestOptions{Scopes: storage, Claims: claims, EnableCAE: true}); err != nil ||
		!strings.Contains(id.Claims, `"CP1"`) || !strings.Contains(id.Claims, `"1604106651"`) {
		t.Errorf("with both: %+v, %v", id, err)
	}
}

// The tenant chooses the service that answers with challenges. They cost what
// other exchanges cost: those at the same time share one, and there is none for
// ten seconds.
func TestChallengesShareAnExchange(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	synctest.Test(t, func(t *testing.T) {
		tokens := testenv.Cache(t)
		var exchanges, running, most atomic.Int64
		client := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			time.Sleep(time.Second) // that of the bubble
			return respond(r, http.StatusOK,
				fmt.Sprintf(`{"token_type":"Bearer","expires_in":3600,"access_token":"t%d"}`, exchanges.Add(1))), nil
		})}
		credential := (&azure.Provider{}).NewTokenCredential(w.Options("tenant-a", "app",
			testenv.WithCache(tokens, "tenant-a"), auth.WithHTTPClient(client))...)
		challenge := func(claims, want string) {
			t.Helper()
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() {
					got, err := credential.GetToken(t.Context(), policy.TokenRequestOptions{Claims: claims, EnableCAE: true})
					if err != nil || got.Token != want {
						t.Errorf("got %q instead of %q, %v", got.Token, want, err)
					}
				})
			}
			wg.Wait()
		}
		challenge(`{"a":1}`, "t1")
		challenge(`{"a":1}`, "t1")
		time.Sleep(11 * time.Second)
		challenge(`{"a":1}`, "t2")
		challenge(`{"a":2}`, "t3")
		time.Sleep(50 * time.Minute) // due for renewal, and refused
		challenge(`{"a":1}`, "t4")
		if most.Load() != 1 {
			t.Errorf("%d exchanges at once for one challenge", most.Load())
		}
	})
}

func TestTokenCredentialRefuses(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	credential := (&azure.Provider{}).NewTokenCredential(w.Options("tenant-a", "app")...)
	for name, tc := range map[string]struct {
		request policy.TokenRequestOptions
		want    string
	}{
		"another tenant": {policy.TokenRequestOptions{TenantID: usTenant}, usTenant},
		"no JSON":        {policy.TokenRequestOptions{Claims: "claims"}, "JSON object"},
		"null":           {policy.TokenRequestOptions{Claims: "null"}, "JSON object"},
		"a list":         {policy.TokenRequestOptions{Claims: "[]"}, "JSON object"},
		"huge":           {policy.TokenRequestOptions{Claims: `{"a":"` + strings.Repeat("x", 1<<20) + `"}`}, "JSON object"},
		"an empty scope": {policy.TokenRequestOptions{Scopes: []string{""}}, "scope is empty"},
	} {
		_, err := credential.GetToken(t.Context(), tc.request)
		if testenv.CheckError(t, err, auth.ErrMisconfigured, tc.want); t.Failed() {
			t.Fatal(name)
		}
	}
	testenv.ExpectNone(t, w.Requests())
	t.Setenv("AZURE_TENANT_ID", tenantID)
	_, err := azure.NewTokenCredential(auth.WithHTTPClient(w.http)).GetToken(t.Context(),
		policy.TokenRequestOptions{TenantID: usTenant})
	testenv.CheckError(t, err, auth.ErrMisconfigured, usTenant, tenantID)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := credential.GetToken(ctx, policy.TokenRequestOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

// The controller's own tokens honour claims too.
func TestTokenCredentialOfTheController(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	w.Cloud.Azure().SetClientSecret(tenantID, clientB, "the secret of it")
	configure(t, tenantID, clientB, "AZURE_CLIENT_SECRET", "the secret of it")
	credential := azure.NewTokenCredential(auth.WithHTTPClient(w.http))
	got, err := credential.GetToken(t.Context(),
		policy.TokenRequestOptions{Claims: `{"access_token":{"nbf":{"essential":true,"value":"1604106651"}}}`,
			EnableCAE: true, Scopes: []string{"https://storage.azure.com/.default"}, TenantID: tenantID})
	if err != nil {
		t.Fatal(err)
	}
	id, _ := w.Cloud.Azure().Identity(got.Token)
	if id.ClientID != clientB || id.Audience != "https://storage.azure.com" || !strings.Contains(id.Claims, `"CP1"`) ||
		!strings.Contains(id.Claims, `"1604106651"`) {
		t.Errorf("got a token of %+v", id)
	}
}

// A service that names a time from which the token should be replaced has it
// passed on.
func TestRefreshOn(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	w.Cloud.AddFault(body(`{"token_type":"Bearer","expires_in":"86399","refresh_in":43199,"access_token":"opaque"}`))
	got, err := azure.NewTokenCredential(w.Options("tenant-a", "app")...).GetToken(t.Context(),
		policy.TokenRequestOptions{})
	if left := time.Until(got.RefreshOn); err != nil || left < 11*time.Hour || left > 12*time.Hour ||
		time.Until(got.ExpiresOn) < 23*time.Hour {
		t.Errorf("refresh on %s, expires on %s, %v", got.RefreshOn, got.ExpiresOn, err)
	}
}

// The tokens for all scopes are replaced, each when it is asked for.
func TestTokenCredentialInvalidate(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	synctest.Test(t, func(t *testing.T) {
		n := 0
		entra := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			n++
			return respond(r, http.StatusOK, fmt.Sprintf(`{"token_type":"Bearer","expires_in":3600,"access_token":"t%d"}`, n)),
				nil
		})}
		credential := azure.NewTokenCredential(w.Options("tenant-a", "app",
			testenv.Cached(t, "tenant-a"), auth.WithHTTPClient(entra))...)
		testenv.CheckInvalidate(t, credential, func() (string, error) {
			vault, err := credential.GetToken(t.Context(),
				policy.TokenRequestOptions{Scopes: []string{"https://vault.azure.net/.default"}})
			if err != nil {
				return "", err
			}
			storage, err := credential.GetToken(t.Context(),
				policy.TokenRequestOptions{Scopes: []string{"https://storage.azure.com/.default"}})
			return vault.Token + storage.Token, err
		})
		if n != 4 {
			t.Errorf("%d exchanges for two scopes", n)
		}
	})
}

// The error comes before there is a client, and the SDK makes no exchange of
// its own for the scope of the options.
func TestGetTokenCredential(t *testing.T) {
	clearEnvironment(t)
	w, p := newEnvironment(t), &azure.Provider{}
	const scope = "https://vault.azure.net/.default"
	more := []auth.Option{testenv.Cached(t, "tenant-a"), auth.WithScopes(scope)}
	_, err := p.GetTokenCredential(t.Context(), w.Options("tenant-a", "unknown", more...)...)
	testenv.CheckError(t, err, auth.ErrMisconfigured, `"tenant-a/unknown"`, "not found")
	credential, err := p.GetTokenCredential(t.Context(), w.Options("tenant-a", "app", more...)...)
	if err != nil || w.Cloud.Calls("entra", "token") != 1 {
		t.Fatalf("got %v after %d exchanges, want no error after one", err, w.Cloud.Calls("entra", "token"))
	}
	got, err := credential.GetToken(t.Context(), policy.TokenRequestOptions{Scopes: []string{scope}})
	if err != nil || got.Token == "" || w.Cloud.Calls("entra", "token") != 1 {
		t.Errorf("token %t, %v after %d exchanges, want a token after one", got.Token != "", err,
			w.Cloud.Calls("entra", "token"))
	}
}
