package podidentity_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	"github.com/workloadid/workloadid/internal/podidentity"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
)

const assumable = v1alpha1.ConditionRoleAssumable

// want is the headline of a chain: a part, a reason, and what the report says.
type want struct {
	part, reason, says string
	result             doctor.Result // Fail if it is empty
}

// shows asserts the headline, that it has a remedy which names its cluster, and
// that no command changes anything.
func shows(t *testing.T, r *doctor.Report, w want) {
	t.Helper()
	text, reason := r.Text(doctor.TextOptions{Verbose: true, Width: 1000}), r.Summary().Class
	if w.result == "" {
		w.result = doctor.Fail
	}
	if r.Headline != w.part || reason != w.reason || r.Result != w.result || !strings.Contains(text, w.says) {
		t.Errorf("want %+v, got %s %s %s\n%s", w, r.Headline, reason, r.Result, text)
	}
	if r.Summary().Remedy.Text == "" {
		t.Errorf("no remedy:\n%s", text)
	}
	for _, command := range r.Summary().Remedy.Commands {
		if !strings.Contains(command, " "+flags) || strings.Contains(command, " delete ") ||
			strings.Contains(command, " edit ") {
			t.Errorf("the command %s", command)
		}
	}
	if strings.Contains(text, secret) {
		t.Errorf("the report has the secret:\n%s", text)
	}
}

// bare is a pod that no webhook injects.
func bare(w *environment) {
	w.pod.Spec.InitContainers, w.pod.Spec.Volumes, w.pod.Spec.Containers[0].Env, w.pod.Status = nil, nil, nil,
		corev1.PodStatus{}
	w.admit = failing(nil)
}

func failing(err error) func(context.Context, *corev1.Pod) error {
	return func(context.Context, *corev1.Pod) error { return err }
}

// waits is a sidecar without credentials.
func waits(w *environment) *corev1.ContainerStatus {
	s := &w.pod.Status.InitContainerStatuses[0]
	s.Started, s.State = new(false), running(time.Now().Add(-5*time.Minute))
	return s
}

func TestFaults(t *testing.T) {
	for name, f := range map[string]struct {
		spoil func(w *environment)
		want  want
	}{
		"no pod of that name": {func(w *environment) {
			w.pod = nil
		}, want{part: "pod", reason: "PodMissing", says: "There is no pod reporting-0"}},
		"no ServiceAccount": {func(w *environment) { w.account = nil },
			want{part: "pod", reason: "ServiceAccountMissing",
				says: "There is no ServiceAccount reporting in namespace team-a"}},
		"not installed": {func(w *environment) {
			w.absent["IAMBinding"] = true
		}, want{part: "binding", reason: "ProviderNotInstalled", says: "not installed"}},
		"no binding": {func(w *environment) { w.binding = nil },
			want{part: "binding", reason: "NotBound",
				says: "No IAMBinding in namespace team-a names the ServiceAccount reporting"}},
		"binding of another ServiceAccount": {func(w *environment) {
			w.binding.Spec.ServiceAccountRef.Name = "report"
		}, want{part: "binding", reason: "NotBound"}},
		"binding that is being deleted": {func(w *environment) {
			w.binding.DeletionTimestamp, w.binding.Finalizers = new(metav1.Now()), []string{"example.com/keep"}
		}, want{part: "binding", reason: "NotBound"}},
		"role not allowed": {func(w *environment) {
			w.setCondition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, podidentity.ReasonRoleNotAllowed, "ask for a rule")
		}, want{part: "binding", reason: "RoleNotAllowed", says: "Accepted=False, RoleNotAllowed: ask for a rule"}},
		"two bindings": {func(w *environment) {
			w.other = bindingOf("second", account)
			w.setCondition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, podidentity.ReasonConflict,
				"both name the ServiceAccount")
		}, want{part: "binding", reason: "Conflict", says: "both name the ServiceAccount"}},
		"server silent": {func(w *environment) {
			w.binding.Status = v1alpha1.IAMBindingStatus{}
		}, want{part: "binding", reason: "ServerSilent", says: "has not set Accepted"}},
		"server behind": {func(w *environment) {
			w.binding.Generation = 2
		}, want{part: "binding", reason: "ServerSilent", says: "generation 2"}},
		"trust policy": {func(w *environment) {
			w.setCondition(assumable, metav1.ConditionFalse, "AccessDenied",
				"User: arn:aws:sts::123456789012:assumed-role/server/x is not authorized to perform: sts:AssumeRole")
		}, want{part: "role", reason: "AccessDenied", says: "is not authorized to perform: sts:AssumeRole"}},
		"trust policy, changed since the last try": {func(w *environment) {
			w.warn(w.binding, "IAMBinding", "", "AccessDenied", "not authorized", time.Minute)
			c := &w.binding.Status.Conditions[1]
			c.LastTransitionTime = metav1.NewTime(time.Now().Add(-time.Hour))
		}, want{part: "role", reason: "AccessDenied", says: "not authorized"}},
		"STS gives no answer": {func(w *environment) {
			w.setCondition(assumable, metav1.ConditionUnknown, "Unavailable", "a message")
		},
			want{part: "role", reason: "Unavailable", says: "RoleAssumable=Unknown, Unavailable: a message"}},
		"role not tried yet": {func(w *environment) {
			w.binding.Status.Conditions = w.binding.Status.Conditions[:1]
		}, want{part: "role", reason: "ServerSilent", says: "RoleAssumable"}},
		"webhook does not inject": {bare, want{part: "webhook", reason: "NotInjected", says: "without the sidecar"}},
		"no container with variables": {func(w *environment) {
			bare(w)
			w.admit = func(_ context.Context, pod *corev1.Pod) error {
				pod.Spec.InitContainers = injectedPod().Spec.InitContainers
				return nil
			}
		}, want{part: "webhook", reason: "NotInjected", says: "or its variables"}},
		"pod older than the webhook": {func(w *environment) {
			admit := w.admit
			bare(w)
			w.admit = admit
		}, want{part: "sidecar", reason: "PodNotInjected", says: "created 1h ago without"}},
		"sidecar waits": {func(w *environment) {
			waits(w)
		}, want{part: "sidecar", reason: "SidecarWaits", says: "no credentials yet: runs since"}},
		"pod not started": {func(w *environment) {
			w.pod.Status = corev1.PodStatus{}
		}, want{part: "sidecar", reason: "SidecarWaits", says: "it is not running"}},
		"no image": {func(w *environment) {
			waits(w).State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff",
				Message: "Back-off pulling image"}}
		}, want{part: "sidecar", reason: "SidecarWaits", says: "waits, ImagePullBackOff: Back-off pulling image"}},
		"sidecar ends": {func(w *environment) {
			s := waits(w)
			s.RestartCount, s.LastTerminationState = 3,
				corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error",
					Message: "proxy: no PEM"}}
		},
			want{part: "sidecar", reason: "SidecarWaits",
				says: "3 restarts, last ended with exit code 1, Error: proxy: no PEM"}},
		"sidecar is refused": {func(w *environment) {
			waits(w)
			w.warn(w.pod, "Pod", "spec.initContainers{iam-credentials-proxy}", "Unhealthy",
				"Startup probe failed: Unavailable: no route to host", time.Minute)
		}, want{part: "sidecar", reason: "Unhealthy", says: "Startup probe failed: Unavailable: no route to host"}},
		"renewal is refused": {func(w *environment) {
			w.binding.Status.Conditions[1].LastTransitionTime = metav1.NewTime(time.Now().Add(-time.Hour))
			w.warn(w.pod, "Pod", "", "NotBound", "no IAMBinding names it", 10*time.Second)
		}, want{part: "sidecar", reason: "NotBound", says: "no IAMBinding names it"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEnvironment(t)
			f.spoil(w)
			shows(t, w.run(), f.want)
		})
	}
}

func TestHealthy(t *testing.T) {
	for name, change := range map[string]func(w *environment){
		"with a pod":                        func(*environment) {},
		"without a pod":                     func(w *environment) { w.config.Pod, w.config.ServiceAccount = "", account },
		"without the webhook's rights":      func(w *environment) { w.forbidden["Namespace"] = true },
		"binding of another ServiceAccount": func(w *environment) { w.other = bindingOf("other", "other") },
		"one container without variables": func(w *environment) {
			w.pod.Spec.Containers = append(w.pod.Spec.Containers, corev1.Container{Name: "other"})
		},
		"a refusal before the role could be assumed": func(w *environment) {
			w.warn(w.binding, "IAMBinding", "", "AccessDenied", "not authorized", time.Minute)
			w.warn(w.pod, "Pod", "", "AccessDenied", "not authorized", time.Minute)
		},
		"a probe that failed before the start": func(w *environment) {
			w.warn(w.pod, "Pod", "spec.initContainers{iam-credentials-proxy}", "Unhealthy", "Startup probe failed", time.Minute)
		},
		"another container that fails": func(w *environment) {
			w.warn(w.pod, "Pod", "spec.containers{app}", "BackOff", "Back-off restarting", time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEnvironment(t)
			change(w)
			if report := w.run(); report.ExitCode() != doctor.ExitPass ||
				!strings.Contains(report.String(), "✓ role     IAMBinding reporting: RoleAssumable=True, Assumed") {
				t.Errorf("%s", report.Text(doctor.TextOptions{Verbose: true}))
			}
		})
	}
}

func TestUncertain(t *testing.T) {
	for name, tt := range map[string]struct {
		change  func(w *environment)
		part    string
		command string
	}{
		"no right to IAMBindings": {func(w *environment) {
			w.forbidden["IAMBinding"] = true
		}, "binding", "kubectl --context prod get iambindings -n team-a"},
		"no right to create pods": {func(w *environment) {
			w.forbidden["create pods"] = true
		}, "webhook", "kubectl --context prod auth can-i create pods -n team-a"},
		"refused by a policy": {func(w *environment) {
			w.admit = failing(apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "",
				errors.New("exceeded quota "+strings.Repeat("x", 5000))))
		}, "webhook", ""},
		"no right to Events": {func(w *environment) { w.forbidden["Event"] = true }, "role", ""},
		"no right to the pod": {func(w *environment) {
			w.forbidden["Pod"] = true
			w.config.ServiceAccount = account
		}, "pod", "kubectl --context prod get pods -n team-a"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			tt.change(w)
			report := w.run()
			if report.Headline != tt.part || report.ExitCode() != doctor.ExitUncertain ||
				!strings.Contains(strings.Join(report.Summary().Remedy.Commands, ""), tt.command) {
				t.Errorf("%s", report)
			}
		})
	}
}

// A pod with its sidecar keeps it, although the next one gets none.
func TestOnlyTheNextPodIsNotInjected(t *testing.T) {
	w := newEnvironment(t)
	w.admit, w.namespace.Labels = failing(nil), nil
	shows(t, w.run(), want{part: "webhook", reason: "NotInjected", result: doctor.Warn})
}

// A webhook may take 30 s. Then the API server names it, and the examination
// waits for that answer.
func TestDryRunOutlastsWebhooks(t *testing.T) {
	w := newEnvironment(t)
	w.config.Pod, w.config.ServiceAccount = "", account
	w.admit = func(ctx context.Context, _ *corev1.Pod) error {
		if end, ok := ctx.Deadline(); !ok || time.Until(end) < 30*time.Second {
			t.Errorf("the dry run ends at %s", end)
		}
		return apierrors.NewInternalError(errors.New(`failed calling webhook "pods.iam.aws.k8s.io"`))
	}
	shows(t, w.run(), want{part: "webhook", reason: "WebhookFails", says: "pods.iam.aws.k8s.io"})
}

func TestTrustIsWidenedOnRequestOnly(t *testing.T) {
	w := newEnvironment(t)
	w.setCondition(assumable, metav1.ConditionFalse, "AccessDenied", "not authorized")
	const command = "wid pod-identity trust-policy reporting"
	if text := w.run().Text(doctor.TextOptions{Verbose: true}); strings.Contains(text, command) {
		t.Errorf("%s", text)
	}
	w.config.Examination.ShowPolicy = true
	if text := w.run().String(); !strings.Contains(text, command) {
		t.Errorf("%s", text)
	}
}

func TestHostileNames(t *testing.T) {
	w := newEnvironment(t)
	w.binding.Name = "y; rm -rf ~\x1b[2J"
	w.setCondition(assumable, metav1.ConditionFalse, "AccessDenied", "not authorized\x1b[2J")
	if text := w.run().Text(doctor.TextOptions{Verbose: true}); strings.Contains(text, "get iambinding y; rm") ||
		strings.Contains(text, "\x1b") {
		t.Errorf("%s", text)
	}
}
