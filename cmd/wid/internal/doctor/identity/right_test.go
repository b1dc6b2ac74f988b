package identity_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
)

// A right that is missing and stops the exchange is the headline, whatever else is doubtful. One Role grants all that is needed.
func TestMissingRightIsTheHeadline(t *testing.T) {
	const role = "--verb=get,create --resource=serviceaccounts,serviceaccounts/token --resource-name=app"
	forbid := func(rights ...string) func(w *environment) { return func(w *environment) { w.user.mayNot = rights } }
	for _, tt := range []struct {
		name, provider string
		spoil          []func(w *environment)
		check, says    string
		result         doctor.Result
		command        string
	}{
		{"to read the ServiceAccount", "aws", []func(w *environment){forbid("get serviceaccounts")}, "service-account", "may not read", doctor.Fail, role},
		{"both", "aws", []func(w *environment){forbid("get serviceaccounts", "serviceaccounts/token")}, "service-account", "may not read", doctor.Fail, role},
		{"to create tokens", "aws", []func(w *environment){forbid("serviceaccounts/token")}, "token-request", "may not create", doctor.Fail, role},
		{"to create tokens of a pod", "aws", []func(w *environment){withPod(func(*environment, *corev1.Pod) {}), forbid("serviceaccounts/token")},
			"token-request", "may not create", doctor.Unknown, "kubectl exec -n tenant-a pod -- wid doctor --provider aws"},
		{"to read the ServiceAccount of a given token", "aws", []func(w *environment){forbid("get serviceaccounts"), claims(nil)}, "service-account", "may not read", doctor.Fail, "--verb=get"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newEnvironment(t, tt.provider)
			for _, spoil := range tt.spoil {
				spoil(w)
			}
			report := w.run()
			readable(t, report)
			f := report.Worst()
			if f == nil || f.Check != tt.check || f.Result != tt.result || !strings.Contains(f.Message, tt.says) || !strings.Contains(strings.Join(f.Remedy.Commands, "\n"), tt.command) {
				t.Errorf("%+v\n%s", f, report)
			}
		})
	}
}

// A missing right that stops nothing is no headline of a set-up that works.
func TestUnneededRightIsNoHeadline(t *testing.T) {
	w := newEnvironment(t, "aws")
	withPod(func(w *environment, _ *corev1.Pod) {
		w.config.Annotations = map[string]string{aws.RoleARNAnnotation: roleARN}
	})(w)
	claims(nil)(w)
	w.user.mayNot = []string{"get serviceaccounts", "serviceaccounts/token"}
	if report := w.run(); report.ExitCode() == doctor.ExitFail || report.Of("exchange").Result != doctor.Pass {
		t.Errorf("%s", report)
	}
}
