package aws_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cache/metrics"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// many is a cloud with that many tenants.
func many(t *testing.T, tenants int) (*environment, []string) {
	t.Helper()
	var objs []client.Object
	var names []string
	for i := range tenants {
		name := fmt.Sprintf("tenant-%03d", i)
		objs, names = append(objs, testenv.ServiceAccount(name, "app", aws.RoleARNAnnotation, role(name))),
			append(names, name)
	}
	w := newEnvironment(t, objs...)
	for _, name := range names {
		w.cloud.AWS().SetRole(role(name),
			cloudtest.Trust{Issuer: w.issuer.URL(), Subjects: []string{"system:serviceaccount:" + name + ":app"}})
	}
	return w, names
}

// Two hundred tenants at once, with an STS that takes its time: each makes one
// exchange, however many callers it has, and gets its own role.
func TestManyTenantsAtOnce(t *testing.T) {
	w, tenants := many(t, 200)
	w.cloud.AddFault(cloudtest.Fault{Latency: 50 * time.Millisecond})
	tokens := testenv.Cache(t)
	provider := &aws.Provider{}
	start := time.Now()
	var wg sync.WaitGroup
	for _, tenant := range tenants {
		for range 5 {
			wg.Go(func() {
				own, err := get(t, provider, w.options(tenant, "app", auth.WithCache(tokens, object(tenant)))...)
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

// Trust that is revoked shows when the cached credential has expired, at the
// latest: one refusal alone does not drop it.
func TestTrustIsRevoked(t *testing.T) {
	w := newEnvironment(t)
	tokens := testenv.Cache(t, cache.WithMaxDuration(300*time.Millisecond))
	if _, err := w.get(t, "tenant-a", "app", auth.WithCache(tokens, object("tenant-a"))); err != nil {
		t.Fatal(err)
	}
	w.cloud.AWS().RemoveRole(role("tenant-a"))
	var err error
	for err == nil {
		_, err = w.get(t, "tenant-a", "app", auth.WithCache(tokens, object("tenant-a")))
	}
	testenv.CheckError(t, err, auth.ErrDenied, "AccessDenied")
}

// An error stays in the cache for minutes. The request that failed, with the
// ServiceAccount's token, does not.
func TestErrorsKeepNoRequest(t *testing.T) {
	w := newEnvironment(t)
	w.cloud.AWS().RemoveRole(role("tenant-a"))
	_, err := w.get(t, "tenant-a", "app")
	var response *awshttp.ResponseError
	if !errors.As(err, &response) || response.HTTPStatusCode() != http.StatusForbidden ||
		response.ServiceRequestID() == "" {
		t.Fatalf("the SDK's error does not show: %v", err)
	}
	if r := response.Response.Response; r.Request != nil || r.TLS != nil || r.Body != http.NoBody {
		t.Error("the request or the connection is kept")
	}
}

// Nothing that a secret could get into holds one: errors, logs, metrics.
func TestSecretsShowNowhere(t *testing.T) {
	w := newEnvironment(t, testenv.ServiceAccount("tenant-b", "thief", aws.RoleARNAnnotation, role("tenant-a")))
	var out bytes.Buffer
	previous := slog.Default()
	slog.SetDefault(slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	defer slog.SetDefault(previous)
	registry := prometheus.NewRegistry()
	m, err := metrics.New("test_", registry)
	if err != nil {
		t.Fatal(err)
	}
	tokens := testenv.Cache(t, cache.WithObserver(m))
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
