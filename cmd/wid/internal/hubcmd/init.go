package hubcmd

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/install"
	"github.com/workloadid/workloadid/internal/buildinfo"
	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/manifests"
)

type hubInit struct {
	cli.Side
	install.Installing
	inviting
	options manifests.HubOptions
	arns    install.ClusterARNs
	cleanup bool
	yes     bool
	present bool // the Deployment, before this command
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
	f.StringSliceVar(&h.options.AuthTypes, "registration-auth", []string{registration.AuthTypeCSR}, "auth types that clusters may register with, of csr and "+registration.AuthTypeAWS)
	f.StringSliceVar(&h.options.AddOnAuthTypes, "addon-registration-auth", nil, "auth types of add-ons, of csr and token; without it the hub program decides, and prepares no tokens")
	cli.Offer(f, "registration-auth", registration.AuthTypeCSR, registration.AuthTypeAWS)
	cli.Offer(f, "addon-registration-auth", registration.AuthTypeCSR, registration.AuthTypeToken)
	h.arns.BindHub(f)
	h.inviting.bind(f)
	f.BoolVar(&h.cleanup, "cleanup", false, "install a CronJob that runs wid hub cleanup every hour")
	f.StringVar(&h.options.CleanupImage, "cleanup-image", "", "image whose entrypoint is wid, for --cleanup; a release of wid has a default")
	f.BoolVar(&h.options.OCMAgents, "ocm-agents", false, "let agents of Open Cluster Management join; agents and bootstrap users then see the requests of all others, and bootstrap users all clusters")
	f.BoolVar(&h.yes, "yes", false, "with --apply: change or drop flags of the hub program that runs, without a question")
	cli.Rare(f, "force-conflicts", "addon-registration-auth", "cleanup", "cleanup-image", "replicas", "image-pull-secret", "ocm-agents")
	return h.Command(cmd, "the hub", h.run)
}

func (h *hubInit) run(ctx context.Context, cmd *cobra.Command) error {
	h.options.Replicas, h.options.ImagePullSecrets = h.Replicas(cmd, nil)
	printed, err := h.manifests()
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
	if err == nil {
		err = h.checkOCM(ctx, cmd, c)
	}
	if err == nil {
		printed, err = h.keep(ctx, cmd, c)
	}
	if err != nil {
		return err
	}
	if slices.Contains(h.options.AuthTypes, registration.AuthTypeCSR) {
		h.probe(ctx, cmd, c)
	}
	if err := h.ApplyAll(ctx, cmd, c, printed); err != nil {
		return err
	}
	if h.Wait {
		if err := install.AwaitDeployment(ctx, cmd, c, regname.HubNamespace, regname.HubDeployment); err != nil {
			return err
		}
	}
	if h.present { // a token that is not needed would stay valid in the log of a pipeline
		return cli.Say(cmd, "\nThe hub has the image %.300q. This command prints the line that joins a cluster: %s", h.Image, h.Wid("wid hub token"))
	}
	return h.invite(ctx, cmd, h.KubeFile, c, info)
}

// keep returns the manifests with what the hub program that runs keeps. It asks before it takes flags from that.
func (h *hubInit) keep(ctx context.Context, cmd *cobra.Command, c client.Client) (string, error) {
	running, program, err := install.Running(ctx, c, regname.HubNamespace, regname.HubDeployment)
	if err == nil {
		err = h.checkFlags(cmd, flagsIn(program.Args))
	}
	if err != nil {
		return "", err
	}
	h.present = running != nil
	h.options.Replicas, h.options.ImagePullSecrets = h.Replicas(cmd, running)
	return manifests.Hub(h.options)
}

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
		"pass its flags to wid hub init too, or --yes to change them", "the hub program keeps its flags, and nothing is applied"))
}

func (h *hubInit) manifests() (string, error) {
	o := &h.options
	if len(o.AuthTypes) == 0 {
		return "", cli.Usagef("--registration-auth must not be empty: pass %s, %s or both", registration.AuthTypeCSR, registration.AuthTypeAWS)
	}
	err := cmp.Or(h.Installing.Check(), h.inviting.check(), install.CheckAuthTypes(o.AuthTypes...),
		install.CheckAddOns("addon-registration-auth", 0, o.AddOnAuthTypes...), h.arns.Check(o.AuthTypes...))
	if err != nil {
		return "", err
	}
	o.Image, o.ARN = h.Image, h.arns.Hub
	if h.cleanup && o.CleanupImage == "" {
		if o.CleanupImage = install.ReleaseImage(buildinfo.Read().Version, "wid"); o.CleanupImage == "" {
			return "", cli.Usagef("--cleanup: name an image whose entrypoint is wid with --cleanup-image: only a release of wid has a default")
		}
	}
	printed, err := manifests.Hub(*o)
	if err != nil {
		return "", cli.Usagef("%v", err)
	}
	return printed, nil
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
