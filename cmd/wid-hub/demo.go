package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/testing/controlplane"
	"github.com/workloadid/workloadid/internal/testing/story"
	"github.com/workloadid/workloadid/registration"
)

// demo plays a join between two control planes that it starts. Its steps are in story.go, for AWS in storyaws.go.
type demo struct {
	story.Printer
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
	d := &demo{Printer: story.Printer{Out: out}, options: o, assets: assets, fail: fail}
	defer func() {
		d.Say("Stopping both control planes and removing their files.")
		if err = errors.Join(err, d.stop()); err == nil {
			d.Say("Done in %s.", time.Since(start).Round(time.Second))
		}
	}()
	steps := d.story
	if o.demo == authTypeAWS {
		steps = (&awsDemo{demo: d}).story
	}
	for _, step := range steps() {
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
