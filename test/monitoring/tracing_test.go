package monitoring_test

import (
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// The SDK of OpenTelemetry records the spans below the caller's, also when the
// exchange runs in the cache's own goroutine.
func TestSpansWithTheSDK(t *testing.T) {
	const role, registry = "arn:aws:iam::123456789012:role/app", "123456789012.dkr.ecr.eu-central-1.amazonaws.com/app"
	issuer, cloud := testenv.Issuer(t), testenv.Cloud(t)
	cloud.AWS().AddOIDCProvider("123456789012", issuer.URL(), issuer.HTTPClient(), aws.DefaultAudience)
	cloud.AWS().SetRole(role,
		cloudtest.Trust{Issuer: issuer.URL(), Subjects: []string{"system:serviceaccount:tenant-a:app"}})
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	defer provider.Shutdown(t.Context()) //nolint:errcheck // it is in memory
	account := testenv.ServiceAccount("tenant-a", "app", aws.RoleARNAnnotation, role)
	opts := []auth.Option{auth.WithServiceAccount(client.ObjectKeyFromObject(account), issuer.Client(account)),
		auth.WithTracerProvider(provider),
		auth.WithCache(testenv.Cache(t), cache.InvolvedObject{Namespace: "tenant-a", Name: "o"}),
		auth.WithHTTPClient(cloud.Client())}
	ctx, reconcile := provider.Tracer("controller").Start(t.Context(), "Reconcile")
	if _, err := auth.GetArtifactRegistryCredentials(ctx, &aws.Provider{}, registry, opts...); err != nil {
		t.Fatal(err)
	}
	reconcile.End()
	parents := map[string]string{}
	spans := exporter.GetSpans()
	for _, s := range spans {
		for _, p := range spans {
			if s.Parent.SpanID() == p.SpanContext.SpanID() {
				parents[s.Name] = p.Name
			}
		}
		if s.Status.Code == codes.Error ||
			s.Name != "Reconcile" && s.InstrumentationScope.Name != "github.com/workloadid/workloadid/auth" {
			t.Errorf("span %q of %q: %v", s.Name, s.InstrumentationScope.Name, s.Status)
		}
	}
	if len(spans) != 4 || parents["TokenRequest"] != "Exchange" || parents["Exchange"] != "Reconcile" ||
		parents["Derive"] != "Reconcile" {
		t.Errorf("%d spans, parents %v", len(spans), parents)
	}
}
