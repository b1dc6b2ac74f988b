package manifests

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// HubOptions describe a hub.
type HubOptions struct {
	// Image is the image whose entrypoint is wid-hub. Required.
	Image string
	// AuthTypes are the auth types that clusters may register with, csr and
	// aws-irsa. Required.
	AuthTypes []string
	// AddOnAuthTypes are the auth types of add-ons, csr and token. Empty uses
	// the default of wid-hub, and prepares no tokens.
	AddOnAuthTypes []string
	// ARN is the ARN of the hub in EKS. Required for aws-irsa.
	ARN string
	// OCMAgents lets agents of Open Cluster Management join. Agents and
	// bootstrap users then see the requests of all others. Bootstrap users also
	// see all clusters.
	OCMAgents bool
	// AutoApproveUsers are the bootstrap users whose clusters the hub accepts
	// without a person.
	AutoApproveUsers []string
	// AutoApproveARNs are patterns of ARNs of EKS clusters, as in
	// awsirsa.HubDriverOptions.AutoApprove. The hub accepts matching clusters
	// without a person.
	AutoApproveARNs []string
	// Relay installs a relay for agents without a route to the hub. Empty
	// installs none.
	Relay Relay
	// CleanupImage is the image whose entrypoint is wid, for a CronJob that
	// runs wid hub cleanup every hour. Empty means no CronJob.
	CleanupImage string
	// Server is the https URL under which clusters reach the hub, for the lines
	// that wid hub token prints. Empty means the URL in its kubeconfig. An
	// annotation of the Deployment holds it, because bootstrap users and agents
	// cannot write there.
	Server string
	// Replicas is the number of replicas. Nil means 2.
	Replicas *int32
	// ImagePullSecrets are the names of Secrets for the registries of the
	// images.
	ImagePullSecrets []string
}

// Args returns the flags of wid-hub.
func (o HubOptions) Args() []string {
	args := []string{"--registration-auth=" + strings.Join(o.AuthTypes, ","),
		"--bootstrap-group=" + registration.BootstrapGroup, "--leader-elect"}
	if o.ARN != "" {
		args = append(args, "--eks-hub-cluster-arn="+o.ARN)
	}
	if len(o.AddOnAuthTypes) > 0 {
		args = append(args, "--addon-registration-auth="+strings.Join(o.AddOnAuthTypes, ","))
	}
	for _, user := range o.AutoApproveUsers {
		args = append(args, "--auto-approve-user="+user)
	}
	for _, pattern := range o.AutoApproveARNs {
		args = append(args, "--auto-approve-arn="+pattern)
	}
	if o.OCMAgents {
		args = append(args, "--ocm-agents")
	}
	if o.Relay == RelayConstrained && o.usesCertificates() {
		args = append(args, "--grant-relay")
	}
	return args
}

func (o HubOptions) check() error {
	if o.Image == "" || len(o.AuthTypes) == 0 {
		return errors.New("the manifests of a hub need an image and an auth type")
	}
	if !slices.Contains([]Relay{"", RelayConstrained, RelayLegacy}, o.Relay) {
		return fmt.Errorf("unknown relay %q: use one of %s, %s", o.Relay, RelayConstrained, RelayLegacy)
	}
	return errors.Join(checkAuthTypes("clusters", o.AuthTypes, registration.AuthTypeAWS, registration.AuthTypeCSR),
		checkAuthTypes("add-ons", o.AddOnAuthTypes, registration.AuthTypeCSR, registration.AuthTypeToken),
		o.checkApproval())
}

// checkApproval refuses what no driver of the hub reads, and patterns with
// which the hub program would not start.
func (o HubOptions) checkApproval() error {
	const unread = "automatic approval of the %s %q has no effect without the auth type %s: add that auth type, or leave out the %[1]s"
	if len(o.AutoApproveUsers) > 0 && !o.registersWith(registration.AuthTypeCSR) {
		return fmt.Errorf(unread, "user", o.AutoApproveUsers[0], registration.AuthTypeCSR)
	}
	for _, pattern := range o.AutoApproveARNs {
		if !o.registersWith(registration.AuthTypeAWS) {
			return fmt.Errorf(unread, "pattern", pattern, registration.AuthTypeAWS)
		}
		if err := awsirsa.CheckPattern(pattern); err != nil {
			return err
		}
	}
	return nil
}

// Hub returns the manifests of a hub, the Deployment last. They hold no secret.
func Hub(o HubOptions) (string, error) {
	if err := o.check(); err != nil {
		return "", err
	}
	controller, err := o.controller()
	if err != nil {
		return "", err
	}
	manifests := []string{ocm.CRD(), addon.CRD(), controller, BootstrapRBAC()}
	if slices.Contains(o.AddOnAuthTypes, registration.AuthTypeToken) {
		manifests = append(manifests, TokenRBAC())
	}
	if o.OCMAgents {
		manifests = append(manifests, OCMAgentsRBAC())
	}
	if o.Relay != "" {
		relay, err := o.relay()
		if err != nil {
			return "", err
		}
		manifests = append(manifests, relay)
	}
	if o.CleanupImage != "" {
		cleanup, err := o.cleanup()
		if err != nil {
			return "", err
		}
		manifests = append(manifests, cleanup)
	}
	if o.registersWith(registration.AuthTypeAWS) && o.registersWith(registration.AuthTypeCSR) {
		manifests = append(manifests, awsirsa.AWSAuthRBAC())
	}
	var annotations map[string]string
	if o.Server != "" {
		annotations = map[string]string{ocm.ServerAnnotation: o.Server}
	}
	program, err := program{Annotations: annotations, Namespace: ocm.HubNamespace, Name: ocm.HubDeployment,
		Account: ocm.HubServiceAccount, Image: o.Image, Args: o.Args(), replicas: o.Replicas,
		pullSecrets: o.ImagePullSecrets, CPU: "50m", MemoryRequest: 128, MemoryLimit: 512, Egress: hubEgress}.manifest()
	return join(append(manifests, program)), err
}

// hubEgress names ports after the translation of the Service's address: the
// ports of DNS, also on OpenShift, and of API servers. AWS uses 443 too.
const hubEgress = `  - ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}, {port: 5353, protocol: UDP}, {port: 5353, protocol: TCP}]
  - ports: [{port: 443, protocol: TCP}, {port: 6443, protocol: TCP}, {port: 8443, protocol: TCP},
      {port: 16443, protocol: TCP}]`

// cleanup returns the manifests of the CronJob.
func (o HubOptions) cleanup() (string, error) {
	image, err := json.Marshal(o.CleanupImage)
	secrets, secretsErr := json.Marshal(program{pullSecrets: o.ImagePullSecrets}.PullSecrets())
	manifest := strings.Replace(cleanupManifest, "WID_IMAGE", string(image), 1)
	if len(o.ImagePullSecrets) > 0 {
		const after = "          restartPolicy: Never\n"
		manifest = strings.Replace(manifest, after, after+"          imagePullSecrets: "+string(secrets)+"\n", 1)
	}
	return manifest, errors.Join(err, secretsErr)
}

// usesCertificates reports whether the hub approves client certificates.
func (o HubOptions) usesCertificates() bool {
	return o.registersWith(registration.AuthTypeCSR) || slices.Contains(o.AddOnAuthTypes, registration.AuthTypeCSR)
}

func (o HubOptions) registersWith(authType string) bool {
	return slices.Contains(o.AuthTypes, authType)
}

// controller returns the manifests of the hub controller. With aws-irsa it has
// a role in IAM. Without csr it has no right to approve certificates.
func (o HubOptions) controller() (string, error) {
	if !o.registersWith(registration.AuthTypeAWS) {
		return HubRBAC(), nil
	}
	hub, err := awsirsa.ParseClusterARN(o.ARN)
	if err != nil {
		return "", err
	}
	role, err := awsirsa.HubRoleARN(hub)
	manifest := withRole(HubRBAC(), ocm.HubServiceAccount, ocm.HubServiceAccount, role)
	if o.usesCertificates() {
		return manifest, err
	}
	return strings.Join(slices.DeleteFunc(strings.Split(manifest, separator), func(document string) bool {
		return strings.Contains(document, "\n  name: open-cluster-management:hub:csr") // and hub:csr-addons
	}), separator), err
}

// cleanupManifest holds a CronJob that runs wid hub cleanup on the hub every
// hour, with its ServiceAccount and the least RBAC. WID_IMAGE is a placeholder
// for its image.
//
//go:embed cleanup.yaml
var cleanupManifest string
