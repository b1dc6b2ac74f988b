package main

import (
	"fmt"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// plan says how thoroughly to measure.
type plan struct {
	rounds   int
	slice    time.Duration // for one side in one round
	oursOnly bool          // for profiles
	cpu      bool          // count processor time
	small    bool          // only try whether everything works
}

// scaled is a number of tenants.
func (p plan) scaled(n int) int {
	if p.small {
		return max(8, n/50)
	}
	return n
}

// span is how long a side is watched in one round.
func (p plan) span() time.Duration {
	if p.small {
		return 50 * time.Millisecond
	}
	return 2 * time.Second
}

// op makes n calls and checks each result.
type op func(n int) error

// sides are the three things that are compared.
type sides struct{ ours, theirs, bound op }

// result has what each round measured of each side, in nanoseconds or bytes.
type result struct {
	name, what          string
	unit                unit
	goal                goal
	ours, theirs, bound []float64
	allocs              [3]float64 // of ours, theirs and the bound, for each call; negative: not measured
	note                string
}

const nothing = -1

// hits measures calls that are quick: each round runs each side for a slice of
// time, in an order that changes.
func hits(p plan, s sides) (result, error) {
	ops := []op{s.ours, s.theirs, s.bound}
	if p.oursOnly {
		ops = ops[:1]
	}
	r := result{allocs: [3]float64{nothing, nothing, nothing}}
	values, counts := make([][]float64, 3), make([]int, 3)
	for i, f := range ops {
		n, err := calibrate(f, p.slice)
		if err != nil {
			return r, err
		}
		counts[i] = n
	}
	for round := range p.rounds {
		for k := range ops {
			i := (k + round) % len(ops)
			took, allocs, err := p.timed(ops[i], counts[i])
			if err != nil {
				return r, err
			}
			values[i] = append(values[i], float64(took.Nanoseconds())/float64(counts[i]))
			r.allocs[i] = allocs
		}
	}
	r.ours, r.theirs, r.bound = values[0], values[1], values[2]
	return r, nil
}

// calibrate finds how many calls fill a slice, and warms up.
func calibrate(f op, slice time.Duration) (int, error) {
	for n := 100; ; n *= 4 {
		start := time.Now()
		if err := f(n); err != nil {
			return 0, err
		}
		if took := time.Since(start); took > slice/8 {
			return max(1, int(float64(n)*float64(slice)/float64(took))), nil
		}
	}
}

// timed starts with a clean heap, so that no side pays for the garbage of
// another.
func (p plan) timed(f op, n int) (time.Duration, float64, error) {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := p.now()
	err := f(n)
	took := p.now() - start
	runtime.ReadMemStats(&after)
	return took, float64(after.Mallocs-before.Mallocs) / float64(n), err
}

// now is the time, or the processor time that this process has used, for
// machines that others use too.
func (p plan) now() time.Duration {
	if !p.cpu {
		return time.Since(started)
	}
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err) // it has no reason to fail
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

var started = time.Now()

// rounds measures what takes its time: each function returns its own figure.
func rounds(p plan, n int, ours, theirs, bound func() (float64, error)) (result, error) {
	r := result{allocs: [3]float64{nothing, nothing, nothing}}
	sides := []struct {
		measure func() (float64, error)
		into    *[]float64
	}{{ours, &r.ours}, {theirs, &r.theirs}, {bound, &r.bound}}
	if p.oursOnly {
		sides = sides[:1]
	}
	if p.small {
		n = 1
	}
	for round := range n {
		for k := range sides {
			side := sides[(k+round)%len(sides)]
			runtime.GC()
			v, err := side.measure()
			if err != nil {
				return r, err
			}
			*side.into = append(*side.into, v)
		}
	}
	return r, nil
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// ratio is the median of the rounds' ratios.
func ratio(a, b []float64) float64 {
	var ratios []float64
	for i := range min(len(a), len(b)) {
		ratios = append(ratios, a[i]/b[i])
	}
	return median(ratios)
}

// percentile sorts samples.
func percentile(samples []time.Duration, percent int) float64 {
	slices.Sort(samples)
	if len(samples) == 0 {
		return 0
	}
	return float64(samples[len(samples)*percent/100])
}

// mustBe turns an unexpected result into an error.
func mustBe(ok bool, what string) error {
	if ok {
		return nil
	}
	return fmt.Errorf("got another result than before: %s", what)
}
