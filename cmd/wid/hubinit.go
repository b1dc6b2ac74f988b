package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/auth"
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
	inviting
	authTypes    []string
	addOnTypes   []string
	arns         clusterARNs
	cleanupImage string
	ocmAgents    bool
	yes          bool
}

func newHubInit() *cobra.Command {
	h := &hubInit{inviting: inviting{cluster: "CLUSTER_NAME", agentImage: "AGENT_IMAGE"}}
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Prepare a hub: print or apply its manifests, and create a bootstrap token for clusters",
		Long: "Prepare a hub. Without --apply it contacts no cluster. With --apply it prints the command that joins a cluster, which\n" +
			"holds a secret token. Do not run the registration controller of Open Cluster Management on the same hub.",
		Example: "  wid hub init --image registry.example/hub:v1 --context hub --apply --wait",
	}
	h.installing.bind(cmd, "wid-hub", "the Deployment is available")
	f := cmd.Flags()
	f.StringSliceVar(&h.authTypes, "registration-auth", []string{registration.AuthTypeCSR}, "auth types that clusters may register with, of csr and "+registration.AuthTypeAWS)
	f.StringSliceVar(&h.addOnTypes, "addon-registration-auth", nil, "auth types of add-ons, of csr and token; without it the hub program decides, and prepares no tokens")
	h.arns.bindHub(f)
	h.inviting.bind(f)
	f.StringVar(&h.cleanupImage, "cleanup-image", "", "image whose entrypoint is wid, for a CronJob that runs wid hub cleanup every hour; none without it")
	f.BoolVar(&h.ocmAgents, "ocm-agents", false, "let agents of Open Cluster Management join; agents and bootstrap users then see the requests of all others, and bootstrap users all clusters")
	f.BoolVar(&h.yes, "yes", false, "with --apply: change or drop flags of the hub program that runs, without a question")
	rare(f, "force-conflicts", "addon-registration-auth", "cleanup-image", "ocm-agents")
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
	if err := h.checkOCM(ctx, cmd, c); err != nil {
		return err
	}
	if err := h.checkRunning(ctx, cmd, c); err != nil {
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

// checkRunning asks before it takes flags from the hub program that runs.
func (h *hubInit) checkRunning(ctx context.Context, cmd *cobra.Command, c client.Client) error {
	running, err := hubFlags(ctx, c)
	changes := changedFlags(running, flagsIn(h.args()))
	if err != nil || len(changes) == 0 {
		return err
	}
	cmd.PrintErrln("wid: the hub program that runs has other flags:")
	for _, change := range changes {
		cmd.PrintErrln(" ", oneLine(change))
	}
	if h.yes {
		return nil
	}
	return confirm(cmd, bufio.NewReader(cmd.InOrStdin()), "Change them?", &auth.Error{Reason: auth.ErrDenied,
		Message: "the hub program keeps its flags, and nothing is applied", Remedy: "pass its flags to wid hub init too, or --yes to change them"})
}

func (h *hubInit) manifests() (string, error) {
	if err := cmp.Or(h.installing.check(), h.inviting.check()); err != nil {
		return "", err
	}
	if len(h.authTypes) == 0 {
		return "", usagef("--registration-auth must not be empty: pass %s, %s or both", registration.AuthTypeCSR, registration.AuthTypeAWS)
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
	hub, err := parseARN(hubARNFlag, h.arns.hub)
	if err != nil {
		return nil, err
	}
	role, err := awsirsa.IdentityCreatorRoleARN(hub)
	if err != nil {
		return nil, usagef("--%s: %v", hubARNFlag, err)
	}
	manifests[hubAt] = withRole(manifests[hubAt], hubServiceAccount, hubServiceAccount, role)
	if slices.Contains(h.authTypes, registration.AuthTypeCSR) {
		manifests = append(manifests, awsirsa.AWSAuthManifest)
	} else if !slices.Contains(h.addOnTypes, registration.AuthTypeCSR) {
		manifests[hubAt] = withoutCSR(manifests[hubAt])
	}
	return manifests, nil
}

// probe warns of a hub that signs no client certificates. It may sign them later.
func (h *hubInit) probe(ctx context.Context, cmd *cobra.Command, c client.Client) {
	err := during(ctx, cmd, func() string { return "for the hub to sign a client certificate as a test" }, func() error { return csr.Probe(ctx, c) })
	switch {
	case err == nil:
	case errors.Is(err, csr.ErrUnsupported):
		cmd.PrintErrln("wid: warning: clusters cannot register with auth type", registration.AuthTypeCSR+":", oneLine(err.Error()))
	default:
		cmd.PrintErrln("wid: warning: it is not known whether the hub signs client certificates:", oneLine(err.Error()))
	}
}

// installing are the flags of commands that print manifests, or apply them.
type installing struct {
	image              string
	apply, wait, force bool
}

func (i *installing) bind(cmd *cobra.Command, program, waitsFor string) {
	f := cmd.Flags()
	f.StringVar(&i.image, "image", "", "image whose entrypoint is "+program+", such as one built of cmd/"+program)
	f.BoolVar(&i.apply, "apply", false, "apply the manifests to the cluster of the kubeconfig, instead of printing them")
	f.BoolVar(&i.wait, "wait", false, "with --apply: wait until "+waitsFor)
	f.BoolVar(&i.force, "force-conflicts", false, "with --apply: overwrite what others have changed of the same objects")
}

func (i *installing) check() error {
	switch {
	case strings.TrimSpace(i.image) == "":
		return usagef("name an image with --image, as registry.example/program:v1")
	case !i.apply && (i.wait || i.force):
		return usagef("--wait and --force-conflicts are for --apply")
	}
	return nil
}

const containerName = "registration"

// deploymentManifest meets the Restricted Pod Security Standard. The programs wid-hub and wid-agent answer probes at this port.
const deploymentManifest = `apiVersion: apps/v1
kind: Deployment
metadata: {namespace: %[1]s, name: %[2]s}
spec:
  replicas: 1
  selector: {matchLabels: {app: %[2]s}}
  template:
    metadata: {labels: {app: %[2]s}}
    spec:
      serviceAccountName: %[3]s
      securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: %[6]s
        image: %[4]s
        args: %[5]s
        readinessProbe: {httpGet: {path: /readyz, port: 8081}}
        livenessProbe: {httpGet: {path: /healthz, port: 8081}, initialDelaySeconds: 10}
        resources: {requests: {cpu: 10m, memory: 64Mi}, limits: {memory: 512Mi}}
        securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
`

// deployment returns the Deployment of a program that runs as a ServiceAccount. JSON in YAML needs no other quotes.
func (i *installing) deployment(namespace, name, serviceAccount string, args ...string) (string, error) {
	image, err := json.Marshal(i.image)
	list, listErr := json.Marshal(args)
	return fmt.Sprintf(deploymentManifest, namespace, name, serviceAccount, image, list, containerName), errors.Join(err, listErr)
}

func parseManifest(document string) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	return object, yaml.UnmarshalStrict([]byte(document), &object.Object)
}

const separator = "\n---\n"

// joinManifests makes one file of several.
func joinManifests(manifests ...string) string {
	for i := range manifests {
		manifests[i] = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(manifests[i]), "---"))
	}
	return strings.Join(manifests, separator) + "\n"
}

func parseManifests(manifests string) (objects []*unstructured.Unstructured, err error) {
	for document := range strings.SplitSeq(manifests, separator) {
		object, err := parseManifest(document)
		if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	return objects, nil
}

const fieldOwner = client.FieldOwner("wid")

// applyAll applies manifests in order, and says so. A CustomResourceDefinition that something else has installed stays.
func (i *installing) applyAll(ctx context.Context, cmd *cobra.Command, c client.Client, manifests string) error {
	objects, err := parseManifests(manifests)
	if err != nil {
		return err
	}
	for _, object := range objects {
		isCRD, done := object.GetKind() == "CustomResourceDefinition", "applied"
		opts := []client.ApplyOption{fieldOwner}
		if i.force && !isCRD {
			opts = append(opts, client.ForceOwnership)
		}
		err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), opts...)
		switch {
		case apierrors.IsConflict(err) && isCRD:
			done = "left as it is: something else has installed it"
		case apierrors.IsConflict(err):
			return &auth.Error{Reason: auth.ErrDenied, Err: err, Operation: "apply " + nameOf(object), Message: oneLine(err.Error()),
				Remedy: "check the other writer, and pass --force-conflicts to overwrite its changes"}
		case err != nil:
			return answerOf(err, "apply "+nameOf(object))
		}
		if err := say(cmd, "%s %s", nameOf(object), done); err != nil {
			return err
		}
	}
	return nil
}

// removeAll deletes the objects of manifests, the last one first. Those that are gone are fine.
func removeAll(ctx context.Context, cmd *cobra.Command, c client.Client, objects []*unstructured.Unstructured) error {
	for i := len(objects) - 1; i >= 0; i-- {
		err := c.Delete(ctx, objects[i], client.PropagationPolicy("Background"))
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return answerOf(err, "delete "+nameOf(objects[i]))
		}
		if err := say(cmd, "%s deleted", nameOf(objects[i])); err != nil {
			return err
		}
	}
	return nil
}

func nameOf(object client.Object) string {
	name := object.GetName()
	if object.GetNamespace() != "" {
		name = object.GetNamespace() + "/" + name
	}
	return fmt.Sprintf("%s %q", object.GetObjectKind().GroupVersionKind().Kind, name)
}

// awaitDeployment waits until a replica of the last generation runs.
func awaitDeployment(ctx context.Context, cmd *cobra.Command, c client.Client, namespace, name string) error {
	return await(ctx, cmd, func() (string, error) {
		d := &appsv1.Deployment{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, d); err != nil {
			return "", answerOf(err, fmt.Sprintf("read Deployment %q", namespace+"/"+name))
		}
		if d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedReplicas > 0 && d.Status.AvailableReplicas > 0 {
			return "", nil
		}
		return fmt.Sprintf("for Deployment %q to be available: kubectl -n %s describe pods shows why it is not", namespace+"/"+name, namespace), nil
	})
}
