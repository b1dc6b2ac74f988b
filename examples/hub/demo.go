package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/controlplane"
	"github.com/workloadid/workloadid/registration"
)

// demo plays a join between two control planes that it starts. Its steps are in story.go, for AWS in storyaws.go.
type demo struct {
	printer
	options      options
	assets       string
	hub, managed *controlplane.Cluster
	admin, local client.Client // of the administrators of hub and managed cluster
	agent        *registration.Agent
	own          client.Client // with the agent's own credential
	token        bootstrap.Token
	accepted     time.Time

	driver      registration.Driver // of the agent
	addOnDriver registration.Driver // of its add-ons; nil: none are registered
	account     string              // its ServiceAccount
	addOn       client.Client       // with the add-on's own credential

	stops   []func() error // run in reverse order
	running sync.WaitGroup
	fail    context.CancelCauseFunc
}

// runDemo stops everything that it has started, also when ctx ends.
func runDemo(ctx context.Context, out io.Writer, o options) (err error) {
	assets, err := controlplane.Assets(ctx, os.Stderr)
	if err != nil {
		return err
	}
	start := time.Now()
	ctx, fail := context.WithCancelCause(ctx)
	o.metricsAddress, o.probeAddress = "0", "0"
	d := &demo{printer: printer{out: out}, options: o, assets: assets, fail: fail}
	defer func() {
		d.say("Stopping both control planes and removing their files.")
		if err = errors.Join(err, d.stop()); err == nil {
			d.say("Done in %s.", time.Since(start).Round(time.Second))
		}
	}()
	story := d.story
	if o.demo == authTypeAWS {
		story = (&awsDemo{demo: d}).story
	}
	for _, step := range story() {
		if err := step(ctx); err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}
	}
	return nil
}

func (d *demo) stop() (err error) {
	d.fail(nil)
	d.running.Wait()
	for _, stop := range slices.Backward(d.stops) {
		err = errors.Join(err, stop())
	}
	return err
}

// run runs a manager until the demo ends. Its failure ends the demo.
func (d *demo) run(ctx context.Context, what string, start func(context.Context) error) {
	d.running.Go(func() {
		if err := start(ctx); err != nil {
			d.fail(fmt.Errorf("%s: %w", what, err))
		}
	})
}

// wait polls, since two API servers, a hub and an agent work at the same time.
func wait(ctx context.Context, what string, done func(context.Context) (bool, error)) error {
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
			return errors.Join(fmt.Errorf("within %s %s", patience, what), err)
		}
	}
}

// apply creates the objects of manifests.
func apply(ctx context.Context, c client.Client, manifests ...string) (count int, err error) {
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

// configOf returns the configuration of a ServiceAccount.
func configOf(ctx context.Context, cluster *controlplane.Cluster, namespace, name string) (*rest.Config, error) {
	request := &authenticationv1.TokenRequest{}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := cluster.Client().SubResource("token").Create(ctx, account, request); err != nil {
		return nil, err
	}
	config := rest.AnonymousClientConfig(cluster.Config())
	config.BearerToken = request.Status.Token
	return config, nil
}

// printer writes for people, at most 80 columns.
type printer struct {
	out   io.Writer
	steps int
}

const columns = 80

func (p *printer) say(format string, args ...any) {
	_, _ = fmt.Fprintf(p.out, "\n%s\n", wrap(fmt.Sprintf(format, args...), ""))
}

func (p *printer) step(format string, args ...any) {
	p.steps++
	text := wrap(fmt.Sprintf(format, args...), "    ")
	_, _ = fmt.Fprintf(p.out, "\n%2d. %s\n", p.steps, text[4:])
}

func (p *printer) detail(label, format string, args ...any) {
	const indent = "                  "
	text := wrap(fmt.Sprintf(format, args...), indent)
	_, _ = fmt.Fprintf(p.out, "    %-14s%s\n", label, text[len(indent):])
}

// wrap breaks text between words and indents each line. It breaks a word that no line can hold, such as an ARN, after a slash.
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
