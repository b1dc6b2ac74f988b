package main

import "testing"

func TestGoal(t *testing.T) {
	g := goal{ratio: 4, floor: 2.5, ours: 200, allocs: 1}
	for _, tt := range []struct {
		ours, theirs, floor, allocs float64
		missed                      string
	}{
		{100, 400, 40, 1, ""},
		{100, 400, 40, 1.2, "goal missed: 1.2 allocations, not 1"},
		{100, 390, 40, 0, "goal missed: 3.9 times better than the reference, not 4; the floor is 9.8 times better"},
		{100, 400, 30, 0, "goal missed: 3.33 times the floor, not 2.5"},
		{200, 900, 90, 0, "goal missed: 200 ns, not less than 200"},
	} {
		r := result{ours: []float64{tt.ours}, theirs: []float64{tt.theirs}, floor: []float64{tt.floor}, allocs: [3]float64{tt.allocs}}
		if got := g.missed(r); got != tt.missed {
			t.Errorf("%+v: %q", tt, got)
		}
		if got := (goal{}).missed(r); got != "" {
			t.Errorf("without a goal: %q", got)
		}
	}
	if g.text() != "≥ 4, floor ≤ 2.5, < 200 ns, ≤ 1 allocs" || (goal{}).text() != "–" {
		t.Errorf("%q", g.text())
	}
}
