package main

import (
	"fmt"
	"strings"
)

// goal says what a case should reach. Zero values set no goal.
type goal struct {
	ratio float64 // of the reference to ours, at least
	bound float64 // of ours to the bound, at most
	// allocs are the allocations of a call, at most.
	allocs float64
}

// noAllocs is a goal for allocs. Less than one in twenty calls is noise of the
// runtime.
const noAllocs = 0.05

// text returns the goal as the report's table shows it.
func (g goal) text() string {
	var parts []string
	if g.ratio != 0 {
		parts = append(parts, fmt.Sprintf("≥ %.0f", g.ratio))
	}
	if g.bound != 0 {
		parts = append(parts, fmt.Sprintf("lower bound ≤ %.3g", g.bound))
	}
	switch g.allocs {
	case 0:
	case noAllocs:
		parts = append(parts, "no allocation")
	default:
		parts = append(parts, fmt.Sprintf("≤ %.0f allocations", g.allocs))
	}
	if parts == nil {
		return "–"
	}
	return strings.Join(parts, ", ")
}

// missed says by how much r misses the goal, and what the lower bound would
// reach. It is empty if r meets the goal.
func (g goal) missed(r result) string {
	var parts []string
	if got := ratio(r.theirs, r.ours); g.ratio != 0 && got < g.ratio {
		parts = append(parts,
			fmt.Sprintf("%.1f times better than the reference, not %.0f; the lower bound is %.1f times better", got, g.ratio,
				ratio(r.theirs, r.bound)))
	}
	if got := ratio(r.ours, r.bound); g.bound != 0 && got > g.bound {
		parts = append(parts, fmt.Sprintf("%.2f times the lower bound, not %.3g", got, g.bound))
	}
	if got := r.allocs[0]; g.allocs != 0 && got > g.allocs {
		parts = append(parts, fmt.Sprintf("%.1f allocations per call", got))
	}
	if parts == nil {
		return ""
	}
	return "goal missed: " + strings.Join(parts, "; ")
}
