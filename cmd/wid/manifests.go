package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/auth"
)

// installing are the flags of commands that print manifests, or apply them.
type installing struct {
	image              string
	apply, wait, force bool
}

func (i *installing) bind(cmd *cobra.Command, program, waitsFor string) {
	f := cmd.Flags()
	f.StringVar(&i.image, "image", "", "image whose entrypoint is the "+program+" program, such as one built of examples/"+program)
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

// deploymentManifest meets the Restricted Pod Security Standard. The programs of examples answer probes at this port.
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
      - name: registration
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
	return fmt.Sprintf(deploymentManifest, namespace, name, serviceAccount, image, list), errors.Join(err, listErr)
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
				Remedy: "look at what has changed it, and pass --force-conflicts to overwrite that"}
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
