package buildinfo_test

import (
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/buildinfo"
)

func TestString(t *testing.T) {
	info := buildinfo.Info{Version: "v1.2.3", Commit: "0123456789abcdef", Time: "2030-01-31T12:00:00Z", Modified: true,
		Go: "go1", Platform: "linux/arm64"}
	if got, want := info.String(),
		"v1.2.3 (commit 0123456789ab of 2030-01-31T12:00:00Z), modified, go1, linux/arm64"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestReadKnowsThePlatform(t *testing.T) {
	if info := buildinfo.Read(); !strings.Contains(info.Platform, "/") ||
		!strings.HasPrefix(info.Go, "go") && !strings.HasPrefix(info.Go, "devel") {
		t.Errorf("got %+v", info)
	}
}

func TestOfModule(t *testing.T) {
	if info := buildinfo.OfModule(); info != buildinfo.Read() {
		t.Errorf("a test of this module has %+v", info)
	}
}
