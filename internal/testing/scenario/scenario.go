// Package scenario has what the demonstrations of examples share: they play a
// scenario on real API servers, and print each step.
package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// Wait polls, since the API servers and the programs of a demo work at the same
// time. It gives up after a minute, with what was amiss and the last error of
// done.
func Wait(ctx context.Context, amiss string, done func(context.Context) (bool, error)) error {
	const patience = time.Minute
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for {
		ok, err := done(ctx)
		if ok && err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-deadline:
			return errors.Join(fmt.Errorf("within %s %s", patience, amiss), err)
		}
	}
}

// Apply creates the objects of manifests, and counts them.
func Apply(ctx context.Context, c client.Client, manifests ...string) (count int, err error) {
	for document := range strings.SplitSeq(strings.Join(manifests, "\n---\n"), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			return count, err
		}
		if err := c.Create(ctx, object); err != nil {
			return count, fmt.Errorf("create %s %q: %w", object.GetKind(), object.GetName(), err)
		}
		count++
	}
	return count, nil
}

// Scenario runs steps one after the other, and parts of a program in the
// background.
type Scenario struct {
	Printer
	stops   []func() error
	running sync.WaitGroup
	fail    context.CancelCauseFunc
}

// Play runs the steps until one of them or a part fails, or ctx ends. It stops
// everything that they have started.
func (s *Scenario) Play(ctx context.Context, steps ...func(context.Context) error) (err error) {
	start := time.Now()
	ctx, s.fail = context.WithCancelCause(ctx)
	defer s.breakSilence()()
	defer func() {
		s.fail(nil)
		s.Say("Stopping everything and removing the files.")
		if err = errors.Join(err, s.Stop()); err == nil {
			s.Say("Done in %s.", time.Since(start).Round(time.Second))
		}
	}()
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}
	}
	return nil
}

// Go runs a part, which returns after the scenario's context ends. Its failure
// ends the scenario.
func (s *Scenario) Go(what string, part func() error) {
	s.running.Go(func() {
		if err := part(); err != nil && s.fail != nil {
			s.fail(fmt.Errorf("%s: %w", what, err))
		}
	})
}

// Defer has Stop call a function.
func (s *Scenario) Defer(stop func() error) { s.stops = append(s.stops, stop) }

// Wait waits for the parts.
func (s *Scenario) Wait() { s.running.Wait() }

// Stop waits for the parts, then calls the deferred functions in reverse order.
func (s *Scenario) Stop() (err error) {
	s.Wait()
	for _, stop := range slices.Backward(s.stops) {
		err = errors.Join(err, stop())
	}
	return err
}

// Printer writes for people, at most 80 columns.
type Printer struct {
	Out   io.Writer
	steps int
	mu    sync.Mutex
	last  time.Time // of the last line
}

const columns = 80

func (p *Printer) print(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = time.Now()
	_, _ = fmt.Fprintf(p.Out, format, args...)
}

// breakSilence prints a line after each ten seconds without another one, until
// stop is called.
func (p *Printer) breakSilence() (stop func()) {
	const silence = 10 * time.Second
	start, ended, done := time.Now(), make(chan struct{}), make(chan struct{})
	p.last = start
	left := func() time.Duration {
		p.mu.Lock()
		defer p.mu.Unlock()
		return time.Until(p.last.Add(silence))
	}
	go func() {
		defer close(done)
		for {
			select {
			case <-ended:
				return
			case <-time.After(left()):
			}
			if left() <= 0 {
				p.print("    … still working, %s so far\n", time.Since(start).Round(time.Second))
			}
		}
	}()
	return func() { close(ended); <-done }
}

// Say prints a paragraph.
func (p *Printer) Say(format string, args ...any) {
	p.print("\n%s\n", wrap(fmt.Sprintf(format, args...), ""))
}

// Step prints the next numbered step.
func (p *Printer) Step(format string, args ...any) {
	p.steps++
	text := wrap(fmt.Sprintf(format, args...), "    ")
	p.print("\n%2d. %s\n", p.steps, text[4:])
}

// Detail prints a value of a step.
func (p *Printer) Detail(label, format string, args ...any) {
	const indent = "                  "
	text := wrap(fmt.Sprintf(format, args...), indent)
	p.print("    %-14s%s\n", label, text[len(indent):])
}

// wrap breaks text between words and indents each line. It breaks a word that
// no line can hold, such as an ARN, after a slash.
func wrap(text, indent string) string {
	var lines []string
	line := indent
	for word := range strings.FieldsSeq(text) {
		parts := []string{word}
		if len(indent)+len(word) > columns {
			parts = strings.SplitAfter(word, "/")
		}
		for _, part := range parts {
			if len(line)+len(part) > columns && line != indent {
				lines, line = append(lines, strings.TrimRight(line, " ")), indent
			}
			line += part
		}
		line += " "
	}
	return strings.Join(append(lines, strings.TrimRight(line, " ")), "\n")
}
