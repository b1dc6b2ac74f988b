package doctor

import (
	"context"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// injector is a webhook that gives pods what they need for a cloud, as its configuration says.
type injector struct {
	configuration, name string
	created             time.Time
	// leaves says why it leaves the pod alone, as a field. Nil: it does not, as far as labels and rules go.
	leaves *Field
	// unsure says that a selector could not be judged, or that there are conditions in CEL.
	unsure bool
	// noAuthority says that the API server cannot verify it.
	noAuthority bool
	// ignored says that pods are let in when it does not answer.
	ignored bool
}

// injectorNames are parts of the names of configurations, webhooks and Services that the clouds' own installations have.
func injectorNames(provider string) []string {
	switch provider {
	case "aws":
		return []string{"pod-identity-webhook", "iam-for-pods.amazonaws.com"}
	case "azure":
		return []string{"azure-wi-webhook", "azure-workload-identity"}
	}
	return nil
}

// maxInjectors is more than a cluster has. Each is held against the pod.
const maxInjectors = 100

// injectors lists those of the provider. Many callers may not list them: that says nothing about the pod.
func (e *examination) injectors(ctx context.Context, pod *corev1.Pod) ([]injector, error) {
	items, _, err := listObjects(ctx, e.Reader, "admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration")
	if err != nil {
		return nil, err
	}
	names := injectorNames(e.Provider.GetName())
	namespace := &namespaceLabels{read: func() (labels.Set, error) {
		object, err := getObject(ctx, e.Reader, "v1", "Namespace", client.ObjectKey{Name: pod.Namespace})
		return object.GetLabels(), err
	}}
	var found []injector
	for i := range items {
		var c admissionregistrationv1.MutatingWebhookConfiguration
		if runtime.DefaultUnstructuredConverter.FromUnstructured(items[i].Object, &c) != nil {
			continue
		}
		for j := range c.Webhooks {
			w := &c.Webhooks[j]
			service := ""
			if w.ClientConfig.Service != nil {
				service = w.ClientConfig.Service.Name
			}
			if slices.ContainsFunc(names, func(part string) bool { return strings.Contains(c.Name+" "+w.Name+" "+service, part) }) {
				found = append(found, newInjector(&c, w, pod, namespace))
			}
			if len(found) > maxInjectors {
				return nil, errHuge
			}
		}
	}
	return found, nil
}

// namespaceLabels are read once, if a selector asks for them.
type namespaceLabels struct {
	read func() (labels.Set, error)
	done bool
	set  labels.Set
	err  error
}

func (n *namespaceLabels) get() (labels.Set, error) {
	if !n.done {
		n.set, n.err = n.read()
		n.done = true
	}
	return n.set, n.err
}

func newInjector(c *admissionregistrationv1.MutatingWebhookConfiguration, w *admissionregistrationv1.MutatingWebhook,
	pod *corev1.Pod, namespace *namespaceLabels) injector {
	i := injector{configuration: c.Name, name: w.Name, created: c.CreationTimestamp.Time, unsure: len(w.MatchConditions) > 0,
		noAuthority: w.ClientConfig.Service != nil && len(w.ClientConfig.CABundle) == 0,
		ignored:     w.FailurePolicy != nil && *w.FailurePolicy == admissionregistrationv1.Ignore}
	if !slices.ContainsFunc(w.Rules, coversPods) {
		f := differs("rules", "no CREATE of pods", "CREATE of pods")
		i.leaves = &f
		return i
	}
	i.judge("objectSelector", w.ObjectSelector, func() (labels.Set, error) { return pod.Labels, nil })
	i.judge("namespaceSelector", w.NamespaceSelector, namespace.get)
	return i
}

func coversPods(r admissionregistrationv1.RuleWithOperations) bool {
	creates := slices.Contains(r.Operations, admissionregistrationv1.Create) ||
		slices.Contains(r.Operations, admissionregistrationv1.OperationAll)
	return creates && (slices.Contains(r.Resources, "pods") || slices.Contains(r.Resources, "*") ||
		slices.Contains(r.Resources, "*/*"))
}

// judge finds a selector that excludes. Without a selector everything matches.
func (i *injector) judge(name string, selector *metav1.LabelSelector, of func() (labels.Set, error)) {
	if i.leaves != nil || selector == nil || len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		return
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		i.unsure = true
		return
	}
	set, err := of()
	if err != nil {
		i.unsure = true
		return
	}
	if !s.Matches(set) {
		f := differs(name, firstOf(labels.FormatLabels(set), "no labels"), s.String())
		i.leaves = &f
	}
}

// judgeUninjected looks for why the webhook has not changed a pod.
func (e *examination) judgeUninjected(ctx context.Context, pod *corev1.Pod, restart string) Finding {
	missing := differs(e.cloud.tokenFile, "", "set by the webhook")
	found, err := e.injectors(ctx, pod)
	if f, ok := e.brokenInjector(found, restart); ok {
		return f.with(missing)
	}
	if at := e.annotatedAt(); at.After(pod.CreationTimestamp.Time) {
		return fail(e.cloud.unset, restart, "the pod started before the annotation: restart it").
			with(differs("creationTimestamp", stamp(pod.CreationTimestamp.Time), "after "+stamp(at)))
	}
	install := e.install() + "\n" + restart
	switch {
	case err != nil:
		return fail(e.cloud.unset, install, "the webhook has not changed the pod: %s is not in its environment",
			e.cloud.tokenFile).
			with(missing, same("webhook", "may not be looked at here: kubectl get mutatingwebhookconfigurations"))
	case len(found) == 0 && e.managed():
		return fail(e.cloud.unset, restart, "the webhook has not changed the pod: %s is not in its environment",
			e.cloud.tokenFile).
			with(missing, same("webhook", "none is visible, but EKS may run its own out of sight"))
	case len(found) == 0:
		return fail(e.cloud.unset, install, "the webhook has not changed the pod: there is none in this cluster").
			with(missing, differs("MutatingWebhookConfiguration", "none", injectorNames(e.Provider.GetName())[0]))
	}
	return e.silentInjector(found[0], pod, restart).with(missing)
}

// brokenInjector names what excludes the pod, if every webhook is excluded or cannot be called.
func (e *examination) brokenInjector(found []injector, restart string) (Finding, bool) {
	for _, i := range found {
		if i.leaves == nil && !i.noAuthority {
			return Finding{}, false
		}
	}
	if len(found) == 0 {
		return Finding{}, false
	}
	i := found[0]
	edit := "kubectl edit mutatingwebhookconfiguration " + pasted(i.configuration)
	if i.leaves != nil {
		return fail(e.cloud.unset, "have the selector match, or label what the selector wants, and restart the pod:\n"+edit+"\n"+restart,
			"the webhook %s leaves the pod alone because of its %s", shown(i.name), i.leaves.Name).with(*i.leaves), true
	}
	return fail(e.cloud.unset, "have its certificate put into the configuration (cert-manager's CA injector, or the "+
		"webhook's own rotation), and restart the pod:\n"+restart,
		"the API server cannot verify the webhook %s: its caBundle is empty", shown(i.name)).
		with(differs("caBundle", "empty", "the authority of its certificate")), true
}

// silentInjector should have changed the pod.
func (e *examination) silentInjector(i injector, pod *corev1.Pod, restart string) Finding {
	here := same("webhook", i.configuration+"/"+i.name)
	if i.created.After(pod.CreationTimestamp.Time) {
		return fail(e.cloud.unset, restart, "the pod started before the webhook was installed: restart it").
			with(here, differs("creationTimestamp", stamp(pod.CreationTimestamp.Time), "after "+stamp(i.created)))
	}
	f := fail(e.cloud.unset, "restart the pod; if it stays, look at the webhook and at the log of what it calls:\n"+restart+
		"\nkubectl get mutatingwebhookconfiguration "+pasted(i.configuration)+" -o yaml",
		"the webhook has not changed the pod, though it is there: %s is not in the pod's environment", e.cloud.tokenFile).
		with(here)
	if i.ignored {
		f.Causes = append(f.Causes, "it did not answer when the pod started, and its failurePolicy Ignore let the pod in")
	}
	if i.unsure {
		f.Causes = append(f.Causes, "its namespaceSelector or matchConditions, which could not be judged here, exclude the pod")
	}
	f.Causes = append(f.Causes, "the ServiceAccount had no annotation when the pod started")
	return f
}

// managed says that the control plane's owner may run the webhook where nobody sees it.
func (e *examination) managed() bool {
	return e.Provider.GetName() == "aws" && e.token.claims != nil &&
		strings.HasPrefix(e.token.claims.Issuer, "https://oidc.eks.")
}

func (e *examination) install() string {
	if e.Provider.GetName() == "azure" {
		return "install the webhook, with the Helm chart workload-identity-webhook or on AKS, and restart the pod:\n" +
			"az aks update --resource-group RESOURCE_GROUP --name CLUSTER_NAME --enable-oidc-issuer --enable-workload-identity"
	}
	return "install the webhook, amazon-eks-pod-identity-webhook, and restart the pod:"
}
