package main

import (
	"strings"
	"testing"
	"time"
)

// Every case works: both libraries give the same credential again, and each
// prints its line.
func TestCases(t *testing.T) {
	w, err := newEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	var results []result
	for _, c := range cases() {
		r, err := c.run(w, plan{rounds: 1, slice: time.Millisecond, small: true})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		r.name, r.what, r.unit, r.goal = c.name, c.what, c.unit, c.goal
		results = append(results, r)
		if line := r.line(); !strings.HasPrefix(line, "ratio "+c.name+" ") || strings.Contains(line, "NaN") ||
			strings.Contains(line, "Inf") {
			t.Errorf("%s: %s", c.name, line)
		}
	}
	if text := string(report(results)); strings.Count(text, "\n| ") != len(results)+1 {
		t.Errorf("the report:\n%s", text)
	}
}

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{5, 1, 3}, 3}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(tt.values); got != tt.want {
			t.Errorf("median of %v is %v, not %v", tt.values, got, tt.want)
		}
	}
	if got := ratio([]float64{10, 20, 90}, []float64{5, 5, 9}); got != 4 {
		t.Errorf("the median of the ratios is %v", got)
	}
}
