package registration

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/kube"
	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/registration/agent"
)

// klusterlet holds the fields of Open Cluster Management's Klusterlet that the checks read.
type klusterlet struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		ClusterName  string `json:"clusterName"`
		Namespace    string `json:"namespace"`
		DeployOption struct {
			Mode string `json:"mode"` // Default, Singleton, Hosted or SingletonHosted
		} `json:"deployOption"`
		RegistrationConfiguration struct {
			RegistrationDriver struct {
				AuthType string `json:"authType"`
				AWSIRSA  struct {
					HubClusterARN string `json:"hubClusterArn"`
				} `json:"awsIrsa"`
			} `json:"registrationDriver"`
		} `json:"registrationConfiguration"`
	} `json:"spec"`
	Status struct {
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

var klusterletKind = schema.GroupVersionKind{Group: "operator.open-cluster-management.io", Version: "v1", Kind: "Klusterlet"}

// Names of the agent's Deployment: those of Open Cluster Management's operator, and that of wid join.
const (
	operatorAgent  = "klusterlet-registration-agent"
	singletonAgent = "klusterlet-agent"
	ownAgent       = "registration-agent"
)

const degraded = "HubConnectionDegraded"

func (e *examination) logs() string {
	return fmt.Sprintf("kubectl logs -n %s deploy/%s", e.agentNamespace, e.deployment)
}

func operatorLogs() doctor.Remedy {
	return doctor.Do("In the cluster, read the operator's log:", "kubectl logs -n open-cluster-management deploy/klusterlet")
}

func (e *examination) checkAgent(ctx context.Context) doctor.Finding {
	if e.Spoke == nil {
		return doctor.Skipped("There is no kubeconfig of the cluster.")
	}
	items, _, err := kube.List[klusterlet](ctx, e.Spoke, klusterletKind)
	if kube.Absent(err) {
		return e.checkOwnAgent(ctx)
	}
	if err != nil {
		return kube.Unread("the Klusterlets", err, "kubectl get klusterlets -o yaml")
	}
	others := e.choose(items)
	switch {
	case e.klusterlet != nil:
		return e.judgeKlusterlet()
	case len(others) > 0:
		return e.anotherName("the Klusterlet", others)
	case e.Klusterlet != "":
		return doctor.Failed("O22", doctor.Do("Name one of these:", "kubectl get klusterlets"), "There is no Klusterlet %.100q.", e.Klusterlet)
	}
	return e.checkOwnAgent(ctx)
}

func (e *examination) anotherName(which string, names []string) doctor.Finding {
	remedy := doctor.Do("Examine the cluster under the name that its agent uses, or correct the name there.")
	if e.isSameServer() {
		remedy = otherKubeconfig()
	}
	return doctor.Failed("O23", remedy, "The agent registers the cluster under another name.").Compare(which, strings.Join(names, ", "), "examined", e.ClusterName)
}

func otherKubeconfig() doctor.Remedy {
	return doctor.Do("Use the kubeconfig of the managed cluster: both lead to the same API server.")
}

// checkOwnAgent examines the agent that wid join installs. It has no Klusterlet.
func (e *examination) checkOwnAgent(ctx context.Context) doctor.Finding {
	var d appsv1.Deployment
	err := kube.Get(ctx, e.Spoke, appsv1.SchemeGroupVersion.WithKind("Deployment"), client.ObjectKey{Namespace: agent.DefaultNamespace, Name: ownAgent}, &d)
	switch {
	case client.IgnoreNotFound(err) != nil && !kube.Absent(err):
		return kube.Unread("the agent's Deployment", err, "kubectl get deploy -n "+agent.DefaultNamespace+" "+ownAgent)
	case err != nil && e.isSameServer():
		return doctor.Failed("O22", otherKubeconfig(), "There is no agent at the hub's own API server.")
	case err != nil:
		return doctor.Failed("O22", doctor.Do("In the cluster, install the agent; clusteradm join does the same for Open Cluster Management:",
			"wid join --cluster-name "+e.name()+" --hub-apiserver URL --hub-token -"), "There is no agent in the cluster.")
	}
	e.deployment = ownAgent
	for _, c := range d.Spec.Template.Spec.Containers {
		for _, arg := range c.Args {
			if name, ok := strings.CutPrefix(arg, "--cluster-name="); ok && name != e.ClusterName {
				return e.anotherName("the agent", []string{fmt.Sprintf("%.100s", name)})
			}
		}
	}
	if d.Status.AvailableReplicas == 0 {
		return doctor.Failed("O39", doctor.Do("In the cluster, look at its pods and Events:", "kubectl describe pods -n "+e.agentNamespace), "The agent does not run.").
			Compare("available", "0 replicas", "expected", "1")
	}
	return doctor.Passed("The agent runs.").Detail("log", e.logs())
}

// choose finds the Klusterlet that registers the cluster, and returns the names that others register. Without a name the agent
// invents one.
func (e *examination) choose(items []klusterlet) (others []string) {
	for i := range items {
		k := &items[i]
		name := k.Spec.ClusterName
		if e.Klusterlet != "" && k.Name != e.Klusterlet {
			continue
		}
		if name != e.ClusterName && (name != "" || len(items) > 1 && e.Klusterlet == "") {
			others = append(others, fmt.Sprintf("%.100q", name))
			continue
		}
		e.klusterlet = k
		namespace := k.Spec.Namespace
		if strings.HasSuffix(k.Spec.DeployOption.Mode, "Hosted") {
			namespace = k.Name // in the cluster that hosts the agent
		}
		if namespace != "" {
			e.agentNamespace = shell.Word(namespace, "NAMESPACE")
		}
		if strings.HasPrefix(k.Spec.DeployOption.Mode, "Singleton") {
			e.deployment = singletonAgent
		}
		return nil
	}
	return others
}

// judgeKlusterlet judges the agent up to its bootstrap credential.
func (e *examination) judgeKlusterlet() doctor.Finding {
	conditions := e.klusterlet.Status.Conditions
	if c := conditionOf(conditions, "Applied"); c.Status == metav1.ConditionFalse {
		return observed(doctor.Failed("O39", operatorLogs(), "The operator cannot install the agent."), c, "True")
	}
	c := conditionOf(conditions, degraded)
	const want = "False HubConnectionFunctional"
	switch {
	case c.Status == "":
		return observed(doctor.Failed("O39", operatorLogs(), "The operator has not reported whether the agent reaches the hub."), c, want).As(doctor.Warn)
	case c.Status == metav1.ConditionTrue && strings.Contains(c.Message, "x509:"):
		return observed(doctor.Failed("O21", doctor.Do("Write the hub's CA into the kubeconfig of the Secret bootstrap-hub-kubeconfig, by joining again."),
			"The agent does not trust the hub's certificate."), c, want)
	}
	join := doctor.Do("Join again with a new token of the hub:", "clusteradm get token", "clusteradm join --hub-token TOKEN --hub-apiserver URL --cluster-name "+e.name())
	var f doctor.Finding
	switch reasons := strings.Split(c.Reason, ","); {
	case c.Status != metav1.ConditionTrue:
	case slices.Contains(reasons, "BootstrapSecretMissing"):
		f = doctor.Failed("O19", join, "The Secret bootstrap-hub-kubeconfig of the agent is missing.")
	case slices.Contains(reasons, "BootstrapSecretUnauthorized"):
		f = doctor.Failed("O19", join, "The hub refuses the agent's bootstrap credential, mostly because its token has expired.")
	case slices.Contains(reasons, "BootstrapSecretError"):
		f = doctor.Failed("O19", doctor.Do("Correct server and CA in the kubeconfig of the Secret bootstrap-hub-kubeconfig. The address has to work inside the cluster."),
			"The agent cannot reach the hub with bootstrap-hub-kubeconfig.")
	}
	if f.Result == doctor.Fail {
		return observed(f, c, want)
	}
	return doctor.Passed("The agent is installed, and nothing is wrong with its bootstrap credential.")
}

// name returns the cluster's name for a command.
func (e *examination) name() string { return shell.Word(e.ClusterName, "CLUSTER") }

// checkCredential judges the agent's own credential, by the word of the operator.
func (e *examination) checkCredential(context.Context) doctor.Finding {
	if e.klusterlet == nil {
		return doctor.Skipped("There is no operator that tries the agent's credential.")
	}
	c := conditionOf(e.klusterlet.Status.Conditions, degraded)
	const want = "False HubConnectionFunctional"
	reasons := strings.Split(c.Reason, ",")
	switch {
	case c.Status == metav1.ConditionFalse:
		return doctor.Passed("The agent reaches the hub with its own credential.")
	case c.Status != metav1.ConditionTrue:
		return doctor.Skipped("The operator has not tried the agent's credential.")
	case e.usesIAM() && slices.Contains(reasons, "HubKubeConfigError"):
		return observed(doctor.Failed("O37", operatorLogs(), "The operator cannot try the agent's credential; it may lack the program aws."), c, want).As(doctor.Warn)
	}
	f := doctor.Failed("O20", doctor.Do("In the cluster, read the agent's log:", e.logs()), "The agent's own credential does not work.")
	switch {
	case slices.Contains(reasons, "HubKubeConfigSecretMissing"), slices.Contains(reasons, "HubKubeConfigMissing"):
		f.Message = "The agent has no credential of its own yet."
	case slices.Contains(reasons, "HubKubeConfigUnauthorized"):
		f.Message = "The hub refuses the agent's own credential, or the credential has no rights there."
	case slices.Contains(reasons, "HubKubeConfigError"):
		f.Message = "The agent cannot reach the hub with its own credential."
	case slices.Contains(reasons, "ClusterNameMissing"):
		f.Message, f.Remedy = "The Secret hub-kubeconfig-secret of the agent lacks cluster-name.", e.rejoin()
	}
	return observed(f, c, want)
}
