// Package tracing starts OpenTelemetry spans, and none without a
// TracerProvider. It needs the API of OpenTelemetry alone: programs bring the
// SDK.
package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Attributes of the spans. ErrorType has the name of the semantic conventions.
const (
	ErrorType      = attribute.Key("error.type")
	Namespace      = attribute.Key("k8s.namespace.name")
	ServiceAccount = attribute.Key("workloadid.serviceaccount")
	Provider       = attribute.Key("workloadid.provider")
	Identity       = attribute.Key("workloadid.identity")
	Operation      = attribute.Key("workloadid.operation")
	Cluster        = attribute.Key("workloadid.cluster")
	AddOn          = attribute.Key("workloadid.addon")
	Driver         = attribute.Key("workloadid.driver")
)

// Start starts a span of the instrumentation scope
// "github.com/workloadid/workloadid/…". End it with End. A nil provider starts
// none.
func Start(ctx context.Context, p trace.TracerProvider, scope, name string,
	attributes ...attribute.KeyValue) (context.Context, trace.Span) {
	if p == nil {
		return ctx, trace.SpanFromContext(context.Background()) // which records nothing
	}
	return p.Tracer("github.com/workloadid/workloadid/"+scope).Start(ctx, name, trace.WithAttributes(attributes...))
}

// End ends a span with the error's text, which must hold no secret, and its
// type, a short label.
func End(span trace.Span, err error, errorType string) {
	if err != nil && span.IsRecording() {
		span.SetStatus(codes.Error, err.Error())
		span.SetAttributes(ErrorType.String(errorType))
	}
	span.End()
}
