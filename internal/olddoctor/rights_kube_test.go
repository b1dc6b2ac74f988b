package doctor_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/internal/olddoctor"
	"github.com/workloadid/workloadid/internal/kubetest"
)

// Who has no right at all in a real cluster is told all at once what to grant, and needs no more.
func TestRightsInACluster(t *testing.T) {
	cluster := kubetest.Start(t)
	namespace := cluster.Namespace(t)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "app", Annotations: map[string]string{aws.RoleARNAnnotation: roleARN}}}
	if err := cluster.Client().Create(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	user := cluster.User(t, "engineer of "+namespace, namespace)
	c, err := client.New(user, client.Options{Scheme: cluster.Client().Scheme(), Mapper: cluster.Client().RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	config := doctor.Config{Provider: &aws.Provider{}, Client: c, RESTConfig: user, ServiceAccount: client.ObjectKeyFromObject(account),
		Skip: []string{"discovery", "keys", "issuer-tls", "exchange"}}
	f := doctor.Run(t.Context(), config).Of("service-account")
	if f.Result != doctor.Unknown || len(f.Fields) != 2 {
		t.Fatalf("%+v", f)
	}
	kubeconfig, commands := cluster.Kubeconfig(t), 0
	for line := range strings.SplitSeq(f.Remedy, "\n") {
		if !strings.HasPrefix(line, "kubectl ") {
			continue
		}
		commands++
		kubectl := exec.CommandContext(t.Context(), "bash", "-euc", line) //nolint:gosec // what the doctor says
		kubectl.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "PATH="+os.Getenv("KUBEBUILDER_ASSETS")+":"+os.Getenv("PATH"))
		if out, err := kubectl.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", line, err, out)
		}
	}
	granted := func(r *doctor.Report) bool {
		return commands == 4 && r.Of("service-account").Result == doctor.Pass && r.Of("token-request").Result == doctor.Pass
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // the API server learns of rights by and by
	defer cancel()
	report := doctor.Run(ctx, config)
	for !granted(report) && ctx.Err() == nil {
		report = doctor.Run(ctx, config)
	}
	if !granted(report) {
		t.Errorf("%d commands: %s", commands, report)
	}
}
