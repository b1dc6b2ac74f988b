package hubcmd

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/install"
	"github.com/workloadid/workloadid/internal/buildinfo"
	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/manifests"
	"github.com/workloadid/workloadid/registration/ocm"
)

type hubInit struct {
	cli.Side
	install.Installing
	inviting
	options manifests.HubOptions
	arns    install.ClusterARNs
	relay   string
	cleanup bool
	yes     bool
	removes bool
}

// NewHubInit returns wid hub init.
func NewHubInit() *cobra.Command {
	version := buildinfo.Read().Version
	h := &hubInit{inviting: inviting{cluster: "CLUSTER_NAME", agentImage: agentImage(version)}}
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Prepare a hub: print or apply its manifests, and create a bootstrap token for clusters",
		Long: "Prepare a hub. Without --apply it contacts no cluster. With --apply it prints the command that joins a cluster, which\n" +
			"holds a secret token. If the hub's Deployment was there before, it creates no token.\n" +
			"Do not run the registration controller of Open Cluster Management on the same hub.",
		Example: "  wid hub init --image registry.example/wid-hub:v1 --context hub --apply --wait",
	}
	h.Installing.Bind(cmd, "wid-hub", "the Deployment is available")
	f := cmd.Flags()
	f.StringSliceVar(&h.options.AuthTypes, "registration-auth", []string{registration.AuthTypeCSR},
		"auth types that clusters may register with, of csr and "+registration.AuthTypeAWS)
	f.StringSliceVar(&h.options.AddOnAuthTypes, "addon-registration-auth", nil,
		"auth types of add-ons, of csr and token; without it the hub program decides, and prepares no tokens")
	cli.Offer(cmd, "registration-auth", registration.AuthTypeCSR, registration.AuthTypeAWS)
	cli.Offer(cmd, "addon-registration-auth", registration.AuthTypeCSR, registration.AuthTypeToken)
	h.arns.BindHub(f)
	h.inviting.bind(f)
	f.BoolVar(&h.cleanup, "cleanup", false, "install a CronJob that runs wid hub cleanup every hour")
	f.StringVar(&h.options.CleanupImage, "cleanup-image", "",
		"image whose entrypoint is wid, for --cleanup; a release of wid has a default")
	f.StringArrayVar(&h.options.AutoApproveUsers, "auto-approve-user", nil,
		"bootstrap user whose clusters are accepted without a person, for auth type csr; may be repeated")
	f.StringArrayVar(&h.options.AutoApproveARNs, "auto-approve-arn", nil,
		"pattern of ARNs whose clusters are accepted without a person, with * and ?, for auth type aws-irsa; may be repeated")
	f.BoolVar(&h.options.OCMAgents, "ocm-agents", false,
		"let agents of Open Cluster Management join; agents and bootstrap users then see the requests of all others, and bootstrap users all clusters")
	f.StringVar(&h.relay, "relay", "",
		"install a relay for agents without a route to the hub, with constrained or legacy impersonation. auto is constrained since Kubernetes 1.36, and without --apply")
	f.Lookup("relay").NoOptDefVal = relayAuto
	cli.Offer(cmd, "relay", relayAuto, string(manifests.RelayConstrained), string(manifests.RelayLegacy))
	f.BoolVar(&h.yes, "yes", false, "with --apply: change or drop flags of the hub program that runs, without a question")
	f.BoolVar(&h.removes, "uninstall", false,
		"remove what this command applies with any flags, apart from CustomResourceDefinitions, namespaces and what Open Cluster Management uses too")
	cli.Rare(f, "uninstall", "force-conflicts", "addon-registration-auth", "cleanup", "cleanup-image", "replicas",
		"image-pull-secret", "ocm-agents", "auto-approve-user", "auto-approve-arn", "relay")
	return h.Command(cmd, "the hub", h.run)
}

func (h *hubInit) run(ctx context.Context, cmd *cobra.Command) error {
	if h.removes {
		return h.uninstall(ctx, cmd)
	}
	printed, err := h.manifests(cmd, nil)
	if err != nil {
		return err
	}
	if !h.Apply {
		_, err := fmt.Fprint(cmd.OutOrStdout(), printed)
		return err
	}
	c, config, err := h.Connect()
	if err != nil {
		return err
	}
	info, err := cli.Info(config, h.server, "hub-apiserver")
	if err == nil {
		err = install.CheckHub(cmd, h.options.AuthTypes, info.Server)
	}
	if err != nil {
		return err
	}
	running, program, err := install.Running(ctx, c, ocm.HubNamespace, ocm.HubDeployment)
	if err == nil {
		err = h.checkOCM(ctx, cmd, c)
	}
	if err == nil && h.relay == relayAuto {
		h.options.Relay, err = relayFor(cmd, config)
	}
	if err == nil {
		err = h.checkFlags(cmd, flagsIn(program.Args))
	}
	if err == nil {
		printed, err = h.manifests(cmd, running)
	}
	if err != nil {
		return err
	}
	if slices.Contains(h.options.AuthTypes, registration.AuthTypeCSR) {
		h.probe(ctx, cmd, c)
	}
	if err := h.Install(ctx, cmd, h.KubeFile, c, printed, ocm.HubNamespace, ocm.HubDeployment); err != nil {
		return err
	}
	if running != nil { // a token that is not needed would stay valid in the log of a pipeline
		return cli.Say(cmd, "\nThe hub has the image %.300q. This command prints the line that joins a cluster: %s",
			h.Image, h.Kubectl("wid hub token"))
	}
	return h.invite(ctx, cmd, &h.Side, c, config)
}

// checkFlags asks before it takes flags from the hub program that runs.
func (h *hubInit) checkFlags(cmd *cobra.Command, running map[string]string) error {
	changes := changedFlags(running, flagsIn(h.options.Args()))
	if len(changes) == 0 {
		return nil
	}
	cmd.PrintErrln("wid: the hub program that runs has other flags:")
	for _, change := range changes {
		cmd.PrintErrln(" ", cli.OneLine(change))
	}
	if h.yes {
		return nil
	}
	return confirm(cmd, bufio.NewReader(cmd.InOrStdin()), "Change them?", cli.Problem(auth.ErrDenied,
		"pass its flags to wid hub init too, or --yes to change them",
		"the hub program keeps its flags, and nothing is applied"))
}

// manifests keep what a Deployment that runs has of its own.
func (h *hubInit) manifests(cmd *cobra.Command, running *appsv1.Deployment) (string, error) {
	o := &h.options
	if len(o.AuthTypes) == 0 {
		return "", cli.Usagef("--registration-auth must not be empty: pass %s, %s or both", registration.AuthTypeCSR,
			registration.AuthTypeAWS)
	}
	err := cmp.Or(h.Installing.Check(), h.inviting.check(), install.CheckAuthTypes(o.AuthTypes...),
		install.CheckAddOns("addon-registration-auth", 0, o.AddOnAuthTypes...), h.arns.Check(o.AuthTypes...))
	if err != nil {
		return "", err
	}
	if o.Relay == "" && h.relay != "" {
		o.Relay = manifests.Relay(cmp.Or(strings.TrimPrefix(h.relay, relayAuto), string(manifests.RelayConstrained)))
	}
	o.Image, o.ARN, o.Server = h.Image, h.arns.Hub, h.remembered(running)
	o.Replicas, o.ImagePullSecrets = h.Replicas(cmd, running)
	if h.cleanup && o.CleanupImage == "" {
		if o.CleanupImage = install.ReleaseImage(buildinfo.Read().Version, "wid"); o.CleanupImage == "" {
			return "",
				cli.Usagef(
					"--cleanup: name an image whose entrypoint is wid with --cleanup-image: only a release of wid has a default")
		}
	}
	printed, err := manifests.Hub(*o)
	if err != nil {
		return "", cli.Usagef("%v", err)
	}
	return printed, nil
}

// relayAuto picks the impersonation by the version of the hub.
const relayAuto = "auto"

// relayFor returns the impersonation that a hub serves.
func relayFor(cmd *cobra.Command, config *rest.Config) (manifests.Relay, error) {
	hub, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return "", err
	}
	info, err := hub.ServerVersion() // ignores contexts, as Limited allows
	if err != nil {
		return "", cli.AnswerOf(err, "read the version of the hub")
	}
	served, err := version.ParseGeneric(info.GitVersion)
	if err == nil && served.AtLeast(version.MajorMinor(1, 36)) {
		return manifests.RelayConstrained, nil
	}
	cmd.PrintErrf(
		"wid: warning: the hub is Kubernetes %.50q. Before 1.36 the relay's credential can impersonate all users: protect it like an administrator's\n", info.GitVersion)
	return manifests.RelayLegacy, nil
}

// probe warns of a hub that signs no client certificates. It may sign them
// later.
func (h *hubInit) probe(ctx context.Context, cmd *cobra.Command, c client.Client) {
	cmd.PrintErrln("wid: testing whether the hub signs for clients")
	err := csr.Probe(ctx, c)
	switch {
	case err == nil:
	case errors.Is(err, csr.ErrUnsupported):
		cmd.PrintErrln("wid: warning: clusters cannot register with auth type", registration.AuthTypeCSR+":",
			cli.OneLine(err.Error()))
	default:
		cmd.PrintErrln("wid: warning: it is not known whether the hub signs client certificates:", cli.OneLine(err.Error()))
	}
}

// checkOCM refuses a hub on which the hub program of Open Cluster Management
// runs, and says what stays of one that has stopped.
func (h *hubInit) checkOCM(ctx context.Context, cmd *cobra.Command, c client.Client) error {
	programs := []install.OCMProgram{
		{Namespace: "open-cluster-management", App: "cluster-manager"}, // sets the other ones' replicas and RBAC
		{Namespace: ocm.HubNamespace, App: "clustermanager-registration-controller"},
	}
	if slices.Contains(h.options.AddOnAuthTypes, registration.AuthTypeToken) { // it serves the tokens of add-ons
		programs = append(programs,
			install.OCMProgram{Namespace: ocm.HubNamespace, App: "clustermanager-addon-manager-controller"})
	}
	if err := install.CheckOCM(ctx, cmd, c, h.Kubectl, programs...); err != nil {
		return err
	}
	binding, err := ocmBinding(ctx, c)
	if err != nil || binding == "" {
		return cli.AnswerOf(err, "list ClusterRoleBindings")
	}
	if !h.options.OCMAgents {
		h.warnOfAgents(ctx, cmd, c)
	}
	cmd.PrintErrf(
		"wid: the other programs of Open Cluster Management stay, such as its webhooks. Its ClusterRoleBinding gives the hub program rights "+
			"that it does not need. If you do not go back, delete it:\n  %s\n",
		h.Kubectl("kubectl delete clusterrolebinding "+shell.Word(binding, "NAME")))
	return nil
}

// warnOfAgents names the clusters whose agents need --ocm-agents.
func (h *hubInit) warnOfAgents(ctx context.Context, cmd *cobra.Command, c client.Reader) {
	const stop = "its agents stop to work without --ocm-agents"
	names, err := foreignAgents(ctx, c)
	switch {
	case err != nil:
		cmd.PrintErrln("wid: warning: this hub was one of Open Cluster Management:", stop)
	case len(names) > 0:
		const most = 10
		listed := strings.Join(names[:min(len(names), most)], ", ")
		if len(names) > most {
			listed += fmt.Sprintf(" and %d more", len(names)-most)
		}
		cmd.PrintErrf(
			"wid: warning: this hub was one of Open Cluster Management: %s. Our agent has not renewed the Lease of %s\n", stop,
			listed)
	}
}

// foreignAgents returns the accepted clusters whose Lease our agent has not
// renewed. It writes the cluster's name as holder; Open Cluster Management's
// agent leaves the hub's. An agent of theirs that came back after ours is not
// noticed.
func foreignAgents(ctx context.Context, c client.Reader) (names []string, err error) {
	ours := map[string]bool{}
	err = cli.Each(ctx, c, &coordinationv1.LeaseList{}, func(lease *coordinationv1.Lease) {
		if holder := lease.Spec.HolderIdentity; holder != nil && *holder == lease.Namespace {
			ours[lease.Namespace] = true
		}
	}, client.MatchingFields{"metadata.name": ocm.LeaseName})
	if err != nil {
		return nil, err
	}
	err = cli.Each(ctx, c, &ocm.ManagedClusterList{}, func(cluster *ocm.ManagedCluster) {
		if cluster.Spec.HubAcceptsClient && !ours[cluster.Name] {
			names = append(names, cluster.Name)
		}
	})
	return names, err
}

// ocmBinding returns the name of the ClusterRoleBinding of the hub program of
// Open Cluster Management, "" if there is none. Its ServiceAccount has the same
// name as ours, which does not need the rights.
func ocmBinding(ctx context.Context, c client.Reader) (name string, err error) {
	err = cli.Each(ctx, c, &rbacv1.ClusterRoleBindingList{}, func(b *rbacv1.ClusterRoleBinding) {
		if strings.HasPrefix(b.Name, "open-cluster-management:") && strings.HasSuffix(b.Name, "-registration:controller") {
			name = b.Name
		}
	})
	return name, err
}
