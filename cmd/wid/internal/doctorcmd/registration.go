package doctorcmd

import (
	"context"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	registrationdoctor "github.com/workloadid/workloadid/cmd/wid/internal/doctor/registration"
	"github.com/workloadid/workloadid/cmd/wid/internal/install"
)

type registrationDoctor struct {
	examiner

	clusterName, namespace string
	hub, spoke             cli.KubeFile
}

func newDoctorRegistration() *cobra.Command {
	d := &registrationDoctor{}
	cmd := &cobra.Command{
		Use:   "registration",
		Short: "Show how far a cluster has come on its way into a hub (Open Cluster Management)",
		Long: "Show how far a cluster has come on its way into a hub (Open Cluster Management): a line for each part, from the agent to\n" +
			"the Lease, with what its conditions, its Events and the hub's answers say. The agent's credential is used once, as the\n" +
			"agent uses it, to read the ManagedCluster. Nothing is changed. Without a kubeconfig of one side only the other is shown.",
		Example: "  wid doctor registration --cluster-name cluster1 --hub-kubeconfig hub.yaml --kubeconfig cluster1.yaml\n" +
			"  wid doctor registration --cluster-name cluster1 --hub-context hub --context cluster1 -o json",
	}
	d.addTo(cmd)
	d.addTimeoutTo(cmd)
	f := cmd.Flags()
	f.StringVar(&d.clusterName, "cluster-name", "", "name of the ManagedCluster")
	install.BindNamespace(f, &d.namespace)
	f.StringVar(&d.hub.Path, "hub-kubeconfig", "", "kubeconfig of the hub")
	f.StringVar(&d.hub.Context, "hub-context", "", "context of the hub, in its kubeconfig or in KUBECONFIG")
	f.StringVar(&d.spoke.Path, "kubeconfig", "", "kubeconfig of the cluster that is to be managed")
	f.StringVar(&d.spoke.Context, "context", "", "context of that cluster, in its kubeconfig or in KUBECONFIG")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return d.run(cmd, d.examine) }
	return cmd
}

func (d *registrationDoctor) examine(ctx context.Context) (*doctor.Report, error) {
	if d.clusterName == "" {
		return nil, cli.Usagef("name the ManagedCluster with --cluster-name")
	}
	config := registrationdoctor.Config{ClusterName: d.clusterName, Namespace: d.namespace, HubFile: d.hub,
		SpokeFile: d.spoke}
	for _, side := range []struct {
		file   cli.KubeFile
		prefix string
		client *client.Client
	}{{d.spoke, "", &config.Spoke}, {d.hub, "hub: ", &config.Hub}} {
		if side.file == (cli.KubeFile{}) {
			continue
		}
		kube, name, err := d.connect(side.file)
		if err != nil {
			return nil, err
		}
		*side.client, config.Examination = kube, d.of(side.prefix+name)
	}
	if config.Hub == nil && config.Spoke == nil {
		return nil,
			cli.Usagef("name the hub (--hub-kubeconfig, --hub-context), or the cluster itself (--kubeconfig, --context)")
	}
	return registrationdoctor.Run(ctx, config), nil
}
