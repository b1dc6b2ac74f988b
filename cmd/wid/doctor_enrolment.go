package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/workloadid/workloadid/internal/olddoctor"
)

// enrolmentDoctor are the flags of wid doctor enrolment.
type enrolmentDoctor struct {
	examiner

	clusterName, klusterlet, hubARN string
	hubKubeconfig, hubContext       string
	kubeconfig, kubeContext         string
}

func newDoctorEnrolment() *cobra.Command {
	d := &enrolmentDoctor{examiner: examiner{checks: doctor.EnrolmentChecks()}}
	cmd := &cobra.Command{
		Use:   "enrolment",
		Short: "Find out why a cluster is not managed by its hub (Open Cluster Management)",
		Long: "Find out why a cluster is not managed by its hub (Open Cluster Management): ManagedCluster, requests for\n" +
			"certificates, lease and add-ons at the hub; Klusterlet and Secrets in the cluster itself. Of Secrets it shows names\n" +
			"and keys. It changes nothing, and looks at one side alone if it has no kubeconfig of the other one.\n\n" + doctorCodes,
		Example: "  wid doctor enrolment --cluster-name cluster1 --hub-kubeconfig hub.yaml --kubeconfig cluster1.yaml\n" +
			"  wid doctor enrolment --cluster-name cluster1 --hub-context hub --context cluster1 -o json\n" +
			"  wid doctor enrolment --cluster-name cluster1 --hub-context hub --hub-cluster-arn $HUB_ARN",
		Args: exactly(cobra.NoArgs),
	}
	d.addTo(cmd)
	f := cmd.Flags()
	f.StringVar(&d.clusterName, "cluster-name", "", "name of the ManagedCluster")
	f.StringVar(&d.hubKubeconfig, "hub-kubeconfig", "", "kubeconfig of the hub")
	f.StringVar(&d.hubContext, "hub-context", "", "context of the hub, in its kubeconfig or in KUBECONFIG")
	f.StringVar(&d.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster that is to be managed")
	f.StringVar(&d.kubeContext, "context", "", "context of that cluster, in its kubeconfig or in KUBECONFIG")
	f.StringVar(&d.klusterlet, "klusterlet", "", "name of the Klusterlet; else the one that registers the name")
	f.StringVar(&d.hubARN, "hub-cluster-arn", "", "ARN of the hub in EKS, for clusters that register with an IAM role")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return d.run(cmd, d.examine) }
	return cmd
}

func (d *enrolmentDoctor) examine(ctx context.Context) (*doctor.Report, error) {
	if d.clusterName == "" {
		return nil, usagef("name the ManagedCluster with --cluster-name")
	}
	hub, hubConfig, err := d.readerOf(d.hubKubeconfig, d.hubContext)
	if err != nil {
		return nil, err
	}
	spoke, spokeConfig, err := d.readerOf(d.kubeconfig, d.kubeContext)
	if err != nil {
		return nil, err
	}
	if hub == nil && spoke == nil {
		return nil, usagef("say where the hub is (--hub-kubeconfig, --hub-context), or the cluster itself (--kubeconfig, " +
			"--context)")
	}
	return doctor.RunEnrolment(ctx, doctor.EnrolmentConfig{ClusterName: d.clusterName, Hub: hub, Spoke: spoke,
		HubRESTConfig: hubConfig, SpokeRESTConfig: spokeConfig,
		Klusterlet: d.klusterlet, HubClusterARN: d.hubARN, Skip: d.skip, Timeout: d.timeout}), nil
}
