package buildinfo_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/workloadid/workloadid/internal/buildinfo"
)

func TestString(t *testing.T) {
	info := buildinfo.Info{Version: "v1.2.3", Commit: "0123456789abcdef", Time: "2030-01-31T12:00:00Z", Modified: true, Go: "go1", Platform: "linux/arm64"}
	if got, want := info.String(), "v1.2.3 (commit 0123456789ab of 2030-01-31T12:00:00Z), modified, go1, linux/arm64"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestReadKnowsThePlatform(t *testing.T) {
	if info := buildinfo.Read(); !strings.Contains(info.Platform, "/") || !strings.HasPrefix(info.Go, "go") && !strings.HasPrefix(info.Go, "devel") {
		t.Errorf("got %+v", info)
	}
}

func TestOfModule(t *testing.T) {
	if info := buildinfo.OfModule(); info != buildinfo.Read() {
		t.Errorf("a test of this module has %+v", info)
	}
}

func TestRegister(t *testing.T) {
	registry := prometheus.NewRegistry()
	info := buildinfo.Info{Version: "v1.2.3", Commit: "abc", Go: "go1"}
	want := "# HELP registration_build_info Version of the component; always 1.\n# TYPE registration_build_info gauge\n" +
		`registration_build_info{commit="abc",component="hub",go_version="go1",version="v1.2.3"} 1` + "\n"
	for range 2 {
		if err := info.Register(registry, "registration", "hub"); err != nil {
			t.Fatal(err)
		}
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
