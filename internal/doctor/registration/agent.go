package registration

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/kube"
	"github.com/workloadid/workloadid/internal/regname"
	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/ocm"
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

func (e *examination) checkAgent(ctx context.Context) doctor.Finding {
	if e.Spoke == nil {
		return doctor.Skipped("There is no kubeconfig of the cluster.")
	}
	items, err := kube.List[klusterlet](ctx, e.Spoke, klusterletKind)
	if kube.Absent(err) {
		return e.checkOwnAgent(ctx)
	}
	if err != nil {
		return kube.Unread("the Klusterlets", err, e.spoke.Command("kubectl get klusterlets -o yaml"))
	}
	others := e.choose(items)
	switch {
	case e.klusterlet != nil:
		return e.checkKlusterlet()
	case len(others) > 0:
		return e.anotherName("the Klusterlet", others)
	case e.Klusterlet != "":
		return e.fault("KlusterletMissing", "There is no Klusterlet %.100q.", e.Klusterlet)
	}
	return e.checkOwnAgent(ctx)
}

func (e *examination) anotherName(which string, names []string) doctor.Finding {
	return e.fault("AnotherClusterName", "The agent registers the cluster under another name.").Compare(which, strings.Join(names, ", "), "examined", e.ClusterName)
}

// checkOwnAgent examines the agent that wid join installs. It has no Klusterlet.
func (e *examination) checkOwnAgent(ctx context.Context) doctor.Finding {
	var d appsv1.Deployment
	err := kube.Get(ctx, e.Spoke, appsv1.SchemeGroupVersion.WithKind("Deployment"), client.ObjectKey{Namespace: agent.DefaultNamespace, Name: ownAgent}, &d)
	switch {
	case client.IgnoreNotFound(err) != nil && !kube.Absent(err):
		return kube.Unread("the agent's Deployment", err, e.spoke.Command("kubectl get deploy -n "+agent.DefaultNamespace+" "+ownAgent))
	case err != nil:
		return e.fault("AgentMissing", "There is no agent in the cluster.")
	}
	for _, c := range d.Spec.Template.Spec.Containers {
		for _, arg := range c.Args {
			name, ok := strings.CutPrefix(arg, "--cluster-name=")
			if ok && name != e.ClusterName {
				return e.anotherName("the agent", []string{fmt.Sprintf("%.100s", name)})
			}
			e.named = e.named || ok
		}
	}
	if d.Status.AvailableReplicas == 0 {
		return e.fault("AgentNotRunning", "The agent does not run.")
	}
	return doctor.Passed("The agent runs.")
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
		e.klusterlet, e.deployment, e.named = k, operatorAgent, name != ""
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

// checkKlusterlet checks the agent up to its bootstrap credential.
func (e *examination) checkKlusterlet() doctor.Finding {
	if c := conditionOf(e.klusterlet.Status.Conditions, "Applied"); c.Status == metav1.ConditionFalse {
		return said(e.fault("AgentNotRunning", "The operator cannot install the agent."), c.Reason, c.Message)
	}
	return e.checkConnection("Bootstrap", "The agent is installed, and nothing is wrong with its bootstrap credential.")
}

// checkConnection takes the first reason with a prefix that has a remedy. The operator joins several reasons with commas.
func (e *examination) checkConnection(prefix, fine string) doctor.Finding {
	c := conditionOf(e.klusterlet.Status.Conditions, degraded)
	if c.Status != metav1.ConditionTrue {
		return doctor.Passed("%s", fine)
	}
	for _, reason := range append(strings.Split(c.Reason, ","), "HubKubeConfigError") {
		if strings.HasPrefix(reason, prefix) && e.known(reason, "") != "" {
			return said(e.fault(reason, "The operator says that the agent has no working credential for the hub."), c.Reason, c.Message)
		}
	}
	return doctor.Passed("%s", fine)
}

// name returns the cluster's name for a command.
func (e *examination) name() string { return shell.Word(e.ClusterName, "CLUSTER") }

// checkCredential checks the agent's own credential, by the word of the operator. An operator without the program aws cannot tell.
func (e *examination) checkCredential(context.Context) doctor.Finding {
	if e.klusterlet == nil || e.usesIAM() && strings.Contains(conditionOf(e.klusterlet.Status.Conditions, degraded).Reason, "HubKubeConfigError") {
		return doctor.Skipped("There is no operator that can try the agent's credential.")
	}
	return e.checkConnection("", "The agent reaches the hub with its own credential.")
}

// checkSecrets shows names, keys and the public part of the certificate.
func (e *examination) checkSecrets(ctx context.Context) doctor.Finding {
	if e.Spoke == nil {
		return doctor.Skipped("There is no kubeconfig of the cluster.")
	}
	hub, err := e.readSecret(ctx, ocm.HubKubeconfigSecret)
	boot, bootErr := e.readSecret(ctx, agent.DefaultBootstrapSecret)
	for _, err := range []error{err, bootErr} {
		if client.IgnoreNotFound(err) != nil {
			return kube.Unread("the agent's Secrets", err, e.spoke.Command("kubectl get secrets -n "+e.agentNamespace))
		}
	}
	name, ok := hub[regname.SecretKeyClusterName]
	e.boot = boot
	switch {
	case boot == nil && len(hub["kubeconfig"]) == 0:
		return e.fault("BootstrapSecretMissing", "Both Secrets of the agent are missing in namespace %s.", e.agentNamespace)
	case hub == nil:
		return e.quoteAgent(ctx, e.fault("HubKubeConfigSecretMissing", "The agent has a bootstrap credential, but no credential of its own yet."))
	case len(hub["kubeconfig"]) == 0 && len(hub["tls.crt"]) == 0:
		return e.quoteAgent(ctx, e.fault("HubKubeConfigMissing", "The agent has not been issued a credential yet: its Secret is incomplete."))
	case len(hub["kubeconfig"]) == 0:
		return e.fault("HubKubeConfigUnusable", "The Secret %s has no kubeconfig.", ocm.HubKubeconfigSecret)
	case ok && string(name) != e.ClusterName && !e.named: // another cluster's, or the agent's true name
		return e.anotherName(ocm.HubKubeconfigSecret, []string{fmt.Sprintf("%.100q", name)})
	case ok && string(name) != e.ClusterName:
		return e.fault("HubKubeConfigUnusable", "The Secret %s holds the credential of another cluster.", ocm.HubKubeconfigSecret).
			Compare("cluster-name", fmt.Sprintf("%.100q", name), "expected", e.ClusterName)
	case !isKubeconfig(hub["kubeconfig"]):
		return e.fault("HubKubeConfigUnusable", "The Secret %s holds no kubeconfig with a cluster and a user.", ocm.HubKubeconfigSecret)
	}
	if f := e.checkCertificate(hub); f.Result != doctor.Pass || len(boot["kubeconfig"]) > 0 {
		return f
	}
	return e.fault("BootstrapSecretMissing", "The Secret %s is missing or has no kubeconfig. The agent needs it when its certificate has expired.", agent.DefaultBootstrapSecret).As(doctor.Warn)
}

// isKubeconfig keeps the error, which may quote a secret, to itself.
func isKubeconfig(content []byte) bool {
	k, err := clientcmd.Load(content)
	return err == nil && len(k.Clusters) > 0 && len(k.AuthInfos) > 0
}

// readSecret returns nil data if there is no Secret, or no cluster.
func (e *examination) readSecret(ctx context.Context, name string) (map[string][]byte, error) {
	if e.Spoke == nil {
		return nil, nil
	}
	var secret corev1.Secret
	err := kube.Get(ctx, e.Spoke, corev1.SchemeGroupVersion.WithKind("Secret"), client.ObjectKey{Namespace: e.agentNamespace, Name: name}, &secret)
	if secret.Data == nil && !apierrors.IsNotFound(err) {
		secret.Data = map[string][]byte{}
	}
	return secret.Data, err
}

// checkCertificate also passes a Secret of a driver without certificates.
func (e *examination) checkCertificate(secret map[string][]byte) doctor.Finding {
	if len(secret["tls.crt"])+len(secret["tls.key"]) == 0 {
		return doctor.Passed("The agent uses no certificate.")
	}
	c, user := &x509.Certificate{}, registration.AgentUser(e.ClusterName, "")
	if block, _ := pem.Decode(secret["tls.crt"]); block != nil {
		if parsed, err := x509.ParseCertificate(block.Bytes); err == nil {
			c = parsed
		}
	}
	if !strings.HasPrefix(c.Subject.CommonName, user) {
		return e.fault("HubKubeConfigUnusable", "tls.crt in the Secret %s is not a certificate of this cluster.", ocm.HubKubeconfigSecret).
			Compare("certificate", c.Subject.CommonName, "expected", user+"AGENT")
	}
	if c.NotAfter.Before(time.Now()) {
		return e.fault("CertificateExpired", "The agent's certificate for the hub has expired.").Compare("expiry", kube.Stamp(c.NotAfter), "now", kube.Stamp(time.Now()))
	}
	return doctor.Passed("The agent has a certificate until %s.", kube.Stamp(c.NotAfter))
}
