// Package spantest records spans in tests of this module, which does not depend
// on the SDK of OpenTelemetry.
package spantest

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"
	"go.opentelemetry.io/otel/trace/noop"
)

// Recorder is a TracerProvider that records the spans that have ended. The zero
// value is ready. It is safe for concurrent use.
type Recorder struct {
	embedded.TracerProvider

	mu    sync.Mutex
	ended []string
}

// Tracer implements trace.TracerProvider.
func (r *Recorder) Tracer(string, ...trace.TracerOption) trace.Tracer { return &tracer{recorder: r} }

// Ended returns and forgets the spans that have ended, as "parent/name
// key=value … error: text".
func (r *Recorder) Ended() (ended []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ended, r.ended = r.ended, nil
	return ended
}

type tracer struct {
	embedded.Tracer
	recorder *Recorder
}

func (t *tracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	config := trace.NewSpanStartConfig(opts...)
	s := &span{recorder: t.recorder, name: name}
	if parent, ok := trace.SpanFromContext(ctx).(*span); ok {
		s.name = parent.name + "/" + name
	}
	s.SetAttributes(config.Attributes()...)
	return trace.ContextWithSpan(ctx, s), s
}

type span struct {
	noop.Span
	recorder *Recorder
	name     string

	mu         sync.Mutex
	attributes strings.Builder
	failure    string
}

func (s *span) IsRecording() bool { return true }

func (s *span) SetAttributes(all ...attribute.KeyValue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range all {
		fmt.Fprintf(&s.attributes, " %s=%s", a.Key, a.Value.Emit())
	}
}

func (s *span) SetStatus(code codes.Code, text string) {
	if code == codes.Error {
		s.failure = " error: " + text
	}
}

func (s *span) End(...trace.SpanEndOption) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recorder.mu.Lock()
	defer s.recorder.mu.Unlock()
	s.recorder.ended = append(s.recorder.ended, s.name+s.attributes.String()+s.failure)
}
