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

	"github.com/workloadid/workloadid/auth/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/reporttest"
	examine "github.com/workloadid/workloadid/internal/doctor/podidentity"
	"github.com/workloadid/workloadid/internal/podidentity"
)

func TestFaults(t *testing.T) {
	const assumable = v1alpha1.ConditionRoleAssumable
	// bare is a pod that no webhook injects.
	bare := func(w *environment) {
		w.pod.Spec.InitContainers, w.pod.Spec.Volumes, w.pod.Spec.Containers[0].Env, w.pod.Status = nil, nil, nil, corev1.PodStatus{}
		w.admit = failing(nil)
	}
	for _, f := range []struct {
		name               string
		spoil              func(w *environment)
		check, class, says string
	}{
		{"not installed", func(w *environment) { w.absent["IAMBinding"] = true }, "binding", "ProviderNotInstalled", "not installed"},
		{"no binding", func(w *environment) { w.binding = nil }, "binding", "NoBinding", "No IAMBinding in namespace team-a names the ServiceAccount reporting"},
		{"binding of another ServiceAccount", func(w *environment) { w.binding.Spec.ServiceAccountRef.Name = "report" }, "binding", "NoBinding", "No IAMBinding"},
		{"binding that is being deleted", func(w *environment) {
			w.binding.DeletionTimestamp, w.binding.Finalizers = new(metav1.Now()), []string{"example.com/keep"}
		}, "binding", "NoBinding", "No IAMBinding"},
		{"role not allowed", func(w *environment) {
			w.setCondition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, podidentity.ReasonRoleNotAllowed, "a message")
		}, "role", "RoleNotAllowed", "The condition Accepted of the IAMBinding is False (RoleNotAllowed): a message."},
		{"two bindings", func(w *environment) {
			w.other = bindingOf("second", account)
			w.setCondition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, podidentity.ReasonConflict, "both name the ServiceAccount")
		}, "role", "Conflict", "both name the ServiceAccount"},
		{"refused for another reason", func(w *environment) {
			w.setCondition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, "Other", "a message")
		}, "role", "BindingRefused", "a message"},
		{"server silent", func(w *environment) { w.binding.Status = v1alpha1.IAMBindingStatus{} }, "role", "ServerSilent", "has not set the condition Accepted"},
		{"server behind", func(w *environment) { w.binding.Generation = 2 }, "role", "ServerSilent", "of the IAMBinding as it is now"},
		{"trust policy", func(w *environment) {
			w.setCondition(assumable, metav1.ConditionFalse, "AccessDenied", "User: arn:aws:sts::123456789012:assumed-role/server/x is not authorized to perform: sts:AssumeRole")
		}, "role", "AccessDenied", "is not authorized to perform: sts:AssumeRole"},
		{"session policy", func(w *environment) {
			w.setCondition(assumable, metav1.ConditionFalse, "MalformedPolicyDocument", "a message")
		}, "role", "BindingRefused", "(MalformedPolicyDocument): a message"},
		{"STS gives no answer", func(w *environment) { w.setCondition(assumable, metav1.ConditionUnknown, "Unavailable", "a message") }, "role", "ServerSilent", "is Unknown (Unavailable): a message"},
		{"namespace without label", func(w *environment) { bare(w); w.namespace.Labels = nil }, "injection", "NamespaceNotLabelled", "lacks the label iam.aws.k8s.io/injection=enabled"},
		{"no webhook", func(w *environment) { bare(w); w.hook = nil }, "injection", "WebhookNotReady", "No webhook injects pods"},
		{"no endpoint", func(w *environment) { bare(w); w.endpoints = nil }, "injection", "WebhookNotReady", "no ready endpoint"},
		{"endpoint not ready", func(w *environment) { bare(w); w.endpoints.Endpoints[0].Conditions.Ready = new(false) }, "injection", "WebhookNotReady", "no ready endpoint"},
		{"no endpoint, and pods are refused", func(w *environment) {
			bare(w)
			w.endpoints, w.admit = nil, failing(apierrors.NewInternalError(errors.New("failed calling webhook")))
		}, "injection", "WebhookNotReady", "no ready endpoint"},
		{"webhook does not inject", bare, "injection", "WebhookDoesNotInject", "without the sidecar"},
		{"webhook not readable", func(w *environment) { bare(w); w.forbidden["MutatingWebhookConfiguration"] = true }, "injection", "WebhookDoesNotInject", "without the sidecar"},
		{"pod opts out", func(w *environment) { bare(w); w.pod.Annotations = map[string]string{"iam.aws.k8s.io/inject": "false"} }, "injection", "PodOptsOut", "opts out"},
		{"pod older than the webhook", func(w *environment) { admit := w.admit; bare(w); w.admit = admit }, "injection", "PodNotInjected", "created before"},
		{"no container with variables", func(w *environment) {
			w.pod.Spec.InitContainers, w.pod.Spec.Volumes, w.pod.Spec.Containers[0].Env = nil, nil, nil
			w.admit = func(_ context.Context, pod *corev1.Pod) error {
				pod.Spec.InitContainers = injectedPod().Spec.InitContainers
				return nil
			}
		}, "injection", "WebhookDoesNotInject", "without its variables"},
		{"role not tried yet", func(w *environment) { w.binding.Status.Conditions = w.binding.Status.Conditions[:1] }, "role", "ServerSilent", "the condition RoleAssumable"},
		{"another audience", func(w *environment) { w.config.Audience = "other.example" }, "token", "AudienceDiffers", "another audience"},
		{"token refused", func(w *environment) { w.review.Authenticated = false }, "token", "TokenRefused", "refuses a token"},
		{"token of the API server's audience", func(w *environment) { w.review.Audiences = nil }, "token", "TokenRefused", "refuses a token"},
		{"sidecar waits", func(w *environment) { w.pod.Status.InitContainerStatuses[0].Started = new(false) }, "sidecar", "SidecarWaits", "no credentials yet"},
		{"pod not started", func(w *environment) { w.pod.Status = corev1.PodStatus{} }, "sidecar", "SidecarWaits", "has not started"},
	} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			w := newEnvironment(t)
			f.spoil(w)
			reporttest.Headline(t, w.run(), reporttest.Want{Check: f.check, Class: f.class, Says: f.says}, secret)
		})
	}
}

func failing(err error) func(context.Context, *corev1.Pod) error {
	return func(context.Context, *corev1.Pod) error { return err }
}

// A pod with its sidecar keeps it, although the next one gets none.
func TestOnlyTheNextPodIsNotInjected(t *testing.T) {
	w := newEnvironment(t)
	w.admit, w.namespace.Labels = failing(nil), nil
	reporttest.Headline(t, w.run(), reporttest.Want{Check: "injection", Class: "NamespaceNotLabelled", Result: doctor.Warn}, secret)
}

// A webhook may take 30 s. Then the API server names it, and the examination waits for that answer.
func TestDryRunOutlastsWebhooks(t *testing.T) {
	w := newEnvironment(t)
	w.admit = func(ctx context.Context, _ *corev1.Pod) error {
		if end, ok := ctx.Deadline(); !ok || time.Until(end) < 30*time.Second {
			t.Errorf("the dry run ends at %s", end)
		}
		return apierrors.NewInternalError(errors.New(`failed calling webhook "pods.iam.aws.k8s.io"`))
	}
	reporttest.Headline(t, w.run(), reporttest.Want{Check: "injection", Says: "pods.iam.aws.k8s.io", Result: doctor.Unknown}, secret)
}

// Only a pod that its owner creates again is deleted, and the remedy says what is lost.
func TestRecreate(t *testing.T) {
	w := newEnvironment(t)
	w.pod.Spec.InitContainers, w.pod.Spec.Volumes, w.pod.Spec.Containers[0].Env = nil, nil, nil
	if r := w.run().Of("injection").Remedy; len(r.Commands) > 0 || !strings.Contains(r.Text, "create it again") {
		t.Errorf("got %+v", r)
	}
	w.pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", UID: "1", Controller: new(true)}}
	w.pod.ResourceVersion = ""
	if r := w.run().Of("injection").Remedy; len(r.Commands) != 1 || r.Commands[0] != "kubectl delete pod -n team-a reporting-0" || !strings.Contains(r.Text, "You lose its local data") {
		t.Errorf("got %+v", r)
	}
}

// A binding that was added later may be the mistake, so no command deletes one by name.
func TestConflictNamesNoBinding(t *testing.T) {
	w := newEnvironment(t)
	w.setCondition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, podidentity.ReasonConflict, "a message")
	commands := w.run().Of("role").Remedy.Commands
	if strings.Contains(strings.Join(commands, "\n"), "reporting") || !strings.HasSuffix(commands[0], "--sort-by .metadata.creationTimestamp -n team-a") {
		t.Errorf("%q", commands)
	}
}

func TestHealthy(t *testing.T) {
	for name, change := range map[string]func(w *environment){
		"with a pod":    func(*environment) {},
		"without a pod": func(w *environment) { w.config.Pod, w.config.ServiceAccount = "", account },
		"without the webhook's rights": func(w *environment) {
			w.forbidden["MutatingWebhookConfiguration"], w.forbidden["Namespace"] = true, true
		},
		"one container without variables": func(w *environment) {
			w.pod.Spec.Containers = append(w.pod.Spec.Containers, corev1.Container{Name: "other"})
		},
		"without the allow-list":             func(w *environment) { w.forbidden["IAMRoleAllowList"] = true },
		"binding of another ServiceAccount":  func(w *environment) { w.other = bindingOf("other", "other") },
		"server's audience is not known":     func(w *environment) { w.config.Audience = "" },
		"pod older than an edit of the role": func(w *environment) { w.pod.CreationTimestamp = metav1.NewTime(time.Now().Add(-48 * time.Hour)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEnvironment(t)
			change(w)
			report := w.run()
			reporttest.Healthy(t, report, secret)
			if len(report.Findings) != len(examine.Checks()) || !strings.Contains(report.String(), "AWS lets the server assume the role") {
				t.Errorf("%s", report)
			}
		})
	}
}

func TestUncertain(t *testing.T) {
	for name, tt := range map[string]struct {
		change         func(w *environment)
		check, command string
	}{
		"no right to IAMBindings": {func(w *environment) { w.forbidden["IAMBinding"] = true }, "role", ""},
		"no right to create pods": {func(w *environment) { w.forbidden["create pods"] = true }, "injection", "wid doctor pod-identity --pod team-a/reporting-0"},
		"refused by a policy": {func(w *environment) {
			w.admit = failing(apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("exceeded quota "+strings.Repeat("x", 5000))))
		}, "injection", ""},
		"no right to the pod":                         {func(w *environment) { w.forbidden["Pod"] = true; w.config.ServiceAccount = account }, "pod", "kubectl get pods -n team-a"},
		"no right to the pod, ServiceAccount unknown": {func(w *environment) { w.forbidden["Pod"] = true }, "pod", "kubectl get pods -n team-a"},
		"no pod of that name":                         {func(w *environment) { w.pod = nil }, "pod", "kubectl get pods -n team-a"},
		"no right to tokens":                          {func(w *environment) { w.forbidden["TokenRequest"] = true }, "token", "kubectl create token reporting --audience " + audience},
		"no right to review":                          {func(w *environment) { w.forbidden["TokenReview"] = true }, "token", "kubectl create token reporting --audience " + audience},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			tt.change(w)
			report := w.run()
			if tt.command == "" && tt.check == "role" {
				if report.Of("binding").Result != doctor.Unknown || report.ExitCode() != doctor.ExitUncertain {
					t.Errorf("%s", report)
				}
				return
			}
			reporttest.Headline(t, report, reporttest.Want{Check: tt.check, Result: doctor.Unknown}, secret)
			if commands := strings.Join(report.Worst().Remedy.Commands, " "); !strings.Contains(commands, tt.command) {
				t.Errorf("got %s", commands)
			}
		})
	}
}

func TestTrustIsWidenedOnRequestOnly(t *testing.T) {
	w := newEnvironment(t)
	w.setCondition(v1alpha1.ConditionRoleAssumable, metav1.ConditionFalse, "AccessDenied", "not authorized")
	const command = "wid pod-identity trust-policy reporting"
	if text := w.run().Text(doctor.TextOptions{Verbose: true}); strings.Contains(text, command) || !strings.Contains(text, "kubectl edit iambinding reporting") {
		t.Errorf("%s", text)
	}
	w.config.ShowPolicy = true
	if text := w.run().String(); !strings.Contains(text, command) {
		t.Errorf("%s", text)
	}
}

func TestHostileNames(t *testing.T) {
	w := newEnvironment(t)
	w.binding.Spec.ServiceAccountRef.Name = "x; rm -rf ~\x1b[2J"
	w.binding.Name = "y; rm -rf ~"
	if text := w.run().Text(doctor.TextOptions{Verbose: true}); strings.Contains(text, "iambinding y; rm") || strings.Contains(text, "\x1b") {
		t.Errorf("%s", text)
	}
}
