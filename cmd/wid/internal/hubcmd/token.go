package hubcmd

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/bootstrap/tokens"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/install"
	"github.com/workloadid/workloadid/internal/buildinfo"
	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

// inviting are the flags of commands that print the command by which a cluster
// joins.
type inviting struct {
	server              string
	ttl                 time.Duration
	cluster, agentImage string
	output              *cli.Output // nil: text
}

func (i *inviting) bind(f *pflag.FlagSet) {
	f.StringVar(&i.server, "hub-apiserver", "",
		"https URL under which clusters reach the hub's API server, if not that of the kubeconfig; wid hub token remembers that of wid hub init")
	f.DurationVar(&i.ttl, "token-ttl", 24*time.Hour, "lifetime of the bootstrap token")
}

func (i *inviting) check() error {
	if i.ttl < time.Second {
		return cli.Usagef("--token-ttl is a second or more, not %s", i.ttl)
	}
	return nil
}

func newHubToken() *cobra.Command {
	s, i := &cli.Side{}, &inviting{}
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Create a bootstrap token, and print the command that joins a cluster with it",
		Long: "Create a bootstrap token, and print the command that joins a cluster with it. The command has the address and pin of the hub, and\n" +
			"the auth types of the hub program that runs. It is a secret until the token expires.",
		Example: "  wid hub token --context hub --cluster-name managed-1 --agent-image registry.example/wid-agent:v1",
	}
	i.bind(cmd.Flags())
	i.output = cli.OutputFlag(cmd, "text", "json", "yaml")
	cmd.Flags().StringVar(&i.cluster, "cluster-name", "CLUSTER_NAME", "name of the cluster in the command")
	cmd.Flags().StringVar(&i.agentImage, "agent-image", agentImage(buildinfo.Read().Version),
		"image of the agent in the command")
	return s.Command(cmd, "the hub", func(ctx context.Context, cmd *cobra.Command) error {
		if err := i.check(); err != nil {
			return err
		}
		c, config, err := s.Connect()
		if err == nil {
			_, err = cli.Info(config, i.server, "hub-apiserver") // before any request
		}
		if err != nil {
			return err
		}
		return i.invite(ctx, cmd, s, c, config)
	})
}

// remembered returns the flag --hub-apiserver, or else the last one of wid hub
// init.
func (i *inviting) remembered(running *appsv1.Deployment) string {
	if i.server == "" && running != nil {
		return running.Annotations[ocm.ServerAnnotation]
	}
	return i.server
}

// Invitation is the output of wid hub token. Command holds the token, and words
// in capitals to fill in.
type Invitation struct {
	Command string   `json:"command"`
	Token   string   `json:"token"`
	Expires string   `json:"expires"`
	Server  string   `json:"server"`
	Pins    []string `json:"pins,omitempty"`
}

// invite creates a token, and prints the command that uses it. The running hub
// program determines the auth types.
func (i *inviting) invite(ctx context.Context, cmd *cobra.Command, hub *cli.Side, c client.Client,
	config *rest.Config) error {
	running, program, err := install.Running(ctx, c, ocm.HubNamespace, ocm.HubDeployment)
	if err != nil {
		return err
	}
	info, err := cli.Info(config, i.remembered(running), "hub-apiserver")
	if err != nil {
		return err
	}
	pins, err := info.Pins()
	if err != nil {
		return err
	}
	if running == nil {
		cmd.PrintErrf("wid: warning: there is no Deployment %q, so the auth types of the hub are not known\n", hubProgram)
	}
	token, err := tokens.Manager{Client: c}.Create(ctx, bootstrap.TokenConfig{Description: "joins clusters to this hub",
		Expires: time.Now().Add(i.ttl), Usages: []string{bootstrap.UsageSigning, bootstrap.UsageAuthentication},
		Groups: []string{registration.BootstrapGroup}})
	if err != nil {
		return cli.AnswerOf(err, "create a bootstrap token")
	}
	cli.WarnOfLoopback(cmd, info.Server, "hub-apiserver")
	published := &corev1.ConfigMap{}
	err = c.Get(ctx, client.ObjectKey{Namespace: metav1.NamespacePublic, Name: bootstrapapi.ConfigMapClusterInfo},
		published)
	if apierrors.IsNotFound(err) {
		cmd.PrintErrln("wid: warning: clusters cannot find the hub's CA, since it publishes no cluster-info: run",
			hub.Kubectl("wid bootstrap publish"))
	}
	invitation := Invitation{Token: token.Token.Reveal(), Expires: cli.End(token.Expires), Server: info.Server}
	line := "wid join --hub-token " + invitation.Token + " --hub-apiserver " + shell.Word(info.Server, "SERVER")
	for _, pin := range pins {
		invitation.Pins = append(invitation.Pins, pin.String())
		line += " --ca-cert-hash " + pin.String()
	}
	if len(pins) == 0 {
		line += " --ca-file CA_FILE"
	}
	invitation.Command = fmt.Sprintf("%s%s --cluster-name %s --image %s --context CLUSTER_CONTEXT --apply", line,
		joinFlags(flagsIn(program.Args)), shell.Word(i.cluster, "CLUSTER_NAME"), shell.Word(i.agentImage, "AGENT_IMAGE"))
	if i.output != nil && i.output.Format != "text" {
		return i.output.Print(cmd, invitation, nil)
	}
	return cli.Say(cmd, "\nUntil %s, join a cluster with\n\n%s", invitation.Expires, invitation.Command)
}

// joinFlags returns the flags of wid join that fit the flags of the hub
// program.
func joinFlags(running map[string]string) (line string) {
	types := strings.Split(running["--registration-auth"], ",")
	if slices.Contains(types, registration.AuthTypeAWS) && !slices.Contains(types, registration.AuthTypeCSR) {
		line = fmt.Sprintf(" --registration-auth %s --%s %s --%s MANAGED_CLUSTER_ARN", registration.AuthTypeAWS,
			install.HubARNFlag, shell.Word(running["--"+install.HubARNFlag], "HUB_ARN"), install.ManagedARNFlag)
	}
	addOns := strings.Split(running["--addon-registration-auth"], ",")
	for _, authType := range []string{registration.AuthTypeToken, registration.AuthTypeCSR} {
		if slices.Contains(addOns, authType) {
			return line + " --" + install.AddOnAuthFlag + " " + authType
		}
	}
	return line
}

// agentImage returns the image of the agent in the command that joins a
// cluster.
func agentImage(version string) string {
	return cmp.Or(install.ReleaseImage(version, "wid-agent"), "AGENT_IMAGE")
}

// flagsIn returns the values of flags by "--name". The values of a repeated
// flag form a list.
func flagsIn(args []string) map[string]string {
	flags, name := map[string]string{}, ""
	for _, arg := range args {
		value := arg
		if strings.HasPrefix(arg, "-") {
			name, value, _ = strings.Cut(arg, "=")
		}
		flags[name] = strings.Trim(flags[name]+","+value, ",")
	}
	return flags
}

// changedFlags says which flags a hub program loses, or has with another value
// afterwards.
func changedFlags(running, next map[string]string) (changes []string) {
	for _, name := range slices.Sorted(maps.Keys(running)) {
		before := strings.TrimSuffix(name+"="+running[name], "=")
		switch now, ok := next[name]; {
		case !ok:
			changes = append(changes, before+" is dropped")
		case now != running[name]:
			changes = append(changes, before+" becomes "+name+"="+now)
		}
	}
	return changes
}
