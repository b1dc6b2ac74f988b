package main

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/ocm"
)

// One mistake of each family. The good paths are TestDocumentedHub, and the
// report below.
func TestMistakesOfRegistration(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	for want, args := range map[string][]string{
		"name the clusters with --clusters":               {"hub", "accept"},
		`unknown command "acept"`:                         {"hub", "acept"},
		"name the cluster with --cluster-name":            {"join"},
		"--cluster-name: the cluster name":                {"unjoin", "--cluster-name=A_B"},
		"name the hub's API server with --hub-apiserver":  {"join", "--cluster-name=a"},
		"name the ManagedCluster with --cluster-name":     {"doctor", "registration"},
		"name the hub (--hub-kubeconfig, --hub-context),": {"doctor", "registration", "--cluster-name=a"},
	} {
		t.Run(want, func(t *testing.T) {
			r := w.wid(t, "", args...)
			if r.code == 0 || r.stdout != "" || !strings.HasPrefix(r.stderr, "wid: "+want) {
				t.Errorf("%q: got %+v, want %q on standard error", args, r, "wid: "+want)
			}
			if args[0] != "doctor" && r.code != cli.ExitUsage {
				t.Errorf("%q: got code %d, want %d", args, r.code, cli.ExitUsage)
			}
		})
	}
}

// The report of a cluster that works, then of one that was denied. It is
// standard output, and its verdict is the exit code.
func TestDoctorOfRegistration(t *testing.T) {
	cluster := kubetest.Start(t)
	w := regtest.NewWith(t, cluster, cluster) // its own hub
	namespace, now := cluster.Namespace(t), metav1.NowMicro()
	name := namespace
	create := func(objects ...client.Object) {
		for _, o := range objects {
			regtest.Must(t, w.Admin.Create(t.Context(), o))
		}
	}
	kubeconfig := kubeconfigOf(t, cluster.Config().Host, cluster.Config().CAData, nil, nil,
		w.Token(w.Admin, "open-cluster-management", "agent-registration-bootstrap"))
	w.Apply(w.Admin, fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n", agent.DefaultNamespace))
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: agent.DefaultNamespace, Name: ocm.AgentName},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a"}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "program", Image: "x"}}}}}}
	c := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: ocm.ManagedClusterSpec{HubAcceptsClient: true}}
	create(d, c, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agent.DefaultNamespace,
		Name: ocm.HubKubeconfigSecret}, StringData: map[string]string{"kubeconfig": kubeconfig, "cluster-name": name}},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: ocm.LeaseName},
			Spec: coordinationv1.LeaseSpec{RenewTime: &now}})
	d.Status = appsv1.DeploymentStatus{Replicas: 1, ReadyReplicas: 1, AvailableReplicas: 1,
		Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue}}}
	for kind, reason := range map[string]string{ocm.ConditionHubAccepted: ocm.ReasonHubAccepted,
		ocm.ConditionJoined: "ManagedClusterJoined", ocm.ConditionAvailable: "ManagedClusterAvailable"} {
		c.Status.Conditions = append(c.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue,
			Reason: reason, LastTransitionTime: metav1.Now()})
	}
	regtest.Must(t, w.Admin.Status().Update(t.Context(), d))
	regtest.Must(t, w.Admin.Status().Update(t.Context(), c))
	admin, programs := cluster.Kubeconfig(t), newEnvironment(t)
	report := func() result {
		return programs.wid(t, "", "doctor", "registration", "--cluster-name="+name, "--hub-kubeconfig="+admin,
			"--kubeconfig="+admin)
	}
	if r := report(); r.code != 0 || r.stderr != "" || !strings.Contains(r.stdout, "✓ credential") {
		t.Errorf("of a cluster that works: got %+v, want code 0", r)
	}
	w.SetAccepted(name, false)
	c = w.Cluster(name)
	for i := range c.Status.Conditions {
		if c.Status.Conditions[i].Type == ocm.ConditionHubAccepted {
			c.Status.Conditions[i].Status, c.Status.Conditions[i].Reason = metav1.ConditionFalse, ocm.ReasonHubDenied
		}
	}
	regtest.Must(t, w.Admin.Status().Update(t.Context(), c))
	want := "wid hub accept --clusters " + name + " --kubeconfig " + admin
	r := report()
	printed := strings.Join(strings.Fields(strings.ReplaceAll(r.stdout, "\\\n", "")), " ") // a long path breaks the line
	if r.code != 1 || r.stderr != "" || !strings.Contains(printed, want) {
		t.Errorf("of a denied cluster: got %+v, want code 1 and %s", r, want)
	}
}
