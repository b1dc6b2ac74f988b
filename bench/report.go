package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

type unit int

const (
	perCall unit = iota
	whole
	bytesEach
)

// text is a median in its unit.
func (r result) text(values []float64) string {
	v := median(values)
	if r.unit == bytesEach {
		return fmt.Sprintf("%.0f B", v)
	}
	d := time.Duration(v)
	switch {
	case d < 10*time.Microsecond:
		return fmt.Sprintf("%d ns", d.Nanoseconds())
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f µs", float64(d)/float64(time.Microsecond))
	}
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

func (r result) line() string {
	return fmt.Sprintf("ratio %s %.2f lower-bound %.2f", r.name, ratio(r.theirs, r.ours), ratio(r.ours, r.bound))
}

func (r result) allocsText(i int) string {
	if r.allocs[i] < 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f", r.allocs[i])
}

// report is RESULTS.md.
func report(results []result) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b,
		"# Side by side\n\nWritten by `make bench`; do not edit. Medians of interleaved rounds in one process.\n\n")
	fmt.Fprintf(&b, "Machine: %s, %d cores. %s. Reference: %s.\n\n", cpuModel(), runtime.NumCPU(), runtime.Version(),
		strings.Join(references(), ", "))
	b.WriteString(
		"| case | what | ours | reference | lower bound | reference/ours | ours/lower bound | goal | allocations ours | reference |\n")
	b.WriteString("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, r := range results {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %.2f | %.2f | %s | %s | %s |\n", r.name, r.what, r.text(r.ours),
			r.text(r.theirs), r.text(r.bound),
			ratio(r.theirs, r.ours), ratio(r.ours, r.bound), r.goal.text(), r.allocsText(0), r.allocsText(1))
	}
	b.WriteString(
		"\nThe lower bound is the least that has to be done for the same result: for a hit, reading the ServiceAccount where there is one,\n" +
			"SHA-256 of 256 bytes (not for an adapter, which knows its key), a look-up in an LRU list under a lock, reading the clock; for an exchange, a POST of the same body over\n" +
			"the same client; for memory, key and credential in the same LRU list.\n")
	for _, r := range results {
		for _, note := range []string{r.goal.missed(r), r.note} {
			if note != "" {
				fmt.Fprintf(&b, "\n%s: %s\n", r.name, note)
			}
		}
	}
	return b.Bytes()
}

// cpuModel is all that is told of the machine.
func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(text)) {
		if name, model, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(model)
		}
	}
	return runtime.GOARCH
}

// references names the versions that were measured.
func references() []string {
	var found []string
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return found
	}
	for _, dep := range info.Deps {
		if dep.Path == "github.com/fluxcd/pkg/auth" || dep.Path == "github.com/fluxcd/pkg/cache" {
			found = append(found, dep.Path+" "+dep.Version)
		}
	}
	return found
}
