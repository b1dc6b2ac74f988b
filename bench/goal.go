package main

import (
	"fmt"
	"strings"
)

// goal is what a case should come to. Zero: no matter.
type goal struct {
	ratio float64 // at least, of the reference to ours
	floor float64 // at most, of ours to the floor
	ours  float64 // less than, in nanoseconds
	// allocs is how many allocations a call of ours may make at most.
	allocs float64
}

// text is the goal in a table.
func (g goal) text() string {
	var parts []string
	if g.ratio != 0 {
		parts = append(parts, fmt.Sprintf("≥ %.0f", g.ratio))
	}
	if g.floor != 0 {
		parts = append(parts, fmt.Sprintf("floor ≤ %.1f", g.floor))
	}
	if g.ours != 0 {
		parts = append(parts, fmt.Sprintf("< %.0f ns", g.ours))
	}
	if g.allocs != 0 {
		parts = append(parts, fmt.Sprintf("≤ %.0f allocs", g.allocs))
	}
	if parts == nil {
		return "–"
	}
	return strings.Join(parts, ", ")
}

// missed says by how much, and what would be the most that can be had. It is empty if the goal is met.
func (g goal) missed(r result) string {
	var parts []string
	if got := ratio(r.theirs, r.ours); g.ratio != 0 && got < g.ratio {
		parts = append(parts, fmt.Sprintf("%.1f times better than the reference, not %.0f; the floor is %.1f times better", got, g.ratio, ratio(r.theirs, r.floor)))
	}
	if got := ratio(r.ours, r.floor); g.floor != 0 && got > g.floor {
		parts = append(parts, fmt.Sprintf("%.2f times the floor, not %.1f", got, g.floor))
	}
	if got := median(r.ours); g.ours != 0 && got >= g.ours {
		parts = append(parts, fmt.Sprintf("%.0f ns, not less than %.0f", got, g.ours))
	}
	if got := r.allocs[0]; g.allocs != 0 && got > g.allocs {
		parts = append(parts, fmt.Sprintf("%.1f allocations, not %.0f", got, g.allocs))
	}
	if parts == nil {
		return ""
	}
	return "goal missed: " + strings.Join(parts, "; ")
}
