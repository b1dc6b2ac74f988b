package doctorcmd

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/credentials"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	podidentitydoctor "github.com/workloadid/workloadid/cmd/wid/internal/doctor/podidentity"
)

type podIdentityDoctor struct {
	examiner

	serviceAccount, pod string
	kube                cli.KubeFile
}

func newDoctorPodIdentity() *cobra.Command {
	d := &podIdentityDoctor{}
	cmd := &cobra.Command{
		Use:   "pod-identity",
		Short: "Show what keeps a pod from its AWS credentials (IAMBinding)",
		Long: "Show what keeps a pod from its AWS credentials: a line for each part, from the pod to its sidecar, with what the conditions\n" +
			"of the IAMBinding, the Events, the webhook and the kubelet say. It stores nothing. It asks the webhook with a dry run, which\n" +
			"needs the right to create pods: of a copy of --pod, or else of a pod with the ServiceAccount.",
		Example: "  wid doctor pod-identity --pod team-a/reporting-0\n" +
			"  wid doctor pod-identity --service-account team-a/reporting --context prod",
	}
	d.addTo(cmd)
	d.addPolicyTo(cmd)
	d.addTimeoutTo(cmd)
	f := cmd.Flags()
	f.StringVar(&d.serviceAccount, "service-account", "",
		"the ServiceAccount, namespace/name; that of the pod replaces it")
	f.StringVar(&d.pod, "pod", "", "the pod that gets no credentials, namespace/name")
	f.StringVar(&d.kube.Path, "kubeconfig", "", "kubeconfig of the cluster")
	f.StringVar(&d.kube.Context, "context", "", "context of the kubeconfig")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return d.run(cmd, d.examine) }
	return cmd
}

func (d *podIdentityDoctor) examine(ctx context.Context) (*doctor.Report, error) {
	pod, err := credentials.ParseKey("pod", d.pod)
	if err != nil {
		return nil, err
	}
	account, err := credentials.ParseKey("service-account", d.serviceAccount)
	if err != nil {
		return nil, err
	}
	switch account.Namespace = cmp.Or(account.Namespace, pod.Namespace); {
	case account.Namespace == "":
		return nil,
			cli.Usagef("name the pod with --pod namespace/name, or the ServiceAccount with --service-account namespace/name")
	case d.pod != "" && pod.Namespace != account.Namespace:
		return nil, cli.Usagef("--pod and --service-account are of two namespaces, %.100q and %.100q", pod.Namespace,
			account.Namespace)
	}
	kube, name, err := d.connect(d.kube)
	if err != nil {
		return nil, err
	}
	return podidentitydoctor.Run(ctx,
		podidentitydoctor.Config{Namespace: account.Namespace, ServiceAccount: account.Name, Pod: pod.Name,
			Client: kube, File: d.kube, Examination: d.of(name)}), nil
}
