package registration_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/reporttest"
)

// fault is a mistake in a cluster that would be registered otherwise.
type fault struct {
	name  string
	spoil func(w *environment)
	// check and class are those of the headline, says is a part of its message.
	check, class, says string
	result             doctor.Result
}

func TestFaults(t *testing.T) {
	var all []fault
	for _, list := range [][]fault{requestFaults(), hubFaults(), spokeFaults(), secretsFaults(), irsaFaults(), ownFaults()} {
		all = append(all, list...)
	}
	for _, f := range all {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			w := newEnvironment(t)
			f.spoil(w)
			reporttest.Headline(t, w.run(), reporttest.Want{Check: f.check, Class: f.class, Says: f.says, Result: f.result}, secretValue)
		})
	}
}

// fresh takes everything away that comes with time: the cluster has only just been named at the hub.
func fresh(w *environment) {
	part(w.cluster, "spec")["hubAcceptsClient"] = false
	w.cluster["status"] = object{}
	w.lease, w.addon, w.csrs = nil, nil, nil
	w.agent = newSecret("hub-kubeconfig-secret", map[string]string{"cluster-name": "cluster1", "agent-name": "agent1"})
	setConditions(w.klusterlet, "HubConnectionDegraded", "True", "BootstrapSecretFunctional,HubKubeConfigMissing")
}

func accepted(w *environment) {
	fresh(w)
	part(w.cluster, "spec")["hubAcceptsClient"] = true
	setConditions(w.cluster, "HubAcceptedManagedCluster", "True", "HubClusterAdminAccepted")
}

func requestFaults() []fault {
	const csr, bootstrapUser = "csr", "system:bootstrap:abcdef"
	newest := func(state string) func(*environment) {
		return func(w *environment) {
			accepted(w)
			w.csrs = []object{newCSR("cluster1-old", bootstrapUser, "Denied", time.Hour), newCSR("cluster1-new", bootstrapUser, state, time.Minute)}
		}
	}
	many := func(w *environment) {
		for n := range 10 {
			w.csrs = append(w.csrs, newCSR(fmt.Sprintf("cluster1-%d", n), agentUser, "Approved", time.Duration(n)*time.Minute))
		}
	}
	return []fault{
		{"no hub", func(w *environment) { w.unknown["ManagedCluster"] = true }, "sides", "WrongKubeconfig", "does not lead to a hub", ""},
		{"the agent has never arrived", func(w *environment) { w.cluster, w.csrs, w.agent = nil, nil, nil }, "hub", "AgentNeverArrived", "never reached the hub", ""},
		{"requests cannot be seen either", func(w *environment) { w.cluster, w.agent, w.forbidden["CertificateSigningRequest"] = nil, nil, true }, "hub", "AgentNeverArrived", "never reached the hub", ""},
		{"another cluster's requests", func(w *environment) {
			w.cluster, w.config.ClusterName, part(w.klusterlet, "spec")["clusterName"] = nil, "cluster10", "cluster10"
			w.agent = nil
		}, "hub", "AgentNeverArrived", "never reached the hub", ""},
		{"another cluster's name", func(w *environment) { w.cluster, w.config.ClusterName = nil, "cluster10" }, "agent", "AnotherClusterName", "another name", ""},
		{"request waits", newest(""), csr, "RequestPending", "is pending", ""},
		{"request waits for acceptance", func(w *environment) {
			fresh(w)
			w.csrs = []object{newCSR("cluster1-new", bootstrapUser, "", time.Minute)}
		}, "accept", "NotAccepted", "not accepted the cluster yet", ""},
		{"request waits, and the hub says why", func(w *environment) {
			newest("")(w)
			part(w.csrs[1], "metadata")["uid"] = "u1"
			w.events = []object{newEvent("e1", "u1", "SeveralRequests", time.Minute), newEvent("e2", "u1", "AnotherKey", 0), newEvent("e3", "u2", "InvalidRequest", 0)}
		}, csr, "AnotherKey", "may replace the agent", ""},
		{"request waits, for a reason of tomorrow", func(w *environment) {
			newest("")(w)
			part(w.csrs[1], "metadata")["uid"] = "u1"
			w.events = []object{newEvent("e1", "u1", "SomethingNew", 0)}
		}, csr, "RequestPending", "(SomethingNew): by the hub", ""},
		{"request waits, and the hub says much", func(w *environment) {
			newest("")(w)
			part(w.csrs[1], "metadata")["uid"] = "u1"
			w.events = []object{newEvent("e1", "u1", "SeveralRequests", 0)}
			w.events[0]["message"] = strings.Repeat("x ", 200) + "is denied"
		}, csr, "SeveralRequests", "x …", ""},
		{"renewal waits", func(w *environment) { w.csrs = append(w.csrs, newCSR("cluster1-new", agentUser, "", time.Minute)) }, csr, "RequestPending", "is pending", doctor.Warn},
		{"request denied", newest("Denied"), csr, "ClientCertificateDenied", "a certificate: Denied", ""},
		{"hub cannot sign", newest("Failed"), csr, "ClientCertificateFailed", "a certificate: Failed", ""},
		{"approved, never signed", func(w *environment) {
			newest("Approved")(w)
			delete(part(w.csrs[1], "status"), "certificate")
		}, csr, "ClientCertificateNotSigned", "but not signed", ""},
		{"deleted, and the requests are forgotten", func(w *environment) { w.cluster, w.csrs = nil, nil }, "hub", "NoManagedCluster", "no ManagedCluster", ""},
		{"approved, no ManagedCluster", func(w *environment) { w.cluster = nil }, "hub", "NoManagedCluster", "there is no ManagedCluster", ""},
		{"too many requests", func(w *environment) {
			many(w)
			setCondition(w.cluster, "ClusterCertificateRotated", "False", "ClientCertificateUpdateFailed", "Stop creating csr since there are too many csr created already on hub")
		}, csr, "TooManyRequests", "11 requests", ""},
		{"too many requests, the agent still works", many, csr, "TooManyRequests", "11 requests", doctor.Warn},
		{"no request yet, and not joined", accepted, "secret", "HubKubeConfigMissing", "has not been issued a credential", ""},
		{"never arrived, and the cluster knows why", func(w *environment) {
			w.cluster, w.csrs = nil, nil
			setConditions(w.klusterlet, "HubConnectionDegraded", "True", "BootstrapSecretUnauthorized,HubKubeConfigMissing")
		}, "agent", "BootstrapSecretUnauthorized", "no working credential for the hub", ""},
		{"add-on waits", func(w *environment) {
			waiting := newCSR("addon-cluster1-work-abc", agentUser, "", time.Minute)
			part(part(waiting, "metadata"), "labels")["open-cluster-management.io/addon-name"] = "work"
			w.csrs = append(w.csrs, waiting)
		}, "addons", "ClientCertificateNotApproved", "add-on work is pending", doctor.Warn},
	}
}

func hubFaults() []fault {
	condition := func(kind, status, reason, message string) func(*environment) {
		return func(w *environment) { setCondition(w.cluster, kind, status, reason, message) }
	}
	const acceptedCondition, available = "HubAcceptedManagedCluster", "ManagedClusterConditionAvailable"
	return []fault{
		{"not accepted", func(w *environment) {
			approvedRequest := w.csrs
			fresh(w)
			w.csrs = approvedRequest
		}, "accept", "NotAccepted", "not accepted the cluster yet", ""},
		{"accepted, hub idle", condition(acceptedCondition, "", "", ""), "accept", "HubNotActing", "has not acted", ""},
		{"denied", func(w *environment) {
			part(w.cluster, "spec")["hubAcceptsClient"] = false
			setCondition(w.cluster, acceptedCondition, "False", "HubClusterAdminDenied", "Denied by hub cluster admin")
		}, "accept", "HubClusterAdminDenied", "denies", ""},
		{"hub could not make the rights", condition(acceptedCondition, "False", "Error", "AccessDenied: iam:CreateRole"), "accept", "GrantFailed", "does not grant the cluster its rights", ""},
		{"not joined", condition("ManagedClusterJoined", "", "", ""), "joined", "NotJoined", "has not joined", ""},
		{"renewal fails", condition("ClusterCertificateRotated", "False", "ClientCertificateUpdateFailed", "Failed to create CSR"), "joined", "ClientCertificateUpdateFailed", "cannot renew", ""},
		{"lease stopped", func(w *environment) {
			setConditions(w.cluster, available, "Unknown", "ManagedClusterLeaseUpdateStopped")
			part(w.lease, "spec")["renewTime"] = "2026-01-01T00:00:00.000000Z"
		}, "lease", "ManagedClusterLeaseUpdateStopped", "stopped renewing", ""},
		{"lease stopped, hub has not noticed", func(w *environment) {
			part(w.lease, "spec")["renewTime"] = time.Now().Add(-301 * time.Second).UTC().Format("2006-01-02T15:04:05.000000Z")
		}, "lease", "ManagedClusterLeaseUpdateStopped", "old, or a clock is wrong", doctor.Warn},
		{"lease stopped, since the certificate has expired", func(w *environment) {
			setConditions(w.cluster, available, "Unknown", "ManagedClusterLeaseUpdateStopped")
			w.agent = newSecret("hub-kubeconfig-secret", map[string]string{"kubeconfig": kubeconfigValue, "cluster-name": "cluster1", "agent-name": "agent1",
				"tls.key": secretValue, "tls.crt": clientCertificate(w.t, agentUser, time.Hour, -time.Minute)})
		}, "secret", "CertificateExpired", "has expired", ""},
		{"cluster not available", condition(available, "False", "ManagedClusterKubeAPIServerUnavailable", "no"), "lease", "ManagedClusterKubeAPIServerUnavailable", "is not available", ""},
		{"availability unknown", condition(available, "", "", ""), "lease", "NotJoined", "has not reported", doctor.Warn},
		{"clocks differ", func(w *environment) {
			setCondition(w.cluster, "ManagedClusterConditionClockSynced", "False", "ManagedClusterClockOutOfSync", "The clock of hub and agent is out of sync.")
			setConditions(w.cluster, available, "Unknown", "ManagedClusterLeaseUpdateStopped")
		}, "joined", "ClockSkew", "clocks of hub and cluster differ", ""},
		{"being deleted", func(w *environment) {
			part(w.cluster, "metadata")["deletionTimestamp"] = ago(time.Minute)
			part(w.cluster, "metadata")["finalizers"] = []any{"cluster.open-cluster-management.io/api-resource-cleanup"}
		}, "hub", "Deleting", "being deleted", ""},
		{"add-on without its token", func(w *environment) {
			setCondition(w.addon, "TokenInfrastructureReady", "False", "TokenInfrastructureApplyFailed", "Failed to apply token infrastructure: forbidden")
		}, "addons", "TokenInfrastructureNotReady", "of the add-on work is False", ""},
		{"add-on of an older hub without its token", func(w *environment) {
			w.unknown["addon.open-cluster-management.io/v1beta1"], w.unknown["addon.open-cluster-management.io/v1alpha1"] = true, false
			w.addon["apiVersion"] = "addon.open-cluster-management.io/v1alpha1"
			setCondition(w.addon, "TokenInfrastructureReady", "False", "TokenInfrastructureApplyFailed", "Failed to apply token infrastructure: forbidden")
		}, "addons", "TokenInfrastructureNotReady", "of the add-on work is False", ""},
	}
}

func spokeFaults() []fault {
	const agent = "agent"
	degraded := func(reason, message string) func(*environment) {
		return func(w *environment) { setCondition(w.klusterlet, "HubConnectionDegraded", "True", reason, message) }
	}
	return []fault{
		{"no operator", func(w *environment) { w.unknown["Klusterlet"] = true }, agent, "AgentMissing", "no agent", ""},
		{"no Klusterlet", func(w *environment) { w.klusterlet = nil }, agent, "AgentMissing", "no agent", ""},
		{"another name", func(w *environment) { part(w.klusterlet, "spec")["clusterName"] = "cluster10" }, agent, "AnotherClusterName", "another name", ""},
		{"no Klusterlet of that name", func(w *environment) { w.config.Klusterlet = "other" }, agent, "KlusterletMissing", "no Klusterlet", ""},
		{"bootstrap Secret missing", degraded("BootstrapSecretMissing,HubKubeConfigSecretMissing", ""), agent, "BootstrapSecretMissing", "no working credential for the hub", ""},
		{"bootstrap Secret wrong", degraded("BootstrapSecretError,HubKubeConfigMissing", "dial tcp: connection refused"), agent, "BootstrapSecretError", "no working credential for the hub", ""},
		{"bootstrap token expired", degraded("BootstrapSecretUnauthorized,HubKubeConfigMissing", ""), agent, "BootstrapSecretUnauthorized", "no working credential for the hub", ""},
		{"no hub Secret", degraded("BootstrapSecretFunctional,HubKubeConfigSecretMissing", ""), "credential", "HubKubeConfigSecretMissing", "no working credential for the hub", ""},
		{"hub kubeconfig missing", degraded("BootstrapSecretFunctional,HubKubeConfigMissing", "the CSR must be approved by the cluster-admin on the hub."), "credential", "HubKubeConfigMissing", "no working credential for the hub", ""},
		{"hub kubeconfig wrong", degraded("BootstrapSecretFunctional,HubKubeConfigError", ""), "credential", "HubKubeConfigError", "no working credential for the hub", ""},
		{"cluster name missing", degraded("BootstrapSecretFunctional,ClusterNameMissing", ""), "credential", "ClusterNameMissing", "no working credential for the hub", ""},
		{"hub credential refused", degraded("BootstrapSecretFunctional,HubKubeConfigUnauthorized", ""), "credential", "HubKubeConfigUnauthorized", "no working credential for the hub", ""},
		{"a reason of tomorrow", degraded("BootstrapSecretFunctional,SomethingNew", ""), "credential", "HubKubeConfigError", "(BootstrapSecretFunctional,SomethingNew)", ""},
		{"unknown authority", degraded("BootstrapSecretError,HubKubeConfigMissing", "tls: failed to verify certificate: x509: certificate signed by unknown authority"), agent, "BootstrapSecretError", "certificate signed by unknown authority", ""},
		{"not installed", func(w *environment) { setConditions(w.klusterlet, "Applied", "False", "KlusterletApplyFailed") }, agent, "AgentNotRunning", "cannot install", ""},
	}
}

func secretsFaults() []fault {
	const secret = "secret"
	drop := func(key string) func(*environment) {
		return func(w *environment) { delete(part(w.agent, "data"), key) }
	}
	keep := func(key, value string) func(*environment) {
		return func(w *environment) {
			part(w.agent, "data")[key] = base64.StdEncoding.EncodeToString([]byte(value))
			delete(part(w.agent, "data"), "tls.crt")
			delete(part(w.agent, "data"), "tls.key")
		}
	}
	certificate := func(user string, age, left time.Duration) func(*environment) {
		return func(w *environment) {
			w.agent = newSecret("hub-kubeconfig-secret", map[string]string{"kubeconfig": kubeconfigValue, "cluster-name": "cluster1", "agent-name": "agent1",
				"tls.key": secretValue, "tls.crt": clientCertificate(w.t, user, age, left)})
		}
	}
	return []fault{
		{"no Secrets", func(w *environment) { w.boot, w.agent = nil, nil }, secret, "BootstrapSecretMissing", "Both Secrets", ""},
		{"no hub Secret, says the API", func(w *environment) { w.agent = nil }, secret, "HubKubeConfigSecretMissing", "no credential of its own yet", ""},
		{"no bootstrap Secret, says the API", func(w *environment) { w.boot = nil }, secret, "BootstrapSecretMissing", "is missing", doctor.Warn},
		{"bootstrap Secret empty", func(w *environment) { w.boot["data"] = object{} }, secret, "BootstrapSecretMissing", "has no kubeconfig", doctor.Warn},
		{"kubeconfig malformed", keep("kubeconfig", "garbage"), secret, "HubKubeConfigUnusable", "no kubeconfig with a cluster and a user", ""},
		{"kubeconfig without a user", keep("kubeconfig", "clusters: [{name: hub, cluster: {server: 'https://hub.example'}}]"), secret, "HubKubeConfigUnusable", "no kubeconfig with a cluster and a user", ""},
		{"kubeconfig without a cluster", keep("kubeconfig", "users: [{name: agent, user: {token: "+secretValue+"}}]"), secret, "HubKubeConfigUnusable", "no kubeconfig with a cluster and a user", ""},
		{"credential of another name", keep("cluster-name", "other"), secret, "HubKubeConfigUnusable", "the credential of another cluster", ""},
		{"credential of another name, and the agent's own is unknown", func(w *environment) {
			delete(part(w.klusterlet, "spec"), "clusterName")
			keep("cluster-name", "other")(w)
		}, secret, "AnotherClusterName", "under another name", ""},
		{"kubeconfig missing", drop("kubeconfig"), secret, "HubKubeConfigUnusable", "has no kubeconfig", ""},
		{"certificate missing", drop("tls.crt"), secret, "HubKubeConfigUnusable", "not a certificate of this cluster", ""},
		{"certificate malformed", func(w *environment) { part(w.agent, "data")["tls.crt"] = "eA==" }, secret, "HubKubeConfigUnusable", "not a certificate of this cluster", ""},
		{"certificate of another cluster", certificate("system:open-cluster-management:cluster10:agent1", time.Hour, time.Hour), secret, "HubKubeConfigUnusable", "not a certificate of this cluster", ""},
		{"certificate expired", certificate(agentUser, time.Hour, -time.Minute), secret, "CertificateExpired", "has expired", ""},
	}
}

func irsaFaults() []fault {
	const claim = "claim"
	irsa := func(change func(w *environment)) func(*environment) {
		return func(w *environment) {
			w.irsa()
			change(w)
		}
	}
	return []fault{
		{"both annotations missing", irsa(func(w *environment) { w.annotate("", "") }), claim, "AnnotationsMissing", "lacks an annotation", ""},
		{"suffix missing", irsa(func(w *environment) { w.annotate(managedARN, "") }), claim, "AnnotationsMissing", "lacks an annotation", ""},
		{"ARN missing", irsa(func(w *environment) { w.annotate("", roleOfPair) }), claim, "AnnotationsMissing", "lacks an annotation", ""},
		{"name of a context as ARN", irsa(func(w *environment) { w.annotate("managedcluster1.eu-west-1.eksctl.io", roleOfPair) }), claim, "InvalidClaim", "no valid ARN", ""},
	}
}

// ownFaults are those of agents and hubs of this module.
func ownFaults() []fault {
	hub := func(reason string) func(*environment) {
		return func(w *environment) {
			setCondition(w.cluster, "HubAcceptedManagedCluster", "False", reason, "a message of the hub")
		}
	}
	addOn := func(change func(w *environment)) func(*environment) {
		return func(w *environment) {
			w.ownAgent()
			w.items()
			change(w)
		}
	}
	addOnCondition := func(kind, reason string) func(*environment) {
		return addOn(func(w *environment) { setCondition(w.addon, kind, "False", reason, "a message") })
	}
	return []fault{
		{"agent does not run", func(w *environment) { w.ownAgent(); part(w.deployment, "status")["availableReplicas"] = int64(0) }, "agent", "AgentNotRunning", "does not run", ""},
		{"agent registers another name", func(w *environment) { w.ownAgent(); w.config.ClusterName = "cluster10" }, "agent", "AnotherClusterName", "another name", ""},
		{"malformed name", func(w *environment) { w.config.ClusterName = "a; rm -rf ~" }, "sides", "InvalidName", "cannot be the name of a cluster", ""},
		{"name is taken", hub("NamespaceTaken"), "accept", "NamespaceTaken", "does not grant the cluster its rights", ""},
		{"claim is refused", hub("InvalidClaim"), "accept", "InvalidClaim", "does not grant the cluster its rights", ""},
		{"unknown auth type", hub("UnknownDriver"), "accept", "UnknownDriver", "does not grant the cluster its rights", ""},
		{"grant fails", hub("GrantFailed"), "accept", "GrantFailed", "does not grant", ""},
		{"waits after a refusal", func(w *environment) {
			part(w.cluster, "spec")["hubAcceptsClient"] = false
			hub("WaitingForAcceptance")(w)
		}, "accept", "NotAccepted", "not accepted the cluster yet", ""},
		{"claim has changed", func(w *environment) {
			setCondition(w.cluster, "HubAcceptedManagedCluster", "True", "ClaimChanged", "a message")
		}, "accept", "ClaimChanged", "another AWS role", doctor.Warn},
		{"two ARNs", func(w *environment) {
			w.ownIRSA()
			part(part(w.cluster, "metadata"), "annotations")["agent.open-cluster-management.io/managed-cluster-arn"] = managedARN + "0"
		}, "claim", "InvalidClaim", "no valid ARN", ""},
		{"AWS refuses the agent", func(w *environment) {
			w.ownIRSA()
			setCondition(w.cluster, "ClusterIAMRoleReady", "False", "RoleRefused", "AccessDenied")
		}, "aws", "RoleRefused", "cannot use the role", ""},
		{"add-on item refused", addOnCondition("RegistrationAccepted", "DuplicateItem"), "addons", "DuplicateItem", "of the add-on work is False", ""},
		{"namespace of the add-on", addOnCondition("RegistrationAccepted", "NamespaceUnusable"), "addons", "NamespaceUnusable", "of the add-on work is False", ""},
		{"add-on of a denied cluster", addOnCondition("TokenInfrastructureReady", "ClusterNotAccepted"), "addons", "ClusterNotAccepted", "of the add-on work is False", ""},
		{"subject of another program", addOnCondition("TokenInfrastructureReady", "InvalidSubject"), "addons", "InvalidSubject", "of the add-on work is False", ""},
		{"hub without tokens", addOn(func(w *environment) { setCondition(w.addon, "TokenInfrastructureReady", "", "", "") }), "addons", "TokenInfrastructureNotReady", "no controller of the hub", ""},
		{"token forbidden", addOnCondition("AddonTokenRefreshed", "TokenRequestForbidden"), "addons", "TokenRequestForbidden", "of the add-on work is False", ""},
		{"token forbidden, in the names of OCM", addOn(func(w *environment) {
			setCondition(w.addon, "AddonTokenRefreshed", "", "", "")
			setCondition(w.addon, "TokenRefreshed", "False", "TokenRequestForbidden", "a message")
		}), "addons", "TokenRequestForbidden", "of the add-on work is False", ""},
		{"certificate of an add-on denied", func(w *environment) {
			setCondition(w.addon, "TokenInfrastructureReady", "", "", "")
			setCondition(w.addon, "ClusterCertificateRotated", "False", "ClientCertificateDenied", "a message")
		}, "addons", "ClientCertificateDenied", "of the add-on work is False", ""},
		{"a reason of tomorrow for an add-on", addOnCondition("AddonTokenRefreshed", "SomethingNew"), "addons", "TokenRequestFailed", "of the add-on work is False", ""},
	}
}
