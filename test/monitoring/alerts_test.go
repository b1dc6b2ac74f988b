package monitoring_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"

	"github.com/workloadid/workloadid/cache"
)

// fired evaluates all rules once a minute, as Prometheus does, and returns the
// minutes in which alerts fired. What is pending because of its "for" does not
// fire.
func fired(t *testing.T, program, series string, length time.Duration) map[string][]int {
	t.Helper()
	storage := promqltest.LoadedStorage(t, series)
	defer storage.Close() //nolint:errcheck // in memory
	engine := promqltest.NewTestEngine(t, false, 0, 100_000_000)
	minutes := map[string][]int{}
	for _, rule := range rules(t, program) {
		query, err := engine.NewRangeQuery(t.Context(), storage, promql.NewPrometheusQueryOpts(false, 0), rule.Expr,
			time.Unix(0, 0), time.Unix(0, 0).Add(length-time.Minute), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		result := query.Exec(t.Context())
		matrix, err := result.Matrix()
		if err != nil {
			t.Fatal(err)
		}
		for _, alert := range matrix {
			name := rule.Alert
			if provider := alert.Metric.Get("provider"); provider != "" {
				name += " " + provider
			}
			if all := firing(alert.Floats, time.Duration(rule.For)); len(all) > 0 {
				minutes[name] = all
			}
		}
		query.Close()
	}
	return minutes
}

// firing is the minutes in which an expression has held for long enough without
// a break.
func firing(points []promql.FPoint, hold time.Duration) (minutes []int) {
	const step = int64(time.Minute / time.Millisecond)
	since := int64(-1)
	for i, p := range points {
		if i == 0 || p.T-points[i-1].T > step {
			since = p.T
		}
		if p.T-since >= hold.Milliseconds() {
			minutes = append(minutes, int(p.T/step))
		}
	}
	return minutes
}

const (
	troubleAt = 3 * time.Hour

	serviceFailing   = "WorkloadIdentityServiceFailing aws"
	kubernetes       = "WorkloadIdentityKubernetesFailing"
	throttled        = "WorkloadIdentityThrottled aws"
	refreshesFailing = "WorkloadIdentityRefreshesFailing"
	refused          = "WorkloadIdentityRefused aws"
	requestsFailing  = "WorkloadIdentityRequestsFailing"
	slow             = "WorkloadIdentityExchangesSlow aws"
	waiting          = "WorkloadIdentityCallersWaiting"
	limited          = "WorkloadIdentityExchangesLimited aws"
	small            = "WorkloadIdentityCacheTooSmall"
	panicked         = "WorkloadIdentityPanic aws"
)

// from has the exchanges of some tenants fail from a time on.
func from(start time.Duration, err failure, of func(tenant int) bool) func(context.Context, int, time.Duration) error {
	return between(start, length, err, of)
}

func between(start, end time.Duration, err failure,
	of func(tenant int) bool) func(context.Context, int, time.Duration) error {
	return func(_ context.Context, tenant int, at time.Duration) error {
		if at >= start && at < end && of(tenant) {
			return err
		}
		return nil
	}
}

func everyone(int) bool { return true }
func first(n int) bool  { return n == 0 }
func third(n int) bool  { return n%3 == 0 }
func tenth(n int) bool  { return n%10 == 0 }

// rarely has all tenants asked for at the same time.
func rarely(tenants, minutes int, exchange func(context.Context, int, time.Duration) error) load {
	return load{tenants: tenants, together: true, every: time.Duration(minutes) * time.Minute, exchange: exchange}
}

// twoClouds has every tenth tenant at another one.
func twoClouds(tenant int) string {
	if tenth(tenant) {
		return "gcp"
	}
	return "aws"
}

// oneForTenth puts every tenth tenant into one namespace.
func oneForTenth(tenant int) string {
	if tenth(tenant) {
		return "large"
	}
	return strconv.Itoa(tenant)
}

// sometimes has each tenant's exchange fail in the first half of each minute.
func sometimes(err failure) func(context.Context, int, time.Duration) error {
	return func(_ context.Context, _ int, at time.Duration) error {
		if at%time.Minute < 30*time.Second {
			return err
		}
		return nil
	}
}

func take(d time.Duration) func(context.Context, int, time.Duration) error {
	return func(ctx context.Context, _ int, at time.Duration) error {
		if at >= troubleAt {
			sleep(ctx, d)
		}
		return nil
	}
}

// hang stops answering at a time.
func hang(of func(tenant int) bool) func(context.Context, int, time.Duration) error {
	return func(ctx context.Context, tenant int, at time.Duration) error {
		if at < troubleAt || !of(tenant) {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}
}

// trouble is a case: what happens, and the alerts that it raises.
type trouble struct {
	load load
	want []string
}

// Each trouble raises the alerts that are named for it, and no others.
func TestAlerts(t *testing.T) {
	t.Parallel()
	outage := from(troubleAt, "unavailable", everyone)
	down := []string{serviceFailing, refreshesFailing, requestsFailing}
	play(t, map[string]trouble{
		"all is well":                        {load{tenants: 200}, nil},
		"all is well, asked for together":    {rarely(200, 10, nil), nil},
		"outage":                             {load{tenants: 200, exchange: outage}, down},
		"outage, asked for every 10 minutes": {rarely(20, 10, outage), down},
		"outage from the start for a third": {load{tenants: 60, together: true, exchange: from(0, "unavailable", third)},
			[]string{serviceFailing, requestsFailing}},
		"outage of two minutes": {
			load{tenants: 200, exchange: between(troubleAt, troubleAt+2*time.Minute, "unavailable", everyone)}, nil},
		"outage of one of two clouds": {load{tenants: 200, cloud: twoClouds, exchange: from(troubleAt, "unavailable", tenth)},
			[]string{"WorkloadIdentityServiceFailing gcp", requestsFailing}},
		"API server fails": {load{tenants: 100, exchange: from(troubleAt, "kubernetes_unavailable", everyone)},
			[]string{kubernetes, refreshesFailing, requestsFailing}},
		"throttled":       {load{tenants: 100, exchange: sometimes("throttled")}, []string{throttled}},
		"refused":         {load{tenants: 100, exchange: from(troubleAt, "denied", first)}, []string{refused}},
		"slow":            {load{tenants: 100, exchange: take(8 * time.Second)}, []string{slow}},
		"cache too small": {load{tenants: 100, capacity: 80, every: 5 * time.Minute}, []string{small}},
	})
}

// One tenant whose exchanges fail is tried again a hundred times as often as
// the others are renewed.
func TestOneBadTenantIsNoOutage(t *testing.T) {
	t.Parallel()
	cases := map[string]trouble{}
	for _, n := range []int{20, 50, 90, 200} {
		name := fmt.Sprintf(" one of %d", n)
		cases["fails,"+name] = trouble{load{tenants: n, exchange: from(troubleAt, "unavailable", first)}, nil}
		cases["hangs,"+name] = trouble{load{tenants: n, exchange: hang(first)}, nil}
		// Then all good exchanges are over before the first scrape.
		cases["fails from the start, asked for together,"+
			name] = trouble{load{tenants: n, together: true, exchange: from(0, "unavailable", first)}, nil}
		cases["no token from the start, asked for together,"+name] = trouble{
			load{tenants: n, together: true, exchange: from(0, "kubernetes_unavailable", first)}, nil}
		cases["fails, asked for together,"+name] = trouble{rarely(n, 10, from(troubleAt, "unavailable", first)), nil}
	}
	play(t, cases)
}

// The first panic counts, and only when it happens.
func TestPanics(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		samples string
		since   int // minutes before are of no interest
		want    bool
	}{
		"a series that begins at 1":          {"_x60 1x60", 0, true},
		"that is over after half an hour":    {"_x60 1x60", 80, false},
		"one scrape has failed since":        {"_x60 1x60 stale 1x59", 80, false},
		"scrapes failed for half an hour":    {"_x60 1x60 stale _x29 1x59", 80, false},
		"another one in a process after it":  {"_x60 1x60 0x10 1x30", 80, true},
		"another one, the first of the next": {"_x60 1x30 stale _x80 1x30", 110, true},
	} {
		t.Run(name, func(t *testing.T) {
			series := `load 1m
  gotk_token_cache_mint_duration_seconds_count{job="c",provider="aws",result="panic"} ` + tc.samples
			minutes := fired(t, "cache", series, length)[panicked]
			if fires := len(minutes) > 0 && minutes[len(minutes)-1] >= tc.since; fires != tc.want {
				t.Errorf("fired in minutes %v", minutes)
			}
		})
	}
}

// Exchanges that hang make patient callers wait, and others fail. Exchanges
// that a limit of the cache keeps from starting are not the service's fault.
func TestWaiting(t *testing.T) {
	t.Parallel()
	play(t, map[string]trouble{
		"a service hangs": {load{tenants: 300, every: time.Minute, exchange: hang(everyone)},
			[]string{serviceFailing, refreshesFailing, requestsFailing}},
		"a service hangs for clients of SDKs": {load{tenants: 300, every: time.Minute, exchange: hang(everyone),
			patient: true},
			[]string{serviceFailing, refreshesFailing, requestsFailing, waiting}},
		"one namespace with many keys hangs": {load{tenants: 300, every: time.Minute, exchange: hang(tenth),
			namespace: oneForTenth},
			[]string{requestsFailing, limited}},
		"the start rate is too low": {load{tenants: 300, exchange: take(0), options: []cache.Option{cache.WithRate(0.05, 1)}},
			[]string{requestsFailing, limited}},
	})
}

func play(t *testing.T, cases map[string]trouble) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := fired(t, "cache", tc.load.series(t), length)
			slices.Sort(tc.want)
			if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, tc.want) {
				t.Errorf("fired in these minutes: %v, want only %q", got, tc.want)
			}
		})
	}
}

// An outage goes on firing, whether or not there were scrapes an hour before:
// here none from minute 120 to 144.
func TestScrapesThatAreMissing(t *testing.T) {
	t.Parallel()
	for alert, result := range map[string]string{serviceFailing: "unavailable", kubernetes: "kubernetes_unavailable"} {
		series := `load 1m
  gotk_token_cache_mint_duration_seconds_count{job="c",provider="aws",result="success"} 1000+0.5x119 _x25 1072.5+0.5x4 1075x149
  gotk_token_cache_failing_keys{job="c",provider="aws",result="` + result + `"} _x150 20x149`
		minutes := fired(t, "cache", series, length)[alert]
		if want := 120; len(minutes) < want {
			t.Errorf("%s fired in %d minutes, want %d: %v", alert, len(minutes), want, minutes)
		}
	}
}
