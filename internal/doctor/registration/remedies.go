package registration

import (
	"slices"
	"strings"

	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// object is what a remedy is for. The zero value is the ManagedCluster.
type object struct{ request, addOn string }

// row has the remedy of the causes whose reasons it lists.
type row struct {
	reasons string
	remedy  doctor.Remedy
}

// remedies is the whole table. No reason stands in two rows.
func (e *examination) remedies(o object) []row { return append(e.agentRemedies(), e.hubRemedies(o)...) }

// agentRemedies change the managed cluster.
func (e *examination) agentRemedies() []row {
	in, spoke := "-n "+e.agentNamespace+" ", e.spoke
	events := "kubectl get events " + in + "--sort-by=.metadata.creationTimestamp"
	operating := spoke.Do("In the cluster, look at the agent's pods and Events:", "kubectl describe pods -n "+e.agentNamespace)
	if e.klusterlet != nil {
		operating = spoke.Do("In the cluster, read the operator's log:", "kubectl logs -n open-cluster-management deploy/klusterlet")
	}
	discard := spoke.Lose("In the cluster, delete the Secret, so that the agent joins again with its bootstrap credential. Then approve its request at the hub",
		"the agent's certificate", "kubectl delete secret "+in+ocm.HubKubeconfigSecret)
	unusable, gone := discard, e.join()
	if len(e.boot["kubeconfig"]) == 0 {
		unusable = then(discard, e.join()) // wid join refuses another cluster's Secret
	}
	if !e.lost { // the agent prefers its own credential, which the hub knows and refuses
		gone = then(e.join(), discard)
	}
	return []row{
		{"ClockSkew", doctor.Do("Synchronize the clocks of this machine and of the nodes on both sides:", "sudo timedatectl set-ntp true")},
		{"WrongKubeconfig", doctor.Do("Pass the hub's own kubeconfig for the hub, and that of the managed cluster for the cluster.")},
		{"InvalidName", doctor.Do("Choose a name of lower-case letters, digits and hyphens.")},
		{"AnotherClusterName", doctor.Do("Examine the cluster under the name that its agent uses, or correct the name there.")},
		{"KlusterletMissing", spoke.Do("Name one of these:", "kubectl get klusterlets")},
		{"AgentNotRunning", operating},
		{"AgentMissing AnnotationsMissing BootstrapSecretError BootstrapSecretMissing BootstrapSecretUnauthorized CertificateExpired", e.join()},
		{"AgentNeverArrived ClientCertificateUpdateFailed HubKubeConfigError HubKubeConfigMissing HubKubeConfigSecretMissing HubKubeConfigUnauthorized NotJoined",
			spoke.Do("In the cluster, read the agent's Events and its log:", events, e.logs())},
		{"ManagedClusterLeaseUpdateStopped", spoke.Do("In the cluster, read the agent's log, then restart it:", e.logs(),
			"kubectl rollout restart "+in+"deploy/"+e.deployment)},
		{"ClusterNameMissing HubKubeConfigUnusable", unusable},
		{"NoManagedCluster", gone},
		{"ManagedClusterKubeAPIServerUnavailable", spoke.Do("In the cluster, ask its API server:", "kubectl get --raw /readyz")},
	}
}

// hubRemedies change the hub.
func (e *examination) hubRemedies(o object) []row {
	hub, name, request := e.hub, e.name(), shell.Word(o.request, "REQUEST")
	accept, deny := "wid hub accept --clusters "+name, "wid hub deny --clusters "+name
	show := "kubectl get managedcluster " + name + " -o yaml"
	if o.addOn != "" {
		show = "kubectl get managedclusteraddon -n " + name + " " + shell.Word(o.addOn, "ADDON") + " -o yaml"
	}
	return []row{
		{"ClusterNotAccepted HubClusterAdminDenied NotAccepted", hub.Do("At the hub, accept the cluster if it is wanted:", accept)},
		{"HubNotActing", hub.Do("If that lasts, see at the hub why its controller does not run:", "kubectl get pods -n "+hubNamespace)},
		{"Deleting", hub.Do("At the hub, see what its finalizers wait for:", show)},
		{"ConflictingDrivers GrantFailed InvalidClaim NamespaceTaken RBACTaken RecordLost UnknownDriver " + // of the ManagedCluster
			"AddOnRefused DuplicateItem InvalidSubject NamespaceRefused NamespaceUnusable NoSigner ObjectTaken SecretTaken SeveralKubeClientItems " +
			"TokenDriverNotDeclared TokenRequestConflict TokenRequestFailed TokenRequestForbidden TokenRequestInvalid TokenRequestNotFound " +
			"TokenUnusable TooManyItems UnknownType",
			hub.Do("Correct what the condition says. To read the whole of it at the hub:", show)},
		{"ClaimChanged OtherAuthType RenewalForbidden", hub.Lose("Undo the change. Or deny the cluster at the hub and accept it again",
			"its access until then", deny, accept)},
		{"RequestPending SeveralRequests", hub.Do("At the hub, approve the request if it comes from the right agent:", accept+" --approve-request "+request)},
		{replacingReasons, e.replacing(o, false)},
		{"ClientCertificateNotApproved", hub.Do("At the hub, approve it if the user is the agent's:", "kubectl certificate approve "+request)},
		{"ClientCertificateDenied InvalidRequest", hub.Lose("At the hub, delete the request, so that the agent asks again", "the record of the denial",
			"kubectl delete csr "+request)},
		{"UnknownRequester", hub.Lose("Find out who asks. If you do not know the user, delete the request", "only that request", "kubectl delete csr "+request)},
		{"TooManyRequests", hub.Lose("Correct why they are not approved or used, then delete them at the hub", "their history", "kubectl delete csr -l "+
			ocm.ClusterNameLabel+"="+name)},
		{"ClientCertificateFailed ClientCertificateNotSigned", doctor.Do("Run the hub's kube-controller-manager with the signer, or register with an AWS role, "+
			"since EKS has no signer:", "--controllers=*,csrsigning", "--cluster-signing-cert-file=FILE")},
		{"Forbidden TokenInfrastructureNotReady", hub.Do("Let the agent use csr, or run the hub with tokens for add-ons. It names each flag that you would drop:",
			"wid hub init --image HUB_IMAGE --addon-registration-auth csr,token --apply")},
		{"RoleRefused", doctor.Do("Compare the agent's role with what it has to be:", "wid hub policies --verify --eks-hub-cluster-arn "+
			shell.Word(e.HubClusterARN, "HUB_ARN")+" --eks-managed-cluster-arn "+shell.Word(e.claim, "CLUSTER_ARN")+" --oidc-issuer ISSUER")},
	}
}

// remedy returns that of a reason.
func (e *examination) remedy(reason string, o object) doctor.Remedy {
	for _, r := range e.remedies(o) {
		if slices.Contains(strings.Fields(r.reasons), reason) {
			return r.remedy
		}
	}
	return doctor.Remedy{}
}

// known returns the reason of a condition or an Event, which a tenant may have written, if the table has it.
func (e *examination) known(reason, otherwise string) string {
	if r := e.remedy(reason, object{}); r.Text != "" {
		return reason
	}
	return otherwise
}

func (e *examination) fault(reason, format string, args ...any) doctor.Finding {
	return e.faultOf(object{}, reason, format, args...)
}

func (e *examination) faultOf(o object, reason, format string, args ...any) doctor.Finding {
	return doctor.Failed(reason, e.remedy(reason, o), format, args...)
}

// join lets the hub print the command, because it knows its address, CA and auth types.
func (e *examination) join() doctor.Remedy {
	if e.klusterlet != nil {
		return e.hub.Do("At the hub, print the command that joins a cluster, and run it in the cluster with its name:", "clusteradm get token")
	}
	roles := ""
	if e.usesIAM() {
		roles = " Add --registration-auth " + registration.AuthTypeAWS + " and both ARNs."
	}
	return e.hub.Do("At the hub, create a token. Run the command that it prints in the cluster."+roles, "wid hub token --cluster-name "+e.name())
}

// then returns both remedies, one after the other.
func then(first, second doctor.Remedy) doctor.Remedy {
	return doctor.Do(strings.TrimRight(first.Text, ".:")+". "+second.Text, slices.Concat(first.Commands, second.Commands)...)
}

// replacingReasons are those of the hub for a request that would replace the agent.
const replacingReasons = "AlreadyJoined AnotherAgent AnotherKey"

// replacing approves or denies a request that would replace the agent. The first command is the likelier one.
func (e *examination) replacing(o object, works bool) doctor.Remedy {
	request := shell.Word(o.request, "REQUEST")
	approve, deny := "wid hub accept --clusters "+e.name()+" --approve-request "+request, "kubectl certificate deny "+request
	if works {
		return e.hub.Do("At the hub, deny the request, which may be that of an intruder. Only if the agent was replaced, run the second command instead:",
			deny, approve)
	}
	return e.hub.Do("At the hub, approve the request if the cluster joined again after wid unjoin, or its agent was replaced or lost its certificate. "+
		"Else deny it with the second command, since it may be that of an intruder:", approve, deny)
}

// addOnRequest returns the newest request of an add-on, "" if there is none.
func (e *examination) addOnRequest(name string) string {
	i := slices.IndexFunc(e.requests, func(r certificateRequest) bool { return r.Labels[addon.NameLabel] == name })
	if i < 0 {
		return ""
	}
	return e.requests[i].Name
}
