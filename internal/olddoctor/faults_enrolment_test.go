package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workloadid/workloadid/internal/olddoctor"
)

// hubFault is something that is wrong with a cluster that would be enrolled otherwise.
type hubFault struct {
	name  string
	spoil func(w *hubWorld)
	// check and class are those of the finding to act on first, says is a part of its message.
	check, class, says string
	result             doctor.Result
}

// Every fault of an enrolment is named. The recall is of this list.
func TestEnrolmentFaults(t *testing.T) {
	all := append(append(requestFaults(), hubFaults()...), append(append(spokeFaults(), secretsFaults()...), irsaFaults()...)...)
	recall(t, "enrolment", all)
}

func (f hubFault) label() (name, class string) { return f.name, f.class }

func (f hubFault) diagnosed(t *testing.T) {
	w := newHubWorld(t)
	f.spoil(w)
	report := w.run()
	want := f.result
	if want == "" {
		want = doctor.Fail
	}
	first := report.Worst()
	if first == nil || first.ID != f.check || first.Class != f.class || !strings.Contains(first.Message, f.says) || first.Remedy == "" ||
		first.Result != want || first.Number != 25 {
		t.Fatalf("begins with %+v instead of %s %s %s %q:\n%s", first, want, f.check, f.class, f.says, report)
	}
	if report.ExitCode() == doctor.ExitPass {
		t.Error("exit code 0")
	}
	withoutSecret(t, report)
	forReaders(t, report)
}

// fresh takes everything away that comes with time: the cluster has only just been named at the hub.
func fresh(w *hubWorld) {
	part(w.cluster, "spec")["hubAcceptsClient"] = false
	w.cluster["status"] = object{}
	w.lease, w.addon, w.csrs = nil, nil, nil
	w.agent = newSecret("hub-kubeconfig-secret", map[string]string{"cluster-name": "cluster1", "agent-name": "agent1"})
	setConditions(w.klusterlet, "HubConnectionDegraded", "True", "BootstrapSecretFunctional,HubKubeConfigMissing")
}

func accepted(w *hubWorld) {
	fresh(w)
	part(w.cluster, "spec")["hubAcceptsClient"] = true
	setConditions(w.cluster, "HubAcceptedManagedCluster", "True", "HubClusterAdminAccepted")
}

func requestFaults() []hubFault {
	const csr, bootstrapUser = "enrolment-csr", "system:bootstrap:abcdef"
	newest := func(state string) func(*hubWorld) {
		return func(w *hubWorld) {
			accepted(w)
			w.csrs = []object{newCSR("cluster1-old", bootstrapUser, "Denied", time.Hour), newCSR("cluster1-new", bootstrapUser, state, time.Minute)}
		}
	}
	many := func(w *hubWorld) {
		for n := range 10 {
			w.csrs = append(w.csrs, newCSR(fmt.Sprintf("cluster1-%d", n), agentUser, "Approved", time.Duration(n)*time.Minute))
		}
	}
	return []hubFault{
		{"no hub", func(w *hubWorld) { w.unknown["ManagedCluster"] = true }, "enrolment-hub", "O1", "this is no hub", ""},
		{"the agent has never arrived", func(w *hubWorld) { w.cluster, w.csrs = nil, nil }, "enrolment-hub", "O2", "never reached the hub", ""},
		{"requests cannot be seen either", func(w *hubWorld) { w.cluster, w.forbidden["CertificateSigningRequest"] = nil, true }, "enrolment-hub", "O2", "could not be seen", ""},
		{"another cluster's requests", func(w *hubWorld) {
			w.cluster, w.config.ClusterName, part(w.klusterlet, "spec")["clusterName"] = nil, "cluster10", "cluster10"
			w.agent = nil
		}, "enrolment-hub", "O2", "never reached the hub", ""},
		{"another cluster's name", func(w *hubWorld) { w.cluster, w.config.ClusterName = nil, "cluster10" }, "enrolment-agent", "O23", "another name", ""},
		{"request waits", newest(""), csr, "O3", "waits for approval", ""},
		{"request waits, nobody has accepted", func(w *hubWorld) {
			fresh(w)
			w.csrs = []object{newCSR("cluster1-new", bootstrapUser, "", time.Minute)}
		}, csr, "O3", "waits for approval", ""},
		{"renewal waits", func(w *hubWorld) { w.csrs = append(w.csrs, newCSR("cluster1-new", agentUser, "", time.Minute)) }, csr, "O3", "waits for approval", doctor.Warn},
		{"request denied", newest("Denied"), csr, "O4", "was denied", ""},
		{"hub cannot sign", newest("Failed"), csr, "O5", "cannot sign", ""},
		{"approved, never signed", func(w *hubWorld) {
			newest("Approved")(w)
			delete(part(w.csrs[1], "status"), "certificate")
		}, csr, "O6", "nobody has signed it", ""},
		{"approved, no ManagedCluster", func(w *hubWorld) { w.cluster = nil }, csr, "O7", "older enrolment is in the way", ""},
		{"joined again over old objects", func(w *hubWorld) {
			setConditions(w.cluster, "ManagedClusterConditionAvailable", "Unknown", "ManagedClusterLeaseUpdateStopped")
			w.csrs = append(w.csrs, newCSR("cluster1-new", bootstrapUser, "Approved", time.Minute))
		}, csr, "O8", "joined again", ""},
		{"too many requests", func(w *hubWorld) {
			many(w)
			setCondition(w.cluster, "ClusterCertificateRotated", "False", "ClientCertificateUpdateFailed", "Stop creating csr since there are too many csr created already on hub")
		}, csr, "O9", "11 requests", ""},
		{"too many requests, the agent still works", many, csr, "O9", "11 requests", doctor.Warn},
		{"no request yet, and not joined", accepted, "enrolment-agent", "O20", "bootstrap-hub-kubeconfig works", ""},
		{"never arrived, and the cluster knows why", func(w *hubWorld) {
			w.cluster, w.csrs = nil, nil
			setConditions(w.klusterlet, "HubConnectionDegraded", "True", "BootstrapSecretUnauthorized,HubKubeConfigMissing")
		}, "enrolment-agent", "O19", "its token has expired", ""},
		{"add-on waits", func(w *hubWorld) {
			waiting := newCSR("addon-cluster1-work-abc", agentUser, "", time.Minute)
			part(part(waiting, "metadata"), "labels")["open-cluster-management.io/addon-name"] = "work"
			w.csrs = append(w.csrs, waiting)
		}, "enrolment-addons", "O29", "add-on work", doctor.Warn},
	}
}

func hubFaults() []hubFault {
	condition := func(kind, status, reason, message string) func(*hubWorld) {
		return func(w *hubWorld) { setCondition(w.cluster, kind, status, reason, message) }
	}
	const acceptedCondition, available = "HubAcceptedManagedCluster", "ManagedClusterConditionAvailable"
	return []hubFault{
		{"not accepted", func(w *hubWorld) {
			approvedRequest := w.csrs
			fresh(w)
			w.csrs = approvedRequest
		}, "enrolment-accept", "O10", "nobody has accepted", ""},
		{"accepted, hub idle", condition(acceptedCondition, "", "", ""), "enrolment-accept", "O11", "has not acted", ""},
		{"denied", func(w *hubWorld) {
			part(w.cluster, "spec")["hubAcceptsClient"] = false
			setCondition(w.cluster, acceptedCondition, "False", "HubClusterAdminDenied", "Denied by hub cluster admin")
		}, "enrolment-accept", "O12", "has denied", ""},
		{"hub could not make the rights", condition(acceptedCondition, "False", "Error", "AccessDenied: iam:CreateRole"), "enrolment-accept", "O13", "could not give it its rights", ""},
		{"not joined", condition("ManagedClusterJoined", "", "", ""), "enrolment-joined", "O14", "has not joined", ""},
		{"renewal fails", condition("ClusterCertificateRotated", "False", "ClientCertificateUpdateFailed", "Failed to create CSR"), "enrolment-joined", "O36", "cannot renew", ""},
		{"lease stopped", func(w *hubWorld) {
			setConditions(w.cluster, available, "Unknown", "ManagedClusterLeaseUpdateStopped")
			part(w.lease, "spec")["renewTime"] = "2026-01-01T00:00:00.000000Z"
		}, "enrolment-lease", "O15", "stopped renewing", ""},
		{"lease stopped, hub has not noticed", func(w *hubWorld) {
			part(w.lease, "spec")["renewTime"] = time.Now().Add(-301 * time.Second).UTC().Format("2006-01-02T15:04:05.000000Z")
		}, "enrolment-lease", "O15", "stopped renewing", ""},
		{"lease stopped, since the certificate has expired", func(w *hubWorld) {
			setConditions(w.cluster, available, "Unknown", "ManagedClusterLeaseUpdateStopped")
			w.agent = newSecret("hub-kubeconfig-secret", map[string]string{"kubeconfig": bootSecret, "cluster-name": "cluster1", "agent-name": "agent1",
				"tls.key": bootSecret, "tls.crt": clientCertificate(w.t, agentUser, time.Hour, -time.Minute)})
		}, "enrolment-secret", "O27", "has expired", ""},
		{"cluster not available", condition(available, "False", "ManagedClusterKubeAPIServerUnavailable", "no"), "enrolment-lease", "O16", "is not available", ""},
		{"availability unknown", condition(available, "", "", ""), "enrolment-lease", "O17", "nobody has reported", doctor.Warn},
		{"clocks differ", func(w *hubWorld) {
			setCondition(w.cluster, "ManagedClusterConditionClockSynced", "False", "ManagedClusterClockOutOfSync", "The clock of hub and agent is out of sync.")
			setConditions(w.cluster, available, "Unknown", "ManagedClusterLeaseUpdateStopped")
		}, "enrolment-clock", "O18", "clocks of hub and cluster differ", ""},
		{"being deleted", func(w *hubWorld) {
			part(w.cluster, "metadata")["deletionTimestamp"] = ago(time.Minute)
			part(w.cluster, "metadata")["finalizers"] = []any{"cluster.open-cluster-management.io/api-resource-cleanup"}
		}, "enrolment-hub", "O38", "being deleted", ""},
		{"add-on without its token", func(w *hubWorld) {
			setCondition(w.addon, "TokenInfrastructureReady", "False", "TokenInfrastructureApplyFailed", "Failed to apply token infrastructure: forbidden")
		}, "enrolment-addons", "O28", "token of 1 add-on: work", ""},
		{"add-on of an older hub without its token", func(w *hubWorld) {
			w.unknown["addon.open-cluster-management.io/v1beta1"] = true
			w.addon["apiVersion"] = "addon.open-cluster-management.io/v1alpha1"
			setCondition(w.addon, "TokenInfrastructureReady", "False", "TokenInfrastructureApplyFailed", "Failed to apply token infrastructure: forbidden")
		}, "enrolment-addons", "O28", "token of 1 add-on: work", ""},
	}
}

func spokeFaults() []hubFault {
	const agent = "enrolment-agent"
	degraded := func(reason, message string) func(*hubWorld) {
		return func(w *hubWorld) { setCondition(w.klusterlet, "HubConnectionDegraded", "True", reason, message) }
	}
	return []hubFault{
		{"no operator", func(w *hubWorld) { w.unknown["Klusterlet"] = true }, agent, "O22", "operator is not installed", ""},
		{"no Klusterlet", func(w *hubWorld) { w.klusterlet = nil }, agent, "O22", "nobody has had this cluster join", ""},
		{"another name", func(w *hubWorld) { part(w.klusterlet, "spec")["clusterName"] = "cluster10" }, agent, "O23", "another name", ""},
		{"no Klusterlet of that name", func(w *hubWorld) { w.config.Klusterlet = "other" }, agent, "O22", "of that name", ""},
		{"bootstrap Secret missing", degraded("BootstrapSecretMissing,HubKubeConfigSecretMissing", ""), agent, "O19", "bootstrap-hub-kubeconfig is missing; the Secret hub-kubeconfig-secret is missing", ""},
		{"bootstrap Secret wrong", degraded("BootstrapSecretError,HubKubeConfigMissing", "dial tcp: connection refused"), agent, "O19", "cannot be asked with bootstrap-hub-kubeconfig; hub-kubeconfig-secret has no kubeconfig yet", ""},
		{"bootstrap token expired", degraded("BootstrapSecretUnauthorized,HubKubeConfigMissing", ""), agent, "O19", "refused or may not create", ""},
		{"no hub Secret", degraded("BootstrapSecretFunctional,HubKubeConfigSecretMissing", ""), agent, "O20", "bootstrap-hub-kubeconfig works; the Secret hub-kubeconfig-secret is missing", ""},
		{"hub kubeconfig missing", degraded("BootstrapSecretFunctional,HubKubeConfigMissing", "the CSR must be approved by the cluster-admin on the hub."), agent, "O20", "has to be approved at the hub", ""},
		{"hub kubeconfig wrong", degraded("BootstrapSecretFunctional,HubKubeConfigError", ""), agent, "O20", "cannot be asked with hub-kubeconfig-secret", ""},
		{"cluster name missing", degraded("BootstrapSecretFunctional,ClusterNameMissing", ""), agent, "O20", "lacks cluster-name", ""},
		{"hub credential refused", degraded("BootstrapSecretFunctional,HubKubeConfigUnauthorized", ""), agent, "O20", "is refused or has no rights", ""},
		{"a reason of tomorrow", degraded("BootstrapSecretFunctional,SomethingNew", ""), agent, "O20", `reason "SomethingNew" is not known`, ""},
		{"unknown authority", degraded("BootstrapSecretError,HubKubeConfigMissing", "tls: failed to verify certificate: x509: certificate signed by unknown authority"), agent, "O21", "does not trust the hub's certificate", ""},
		{"operator without aws", degraded("BootstrapSecretFunctional,HubKubeConfigError", "exec: executable /awscli/dist/aws not found"), agent, "O37", "no aws program", doctor.Warn},
		{"not installed", func(w *hubWorld) { setConditions(w.klusterlet, "Applied", "False", "KlusterletApplyFailed") }, agent, "O39", "cannot install", ""},
		{"operator silent", func(w *hubWorld) { delete(w.klusterlet, "status") }, agent, "O39", "has not reported", doctor.Warn},
	}
}

func secretsFaults() []hubFault {
	const secret = "enrolment-secret"
	drop := func(key string) func(*hubWorld) { return func(w *hubWorld) { delete(part(w.agent, "data"), key) } }
	certificate := func(user string, age, left time.Duration) func(*hubWorld) {
		return func(w *hubWorld) {
			w.agent = newSecret("hub-kubeconfig-secret", map[string]string{"kubeconfig": bootSecret, "cluster-name": "cluster1", "agent-name": "agent1",
				"tls.key": bootSecret, "tls.crt": clientCertificate(w.t, user, age, left)})
		}
	}
	return []hubFault{
		{"no Secrets", func(w *hubWorld) { w.boot, w.agent = nil, nil }, secret, "O24", "neither", ""},
		{"no hub Secret, says the API", func(w *hubWorld) { w.agent = nil }, secret, "O24", "none for the hub yet", ""},
		{"no bootstrap Secret, says the API", func(w *hubWorld) { w.boot = nil }, secret, "O24", "is missing", doctor.Warn},
		{"bootstrap Secret empty", func(w *hubWorld) { w.boot["data"] = object{} }, secret, "O25", "has no kubeconfig", doctor.Warn},
		{"kubeconfig missing", drop("kubeconfig"), secret, "O25", "lacks kubeconfig", ""},
		{"certificate missing", drop("tls.crt"), secret, "O25", "lacks tls.crt", ""},
		{"certificate malformed", func(w *hubWorld) { part(w.agent, "data")["tls.crt"] = "eA==" }, secret, "O25", "not a certificate", ""},
		{"certificate of another cluster", certificate("system:open-cluster-management:cluster10:agent1", time.Hour, time.Hour), secret, "O26", "another cluster", ""},
		{"certificate expired", certificate(agentUser, time.Hour, -time.Minute), secret, "O27", "has expired", ""},
		{"certificate not renewed", certificate(agentUser, 95*time.Hour, 5*time.Hour), secret, "O27", "not renewed in time", doctor.Warn},
	}
}

func irsaFaults() []hubFault {
	const aws = "enrolment-aws"
	irsa := func(change func(w *hubWorld)) func(*hubWorld) {
		return func(w *hubWorld) {
			w.irsa()
			change(w)
		}
	}
	entry := func(found bool, groups ...string) func(*hubWorld) {
		return irsa(func(w *hubWorld) {
			w.config.DescribeAccessEntry = func(context.Context, string, string) ([]string, bool, error) { return groups, found, nil }
		})
	}
	return []hubFault{
		{"both annotations missing", irsa(func(w *hubWorld) { w.annotate("", "") }), aws, "O30", "lacks annotations", ""},
		{"suffix missing", irsa(func(w *hubWorld) { w.annotate(managedARN, "") }), aws, "O30", "lacks annotations", ""},
		{"ARN missing", irsa(func(w *hubWorld) { w.annotate("", roleOfPair) }), aws, "O30", "lacks annotations", ""},
		{"name of a context as ARN", irsa(func(w *hubWorld) { w.annotate("managedcluster1.eu-west-1.eksctl.io", roleOfPair) }), aws, "O31", "malformed", ""},
		{"hub's ARN malformed", irsa(func(w *hubWorld) {
			w.config.HubClusterARN = "arn:aws:eks:eu-west-1:1:cluster/x"
			part(w.klusterlet, "spec")["registrationConfiguration"] = object{}
		}), aws, "O31", "hub's ARN is malformed", ""},
		{"another hub", irsa(func(w *hubWorld) { w.config.HubClusterARN = strings.Replace(hubARN, "hubcluster1", "hubcluster2", 1) }), aws, "O32", "ARN of another hub", ""},
		{"suffix of another cluster", irsa(func(w *hubWorld) { w.annotate(managedARN+"0", roleOfPair) }), aws, "O32", "suffix is that of another", ""},
		{"role refused", irsa(func(w *hubWorld) {
			w.config.AssumeRole = func(context.Context, string) error { return errors.New("AccessDenied") }
		}), aws, "O33", "cannot be assumed", ""},
		{"no access entry", entry(false), aws, "O34", "no access entry", ""},
		{"access entry without the group", entry(true, "open-cluster-management:cluster10"), aws, "O34", "lacks the cluster's group", ""},
		{"two claim one cluster", irsa(func(w *hubWorld) {
			twin := (&unstructured.Unstructured{Object: w.cluster}).DeepCopy()
			twin.SetName("cluster2")
			w.config.Hub = w.serve(w.cluster, twin.Object, w.lease)
		}), aws, "O35", "claims the same cluster", ""},
	}
}
