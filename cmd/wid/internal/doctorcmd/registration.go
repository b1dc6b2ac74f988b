package doctorcmd

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/doctor"
	registrationdoctor "github.com/workloadid/workloadid/internal/doctor/registration"
)

// registrationDoctor are the flags of wid doctor registration.
type registrationDoctor struct {
	examiner

	clusterName, klusterlet, hubARN string
	hub, spoke                      cli.KubeFile
}

func newDoctorRegistration() *cobra.Command {
	d := &registrationDoctor{examiner: examiner{checks: registrationdoctor.Checks()}}
	cmd := &cobra.Command{
		Use:   "registration",
		Short: "Find out why a cluster is not managed by its hub (Open Cluster Management)",
		Long: "Find out why a cluster is not managed by its hub (Open Cluster Management): ManagedCluster, certificates, Lease and\n" +
			"add-ons at the hub; Klusterlet and Secrets in the cluster itself. Of Secrets it shows names and keys. It changes\n" +
			"nothing. Without a kubeconfig of one side it examines the other one alone.",
		Example: "  wid doctor registration --cluster-name cluster1 --hub-kubeconfig hub.yaml --kubeconfig cluster1.yaml\n" +
			"  wid doctor registration --cluster-name cluster1 --hub-context hub --context cluster1 -o json\n" +
			"  wid doctor registration --cluster-name cluster1 --hub-context hub --hub-cluster-arn $HUB_ARN",
	}
	d.addTo(cmd)
	d.addTimeoutTo(cmd)
	f := cmd.Flags()
	f.StringVar(&d.clusterName, "cluster-name", "", "name of the ManagedCluster")
	f.StringVar(&d.hub.Path, "hub-kubeconfig", "", "kubeconfig of the hub")
	f.StringVar(&d.hub.Context, "hub-context", "", "context of the hub, in its kubeconfig or in KUBECONFIG")
	f.StringVar(&d.spoke.Path, "kubeconfig", "", "kubeconfig of the cluster that is to be managed")
	f.StringVar(&d.spoke.Context, "context", "", "context of that cluster, in its kubeconfig or in KUBECONFIG")
	f.StringVar(&d.klusterlet, "klusterlet", "", "name of the Klusterlet; else the one that registers the name")
	f.StringVar(&d.hubARN, "hub-cluster-arn", "", "ARN of the hub in EKS, for clusters that register with an IAM role")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return d.run(cmd, d.examine) }
	return cmd
}

func (d *registrationDoctor) examine(ctx context.Context) (*doctor.Report, error) {
	if d.clusterName == "" {
		return nil, cli.Usagef("name the ManagedCluster with --cluster-name")
	}
	hub, err := d.open(d.hub)
	if err != nil {
		return nil, err
	}
	spoke, err := d.open(d.spoke)
	if err != nil {
		return nil, err
	}
	config := registrationdoctor.Config{ClusterName: d.clusterName, Hub: hub.reader(), Spoke: spoke.reader(), Klusterlet: d.klusterlet,
		HubClusterARN: d.hubARN, Skip: d.skip, Timeout: d.timeout, Progress: d.waiting.begin}
	if spoke != nil {
		config.Cluster, config.SpokeFlags = spoke.name, flagsOf(d.spoke)
	}
	if hub != nil {
		config.Cluster, config.HubFlags = "hub: "+hub.name, flagsOf(d.hub)
	}
	if hub == nil && spoke == nil {
		return nil, cli.Usagef("name the hub (--hub-kubeconfig, --hub-context), or the cluster itself (--kubeconfig, --context)")
	}
	return registrationdoctor.Run(ctx, config), nil
}

// flagsOf returns the flags that lead kubectl and wid to a cluster.
func flagsOf(k cli.KubeFile) string {
	return strings.TrimSpace(strings.TrimPrefix(k.Kubectl("kubectl "), "kubectl "))
}
