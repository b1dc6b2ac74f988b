// Command bench measures workloadid beside the reference library of RFC-0010
// (github.com/fluxcd/pkg/auth) and beside a lower bound: the least that has to
// be done for the same result. All three run in one process, in turn, for
// several rounds.
//
//	make bench
//
// Both libraries get the same fake cloud, the same HTTP transport, the same
// Kubernetes client in memory and the same options. Every result is checked.
// The last lines are one for each case,
//
//	ratio <case> <theirs/ours> lower-bound <ours/bound>
//
// where the first number is how many times ours is better and the second how
// far it is from the lower bound. Both are medians of the rounds' own ratios,
// so that a machine that slows down for a while does not shift them. RESULTS.md
// has the rest.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime/pprof"
	"time"
)

func main() {
	only := flag.String("run", "", "regular expression of the cases to run; all if empty")
	out := flag.String("results", "", "file to write the table to; none if empty")
	rounds := flag.Int("rounds", 25, "rounds of the quick cases")
	profile := flag.String("cpuprofile", "", "file to write a CPU profile to, of ours alone")
	cpu := flag.Bool("cpu", false, "count processor time in the quick cases, for a machine that others use too")
	flag.Parse()
	if err := run(*only, *out, *profile,
		plan{rounds: *rounds, slice: 100 * time.Millisecond, oursOnly: *profile != "", cpu: *cpu}); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(only, out, profile string, p plan) error {
	if out != "" && (only != "" || profile != "" || p.cpu) {
		return errors.New("-results is for all cases in wall time: leave -run, -cpu and -cpuprofile out")
	}
	pattern, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	w, err := newEnvironment()
	if err != nil {
		return err
	}
	defer w.close()
	if profile != "" {
		stop, err := startProfile(profile)
		if err != nil {
			return err
		}
		defer stop()
	}
	var results []result
	for _, c := range cases() {
		if !pattern.MatchString(c.name) {
			continue
		}
		start := time.Now()
		r, err := c.run(w, p)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		r.name, r.what, r.unit, r.goal = c.name, c.what, c.unit, c.goal
		results = append(results, r)
		fmt.Printf("%-20s ours %-12s theirs %-12s lower bound %-12s (%s)\n", r.name, r.text(r.ours), r.text(r.theirs),
			r.text(r.bound), time.Since(start).Round(time.Millisecond))
	}
	if profile != "" {
		return nil
	}
	for _, r := range results {
		if missed := r.goal.missed(r); missed != "" {
			fmt.Printf("%s: %s\n", r.name, missed)
		}
	}
	for _, r := range results {
		fmt.Println(r.line())
	}
	if out == "" {
		return nil
	}
	return os.WriteFile(out, report(results), 0o644) //nolint:gosec // to be read by everyone
}

func startProfile(name string) (stop func(), err error) {
	f, err := os.Create(name) //nolint:gosec // the developer's own file
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close() // the profile is whole or it does not parse
	}, nil
}

// benchCase is a case: what is measured, in which unit, and what it should come
// to.
type benchCase struct {
	name, what string
	unit       unit
	goal       goal
	run        func(*environment, plan) (result, error)
}

// cases begins with the one that idle connections of the others would disturb.
func cases() []benchCase {
	hit := goal{ratio: 4, bound: 1.9, allocs: noAllocs}
	derived := goal{allocs: 7}
	return []benchCase{
		{"memory_per_entry", "heap of a cached credential, 10,000 tenants", bytesEach, goal{ratio: 1}, memoryPerEntry},
		{"hit_controller", "a cached credential of the controller's own", perCall,
			goal{ratio: 4, bound: 1.5, allocs: noAllocs}, hitController},
		{"hit_object", "a cached credential of a ServiceAccount, which is read each time", perCall, hit, hitObject},
		{"hit_manager", "the same, read with a manager's client", perCall, goal{}, hitManager},
		{"hit_stripped", "the same, stripped as in docs/workload-identity.md", perCall, goal{}, hitStripped},
		{"hit_object_parallel", "the same from all cores at once", perCall, hit, hitObjectParallel},
		{"hit_registry", "cached credentials for a repository in ECR", perCall, derived, hitRegistry},
		{"hit_restconfig", "cached access to an EKS cluster", perCall, derived, hitRESTConfig},
		{"hit_adapter", "Retrieve of the AWS SDK adapter, controller level", perCall, goal{allocs: noAllocs}, hitAdapter},
		{"warm_200x20ms", "200 tenants at once, nothing cached, STS takes 20 ms", whole, goal{bound: 1.25}, warm},
		{"hit_while_minting", "median of a hit while four others mint, STS takes 20 ms", perCall, goal{bound: 5},
			hitWhileMinting},
		{"mint_throughput", "one exchange, 16 callers at once, TLS on loopback", perCall, goal{bound: 2.2}, mintThroughput},
		{"failing_tenants", "median of a hit while 100 of 200 tenants are refused, eight callers", perCall, goal{},
			failingTenants},
	}
}
