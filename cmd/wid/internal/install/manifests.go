// Package install holds what wid hub and wid join share: applied manifests, auth types and their flags.
package install

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/buildinfo"
	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/registration/manifests"
)

// Installing are the flags of commands that print manifests, or apply them.
type Installing struct {
	Image              string
	Apply, Wait, force bool
	replicas           int32
	pullSecrets        []string
	asked              []string // fields of the Deployment
}

// Bind adds the flags.
func (i *Installing) Bind(cmd *cobra.Command, program, waitsFor string) {
	f := cmd.Flags()
	f.StringVar(&i.Image, "image", ReleaseImage(buildinfo.Read().Version, program), "image whose entrypoint is "+program+"; a release of wid has a default")
	f.Int32Var(&i.replicas, "replicas", 2, "number of replicas; a Deployment that runs keeps its own without this flag")
	f.StringSliceVar(&i.pullSecrets, "image-pull-secret", nil, "name of a Secret for the registry of the image; may be repeated; a Deployment that runs keeps its own without this flag")
	f.BoolVar(&i.Apply, "apply", false, "apply the manifests to the cluster of the kubeconfig, instead of printing them")
	f.BoolVar(&i.Wait, "wait", false, "with --apply: wait until "+waitsFor)
	f.BoolVar(&i.force, "force-conflicts", false, "with --apply: overwrite what others have changed of the same objects")
}

// Check refuses flags without effect.
func (i *Installing) Check() error {
	switch {
	case strings.TrimSpace(i.Image) == "":
		return cli.Usagef("name an image with --image, as registry.example/program:v1: only a release of wid has a default, and this is version %s", buildinfo.Read().Version)
	case i.replicas < 0:
		return cli.Usagef("--replicas is 0 or more, not %d", i.replicas)
	case !i.Apply && (i.Wait || i.force):
		return cli.Usagef("--wait and --force-conflicts are for --apply")
	}
	return nil
}

// ReleaseImage returns the image of a program that was released together with a version of wid, "" if it is none of a release.
func ReleaseImage(version, program string) string {
	if !regexp.MustCompile(`^v\d+\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?$`).MatchString(version) { // no pseudo-version
		return ""
	}
	return "ghcr.io/workloadid/" + program + ":" + version
}

// Replicas returns what the flags say about replicas and pull secrets, else what the Deployment has that runs. It is nil for a new one.
func (i *Installing) Replicas(cmd *cobra.Command, running *appsv1.Deployment) (replicas *int32, pullSecrets []string) {
	i.asked = nil
	for flag, field := range map[string]string{"replicas": ".spec.replicas", "image": `.spec.template.spec.containers[name="` + regname.Container + `"].image`} {
		if cmd.Flags().Changed(flag) {
			i.asked = append(i.asked, field)
		}
	}
	replicas, pullSecrets = &i.replicas, slices.DeleteFunc(slices.Clone(i.pullSecrets), func(name string) bool { return name == "" })
	if !cmd.Flags().Changed("replicas") {
		replicas = nil
		if running != nil {
			replicas = running.Spec.Replicas
		}
	}
	if !cmd.Flags().Changed("image-pull-secret") && running != nil {
		for _, reference := range running.Spec.Template.Spec.ImagePullSecrets {
			pullSecrets = append(pullSecrets, reference.Name)
		}
	}
	return replicas, pullSecrets
}

// Running returns a Deployment and the container of its program. The Deployment is nil if there is none.
func Running(ctx context.Context, c client.Client, namespace, name string) (d *appsv1.Deployment, program corev1.Container, err error) {
	d = &appsv1.Deployment{}
	err = c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, d)
	if apierrors.IsNotFound(err) {
		return nil, program, nil
	}
	for _, container := range d.Spec.Template.Spec.Containers {
		if container.Name == regname.Container { // not a sidecar
			program = container
		}
	}
	return d, program, cli.AnswerOf(err, fmt.Sprintf("read Deployment %q", namespace+"/"+name))
}

// AwaitDeployment waits until all replicas of the last generation run, and no other.
func AwaitDeployment(ctx context.Context, cmd *cobra.Command, c client.Client, namespace, name string) error {
	return cli.Await(ctx, cmd, func() (string, error) {
		d := &appsv1.Deployment{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, d); err != nil {
			return "", cli.AnswerOf(err, fmt.Sprintf("read Deployment %q", namespace+"/"+name))
		}
		want, s := *d.Spec.Replicas, d.Status
		if s.ObservedGeneration >= d.Generation && s.Replicas == want && s.UpdatedReplicas == want && s.AvailableReplicas == want {
			return "", nil
		}
		return fmt.Sprintf("for all replicas of Deployment %q to be available: kubectl -n %s describe pods shows why they are not", namespace+"/"+name, namespace), nil
	})
}

const fieldOwner = client.FieldOwner("wid")

// ApplyAll applies manifests in order, and says so. A CustomResourceDefinition that something else has installed stays. A dry run finds
// conflicts before anything is applied. It ignores other errors, since objects need namespaces and definitions that do not exist yet.
func (i *Installing) ApplyAll(ctx context.Context, cmd *cobra.Command, c client.Client, printed string) error {
	objects, err := manifests.Parse(printed)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := keepPodSecurity(ctx, c, object); err != nil {
			return err
		}
		if err := i.apply(ctx, c, object, client.DryRunAll); apierrors.IsConflict(err) && !isDefinition(object) {
			return conflictOf(object, err)
		}
	}
	for _, object := range objects {
		done := "applied"
		err := i.apply(ctx, c, object)
		switch {
		case apierrors.IsConflict(err) && isDefinition(object):
			done = "left as it is: something else has installed it"
		case apierrors.IsConflict(err):
			return conflictOf(object, err)
		case err != nil:
			return cli.AnswerOf(err, "apply "+nameOf(object))
		}
		if err := cli.Say(cmd, "%s %s", nameOf(object), done); err != nil {
			return err
		}
	}
	return nil
}

// apply takes a field from another writer if the user has asked for that field, or forces conflicts.
func (i *Installing) apply(ctx context.Context, c client.Client, object *unstructured.Unstructured, opts ...client.ApplyOption) error {
	opts = append(opts, fieldOwner)
	apply := func(opts ...client.ApplyOption) error {
		return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), opts...)
	}
	if i.force && !isDefinition(object) {
		return apply(append(opts, client.ForceOwnership)...)
	}
	err := apply(opts...)
	if apierrors.IsConflict(err) && object.GetKind() == "Deployment" && i.askedForAll(err) {
		return apply(append(opts, client.ForceOwnership)...)
	}
	return err
}

// askedForAll reports whether a conflict is about fields alone that the user has asked for.
func (i *Installing) askedForAll(conflict error) bool {
	var status apierrors.APIStatus
	if !errors.As(conflict, &status) || status.Status().Details == nil || len(status.Status().Details.Causes) == 0 {
		return false
	}
	return !slices.ContainsFunc(status.Status().Details.Causes, func(cause metav1.StatusCause) bool {
		return cause.Type != metav1.CauseTypeFieldManagerConflict || !slices.Contains(i.asked, cause.Field)
	})
}

func isDefinition(object *unstructured.Unstructured) bool {
	return object.GetKind() == "CustomResourceDefinition"
}

func conflictOf(object *unstructured.Unstructured, err error) error {
	return &auth.Error{Reason: auth.ErrDenied, Err: err, Operation: "apply " + nameOf(object), Message: cli.OneLine(err.Error()),
		Remedy: "check the other writer, and pass --force-conflicts to overwrite its changes"}
}

// keepPodSecurity leaves out the label of a namespace that something else has created: its pods may not meet the standard.
func keepPodSecurity(ctx context.Context, c client.Client, object *unstructured.Unstructured) error {
	if object.GetKind() != "Namespace" {
		return nil
	}
	namespace := &corev1.Namespace{}
	err := c.Get(ctx, client.ObjectKeyFromObject(object), namespace)
	ours := slices.ContainsFunc(namespace.ManagedFields, func(f metav1.ManagedFieldsEntry) bool { return f.Manager == string(fieldOwner) })
	if err == nil && !ours {
		object.SetLabels(nil)
	}
	return cli.AnswerOf(client.IgnoreNotFound(err), "read "+nameOf(object))
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
