// Package podidentity shows what a pod needs for AWS credentials through an
// IAMBinding (KEP-14), and what each part says of itself: the binding's
// conditions, the webhook's answer to a dry run, the sidecar's state. It stores
// nothing.
package podidentity

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor/internal/kube"
	"github.com/workloadid/workloadid/internal/podidentity"
	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
)

// Config says which pod or ServiceAccount to examine.
type Config struct {
	Namespace      string // of pod, ServiceAccount and IAMBinding
	ServiceAccount string // a readable Pod's ServiceAccount replaces it
	Pod            string // empty: the dry run tries a pod of the ServiceAccount, which is then required
	// Client reads the cluster and tries a pod in a dry run. Its rest.Config
	// has Warnings as WarningHandlerWithContext.
	Client      client.Client
	File        cli.KubeFile       // leads the commands of remedies to the cluster; empty: the current context
	Examination doctor.Examination // with Cluster, Timeout, Progress and ShowPolicy
}

// examination is one run. Parts leave here what later ones need.
type examination struct {
	Config

	pod       *corev1.Pod          // nil: none was named, or it could not be read
	binding   *v1alpha1.IAMBinding // nil: there is none, or it could not be read
	assumable time.Time            // since when the role can be assumed; zero: it cannot
}

// Checks returns the parts of Run in their order.
func Checks() []doctor.Check { return (&examination{}).parts() }

// parts are in the order in which a pod gets its credentials.
func (e *examination) parts() []doctor.Check {
	return []doctor.Check{
		{ID: "pod", Title: "the pod and its ServiceAccount", Run: e.showPod},
		{ID: "binding", Title: "the IAMBinding of the ServiceAccount", Run: e.showBinding},
		{ID: "role", Title: "the role in AWS, which the server assumes", Run: e.showRole},
		{ID: "webhook", Title: "the webhook, tried with a dry run", Timeout: dryRunTimeout, Run: e.tryWebhook},
		{ID: "sidecar", Title: "the sidecar's credentials", Run: e.showSidecar},
	}
}

// Run examines a pod or a ServiceAccount. It is safe for concurrent use. The
// report passes only if role, webhook and the sidecar of a named pod were seen.
func Run(ctx context.Context, config Config) *doctor.Report {
	e, x := &examination{Config: config}, config.Examination
	x.Subject, x.Checks = e.Namespace+"/"+cmp.Or(e.Pod, e.ServiceAccount)+" → aws", e.parts()
	x.Chain, x.Decisive = true, "binding"
	report := doctor.Run(ctx, x)
	for i := range report.Findings {
		report.Findings[i].Rewrite(func(text string) string { return text }, e.File.Kubectl)
	}
	return report
}

func (e *examination) in(command string) string {
	return command + " -n " + shell.Word(e.Namespace, "NAMESPACE")
}

func unread(text string) doctor.Finding { return doctor.Unclear(doctor.Remedy{}, "%s", text) }

func (e *examination) showPod(ctx context.Context) doctor.Finding {
	text := "no pod was named"
	if e.Pod != "" {
		pod, pods := &corev1.Pod{}, e.in("kubectl get pods")
		err := kube.Get(ctx, e.Client, corev1.SchemeGroupVersion.WithKind("Pod"),
			client.ObjectKey{Namespace: e.Namespace, Name: e.Pod}, pod)
		switch {
		case apierrors.IsNotFound(err):
			return doctor.Failed("PodMissing", doctor.Do("Name one of these:", pods), "There is no pod %s in namespace %s.",
				e.Pod, e.Namespace)
		case err != nil:
			return kube.Unread("the pod", err, pods)
		}
		e.pod, e.ServiceAccount = pod, cmp.Or(pod.Spec.ServiceAccountName, "default")
		text = "created " + doctor.Age(pod.CreationTimestamp.Time) + " ago"
	}
	key, accounts := client.ObjectKey{Namespace: e.Namespace, Name: e.ServiceAccount}, e.in("kubectl get serviceaccounts")
	err := kube.Get(ctx, e.Client, corev1.SchemeGroupVersion.WithKind("ServiceAccount"), key, &corev1.ServiceAccount{})
	switch {
	case apierrors.IsNotFound(err):
		return doctor.Failed("ServiceAccountMissing", doctor.Do("Create it, or name one of these:", accounts),
			"There is no ServiceAccount %s in namespace %s, so it gets no pods.", e.ServiceAccount, e.Namespace)
	case err != nil:
		return kube.Unread("the ServiceAccount", err, accounts)
	}
	return doctor.Passed("%s; the ServiceAccount %s exists", text, e.ServiceAccount)
}

// showBinding takes the first of several bindings, because the condition of
// each says that they conflict.
func (e *examination) showBinding(ctx context.Context) doctor.Finding {
	all, err := kube.List[v1alpha1.IAMBinding](ctx, e.Client, v1alpha1.GroupVersion.WithKind("IAMBinding"),
		client.InNamespace(e.Namespace))
	i := slices.IndexFunc(all, func(b v1alpha1.IAMBinding) bool { // the server ignores one that is being deleted
		return b.Spec.ServiceAccountRef.Name == e.ServiceAccount && b.DeletionTimestamp == nil
	})
	switch {
	case kube.Absent(err):
		return doctor.Failed("ProviderNotInstalled",
			doctor.Do("Install the IAM credentials provider, as docs/podidentity.md says."),
			"The cluster has no IAMBindings: the IAM credentials provider is not installed.")
	case err != nil:
		return kube.Unread("the IAMBindings", err, e.in("kubectl get iambindings"))
	case e.ServiceAccount == "":
		return unread("the ServiceAccount of the pod is not known")
	case i < 0:
		return doctor.Failed(podidentity.ReasonNotBound, e.ofReason(podidentity.ReasonNotBound, e.compare()),
			"No IAMBinding in namespace %s names the ServiceAccount %s.", e.Namespace, e.ServiceAccount)
	}
	e.binding = &all[i]
	return e.condition(v1alpha1.ConditionAccepted)
}

// showRole goes by the word of the server, which tries each role itself, and by
// its Events.
func (e *examination) showRole(ctx context.Context) doctor.Finding {
	if e.binding == nil {
		return unread("no IAMBinding is known")
	}
	f := e.condition(v1alpha1.ConditionRoleAssumable)
	e.assumable = f.Worked
	about := func(v *corev1.Event) doctor.Remedy { return e.ofReason(v.Reason, e.compare()) }
	events, err := kube.Warnings(ctx, e.Client, e.Namespace, kube.UID(e.binding.UID), about, nil)
	return kube.Sees(f.With(f.Since, f.Worked, events...), err)
}

// condition quotes a condition of the binding. Its reason is the class.
func (e *examination) condition(kind string) doctor.Finding {
	c := meta.FindStatusCondition(e.binding.Status.Conditions, kind)
	if c == nil || c.ObservedGeneration != e.binding.Generation {
		return doctor.Failed(serverSilent, e.ofReason(serverSilent, e.compare()),
			"The server has not set %s for generation %d of IAMBinding %s.", kind, e.binding.Generation, e.binding.Name)
	}
	text := fmt.Sprintf("IAMBinding %.253s: %s=%.10s, %.63s: %.600s", e.binding.Name, kind, c.Status, c.Reason, c.Message)
	switch {
	case c.Status == metav1.ConditionTrue:
		return doctor.Passed("%s", text).With(time.Time{}, c.LastTransitionTime.Time)
	case c.Reason == podidentity.ReasonNotAccepted:
		return unread(text)
	}
	return doctor.Failed(c.Reason, e.ofReason(c.Reason, e.compare()), "%s", text).With(c.LastTransitionTime.Time,
		time.Time{})
}

const serverSilent = "ServerSilent"

// ofReason looks at the object that a reason of the server is about. What makes
// AWS or the server trust more is the alternative.
func (e *examination) ofReason(reason string, otherwise doctor.Remedy) doctor.Remedy {
	switch bindings := e.in("kubectl get iambindings"); reason {
	case serverSilent, "Unavailable": // STS, or the server's own identity
		return readLog("Read the server's log, which names the cause:", "iam-credentials-provider")
	case podidentity.ReasonConflict:
		return doctor.Do("Only one may name the ServiceAccount. Compare them, the oldest first:",
			bindings+" --sort-by .metadata.creationTimestamp")
	case podidentity.ReasonNotBound:
		return doctor.Do(
			"Apply an IAMBinding, or correct serviceAccountRef of one of these, or serviceAccountName of the pod:", bindings)
	case podidentity.ReasonRoleNotAllowed:
		role := "ROLE_ARN"
		if e.binding != nil {
			role = e.binding.Spec.AWS.RoleARN
		}
		return doctor.Do("Correct the role, or ask the administrator of the cluster for a rule. The rules are:",
			"kubectl get iamroleallowlist "+v1alpha1.AllowListName+" -o yaml").
			OrTrust(e.ifMeant(), "kubectl edit iamroleallowlist "+v1alpha1.AllowListName,
				fmt.Sprintf(" - {namespaces: [%s], roles: [%q]}", e.Namespace, role))
	}
	return otherwise
}

// compare looks at the role of the binding.
func (e *examination) compare() doctor.Remedy {
	name := "NAME"
	if e.binding != nil {
		name = shell.Word(e.binding.Name, name)
	}
	return doctor.Do("Compare the role in AWS with the IAMBinding, as the message says:",
		e.in("kubectl get iambinding "+name+" -o yaml")).
		OrTrust(e.ifMeant(), e.in("wid pod-identity trust-policy "+name+" --cluster CLUSTER --server-role SERVER_ROLE_ARN"))
}

func (e *examination) ifMeant() string { return "If " + e.Namespace + " is meant to have it" }

// readLog returns a remedy that reads the log of a Deployment of the provider.
func readLog(text, deployment string) doctor.Remedy {
	return doctor.Do(text, "kubectl get pods -n iam-system", "kubectl logs -n iam-system deploy/"+deployment)
}
