// Package install holds what wid hub and wid join share: applied manifests,
// auth types and their flags.
package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/buildinfo"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/manifests"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/token"
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
	f.StringVar(&i.Image, "image", ReleaseImage(buildinfo.Read().Version, program),
		"image whose entrypoint is "+program+"; a release of wid has a default")
	f.Int32Var(&i.replicas, "replicas", 2, "number of replicas; a Deployment that runs keeps its own without this flag")
	f.StringSliceVar(&i.pullSecrets, "image-pull-secret", nil,
		"name of a Secret for the registry of the image; may be repeated; a Deployment that runs keeps its own without this flag, and loses them with "+cli.None)
	f.BoolVar(&i.Apply, "apply", false, "apply the manifests to the cluster of the kubeconfig, instead of printing them")
	f.BoolVar(&i.Wait, "wait", false, "with --apply: wait until "+waitsFor)
	f.BoolVar(&i.force, "force-conflicts", false, "with --apply: overwrite what others have changed of the same objects")
}

// Check refuses flags without effect.
func (i *Installing) Check() error {
	switch {
	case strings.TrimSpace(i.Image) == "":
		return cli.Usagef(
			"name an image with --image, as registry.example/program:v1: only a release of wid has a default, and this is version %s", buildinfo.Read().Version)
	case i.replicas < 0:
		return cli.Usagef("--replicas is 0 or more, not %d", i.replicas)
	case !i.Apply && (i.Wait || i.force):
		return cli.Usagef("--wait and --force-conflicts are for --apply")
	}
	return nil
}

// ReleaseImage returns the image of a program that was released together with a
// version of wid, "" if it is none of a release.
func ReleaseImage(version, program string) string {
	if !regexp.MustCompile(`^v\d+\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?$`).MatchString(version) { // no pseudo-version
		return ""
	}
	return "ghcr.io/workloadid/" + program + ":" + version
}

// BindNamespace adds the flag for the namespace of an agent.
func BindNamespace(f *pflag.FlagSet, namespace *string) {
	f.StringVar(namespace, "namespace", agent.DefaultNamespace,
		"namespace of the agent; each further hub of a cluster takes an agent in a namespace of its own")
}

// Replicas returns what the flags say about replicas and pull secrets, else
// what the Deployment has that runs. It is nil for a new one.
func (i *Installing) Replicas(cmd *cobra.Command, running *appsv1.Deployment) (replicas *int32, pullSecrets []string) {
	i.asked = nil
	for flag, field := range map[string]string{"replicas": ".spec.replicas",
		"image": `.spec.template.spec.containers[name="` + ocm.Container + `"].image`} {
		if cmd.Flags().Changed(flag) {
			i.asked = append(i.asked, field)
		}
	}
	replicas, pullSecrets = &i.replicas, slices.DeleteFunc(slices.Clone(i.pullSecrets), func(name string) bool {
		return name == cli.None
	})
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

// Running returns a Deployment and the container of its program. The Deployment
// is nil if there is none.
func Running(ctx context.Context, c client.Client, namespace,
	name string) (d *appsv1.Deployment, program corev1.Container, err error) {
	d = &appsv1.Deployment{}
	err = c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, d)
	if apierrors.IsNotFound(err) {
		return nil, program, nil
	}
	for _, container := range d.Spec.Template.Spec.Containers {
		if container.Name == ocm.Container { // not a sidecar
			program = container
		}
	}
	return d, program, cli.AnswerOf(err, fmt.Sprintf("read Deployment %q", namespace+"/"+name))
}

// Install applies the manifests of a Deployment, and waits for it with --wait.
// k leads the reader to the cluster.
func (i *Installing) Install(ctx context.Context, cmd *cobra.Command, k cli.KubeFile, c client.Client, printed,
	namespace, name string) error {
	if err := i.ApplyAll(ctx, cmd, c, printed); err != nil || !i.Wait {
		return err
	}
	return awaitDeployment(ctx, cmd, k, c, namespace, name)
}

// awaitDeployment waits until all replicas of the last generation run, and no
// other.
func awaitDeployment(ctx context.Context, cmd *cobra.Command, k cli.KubeFile, c client.Client, namespace,
	name string) error {
	return cli.Await(ctx, cmd, func() (string, error) {
		d := &appsv1.Deployment{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, d); err != nil {
			return "", cli.AnswerOf(err, fmt.Sprintf("read Deployment %q", namespace+"/"+name))
		}
		want, s := *d.Spec.Replicas, d.Status
		if s.ObservedGeneration >= d.Generation && s.Replicas == want && s.UpdatedReplicas == want &&
			s.AvailableReplicas == want {
			return "", nil
		}
		return fmt.Sprintf("for all replicas of Deployment %q to be available: %s shows why they are not", namespace+"/"+name,
			k.Kubectl("kubectl -n "+namespace+" describe pods")), nil
	})
}

const fieldOwner = client.FieldOwner("wid")

// ApplyAll applies manifests in order, and says so. A CustomResourceDefinition
// that something else has installed stays. A dry run finds conflicts before
// anything is applied. It ignores other errors, since objects need namespaces
// and definitions that do not exist yet.
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

// apply takes a field from another writer if the user has asked for that field,
// or forces conflicts.
func (i *Installing) apply(ctx context.Context, c client.Client, object *unstructured.Unstructured,
	opts ...client.ApplyOption) error {
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

// askedForAll reports whether a conflict is about fields alone that the user
// has asked for.
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
	return &auth.Error{Reason: auth.ErrDenied, Err: err, Operation: "apply " + nameOf(object),
		Message: cli.OneLine(err.Error()),
		Remedy:  "check the other writer, and pass --force-conflicts to overwrite its changes"}
}

// keepPodSecurity leaves out the label of a namespace that something else has
// created: its pods may not meet the standard.
func keepPodSecurity(ctx context.Context, c client.Client, object *unstructured.Unstructured) error {
	if object.GetKind() != "Namespace" {
		return nil
	}
	namespace := &corev1.Namespace{}
	err := c.Get(ctx, client.ObjectKeyFromObject(object), namespace)
	ours := slices.ContainsFunc(namespace.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == string(fieldOwner)
	})
	if err == nil && !ours {
		object.SetLabels(nil)
	}
	return cli.AnswerOf(client.IgnoreNotFound(err), "read "+nameOf(object))
}

// RemoveAll deletes the objects of manifests, the last one first. Those that
// are gone are fine.
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

// CheckAuthTypes checks --registration-auth.
func CheckAuthTypes(authTypes ...string) error {
	if slices.Contains(authTypes, registration.AuthTypeToken) {
		return cli.Usagef(
			"--registration-auth: token registers add-ons only: use --addon-registration-auth=token in wid hub init, --%s=token in wid join", AddOnAuthFlag)
	}
	return checkKnown("registration-auth", authTypes, registration.AuthTypeAWS, registration.AuthTypeCSR)
}

// Flags of the agent for add-ons.
const (
	AddOnAuthFlag    = "addon-kubeclient-registration-auth"
	AddOnSecondsFlag = "addon-token-expiration-seconds"
)

// CheckAddOns checks auth types of add-ons that a flag names, and the lifetime
// of tokens.
func CheckAddOns(flag string, seconds int64, authTypes ...string) error {
	if _, err := token.New(token.Options{ExpirationSeconds: seconds}); err != nil {
		return cli.Usagef("--%s: %v", AddOnSecondsFlag, err)
	}
	return checkKnown(flag, authTypes, registration.AuthTypeCSR, registration.AuthTypeToken)
}

func checkKnown(flag string, authTypes []string, known ...string) error {
	for _, authType := range authTypes {
		if !slices.Contains(known, authType) {
			return cli.Usagef("--%s: unknown auth type %.100q: use one of %s", flag, authType, strings.Join(known, ", "))
		}
	}
	return nil
}

// Flags of the auth type aws-irsa, for the hub and the managed cluster.
const (
	HubARNFlag     = "eks-hub-cluster-arn"
	ManagedARNFlag = "eks-managed-cluster-arn"
)

// ClusterARNs are the flags of the auth type aws-irsa.
type ClusterARNs struct{ Hub, Managed string }

// BindHub adds the flag of the hub.
func (a *ClusterARNs) BindHub(f *pflag.FlagSet) {
	f.StringVar(&a.Hub, HubARNFlag, "", "ARN of the hub, for auth type "+registration.AuthTypeAWS)
}

// BindManaged adds the flag of the managed cluster.
func (a *ClusterARNs) BindManaged(f *pflag.FlagSet) {
	f.StringVar(&a.Managed, ManagedARNFlag, "", "ARN of the managed cluster, for auth type "+registration.AuthTypeAWS)
}

// Check checks the ARN of the hub. Both ARNs are refused without the auth type
// that needs them.
func (a *ClusterARNs) Check(authTypes ...string) error {
	if slices.Contains(authTypes, registration.AuthTypeAWS) {
		_, err := ParseARN(HubARNFlag, a.Hub)
		return err
	}
	if a.Hub != "" || a.Managed != "" {
		return cli.Usagef("the ARNs of clusters are for --registration-auth=%s: pass that, or leave them out",
			registration.AuthTypeAWS)
	}
	return nil
}

// ParseARN parses the value of a flag.
func ParseARN(flag, value string) (awsirsa.ClusterARN, error) {
	if value == "" {
		return awsirsa.ClusterARN{},
			cli.Usagef("--%s is missing: pass the ARN of that cluster, as arn:aws:eks:eu-central-1:123456789012:cluster/name",
				flag)
	}
	arn, err := awsirsa.ParseClusterARN(value)
	if err != nil {
		return arn, cli.Usagef("--%s: %v", flag, err)
	}
	return arn, nil
}

// Driver returns the driver of the agent for auth type aws-irsa.
func (a *ClusterARNs) Driver() (registration.Driver, error) {
	_, hubErr := ParseARN(HubARNFlag, a.Hub)
	_, managedErr := ParseARN(ManagedARNFlag, a.Managed)
	if err := cmp.Or(hubErr, managedErr); err != nil {
		return nil, err
	}
	driver, err := awsirsa.New(awsirsa.Options{Hub: a.Hub, Managed: a.Managed, Connect: connectToEKS,
		Refused: func(err error) bool { return errors.Is(err, auth.ErrDenied) }})
	if err != nil {
		return nil, cli.Usagef("--%s and --%s: %v", HubARNFlag, ManagedARNFlag, err)
	}
	return driver, nil
}

// connectToEKS reaches the hub as its role for this cluster, by the login that
// AWS SDKs find.
func connectToEKS(ctx context.Context, hub awsirsa.HubAccess) (*rest.Config, error) {
	return auth.GetClusterConfig(ctx, &aws.Provider{}, auth.WithClusterResource(hub.Cluster),
		auth.WithClusterAddress(hub.Server),
		auth.WithCAData(string(hub.CAData)), aws.WithAssumeRole(aws.AssumeRole{RoleARN: hub.RoleARN}))
}

// IsEKS reports whether an API server has an address of Amazon EKS. One with
// another address may still be behind a proxy.
func IsEKS(server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	host := strings.TrimSuffix(strings.TrimSuffix(u.Hostname(), "."), ".cn")
	return strings.HasSuffix(host, ".eks.amazonaws.com") ||
		strings.Contains(host, ".eks-cluster.") && strings.HasSuffix(host, ".api.aws")
}

// CheckHub refuses auth types that the hub cannot serve. Only the address of
// EKS is proof; what another address contradicts is a warning.
func CheckHub(cmd *cobra.Command, authTypes []string, server string) error {
	csr, aws := slices.Contains(authTypes, registration.AuthTypeCSR), slices.Contains(authTypes, registration.AuthTypeAWS)
	switch {
	case csr && IsEKS(server):
		return cli.Usagef(
			"--registration-auth: the hub %q is on EKS: the auth type %q needs a hub that signs client certificates, and EKS signs none: use %q alone, or another hub",
			server, registration.AuthTypeCSR, registration.AuthTypeAWS)
	case csr && aws:
		cmd.PrintErrln(
			"wid: warning: the API server of this hub needs an authentication webhook for tokens of AWS that reads aws-auth, such as aws-iam-authenticator: wid cannot see whether it has one")
	case aws && !IsEKS(server):
		cmd.PrintErrf(
			"wid: warning: the hub %q has no address of EKS: the auth type %q alone needs a hub on EKS, which checks tokens of AWS itself: on other hubs use it together with %q\n",
			server, registration.AuthTypeAWS, registration.AuthTypeCSR)
	}
	return nil
}

// CheckManaged warns of a cluster that cannot join with the auth type.
func CheckManaged(cmd *cobra.Command, authType, server string) {
	if authType == registration.AuthTypeAWS && !IsEKS(server) {
		cmd.PrintErrf(
			"wid: warning: the managed cluster %q has no address of EKS: the auth type %q needs a managed cluster on EKS, since its ARN names it and IAM trusts its ServiceAccounts: use %q here\n",
			server, registration.AuthTypeAWS, registration.AuthTypeCSR)
	}
}
