// Package metric shows the version of a component as a metric. Programs without
// Prometheus use buildinfo alone.
package metric

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/workloadid/workloadid/internal/buildinfo"
)

// Register adds the metric <system>_build_info, which is always 1. Its labels
// are component, version, commit and go_version, so that a query shows
// components of different versions. A second call changes nothing.
func Register(v buildinfo.Info, registerer prometheus.Registerer, system, component string) error {
	err := registerer.Register(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: system + "_build_info",
			Help: "Version of the component; always 1.",
			ConstLabels: prometheus.Labels{"component": component, "version": v.Version, "commit": v.Commit,
				"go_version": v.Go}},
			func() float64 { return 1 }))
	if errors.As(err, &prometheus.AlreadyRegisteredError{}) {
		return nil
	}
	return err
}
