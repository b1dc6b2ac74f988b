package install_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/workloadid/workloadid/cmd/wid/internal/install"
)

func deploymentOf(namespace, app string, replicas *int32) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a-" + app}}
	d.Spec.Replicas, d.Spec.Template.Labels = replicas, map[string]string{"app": app}
	return d
}

func podOf(namespace, app string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a-" + app + "-0",
		Labels: map[string]string{"app": app}}}
}

// Programs that have stopped, or that others run under the same label, do not
// count. A Pod that still ends does: its operator scales up again what was
// stopped before.
func TestCheckOCM(t *testing.T) {
	const operators, agents = "open-cluster-management", "open-cluster-management-agent"
	none := int32(0)
	scale := func(namespace, app string) string {
		return "kubectl --namespace " + namespace + " scale deployment a-" + app + " --replicas=0"
	}
	wait := func(namespace, app string) string {
		return "kubectl --namespace " + namespace + " wait --for=delete pod --selector app=" + app + " --timeout=5m"
	}
	for name, row := range map[string]struct {
		objects []client.Object
		want    []string
	}{
		"nothing": {},
		"operator first": {[]client.Object{deploymentOf(agents, "agent", nil), deploymentOf(operators, "operator", nil)},
			[]string{scale(operators, "operator"), wait(operators, "operator"), scale(agents, "agent"), wait(agents, "agent")}},
		"stopped": {[]client.Object{deploymentOf(agents, "agent", &none)}, nil},
		"still ends": {[]client.Object{deploymentOf(operators, "operator", &none), podOf(operators, "operator")},
			[]string{wait(operators, "operator")}},
		"elsewhere": {[]client.Object{deploymentOf("team-a", "agent", nil), podOf("team-a", "operator")}, nil},
		"another":   {[]client.Object{deploymentOf(agents, "other", nil), podOf(agents, "other")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, stderr := &cobra.Command{Use: "install"}, &bytes.Buffer{}
			cmd.SetErr(stderr)
			err := install.CheckOCM(t.Context(), cmd, fake.NewClientBuilder().WithObjects(row.objects...).Build(),
				func(s string) string { return s },
				install.OCMProgram{Namespace: operators, App: "operator"}, install.OCMProgram{Namespace: agents, App: "agent"})
			if (err != nil) != (len(row.want) > 0) || stderr.Len() > 0 {
				t.Fatalf("got %v, %s", err, stderr)
			}
			if err != nil && !strings.HasSuffix(err.Error(), "\n  "+strings.Join(row.want, "\n  ")) &&
				!strings.Contains(err.Error(), "\n  "+strings.Join(row.want, "\n  ")+"\n") {
				t.Errorf("got %v, want %q", err, row.want)
			}
		})
	}
}
