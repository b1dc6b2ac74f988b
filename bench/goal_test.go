package main

import "testing"

func TestGoal(t *testing.T) {
	g := goal{ratio: 4, bound: 1.25, allocs: noAllocs}
	for name, tt := range map[string]struct {
		ours, theirs, bound, allocs float64
		missed                      string
	}{
		"met":           {100, 400, 80, 0, ""},
		"runtime noise": {100, 400, 80, 0.04, ""},
		"allocates":     {100, 400, 80, 1.2, "goal missed: 1.2 allocations per call"},
		"reference": {100, 390, 80, 0,
			"goal missed: 3.9 times better than the reference, not 4; the lower bound is 4.9 times better"},
		"lower bound": {100, 400, 50, 0, "goal missed: 2.00 times the lower bound, not 1.25"},
	} {
		t.Run(name, func(t *testing.T) {
			r := result{ours: []float64{tt.ours}, theirs: []float64{tt.theirs}, bound: []float64{tt.bound},
				allocs: [3]float64{tt.allocs}}
			if got := g.missed(r); got != tt.missed {
				t.Errorf("got %q, want %q", got, tt.missed)
			}
			if got := (goal{}).missed(r); got != "" {
				t.Errorf("without a goal: %q", got)
			}
		})
	}
	if g.text() != "≥ 4, lower bound ≤ 1.25, no allocation" || (goal{}).text() != "–" ||
		(goal{allocs: 7}).text() != "≤ 7 allocations" {
		t.Errorf("the table shows %q", g.text())
	}
}
