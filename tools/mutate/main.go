// Command mutate changes one place of the product at a time and runs the tests
// that should notice. A mutant is a line of a table in tables/; a mutant that
// no test catches is said to survive.
//
//	go -C tools run ./mutate -check
//	go -C tools run ./mutate -run '^auth-0' mutate/tables/auth.tsv
//
// Each mutant is tried in steps until a test fails: the test that the results
// record, the package's tests, and the tests of the packages that import it.
// Tests that need a control plane run if KUBEBUILDER_ASSETS is set. The source
// tree stays as it is: the go command reads the changed file as an overlay.
//
// The results name the first failing test of each mutant. The exit status is 1
// if a mutant survives that the results say was caught, or does not apply or
// compile.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r := &runner{}
	check := flag.Bool("check", false, "apply and build each mutant, without tests")
	pattern := flag.String("run", "", "`regexp` of the ids to try")
	parallel := flag.Int("j", 1, "`number` of mutants at the same time")
	flag.StringVar(&r.file, "o", "mutate/results.tsv", "`file` of the results")
	depth := flag.String("depth", "importers", "package, or importers to run their tests too")
	flag.DurationVar(&r.timeout, "timeout", 5*time.Minute, "of the tests of one package")
	flag.Parse()
	r.check, r.packageOnly = *check, *depth == "package"
	if *parallel < 1 || !r.packageOnly && *depth != "importers" {
		flag.Usage()
		os.Exit(2)
	}
	ok, err := r.main(ctx, flag.Args(), *pattern, *parallel)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
	}
	if !ok || err != nil {
		os.Exit(1)
	}
}

type runner struct {
	file               string
	check, packageOnly bool
	timeout            time.Duration

	root, temp string
	packages   map[string]*pkg // of the main module, by import path

	mu        sync.Mutex
	recorded  map[string]result
	counts    map[string]int
	regressed int
}

func (r *runner) main(ctx context.Context, tables []string, pattern string, parallel int) (ok bool, err error) {
	ids, err := regexp.Compile(pattern)
	if err != nil {
		return false, err
	}
	if len(tables) == 0 {
		if tables, err = filepath.Glob("mutate/tables/*.tsv"); err != nil {
			return false, err
		}
	}
	mutants, err := readTables(tables)
	if err != nil {
		return false, err
	}
	if r.recorded, err = readResults(r.file); err != nil {
		return false, err
	}
	if r.root, err = filepath.Abs(".."); err != nil {
		return false, err
	}
	if r.packages, err = listPackages(ctx, r.root); err != nil {
		return false, err
	}
	if r.temp, err = os.MkdirTemp("", "mutate"); err != nil {
		return false, err
	}
	defer func() { err = cmp.Or(err, os.RemoveAll(r.temp)) }()
	r.counts = map[string]int{}
	var running sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for _, m := range mutants {
		if !ids.MatchString(m.id) {
			continue
		}
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			r.one(ctx, m)
		})
	}
	running.Wait()
	fmt.Printf("%d caught, %d survived, %d built, %d invalid; %d survived that were caught before\n", r.counts[caught],
		r.counts[survived], r.counts[built], r.counts[invalid], r.regressed)
	return r.regressed == 0 && r.counts[invalid] == 0, ctx.Err()
}

// one tries a mutant and records the result.
func (r *runner) one(ctx context.Context, m mutant) {
	if ctx.Err() != nil {
		return
	}
	start := time.Now()
	got, err := r.try(ctx, m)
	note := ""
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		got, note = result{what: invalid}, err.Error()
	case got.what == survived && r.recorded[m.id].what == caught:
		r.regressed++
		note = "caught before by " + r.recorded[m.id].by
	}
	r.counts[got.what]++
	if got.what != built || !r.check {
		fmt.Printf("%s\t%s\t%.0f s\t%s\n", m.id, got.what, time.Since(start).Seconds(), cmp.Or(got.by, note))
	}
	if got.what == caught || got.what == survived {
		r.recorded[m.id] = got
		if err := writeResults(r.file, r.recorded); err != nil {
			fmt.Fprintln(os.Stderr, "mutate:", err)
		}
	}
}
