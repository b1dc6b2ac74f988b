package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
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

// deploymentManifest meets the Restricted Pod Security Standard.
const deploymentManifest = `apiVersion: apps/v1
kind: Deployment
spec:
  replicas: 1
  template:
    spec:
      securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: registration
        resources: {requests: {cpu: 10m, memory: 64Mi}, limits: {memory: 512Mi}}
        securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
`

// deployment returns the Deployment of a program that runs as a ServiceAccount.
func (i *installing) deployment(namespace, name, serviceAccount string, args ...string) (string, error) {
	object, err := parseManifest(deploymentManifest)
	if err != nil {
		return "", err
	}
	object.SetNamespace(namespace)
	object.SetName(name)
	labels := map[string]any{"app": name}
	for _, field := range []struct {
		value any
		path  string
	}{
		{labels, "spec.selector.matchLabels"}, {labels, "spec.template.metadata.labels"},
		{serviceAccount, "spec.template.spec.serviceAccountName"},
	} {
		if err := unstructured.SetNestedField(object.Object, field.value, strings.Split(field.path, ".")...); err != nil {
			return "", err
		}
	}
	containers, _, err := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
	if err != nil {
		return "", err
	}
	container, ok := containers[0].(map[string]any)
	if !ok {
		return "", errors.New("the manifest of the Deployment has no container")
	}
	container["image"] = i.image
	if err := unstructured.SetNestedStringSlice(container, args, "args"); err != nil {
		return "", err
	}
	if err := unstructured.SetNestedSlice(object.Object, containers, "spec", "template", "spec", "containers"); err != nil {
		return "", err
	}
	content, err := yaml.Marshal(object.Object)
	return string(content), err
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

// awaitDeployment waits until a replica runs.
func awaitDeployment(ctx context.Context, cmd *cobra.Command, c client.Client, namespace, name string) error {
	return await(ctx, cmd, func() (string, error) {
		deployment := &unstructured.Unstructured{}
		deployment.SetAPIVersion("apps/v1")
		deployment.SetKind("Deployment")
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, deployment); err != nil {
			return "", answerOf(err, fmt.Sprintf("read Deployment %q", namespace+"/"+name))
		}
		number := func(field string) int64 {
			n, _, _ := unstructured.NestedInt64(deployment.Object, "status", field) // absent is 0
			return n
		}
		if number("observedGeneration") >= deployment.GetGeneration() && number("availableReplicas") > 0 && number("updatedReplicas") > 0 {
			return "", nil
		}
		return fmt.Sprintf("for Deployment %q to be available: kubectl -n %s describe pods shows why it is not", namespace+"/"+name, namespace), nil
	})
}
