package doctor

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	noSpoke     = "pass a kubeconfig of the cluster that is to be managed"
	hubDegraded = "HubConnectionDegraded"
	operatorLog = "kubectl logs -n open-cluster-management deploy/klusterlet"
)

func (e *enrolment) checkKlusterlet(context.Context) Finding {
	switch {
	case e.Spoke == nil:
		return unknown("there is no access to the cluster itself", noSpoke)
	case e.sides.swapped:
		return skip("skipped: this is the hub, see enrolment-hub")
	case absentKind(e.klusterletErr) && e.sameServer():
		return fail("O22", elsewhere, "the cluster does not know Klusterlets: it is the hub's own API server").
			with(differs("Klusterlet", "no such kind", operatorAPI))
	case absentKind(e.klusterletErr):
		return fail("O22", "clusteradm join, with the kubeconfig of that cluster",
			"the cluster does not know Klusterlets: the operator is not installed, or this is another cluster").
			with(differs("Klusterlet", "no such kind", operatorAPI))
	case e.klusterletErr != nil:
		return unread("the Klusterlets", e.klusterletErr, "grant list on klusterlets."+strings.TrimSuffix(operatorAPI, "/v1"))
	case e.klusterlet == nil:
		return e.noKlusterlet()
	}
	return e.judgeKlusterlet()
}

// choose finds the Klusterlet that registers the cluster. Without a name in its spec the agent invents one.
func (e *enrolment) choose(items []unstructured.Unstructured) {
	for i := range items {
		if e.Klusterlet != "" && items[i].GetName() != e.Klusterlet {
			continue
		}
		registers, _, _ := unstructured.NestedString(items[i].Object, "spec", "clusterName")
		if registers != e.ClusterName && (registers != "" || len(items) > 1 && e.Klusterlet == "") {
			e.otherNames = append(e.otherNames, fmt.Sprintf("%q", shown(registers)))
			continue
		}
		e.klusterlet = &items[i]
		namespace, _, _ := unstructured.NestedString(items[i].Object, "spec", "namespace")
		if strings.HasSuffix(e.mode(), "Hosted") {
			namespace = items[i].GetName() // in the cluster that hosts the agent
		}
		if validName(namespace) {
			e.agentNamespace = namespace
		}
		return
	}
}

// mode is how the agent is installed: Default, Singleton, Hosted, SingletonHosted.
func (e *enrolment) mode() string {
	mode, _, _ := unstructured.NestedString(e.klusterlet.Object, "spec", "deployOption", "mode")
	return mode
}

func (e *enrolment) noKlusterlet() Finding {
	switch {
	case len(e.otherNames) > 0:
		f := fail("O23", "name the cluster as it registers, or correct spec.clusterName of the Klusterlet",
			"the cluster registers under another name").
			with(differs("spec.clusterName", strings.Join(e.otherNames, ", "), e.ClusterName))
		if e.sameServer() {
			f.Message, f.Remedy = f.Message+"; it is the hub's own API server", elsewhere
		}
		return f
	case e.Klusterlet != "":
		return fail("O22", "kubectl get klusterlets", "there is no Klusterlet of that name").
			with(differs("Klusterlet", "not found", e.Klusterlet))
	}
	if e.sameServer() {
		return fail("O22", elsewhere+", or, if the hub is to manage itself: clusteradm join", "there is no Klusterlet at the hub's own API server").
			with(differs("Klusterlet", "none", "one"))
	}
	return fail("O22", "clusteradm join", "there is no Klusterlet: nobody has had this cluster join").
		with(differs("Klusterlet", "none", "one"))
}

func (e *enrolment) judgeKlusterlet() Finding {
	if c, found := conditionOf(e.klusterlet, "Applied"); found && c.status == "False" {
		return fail("O39", operatorLog, "the operator cannot install the agent").with(c.field("Applied", "True"))
	}
	c, found := conditionOf(e.klusterlet, hubDegraded)
	switch {
	case !found:
		return Finding{Result: Warn, Class: "O39", Remedy: operatorLog,
			Message: "the operator has not reported whether the agent reaches the hub: it does not run, perhaps"}.
			with(c.field(hubDegraded, "False HubConnectionFunctional"))
	case c.status == "False":
		return pass("the agent reaches the hub").with(same(hubDegraded, c.status+" "+c.reason))
	case c.status != "True":
		return unknown("the operator does not know whether the agent reaches the hub", operatorLog).
			with(c.field(hubDegraded, "False HubConnectionFunctional"))
	}
	return e.degraded(c)
}

// degradation is what a part of the reason means.
type degradation struct{ class, what, remedy string }

// explainReason knows the reasons of the operator's own probes. The first part is of bootstrap-hub-kubeconfig, the second
// one of hub-kubeconfig-secret.
func (e *enrolment) explainReason(reason string) degradation {
	const again = "clusteradm get token, at the hub, and clusteradm join with what it prints, in the cluster"
	const address = "look at server and certificate-authority-data of the kubeconfig in it: the hub's address has to work " +
		"from inside the cluster"
	switch reason {
	case "BootstrapSecretMissing":
		return degradation{"O19", "the Secret bootstrap-hub-kubeconfig is missing", again}
	case "BootstrapSecretError":
		return degradation{"O19", "the hub cannot be asked with bootstrap-hub-kubeconfig", address}
	case "BootstrapSecretUnauthorized":
		return degradation{"O19", "the credential in bootstrap-hub-kubeconfig is refused or may not create ManagedClusters and " +
			"CSRs: its token has expired, mostly", again}
	case "HubKubeConfigSecretMissing":
		return degradation{"O20", "the Secret hub-kubeconfig-secret is missing: the agent has not been issued a credential yet",
			e.accept() + "; " + e.agentLog()}
	case "HubKubeConfigMissing":
		return degradation{"O20", "hub-kubeconfig-secret has no kubeconfig yet: the request for a certificate has to be " +
			"approved at the hub", e.accept()}
	case "HubKubeConfigError":
		return degradation{"O20", "the hub cannot be asked with hub-kubeconfig-secret", address}
	case "ClusterNameMissing":
		return degradation{"O20", "hub-kubeconfig-secret lacks cluster-name", e.rejoin()}
	case "HubKubeConfigUnauthorized":
		return degradation{"O20", "the credential in hub-kubeconfig-secret is refused or has no rights: the cluster is not " +
			"accepted, or the certificate has expired", e.accept()}
	case "BootstrapSecretFunctional":
		return degradation{"", "bootstrap-hub-kubeconfig works", ""}
	case "HubConnectionFunctional":
		return degradation{"", "hub-kubeconfig-secret works", ""}
	}
	return degradation{"O20", fmt.Sprintf("reason %q is not known here", shown(reason)), operatorLog}
}

func (e *enrolment) degraded(c condition) Finding {
	const most = 4
	var what, remedies []string
	class := "O20"
	parts := strings.SplitN(c.reason, ",", most)
	for n := len(parts) - 1; n >= 0; n-- {
		d := e.explainReason(strings.TrimSpace(parts[n]))
		what = append([]string{d.what}, what...)
		if d.class != "" {
			class = d.class // the first part that is wrong
			remedies = append([]string{d.remedy}, remedies...)
		}
	}
	f := fail(class, strings.Join(remedies, "\n"), "the agent does not reach the hub: %s", strings.Join(what, "; ")).
		with(c.field(hubDegraded, "False HubConnectionFunctional"))
	switch {
	case strings.Contains(c.message, "x509:"):
		f.Class = "O21"
		f.Message = "the agent does not trust the hub's certificate: " + strings.Join(what, "; ")
		f.Remedy = "put the hub's certificate authority into the kubeconfigs: clusteradm join --ca-file, or join again after it " +
			"was rotated"
	case strings.Contains(c.message, "/awscli/"):
		f.Result, f.Class = Warn, "O37"
		f.Message = "the operator has no aws program to try the agent's credential with, so it cannot say whether the agent " +
			"reaches the hub"
		f.Remedy = "see enrolment-lease: if the agent renews its lease, all is well"
	}
	return f
}
