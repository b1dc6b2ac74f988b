//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// check is one line of the report.
type check struct {
	name  string
	limit time.Duration
	run   func(ctx context.Context, c *cluster) error
	// needed is set for a check that installs what later ones of the group
	// need. If it fails, these do not run.
	needed bool
}

// group is the checks of one system. They run in order.
type group struct {
	name   string
	checks []check
}

// runner runs checks and prints their results.
type runner struct {
	cluster *cluster
	only    *regexp.Regexp
	failed  []string
	passed  int
}

func (r *runner) all(ctx context.Context) {
	for _, g := range groups() {
		if r.selects(g) {
			r.group(ctx, g)
		}
	}
}

func (r *runner) selects(g group) bool {
	for _, c := range g.checks {
		if r.only.MatchString(g.name + ": " + c.name) {
			return true
		}
	}
	return false
}

func (r *runner) group(ctx context.Context, g group) {
	for i, c := range g.checks {
		name := g.name + ": " + c.name
		if ctx.Err() != nil || !c.needed && !r.only.MatchString(name) {
			continue
		}
		err := r.step(ctx, name, c.limit, func(ctx context.Context) error { return c.run(ctx, r.cluster) })
		if err != nil && c.needed {
			fmt.Printf("      %d more of %s did not run\n", len(g.checks)-i-1, g.name)
			return
		}
	}
}

// step runs one check and prints its line. After a failure it prints the state
// of the cluster too.
func (r *runner) step(ctx context.Context, name string, limit time.Duration, run func(context.Context) error) error {
	if limit == 0 {
		limit = time.Minute
	}
	stepCtx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start := time.Now()
	err := run(stepCtx)
	if err == nil {
		err = stepCtx.Err()
	}
	took := time.Since(start).Seconds()
	if err == nil {
		r.passed++
		fmt.Printf("ok    %6.1fs  %s\n", took, name)
		return nil
	}
	r.failed = append(r.failed, name)
	fmt.Printf("FAIL  %6.1fs  %s\n%s\n", took, name, indent(err.Error()))
	if r.cluster != nil {
		fmt.Println(indent(r.cluster.state(context.WithoutCancel(ctx))))
	}
	return err
}

func (r *runner) result() error {
	if len(r.failed) > 0 {
		return fmt.Errorf("%d checks passed, %d failed: %s", r.passed, len(r.failed), strings.Join(r.failed, "; "))
	}
	if r.passed < 2 {
		return errors.New("-run matches no check")
	}
	fmt.Printf("%d checks passed\n", r.passed)
	return nil
}

func indent(text string) string {
	return "      " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n      ")
}
