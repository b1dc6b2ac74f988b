package aws_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cache/metrics"
	"github.com/workloadid/workloadid/internal/testing/testworld"
)

// many is a cloud with that many tenants.
func many(t *testing.T, tenants int) (*world, []string) {
	t.Helper()
	var objs []client.Object
	var names []string
	for i := range tenants {
		name := fmt.Sprintf("tenant-%03d", i)
		objs, names = append(objs, testworld.ServiceAccount(name, "app", aws.RoleARNAnnotation, role(name))), append(names, name)
	}
	w := newWorld(t, objs...)
	for _, name := range names {
		w.cloud.AWS().SetRole(role(name), authtest.Trust{Issuer: w.issuer.URL(), Subjects: []string{"system:serviceaccount:" + name + ":app"}})
	}
	return w, names
}

// Two hundred tenants at once, with an STS that takes its time: each makes one exchange, however many callers it has, and
// gets its own role.
func TestManyTenantsAtOnce(t *testing.T) {
	w, tenants := many(t, 200)
	w.cloud.AddFault(authtest.Fault{Latency: 50 * time.Millisecond})
	tokens, err := cache.NewTokenCache(1000)
	if err != nil {
		t.Fatal(err)
	}
	defer tokens.Close()
	provider := &aws.Provider{}
	start := time.Now()
	var wg sync.WaitGroup
	for _, tenant := range tenants {
		for range 5 {
			wg.Go(func() {
				token, err := auth.GetAccessToken(t.Context(), provider, w.options(tenant, "app", auth.WithCache(tokens, object(tenant)))...)
				if err != nil {
					t.Error(err)
					return
				}
				own, err := aws.FromToken(token)
				if err != nil {
					t.Error(err)
					return
				}
				if id, _ := w.cloud.AWS().Identity(own.AccessKeyID()); id.RoleARN != role(tenant) {
					t.Errorf("%s got %+v", tenant, id)
				}
			})
		}
	}
	wg.Wait()
	t.Logf("%d tenants with 5 callers each, STS taking 50 ms: %s", len(tenants), time.Since(start).Round(time.Millisecond))
	perSession := map[string]int{}
	for _, call := range w.cloud.Log() {
		perSession[call.Parameters["RoleSessionName"]]++
	}
	if len(perSession) != 200 || w.cloud.Calls("sts", "") != 200 {
		t.Errorf("%d exchanges for %d tenants", w.cloud.Calls("sts", ""), len(perSession))
	}
}

// A tenant with a hundred ServiceAccounts at an endpoint that hangs does not delay the others.
func TestTenantThatHangs(t *testing.T) {
	w, tenants := many(t, 20)
	for i := range 100 {
		if err := w.client.Create(t.Context(), testworld.ServiceAccount("hanging", fmt.Sprintf("app-%d", i), aws.RoleARNAnnotation, role("hanging"))); err != nil {
			t.Fatal(err)
		}
	}
	w.cloud.AddFault(authtest.Fault{Hang: true, Match: func(c authtest.Call) bool { return c.Parameters["RoleArn"] == role("hanging") }})
	tokens, err := cache.NewTokenCache(1000, cache.WithMintTimeout(time.Hour)) // no mint gives up before the test does
	if err != nil {
		t.Fatal(err)
	}
	defer tokens.Close()
	provider := &aws.Provider{}
	get := func(ctx context.Context, namespace, name string) error {
		_, err := auth.GetAccessToken(ctx, provider, w.options(namespace, name, auth.WithCache(tokens, object(namespace)))...)
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	var hanging sync.WaitGroup
	for i := range 100 {
		hanging.Go(func() {
			if err := get(ctx, "hanging", fmt.Sprintf("app-%d", i)); err == nil {
				t.Error("an endpoint that hangs answered")
			}
		})
	}
	for tokens.Stats().Running < 8 {
		if err := get(t.Context(), tenants[0], "app"); err != nil {
			t.Fatal(err)
		}
	}
	var hits []time.Duration
	for _, tenant := range tenants {
		for i := range 50 {
			start := time.Now()
			if err := get(t.Context(), tenant, "app"); err != nil {
				t.Error(err)
			}
			if i > 0 {
				hits = append(hits, time.Since(start))
			}
		}
	}
	slices.Sort(hits)
	t.Logf("hits of others: 99th percentile %s, with the fake API server's copying", hits[len(hits)*99/100])
	if n := tokens.Stats().Running; n != 8 {
		t.Errorf("%d exchanges of the tenant run, want 8", n)
	}
	cancel()
	hanging.Wait()
}

// Trust that is revoked shows at the next refresh: the credential is dropped, although it is valid.
func TestTrustIsRevoked(t *testing.T) {
	w := newWorld(t)
	tokens, err := cache.NewTokenCache(10, cache.WithMaxDuration(300*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer tokens.Close()
	if _, err := w.get(t, "tenant-a", "app", auth.WithCache(tokens, object("tenant-a"))); err != nil {
		t.Fatal(err)
	}
	w.cloud.AWS().RemoveRole(role("tenant-a"))
	for err == nil {
		_, err = w.get(t, "tenant-a", "app", auth.WithCache(tokens, object("tenant-a")))
	}
	testworld.CheckError(t, err, auth.ErrDenied, "AccessDenied")
	if tokens.Len() != 0 {
		t.Error("the credential is still there")
	}
}

// An error stays in the cache for minutes. The request that failed, with the ServiceAccount's token, does not.
func TestErrorsKeepNoRequest(t *testing.T) {
	w := newWorld(t)
	w.cloud.AWS().RemoveRole(role("tenant-a"))
	_, err := w.get(t, "tenant-a", "app")
	var response *awshttp.ResponseError
	if !errors.As(err, &response) || response.HTTPStatusCode() != http.StatusForbidden || response.ServiceRequestID() == "" {
		t.Fatalf("the SDK's error does not show: %v", err)
	}
	if r := response.Response.Response; r.Request != nil || r.TLS != nil || r.Body != http.NoBody {
		t.Error("the request or the connection is kept")
	}
}

// Callers at the same time share the request of the SDK's chain, and so its error. The race detector watches.
func TestErrorsOfTheChainKeepNoRequest(t *testing.T) {
	clearEnvironment(t)
	w := newWorld(t)
	w.setWebIdentity(t)
	w.cloud.AWS().RemoveRole(role("tenant-a"))
	provider, client := &aws.Provider{}, w.cloud.Client()
	const callers, each = 8, 20
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range each {
				_, err := auth.GetAccessToken(t.Context(), provider, auth.WithSTSRegion("eu-central-1"), auth.WithHTTPClient(client))
				var response *awshttp.ResponseError
				if !errors.As(err, &response) || response.HTTPStatusCode() != http.StatusForbidden {
					t.Errorf("the SDK's error does not show: %v", err)
				} else if r := response.Response.Response; r.Request != nil || r.TLS != nil || r.Body != http.NoBody {
					t.Error("the request or the connection is kept")
				}
			}
		})
	}
	all.Wait()
	if n := w.cloud.Calls("sts", ""); n >= callers*each {
		t.Errorf("%d requests: no caller shared one", n)
	}
}

// Nothing that a secret could get into holds one: errors, logs, metrics.
func TestSecretsShowNowhere(t *testing.T) {
	w := newWorld(t, testworld.ServiceAccount("tenant-b", "thief", aws.RoleARNAnnotation, role("tenant-a")))
	var out bytes.Buffer
	previous := slog.Default()
	slog.SetDefault(slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	defer slog.SetDefault(previous)
	registry := prometheus.NewRegistry()
	m, err := metrics.New("test_", registry)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := cache.NewTokenCache(10, cache.WithObserver(m))
	if err != nil {
		t.Fatal(err)
	}
	defer tokens.Close()
	var secrets []string
	for _, sa := range []string{"tenant-a/app", "tenant-b/app", "tenant-b/thief"} {
		namespace, name, _ := strings.Cut(sa, "/")
		token, err := w.get(t, namespace, name, auth.WithCache(tokens, object(namespace)))
		fmt.Fprintf(&out, "%v %+v %#v %v\n", token, token, token, err)
		for cause := err; cause != nil; {
			fmt.Fprintf(&out, "%v %+v\n", cause, cause)
			unwrapper, ok := cause.(interface{ Unwrap() error }) //nolint:errorlint // walks the chain
			if !ok {
				break
			}
			cause = unwrapper.Unwrap()
		}
		if token != nil {
			secrets = append(secrets, token.Credentials().SecretAccessKey, token.Credentials().SessionToken)
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		out.WriteString(family.String())
	}
	for _, secret := range append(secrets, "eyJ") { // how every JWT begins
		if strings.Contains(out.String(), secret) {
			t.Errorf("a secret shows")
		}
	}
	if len(secrets) != 4 || !strings.Contains(out.String(), "AccessDenied") {
		t.Errorf("the test saw %d secrets in %s", len(secrets), out.String())
	}
}
