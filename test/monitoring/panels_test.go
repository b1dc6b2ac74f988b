package monitoring_test

import (
	"math"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
)

// Every panel has something to show when some credentials are served, some renewed, and those of one cloud refused.
func TestPanelsShowSomething(t *testing.T) {
	t.Parallel()
	storage := promqltest.LoadedStorage(t, load{tenants: 20, objects: true, cloud: twoClouds,
		exchange: from(troubleAt, "denied", ofGCP)}.series(t))
	defer storage.Close() //nolint:errcheck // in memory
	engine := promqltest.NewTestEngine(t, false, 0, 100_000_000)
	for _, panel := range panels(t, "cache") {
		for _, target := range panel.Targets {
			query, err := engine.NewInstantQuery(t.Context(), storage, promql.NewPrometheusQueryOpts(false, 0),
				variables.Replace(target.Expr), time.Unix(0, 0).Add(troubleAt+70*time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			shown, err := query.Exec(t.Context()).Vector()
			if err != nil {
				t.Fatal(err)
			}
			if len(shown) == 0 || math.IsNaN(shown[0].F) {
				t.Errorf("the panel %q shows nothing for %s: %v", panel.Title, target.Expr, shown)
			}
			query.Close()
		}
	}
}
