package main

import (
	"errors"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
)

// newAgent returns the manager of an agent. Without a driver for add-ons it registers none.
func newAgent(config *rest.Config, driver, addOns registration.Driver) (ctrl.Manager, *agent.Agent, error) {
	mgr, err := ctrl.NewManager(config, ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		return nil, nil, err
	}
	// Without a cache, which would need the right to list all Secrets.
	local, err := client.New(config, client.Options{HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return nil, nil, err
	}
	joining, err := agent.New(agent.Options{Cluster: cluster, Local: local, Driver: driver,
		Recorder: mgr.GetEventRecorder("registration-agent")})
	if err != nil {
		return nil, nil, err
	}
	return mgr, joining, errors.Join(joining.SetupWithManager(mgr), setUpAgentAddOns(mgr, joining, addOns))
}

func setUpAgentAddOns(mgr ctrl.Manager, joining *agent.Agent, driver registration.Driver) error {
	if driver == nil {
		return nil
	}
	addOns, err := agent.NewAddOns(agent.AddOnOptions{Agent: joining, KubeClient: driver})
	if err != nil {
		return err
	}
	return addOns.SetupWithManager(mgr, 1)
}
