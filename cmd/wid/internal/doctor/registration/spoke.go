package registration

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor/internal/kube"
	"github.com/workloadid/workloadid/internal/kubeerror"
	"github.com/workloadid/workloadid/registration/ocm"
)

// Names of the agent's Deployment, as Open Cluster Management's operator and
// wid join give them.
const (
	operatorAgent  = "klusterlet-registration-agent"
	singletonAgent = "klusterlet-agent"
	ownAgent       = ocm.AgentName
)

// secret is a Secret of the agent. Data is nil if there is none.
type secret struct {
	data map[string][]byte
	err  error // why it could not be read
}

func (e *examination) readSecret(ctx context.Context, name string) secret {
	var s corev1.Secret
	err := kube.Get(ctx, e.Spoke, corev1.SchemeGroupVersion.WithKind("Secret"),
		client.ObjectKey{Namespace: e.Namespace, Name: name}, &s)
	if err == nil && s.Data == nil {
		s.Data = map[string][]byte{}
	}
	return secret{s.Data, client.IgnoreNotFound(err)}
}

// showAgent shows the Deployment, its Pods, and the agent's own Events.
func (e *examination) showAgent(ctx context.Context) doctor.Finding {
	var d *appsv1.Deployment
	var f doctor.Finding
	for _, name := range []string{operatorAgent, singletonAgent, ownAgent} {
		e.deployment = name
		if d, f = e.showDeployment(ctx, e.Spoke, e.inCluster,
			client.ObjectKey{Namespace: e.Namespace, Name: name}); f.Class != missing {
			break
		}
	}
	if f.Class == missing {
		f.Class, f.Remedy = "AgentMissing", e.join()
		if others := e.otherAgents(ctx); len(others) > 0 {
			f.Remedy = doctor.Do(fmt.Sprintf(
				"Agents of this cluster run in other namespaces: pass one of %q with --namespace.", others))
		}
	}
	if d != nil {
		for _, c := range d.Spec.Template.Spec.Containers {
			for _, arg := range c.Args {
				if name, ok := strings.CutPrefix(arg, "--cluster-name="); ok && name != e.ClusterName {
					return e.anotherName("The agent registers", name)
				}
			}
		}
	}
	return f.With(f.Since, e.agentWorked(), append(f.Events, e.agentEvents(ctx, "agent")...)...)
}

// otherAgents returns the namespaces of the cluster's agents that wid join has
// installed. It returns none if they cannot be listed.
func (e *examination) otherAgents(ctx context.Context) (namespaces []string) {
	kind := appsv1.SchemeGroupVersion.WithKind("Deployment")
	//nolint:errcheck // they only explain
	found, _ := kube.List[appsv1.Deployment](ctx, e.Spoke, kind, client.MatchingFields{"metadata.name": ownAgent})
	for i := range found {
		namespaces = append(namespaces, found[i].Namespace)
	}
	return namespaces
}

const missing = "Missing"

// showDeployment goes by the conditions of a Deployment. If it is not
// available, its Pods and the Events say why.
func (e *examination) showDeployment(ctx context.Context, c client.Reader, at func(string, ...string) doctor.Remedy,
	key client.ObjectKey) (*appsv1.Deployment, doctor.Finding) {
	d := &appsv1.Deployment{}
	err := kube.Get(ctx, c, appsv1.SchemeGroupVersion.WithKind("Deployment"), key, d)
	look := at("look at it and at its Pods:", "kubectl describe deployment,pods -n "+key.Namespace)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return nil, unread("Deployment %s: %s", key, kubeerror.Message(err))
	case err != nil:
		return nil, doctor.Failed(missing, doctor.Remedy{}, "There is no Deployment %s.", key)
	}
	var available appsv1.DeploymentCondition
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentAvailable {
			available = c
		}
	}
	text := fmt.Sprintf("Deployment %s: %d of %d replicas are available", key.Name, d.Status.AvailableReplicas,
		d.Status.Replicas)
	switch {
	case available.Status == corev1.ConditionTrue && d.Status.AvailableReplicas == 0: // Kubernetes calls that available
		return d, doctor.Failed("AgentNotRunning", look, "%s: it is scaled to 0", text)
	case available.Status == corev1.ConditionTrue:
		return d, doctor.Passed("%s", text)
	case available.Status == corev1.ConditionFalse:
		f := doctor.Failed("AgentNotRunning", look, "%s: %.300s%s", text, available.Message, waiting(ctx, c, d))
		return d, f.With(available.LastTransitionTime.Time, time.Time{}, e.eventsOf(ctx, c, d, look)...)
	}
	return d, doctor.Unclear(look, "%s%s", text, waiting(ctx, c, d)).With(time.Time{}, time.Time{},
		e.eventsOf(ctx, c, d, look)...)
}

// eventsOf returns the Events of a Deployment, of its ReplicaSets and of its
// Pods, which have its name as their prefix.
func (e *examination) eventsOf(ctx context.Context, c client.Reader, d *appsv1.Deployment,
	look doctor.Remedy) []doctor.Event {
	return e.warnings(ctx, c, d.Namespace, client.MatchingFields{}, func(*corev1.Event) doctor.Remedy {
		return look
	}, func(v *corev1.Event) bool {
		o := v.InvolvedObject
		return o.UID == d.UID || (o.Kind == "ReplicaSet" || o.Kind == "Pod") && strings.HasPrefix(o.Name, d.Name+"-")
	})
}

// waiting quotes the first Pod that no node takes, or container that waits.
func waiting(ctx context.Context, c client.Reader, d *appsv1.Deployment) string {
	if d.Spec.Selector == nil || len(d.Spec.Selector.MatchLabels) == 0 {
		return ""
	}
	pods, _ := kube.List[corev1.Pod](ctx, c, corev1.SchemeGroupVersion.WithKind("Pod"),
		//nolint:errcheck // they only explain
		client.InNamespace(d.Namespace), client.MatchingLabels(d.Spec.Selector.MatchLabels))
	for i := range pods {
		for _, p := range pods[i].Status.Conditions {
			if p.Type == corev1.PodScheduled && p.Status == corev1.ConditionFalse {
				return fmt.Sprintf("; Pod %.100s: %s=%s, %.63s: %.300s", pods[i].Name, p.Type, p.Status, p.Reason, p.Message)
			}
		}
		for _, s := range pods[i].Status.ContainerStatuses {
			if w := s.State.Waiting; w != nil {
				return fmt.Sprintf("; Pod %.100s: %.63s: %.300s", pods[i].Name, w.Reason, w.Message)
			}
		}
	}
	return ""
}

// showSecret shows where the credential leads, and from when to when it is
// valid.
func (e *examination) showSecret(context.Context) doctor.Finding {
	const name = ocm.HubKubeconfigSecret
	switch {
	case e.own.err != nil:
		return unread("Secret %s: %s", name, kubeerror.Message(e.own.err))
	case e.own.data == nil:
		return doctor.Failed("HubKubeConfigSecretMissing", e.readLog(), "There is no Secret %s in namespace %s.", name,
			e.Namespace)
	case len(e.own.data["kubeconfig"]) == 0:
		return doctor.Failed("HubKubeConfigMissing", e.readLog(),
			"The Secret %s has no kubeconfig: the agent has not been issued a credential.", name)
	}
	if cluster, ok := e.own.data[ocm.SecretKeyClusterName]; ok && string(cluster) != e.ClusterName {
		return e.anotherName("The Secret "+name+" holds the credential of cluster", string(cluster))
	}
	c, err := openCredential(e.own.data, false)
	if err != nil {
		return doctor.Failed("HubKubeConfigUnusable", e.join(), "The Secret %s: %v", name, err).With(time.Now(), time.Time{})
	}
	now := time.Now()
	switch {
	case c.certificate == nil:
	case now.Before(c.certificate.NotBefore):
		return doctor.Failed("CertificateNotValidYet", synchronize(), "The certificate is not valid before %s, and it is %s.",
			kube.Stamp(c.certificate.NotBefore), kube.Stamp(now)).With(now, time.Time{})
	case now.After(c.certificate.NotAfter):
		return doctor.Failed("CertificateExpired", e.join(), "The certificate expired at %s, and it is %s.",
			kube.Stamp(c.certificate.NotAfter), kube.Stamp(now)).With(c.certificate.NotAfter, time.Time{})
	}
	return doctor.Passed("%s", c.describe()).Whole()
}

// synchronize is the remedy of a time that only a wrong clock explains.
func synchronize() doctor.Remedy {
	return doctor.Do(
		"A clock is wrong. Look at those of the hub's nodes, of the cluster's nodes and of this machine, on each of them:",
		"timedatectl status")
}
