package podidentity_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/auth/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/reporttest"
	examine "github.com/workloadid/workloadid/doctor/podidentity"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

func TestFaults(t *testing.T) {
	const assumable = v1alpha1.ConditionRoleAssumable
	bare := func(w *world) {
		w.pod.Spec.InitContainers, w.pod.Spec.Volumes, w.pod.Spec.Containers[0].Env, w.pod.Status = nil, nil, nil, corev1.PodStatus{}
	}
	for _, f := range []struct {
		name               string
		spoil              func(w *world)
		check, class, says string
	}{
		{"not installed", func(w *world) { w.absent["IAMBinding"] = true }, "binding", "P1", "not installed"},
		{"no binding", func(w *world) { w.binding = nil }, "binding", "P2", "No IAMBinding in namespace team-a names the ServiceAccount reporting"},
		{"binding of another ServiceAccount", func(w *world) { w.binding.Spec.ServiceAccountRef.Name = "report" }, "binding", "P2", "No IAMBinding"},
		{"binding that is being deleted", func(w *world) {
			w.binding.DeletionTimestamp, w.binding.Finalizers = new(metav1.Now()), []string{"example.com/keep"}
		}, "binding", "P2", "No IAMBinding"},
		{"two bindings", func(w *world) { w.other = bindingOf("second", account) }, "binding", "P3", "2 IAMBindings name the ServiceAccount"},
		{"no ServiceAccount", func(w *world) { w.account, w.binding = nil, nil }, "binding", "P4", "There is no ServiceAccount reporting"},
		{"no allow-list", func(w *world) { w.list = nil }, "allow-list", "P5", "does not allow namespace team-a"},
		{"role of another team", func(w *world) { w.binding.Spec.AWS.RoleARN = strings.Replace(role, "team-a", "team-b", 1) }, "allow-list", "P5", "does not allow"},
		{"rule of another namespace", func(w *world) { w.list.Spec.Rules[0].Namespaces = []string{"team-b"} }, "allow-list", "P5", "does not allow"},
		{"allow-list forbidden, and the server says why", func(w *world) {
			w.forbidden["IAMRoleAllowList"] = true
			w.setCondition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonRoleNotAllowed, "a message")
		}, "allow-list", "P5", "does not allow"},
		{"server silent", func(w *world) { w.binding.Status = v1alpha1.IAMBindingStatus{} }, "server", "P6", "has not judged"},
		{"server behind", func(w *world) { w.binding.Generation = 2 }, "server", "P6", "has not judged the IAMBinding as it is now"},
		{"trust policy", func(w *world) {
			w.setCondition(assumable, metav1.ConditionFalse, "AccessDenied", "User: arn:aws:sts::123456789012:assumed-role/server/x is not authorized to perform: sts:AssumeRole")
		}, "role", "P7", "does not let the server assume the role"},
		{"session policy", func(w *world) {
			w.setCondition(assumable, metav1.ConditionFalse, "MalformedPolicyDocument", "a message")
		}, "role", "P8", "refuses the session"},
		{"STS gives no answer", func(w *world) { w.setCondition(assumable, metav1.ConditionUnknown, "Unavailable", "a message") }, "role", "P9", "cannot ask AWS"},
		{"namespace without label", func(w *world) { bare(w); w.namespace.Labels = nil }, "namespace", "P10", "has not opted in"},
		{"no webhook", func(w *world) { bare(w); w.hook = nil }, "webhook", "P11", "No webhook injects pods"},
		{"no pod of that name", func(w *world) { w.pod = nil }, "pod", "P19", "There is no pod reporting-0"},
		{"pod older than the binding", func(w *world) { bare(w); w.binding.CreationTimestamp = metav1.Now() }, "injection", "P12", "older than its IAMBinding"},
		{"pod not injected", bare, "injection", "P12", "has not injected"},
		{"pod opts out", func(w *world) { bare(w); w.pod.Annotations = map[string]string{"iam.aws.k8s.io/inject": "false"} }, "injection", "P13", "opts out"},
		{"no container with variables", func(w *world) { w.pod.Spec.Containers[0].Env = nil }, "variables", "P14", "No container"},
		{"static keys", func(w *world) {
			c := &w.pod.Spec.Containers[0]
			c.Env = append(c.Env, corev1.EnvVar{Name: "AWS_ACCESS_KEY_ID", Value: secret})
		}, "variables", "P15", "prefer its variable AWS_ACCESS_KEY_ID"},
		{"another audience", func(w *world) { w.config.Audience = "other.example" }, "token", "P16", "another audience"},
		{"token refused", func(w *world) { w.review.Authenticated = false }, "token", "P18", "refuses a token"},
		{"token of the API server's audience", func(w *world) { w.review.Audiences = nil }, "token", "P18", "refuses a token"},
		{"sidecar waits", func(w *world) { w.pod.Status.InitContainerStatuses[0].Started = new(false) }, "sidecar", "P17", "no credentials yet"},
	} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			f.spoil(w)
			reporttest.Headline(t, w.run(), reporttest.Want{Check: f.check, Class: f.class, Says: f.says}, secret)
		})
	}
}

// A binding that was added later may be the mistake, so no command deletes the one that served before.
func TestConflictNamesTheNewerBinding(t *testing.T) {
	now := time.Now()
	for name, tt := range map[string]struct {
		age   time.Duration
		first string
	}{"another is newer": {-time.Hour, "aaa-evil was created last"}, "another is older": {time.Hour, "reporting was created last"}, "of the same age": {0, "Only one may stay. "}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.binding.Name, w.binding.CreationTimestamp = "reporting", metav1.NewTime(now.Add(tt.age))
			w.other = bindingOf("aaa-evil", account)
			w.other.CreationTimestamp = metav1.NewTime(now)
			remedy := w.run().Of("binding").Remedy
			if all := strings.Join(remedy.Commands, "\n"); !strings.Contains(remedy.Text, tt.first) || strings.Contains(all, "delete iambinding reporting") ||
				strings.Contains(all, "delete iambinding aaa-evil") {
				t.Errorf("%+v", remedy)
			}
		})
	}
}

func TestHealthy(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"with a pod":                         func(*world) {},
		"without a pod":                      func(w *world) { w.config.Pod, w.config.ServiceAccount = "", account },
		"without the webhook's rights":       func(w *world) { w.forbidden["MutatingWebhookConfiguration"], w.forbidden["Namespace"] = true, true },
		"one container without variables":    func(w *world) { w.pod.Spec.Containers = append(w.pod.Spec.Containers, corev1.Container{Name: "other"}) },
		"binding of another ServiceAccount":  func(w *world) { w.other = bindingOf("other", "other") },
		"server's audience is not known":     func(w *world) { w.config.Audience = "" },
		"pod older than an edit of the role": func(w *world) { w.pod.CreationTimestamp = metav1.NewTime(time.Now().Add(-48 * time.Hour)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
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
		change         func(w *world)
		check, command string
	}{
		"no right to IAMBindings":                     {func(w *world) { w.forbidden["IAMBinding"] = true }, "role", ""},
		"no right to the list":                        {func(w *world) { w.forbidden["IAMRoleAllowList"] = true }, "allow-list", "kubectl get iamroleallowlist cluster"},
		"no right to the pod":                         {func(w *world) { w.forbidden["Pod"] = true; w.config.ServiceAccount = account }, "pod", "kubectl get pod reporting-0"},
		"no right to the pod, ServiceAccount unknown": {func(w *world) { w.forbidden["Pod"] = true }, "pod", "kubectl get pod reporting-0"},
		"no right to tokens":                          {func(w *world) { w.forbidden["TokenRequest"] = true }, "token", "kubectl create token reporting --audience " + audience},
		"no right to review":                          {func(w *world) { w.forbidden["TokenReview"] = true }, "token", "kubectl create token reporting --audience " + audience},
		"role not tried yet":                          {func(w *world) { w.binding.Status.Conditions = w.binding.Status.Conditions[:1] }, "role", "aws iam get-role --role-name reporting"},
		"pod not started":                             {func(w *world) { w.pod.Status = corev1.PodStatus{} }, "sidecar", "kubectl describe pod reporting-0"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tt.change(w)
			report := w.run()
			if tt.command == "" {
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
	w := newWorld(t)
	w.setCondition(v1alpha1.ConditionRoleAssumable, metav1.ConditionFalse, "AccessDenied", "not authorized")
	const command = "wid pod-identity trust-policy -n team-a reporting"
	if text := w.run().Text(doctor.TextOptions{Verbose: true}); strings.Contains(text, command) || !strings.Contains(text, "kubectl edit iambinding reporting") {
		t.Errorf("%s", text)
	}
	w.config.ShowPolicy = true
	if text := w.run().String(); !strings.Contains(text, command) {
		t.Errorf("%s", text)
	}
}

func TestHostileNames(t *testing.T) {
	w := newWorld(t)
	w.binding.Spec.ServiceAccountRef.Name = "x; rm -rf ~\x1b[2J"
	w.binding.Name = "y; rm -rf ~"
	if text := w.run().Text(doctor.TextOptions{Verbose: true}); strings.Contains(text, "iambinding y; rm") || strings.Contains(text, "\x1b") {
		t.Errorf("%s", text)
	}
}

// The token is that of a real API server, and so is its review.
func TestAPIServer(t *testing.T) {
	cluster := kubetest.Start(t)
	for _, crd := range []string{v1alpha1.BindingCRD, v1alpha1.AllowListCRD} {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(crd), &object.Object); err != nil {
			t.Fatal(err)
		}
		if err := cluster.Client().Create(t.Context(), object); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	w := newWorld(t)
	var admin client.Client
	deadline := time.Now().Add(time.Minute)
	for {
		var err error
		admin, err = client.New(cluster.Config(), client.Options{Scheme: scheme(t)})
		if err == nil {
			err = admin.List(t.Context(), &v1alpha1.IAMBindingList{})
		}
		if err == nil {
			err = admin.List(t.Context(), &v1alpha1.IAMRoleAllowListList{})
		}
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	w.hook = nil // it would be asked
	for _, o := range w.objects() {
		desired, ok := o.DeepCopyObject().(client.Object)
		if !ok {
			t.Fatalf("%T", o)
		}
		o.SetUID("")
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		desired.SetResourceVersion(o.GetResourceVersion())
		desired.SetUID(o.GetUID())
		switch desired.(type) {
		case *v1alpha1.IAMBinding, *corev1.Pod:
			if err := admin.Status().Update(t.Context(), desired); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.config.Reader, w.config.Tokens = admin, admin
	report := examine.Run(t.Context(), w.config)
	reporttest.Healthy(t, report, secret)
	if report.Of("token").Result != doctor.Pass {
		t.Errorf("%s", report.Text(doctor.TextOptions{Verbose: true}))
	}
	w.config.Audience = "other.example"
	reporttest.Headline(t, examine.Run(t.Context(), w.config), reporttest.Want{Check: "token", Class: "P16"}, secret)
}
