package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/bootstrap/tokens"
	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// Names in registration.HubManifest.
const (
	hubNamespace      = "open-cluster-management-hub"
	hubServiceAccount = "registration-controller-sa"
	hubDeployment     = "registration-controller"
)

type hubInit struct {
	side
	installing
	authTypes    []string
	addOnTypes   []string
	arns         clusterARNs
	server       string
	ttl          time.Duration
	cleanupImage string
}

func newHubInit() *cobra.Command {
	h := &hubInit{}
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Prepare a hub: print or apply what it needs, and create a bootstrap token for clusters",
		Long: "Prepare a hub. Without --apply it prints the manifests and contacts no cluster. With --apply it first tries whether\n" +
			"the hub signs client certificates, applies the manifests, creates a bootstrap token, and prints the command that joins\n" +
			"a cluster. The token in that command is a secret. The hub program takes the place of the registration controller\n" +
			"of Open Cluster Management: do not run both on one hub.",
		Example: "  wid hub init --image registry.example/hub:v1 >hub.yaml\n" +
			"  wid hub init --image registry.example/hub:v1 --context hub --apply --wait",
	}
	h.bind(cmd, "hub", "the Deployment is available")
	f := cmd.Flags()
	f.StringSliceVar(&h.authTypes, "registration-auth", []string{registration.AuthTypeCSR}, "auth types that clusters may register with, of csr and "+authTypeAWS)
	f.StringSliceVar(&h.addOnTypes, "addon-registration-auth", nil, "auth types of add-ons, of csr and token; without it the hub program decides, and prepares no tokens")
	h.arns.bindHub(f)
	f.StringVar(&h.server, "hub-apiserver", "", "https URL under which clusters reach the hub's API server, if not that of the kubeconfig")
	f.DurationVar(&h.ttl, "token-ttl", 24*time.Hour, "lifetime of the bootstrap token")
	f.StringVar(&h.cleanupImage, "cleanup-image", "", "image whose entrypoint is wid, for a CronJob that runs wid hub cleanup every hour; none without it")
	return h.command(cmd, "the hub", h.run)
}

func (h *hubInit) run(ctx context.Context, cmd *cobra.Command) error {
	manifests, err := h.manifests()
	if err != nil {
		return err
	}
	if !h.apply {
		_, err := fmt.Fprint(cmd.OutOrStdout(), manifests)
		return err
	}
	c, config, err := h.connect()
	if err != nil {
		return err
	}
	info, err := h.info(config)
	if err != nil {
		return err
	}
	if err := checkHub(cmd, h.authTypes, info.Server); err != nil {
		return err
	}
	if slices.Contains(h.authTypes, registration.AuthTypeCSR) {
		h.probe(ctx, cmd, c)
	}
	if err := h.applyAll(ctx, cmd, c, manifests); err != nil {
		return err
	}
	if h.wait {
		if err := awaitDeployment(ctx, cmd, c, hubNamespace, hubDeployment); err != nil {
			return err
		}
	}
	return h.invite(ctx, cmd, c, info)
}

func (h *hubInit) manifests() (string, error) {
	if err := h.check(); err != nil {
		return "", err
	}
	if h.ttl < time.Second {
		return "", usagef("--token-ttl is a second or more, not %s", h.ttl)
	}
	if len(h.authTypes) == 0 {
		return "", usagef("--registration-auth is %s, %s or both, not nothing", registration.AuthTypeCSR, authTypeAWS)
	}
	for _, authType := range h.authTypes {
		if err := checkAuthType(authType); err != nil {
			return "", err
		}
	}
	if err := checkAddOns("addon-registration-auth", 0, h.addOnTypes...); err != nil {
		return "", err
	}
	if err := h.arns.check(h.authTypes...); err != nil {
		return "", err
	}
	manifests, err := h.hubManifests()
	if err != nil {
		return "", err
	}
	deployment, err := h.deployment(hubNamespace, hubDeployment, hubServiceAccount, h.args()...)
	return joinManifests(append(manifests, deployment)...), err
}

// args are the flags of the hub program.
func (h *hubInit) args() []string {
	args := append([]string{"--registration-auth=" + strings.Join(h.authTypes, ","), "--bootstrap-group=" + registration.BootstrapGroup, "--leader-elect"}, h.arns.args()...)
	if len(h.addOnTypes) > 0 {
		args = append(args, "--addon-registration-auth="+strings.Join(h.addOnTypes, ","))
	}
	return args
}

// hubManifests are those besides the Deployment.
func (h *hubInit) hubManifests() ([]string, error) {
	manifests := []string{ocm.CRD, addon.CRD, registration.HubManifest, registration.BootstrapManifest}
	if slices.Contains(h.addOnTypes, registration.AuthTypeToken) {
		manifests = append(manifests, registration.TokenManifest)
	}
	if h.cleanupImage != "" {
		cleanup, err := cleanupManifest(h.cleanupImage)
		if err != nil {
			return nil, err
		}
		manifests = append(manifests, cleanup)
	}
	if !slices.Contains(h.authTypes, authTypeAWS) {
		return manifests, nil
	}
	hub, err := parseARN(hubARNFlag, h.arns.hub)
	if err != nil {
		return nil, err
	}
	role, err := awsirsa.IdentityCreatorRoleARN(hub)
	if err != nil {
		return nil, usagef("--%s: %v", hubARNFlag, err)
	}
	manifests[2] = withRole(manifests[2], hubServiceAccount, hubServiceAccount, role)
	if slices.Contains(h.authTypes, registration.AuthTypeCSR) {
		manifests = append(manifests, awsirsa.AWSAuthManifest)
	} else {
		manifests[1] = withoutCSR(manifests[1])
	}
	return manifests, nil
}

// info is how clusters reach the hub.
func (h *hubInit) info(config *rest.Config) (*bootstrap.ClusterInfo, error) {
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, usagef("the kubeconfig cannot be used: %s", kubeconfigMistake(err))
	}
	info := &bootstrap.ClusterInfo{Server: config.Host, CAData: config.CAData}
	if h.server != "" {
		info.Server = h.server
	}
	if _, err := info.Encode(); err != nil {
		return nil, usagef("--hub-apiserver: %v", err)
	}
	return info, nil
}

// probe warns of a hub that signs no client certificates. It may sign them later.
func (h *hubInit) probe(ctx context.Context, cmd *cobra.Command, c client.Client) {
	err := csr.Probe(ctx, c)
	switch {
	case err == nil:
	case errors.Is(err, csr.ErrUnsupported):
		cmd.PrintErrln("wid: warning: clusters cannot register with auth type", registration.AuthTypeCSR+":", oneLine(err.Error()))
	default:
		cmd.PrintErrln("wid: warning: it is not known whether the hub signs client certificates:", oneLine(err.Error()))
	}
}

// invite creates a token, and prints the command that uses it.
func (h *hubInit) invite(ctx context.Context, cmd *cobra.Command, c client.Client, info *bootstrap.ClusterInfo) error {
	pins, err := info.Pins()
	if err != nil {
		return err
	}
	token, err := tokens.Manager{Client: c}.Create(ctx, bootstrap.TokenConfig{Description: "joins clusters to this hub",
		Expires: time.Now().Add(h.ttl), Usages: []string{bootstrap.UsageSigning, bootstrap.UsageAuthentication}, Groups: []string{registration.BootstrapGroup}})
	if err != nil {
		return answerOf(err, "create a bootstrap token")
	}
	warnOfLoopback(cmd, info.Server, "hub-apiserver")
	published := &corev1.ConfigMap{}
	err = c.Get(ctx, client.ObjectKey{Namespace: bootstrap.ConfigMapNamespace, Name: bootstrap.ConfigMapName}, published)
	if apierrors.IsNotFound(err) {
		cmd.PrintErrln("wid: warning: clusters cannot find the hub's CA, since it publishes no cluster-info: run wid bootstrap publish on it")
	}
	line := "wid join --hub-token " + token.Token.Reveal() + " --hub-apiserver " + shell.Word(info.Server, "SERVER")
	for _, pin := range pins {
		line += " --ca-cert-hash " + pin.String()
	}
	if len(pins) == 0 {
		line += " --ca-file CA_FILE"
	}
	if !slices.Contains(h.authTypes, registration.AuthTypeCSR) {
		line += " --registration-auth " + authTypeAWS + " --" + hubARNFlag + " " + h.arns.hub + " --" + managedARNFlag + " MANAGED_CLUSTER_ARN"
	}
	return say(cmd, "\nUntil %s, join a cluster with\n\n%s --cluster-name CLUSTER_NAME --image AGENT_IMAGE --apply", end(token.Expires), line)
}
