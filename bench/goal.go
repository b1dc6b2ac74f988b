package main

import (
	"fmt"
	"strings"
)

// goal says what a case should reach. Zero values set no goal.
type goal struct {
	ratio float64 // of the reference to ours, at least
	floor float64 // of ours to the floor, at most
	// allocFree allows no allocation per call. Less than one in twenty calls is noise of the runtime.
	allocFree bool
}

// text returns the goal as the report's table shows it.
func (g goal) text() string {
	var parts []string
	if g.ratio != 0 {
		parts = append(parts, fmt.Sprintf("≥ %.0f", g.ratio))
	}
	if g.floor != 0 {
		parts = append(parts, fmt.Sprintf("floor ≤ %.3g", g.floor))
	}
	if g.allocFree {
		parts = append(parts, "no allocation")
	}
	if parts == nil {
		return "–"
	}
	return strings.Join(parts, ", ")
}

// missed says by how much r misses the goal, and what the floor would reach. It is empty if r meets the goal.
func (g goal) missed(r result) string {
	const noise = 0.05
	var parts []string
	if got := ratio(r.theirs, r.ours); g.ratio != 0 && got < g.ratio {
		parts = append(parts, fmt.Sprintf("%.1f times better than the reference, not %.0f; the floor is %.1f times better", got, g.ratio, ratio(r.theirs, r.floor)))
	}
	if got := ratio(r.ours, r.floor); g.floor != 0 && got > g.floor {
		parts = append(parts, fmt.Sprintf("%.2f times the floor, not %.3g", got, g.floor))
	}
	if got := r.allocs[0]; g.allocFree && got > noise {
		parts = append(parts, fmt.Sprintf("%.1f allocations per call", got))
	}
	if parts == nil {
		return ""
	}
	return "goal missed: " + strings.Join(parts, "; ")
}
