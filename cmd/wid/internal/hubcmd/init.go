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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/install"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

type hubInit struct {
	cli.Side
	install.Installing
	inviting
	authTypes    []string
	addOnTypes   []string
	arns         install.ClusterARNs
	cleanupImage string
	ocmAgents    bool
	yes          bool
}

// NewHubInit returns wid hub init.
func NewHubInit() *cobra.Command {
	h := &hubInit{inviting: inviting{cluster: "CLUSTER_NAME", agentImage: "AGENT_IMAGE"}}
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Prepare a hub: print or apply its manifests, and create a bootstrap token for clusters",
		Long: "Prepare a hub. Without --apply it contacts no cluster. With --apply it prints the command that joins a cluster, which\n" +
			"holds a secret token. Do not run the registration controller of Open Cluster Management on the same hub.",
		Example: "  wid hub init --image registry.example/hub:v1 --context hub --apply --wait",
	}
	h.Installing.Bind(cmd, "wid-hub", "the Deployment is available")
	f := cmd.Flags()
	f.StringSliceVar(&h.authTypes, "registration-auth", []string{registration.AuthTypeCSR}, "auth types that clusters may register with, of csr and "+registration.AuthTypeAWS)
	f.StringSliceVar(&h.addOnTypes, "addon-registration-auth", nil, "auth types of add-ons, of csr and token; without it the hub program decides, and prepares no tokens")
	cli.Offer(f, "registration-auth", registration.AuthTypeCSR, registration.AuthTypeAWS)
	cli.Offer(f, "addon-registration-auth", registration.AuthTypeCSR, registration.AuthTypeToken)
	h.arns.BindHub(f)
	h.inviting.bind(f)
	f.StringVar(&h.cleanupImage, "cleanup-image", "", "image whose entrypoint is wid, for a CronJob that runs wid hub cleanup every hour; none without it")
	f.BoolVar(&h.ocmAgents, "ocm-agents", false, "let agents of Open Cluster Management join; agents and bootstrap users then see the requests of all others, and bootstrap users all clusters")
	f.BoolVar(&h.yes, "yes", false, "with --apply: change or drop flags of the hub program that runs, without a question")
	cli.Rare(f, "force-conflicts", "addon-registration-auth", "cleanup-image", "ocm-agents")
	return h.Command(cmd, "the hub", h.run)
}

func (h *hubInit) run(ctx context.Context, cmd *cobra.Command) error {
	manifests, err := h.manifests()
	if err != nil {
		return err
	}
	if !h.Apply {
		_, err := fmt.Fprint(cmd.OutOrStdout(), manifests)
		return err
	}
	c, config, err := h.Connect()
	if err != nil {
		return err
	}
	info, err := h.info(config)
	if err != nil {
		return err
	}
	if err := install.CheckHub(cmd, h.authTypes, info.Server); err != nil {
		return err
	}
	if err := h.checkOCM(ctx, cmd, c); err != nil {
		return err
	}
	if err := h.checkRunning(ctx, cmd, c); err != nil {
		return err
	}
	if slices.Contains(h.authTypes, registration.AuthTypeCSR) {
		h.probe(ctx, cmd, c)
	}
	if err := h.ApplyAll(ctx, cmd, c, manifests); err != nil {
		return err
	}
	if h.Wait {
		if err := awaitDeployment(ctx, cmd, c, install.HubNamespace, install.HubDeployment); err != nil {
			return err
		}
	}
	return h.invite(ctx, cmd, c, info)
}

// checkRunning asks before it takes flags from the hub program that runs.
func (h *hubInit) checkRunning(ctx context.Context, cmd *cobra.Command, c client.Client) error {
	running, err := hubFlags(ctx, c)
	changes := changedFlags(running, flagsIn(h.args()))
	if err != nil || len(changes) == 0 {
		return err
	}
	cmd.PrintErrln("wid: the hub program that runs has other flags:")
	for _, change := range changes {
		cmd.PrintErrln(" ", cli.OneLine(change))
	}
	if h.yes {
		return nil
	}
	return confirm(cmd, bufio.NewReader(cmd.InOrStdin()), "Change them?", &auth.Error{Reason: auth.ErrDenied,
		Message: "the hub program keeps its flags, and nothing is applied", Remedy: "pass its flags to wid hub init too, or --yes to change them"})
}

func (h *hubInit) manifests() (string, error) {
	if err := cmp.Or(h.Installing.Check(), h.inviting.check()); err != nil {
		return "", err
	}
	if len(h.authTypes) == 0 {
		return "", cli.Usagef("--registration-auth must not be empty: pass %s, %s or both", registration.AuthTypeCSR, registration.AuthTypeAWS)
	}
	for _, authType := range h.authTypes {
		if err := install.CheckAuthType(authType); err != nil {
			return "", err
		}
	}
	if err := install.CheckAddOns("addon-registration-auth", 0, h.addOnTypes...); err != nil {
		return "", err
	}
	if err := h.arns.Check(h.authTypes...); err != nil {
		return "", err
	}
	manifests, err := h.hubManifests()
	if err != nil {
		return "", err
	}
	deployment, err := h.Deployment(install.HubNamespace, install.HubDeployment, install.HubServiceAccount, h.args()...)
	return install.JoinManifests(append(manifests, deployment)...), err
}

// args are the flags of the hub program.
func (h *hubInit) args() []string {
	args := append([]string{"--registration-auth=" + strings.Join(h.authTypes, ","), "--bootstrap-group=" + registration.BootstrapGroup, "--leader-elect"}, h.arns.Args()...)
	if len(h.addOnTypes) > 0 {
		args = append(args, "--addon-registration-auth="+strings.Join(h.addOnTypes, ","))
	}
	if h.ocmAgents {
		args = append(args, "--ocm-agents")
	}
	return args
}

// hubManifests returns all manifests except the Deployment.
func (h *hubInit) hubManifests() ([]string, error) {
	const hubAt = 2 // of the hub controller's own manifest
	manifests := []string{ocm.CRD, addon.CRD, registration.HubManifest, registration.BootstrapManifest}
	if slices.Contains(h.addOnTypes, registration.AuthTypeToken) {
		manifests = append(manifests, registration.TokenManifest)
	}
	if h.ocmAgents {
		manifests = append(manifests, registration.OCMAgentsManifest)
	}
	if h.cleanupImage != "" {
		cleanup, err := cleanupManifest(h.cleanupImage)
		if err != nil {
			return nil, err
		}
		manifests = append(manifests, cleanup)
	}
	if !slices.Contains(h.authTypes, registration.AuthTypeAWS) {
		return manifests, nil
	}
	hub, err := install.ParseARN(install.HubARNFlag, h.arns.Hub)
	if err != nil {
		return nil, err
	}
	role, err := awsirsa.IdentityCreatorRoleARN(hub)
	if err != nil {
		return nil, cli.Usagef("--%s: %v", install.HubARNFlag, err)
	}
	manifests[hubAt] = install.WithRole(manifests[hubAt], install.HubServiceAccount, install.HubServiceAccount, role)
	if slices.Contains(h.authTypes, registration.AuthTypeCSR) {
		manifests = append(manifests, awsirsa.AWSAuthManifest)
	} else if !slices.Contains(h.addOnTypes, registration.AuthTypeCSR) {
		manifests[hubAt] = withoutCSR(manifests[hubAt])
	}
	return manifests, nil
}

// probe warns of a hub that signs no client certificates. It may sign them later.
func (h *hubInit) probe(ctx context.Context, cmd *cobra.Command, c client.Client) {
	err := cli.During(ctx, cmd, func() string { return "for the hub to sign a client certificate as a test" }, func() error { return csr.Probe(ctx, c) })
	switch {
	case err == nil:
	case errors.Is(err, csr.ErrUnsupported):
		cmd.PrintErrln("wid: warning: clusters cannot register with auth type", registration.AuthTypeCSR+":", cli.OneLine(err.Error()))
	default:
		cmd.PrintErrln("wid: warning: it is not known whether the hub signs client certificates:", cli.OneLine(err.Error()))
	}
}

// awaitDeployment waits until a replica of the last generation runs.
func awaitDeployment(ctx context.Context, cmd *cobra.Command, c client.Client, namespace, name string) error {
	return cli.Await(ctx, cmd, func() (string, error) {
		d := &appsv1.Deployment{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, d); err != nil {
			return "", cli.AnswerOf(err, fmt.Sprintf("read Deployment %q", namespace+"/"+name))
		}
		if d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedReplicas > 0 && d.Status.AvailableReplicas > 0 {
			return "", nil
		}
		return fmt.Sprintf("for Deployment %q to be available: kubectl -n %s describe pods shows why it is not", namespace+"/"+name, namespace), nil
	})
}
