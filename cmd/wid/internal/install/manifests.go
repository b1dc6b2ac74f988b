// Package install holds what wid hub and wid join share: manifests, auth types and their flags.
package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// Names in registration.HubManifest.
const (
	HubNamespace      = "open-cluster-management-hub"
	HubServiceAccount = "registration-controller-sa"
	HubDeployment     = "registration-controller"
)

// Installing are the flags of commands that print manifests, or apply them.
type Installing struct {
	Image              string
	Apply, Wait, force bool
}

// Bind adds the flags.
func (i *Installing) Bind(cmd *cobra.Command, program, waitsFor string) {
	f := cmd.Flags()
	f.StringVar(&i.Image, "image", "", "image whose entrypoint is "+program+", such as one built of cmd/"+program)
	f.BoolVar(&i.Apply, "apply", false, "apply the manifests to the cluster of the kubeconfig, instead of printing them")
	f.BoolVar(&i.Wait, "wait", false, "with --apply: wait until "+waitsFor)
	f.BoolVar(&i.force, "force-conflicts", false, "with --apply: overwrite what others have changed of the same objects")
}

// Check refuses flags without effect.
func (i *Installing) Check() error {
	switch {
	case strings.TrimSpace(i.Image) == "":
		return cli.Usagef("name an image with --image, as registry.example/program:v1")
	case !i.Apply && (i.Wait || i.force):
		return cli.Usagef("--wait and --force-conflicts are for --apply")
	}
	return nil
}

// ContainerName is the name of the container of both programs.
const ContainerName = "registration"

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

// Deployment returns the Deployment of a program that runs as a ServiceAccount. JSON in YAML needs no other quotes.
func (i *Installing) Deployment(namespace, name, serviceAccount string, args ...string) (string, error) {
	image, err := json.Marshal(i.Image)
	list, listErr := json.Marshal(args)
	return fmt.Sprintf(deploymentManifest, namespace, name, serviceAccount, image, list, ContainerName), errors.Join(err, listErr)
}

func parseManifest(document string) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	return object, yaml.UnmarshalStrict([]byte(document), &object.Object)
}

// Separator is the line between two manifests.
const Separator = "\n---\n"

// JoinManifests makes one file of several.
func JoinManifests(manifests ...string) string {
	for i := range manifests {
		manifests[i] = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(manifests[i]), "---"))
	}
	return strings.Join(manifests, Separator) + "\n"
}

// ParseManifests returns the objects of what JoinManifests returned.
func ParseManifests(manifests string) (objects []*unstructured.Unstructured, err error) {
	for document := range strings.SplitSeq(manifests, Separator) {
		object, err := parseManifest(document)
		if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	return objects, nil
}

const fieldOwner = client.FieldOwner("wid")

// ApplyAll applies manifests in order, and says so. A CustomResourceDefinition that something else has installed stays.
func (i *Installing) ApplyAll(ctx context.Context, cmd *cobra.Command, c client.Client, manifests string) error {
	objects, err := ParseManifests(manifests)
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
			return &auth.Error{Reason: auth.ErrDenied, Err: err, Operation: "apply " + nameOf(object), Message: cli.OneLine(err.Error()),
				Remedy: "check the other writer, and pass --force-conflicts to overwrite its changes"}
		case err != nil:
			return cli.AnswerOf(err, "apply "+nameOf(object))
		}
		if err := cli.Say(cmd, "%s %s", nameOf(object), done); err != nil {
			return err
		}
	}
	return nil
}

// RemoveAll deletes the objects of manifests, the last one first. Those that are gone are fine.
func RemoveAll(ctx context.Context, cmd *cobra.Command, c client.Client, objects []*unstructured.Unstructured) error {
	for i := len(objects) - 1; i >= 0; i-- {
		err := c.Delete(ctx, objects[i], client.PropagationPolicy("Background"))
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return cli.AnswerOf(err, "delete "+nameOf(objects[i]))
		}
		if err := cli.Say(cmd, "%s deleted", nameOf(objects[i])); err != nil {
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
