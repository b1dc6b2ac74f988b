// Package install holds what wid hub and wid join share: applied manifests, auth types and their flags.
package install

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/registration/manifests"
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

const fieldOwner = client.FieldOwner("wid")

// ApplyAll applies manifests in order, and says so. A CustomResourceDefinition that something else has installed stays.
func (i *Installing) ApplyAll(ctx context.Context, cmd *cobra.Command, c client.Client, printed string) error {
	objects, err := manifests.Parse(printed)
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
