package metrics_test

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cache/metrics"
)

type hour struct{}

func (hour) GetDuration() time.Duration { return time.Hour }

// A controller passes the registry of controller-runtime, ctrlmetrics.Registry.
func Example() {
	registry := prometheus.NewRegistry()
	m, err := metrics.New("gotk_token_", registry)
	if err != nil {
		fmt.Println(err)
		return
	}
	tokens, err := cache.NewTokenCache(10_000, cache.WithObserver(m))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tokens.Close()

	for range 3 {
		_, _, err := tokens.GetOrSet(context.Background(), cache.Request{Key: cache.Key{1},
			Object: cache.InvolvedObject{Kind: "Report", Namespace: "tenant-a", Name: "weekly", Operation: "reconcile"},
			Mint:   func(context.Context, []cache.Token) (cache.Minted, error) { return cache.Minted{Token: hour{}}, nil }})
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, family := range families {
		if family.GetName() != "gotk_token_cache_events_total" {
			continue
		}
		for _, series := range family.GetMetric() {
			for _, label := range series.GetLabel() {
				fmt.Printf("%s=%q ", label.GetName(), label.GetValue())
			}
			fmt.Println(series.GetCounter().GetValue())
		}
	}
	// Output:
	// event_type="cache_hit" kind="Report" name="weekly" namespace="tenant-a" operation="reconcile" 2
	// event_type="cache_miss" kind="Report" name="weekly" namespace="tenant-a" operation="reconcile" 1
}
