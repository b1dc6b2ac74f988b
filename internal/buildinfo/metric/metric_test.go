package metric_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/workloadid/workloadid/internal/buildinfo"
	"github.com/workloadid/workloadid/internal/buildinfo/metric"
)

func TestRegister(t *testing.T) {
	registry := prometheus.NewRegistry()
	info := buildinfo.Info{Version: "v1.2.3", Commit: "abc", Go: "go1"}
	want := "# HELP registration_build_info Version of the component; always 1.\n# TYPE registration_build_info gauge\n" +
		`registration_build_info{commit="abc",component="hub",go_version="go1",version="v1.2.3"} 1` + "\n"
	for range 2 {
		if err := metric.Register(info, registry, "registration", "hub"); err != nil {
			t.Fatal(err)
		}
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
