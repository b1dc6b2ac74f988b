package main

import (
	"fmt"
	"strings"
)

// goal says what a case should reach. Zero values set no goal.
type goal struct {
	ratio float64 // of the reference to ours, at least
	bound float64 // of ours to the bound, at most
	// allocFree allows no allocation per call. Less than one in twenty calls is noise of the runtime.
	allocFree bool
}

// text returns the goal as the report's table shows it.
func (g goal) text() string {
	var parts []string
	if g.ratio != 0 {
		parts = append(parts, fmt.Sprintf("≥ %.0f", g.ratio))
	}
	if g.bound != 0 {
		parts = append(parts, fmt.Sprintf("lower bound ≤ %.3g", g.bound))
	}
	if g.allocFree {
		parts = append(parts, "no allocation")
	}
	if parts == nil {
		return "–"
	}
	return strings.Join(parts, ", ")
}

// missed says by how much r misses the goal, and what the lower bound would reach. It is empty if r meets the goal.
func (g goal) missed(r result) string {
	const noise = 0.05
	var parts []string
	if got := ratio(r.theirs, r.ours); g.ratio != 0 && got < g.ratio {
		parts = append(parts, fmt.Sprintf("%.1f times better than the reference, not %.0f; the lower bound is %.1f times better", got, g.ratio, ratio(r.theirs, r.bound)))
	}
	if got := ratio(r.ours, r.bound); g.bound != 0 && got > g.bound {
		parts = append(parts, fmt.Sprintf("%.2f times the lower bound, not %.3g", got, g.bound))
	}
	if got := r.allocs[0]; g.allocFree && got > noise {
		parts = append(parts, fmt.Sprintf("%.1f allocations per call", got))
	}
	if parts == nil {
		return ""
	}
	return "goal missed: " + strings.Join(parts, "; ")
}
