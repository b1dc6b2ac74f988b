package doctor_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

const freshCredentials = `{"AccessKeyId":"a","SecretAccessKey":"b","Token":"c","Expiration":"2099-01-01T00:00:00Z"}`

// unlikePods are the cases of TestPods in which the exchange is another one, since it is tried with what the pod has.
var unlikePods = map[string]doctor.Result{"another tenant": doctor.Fail, "another role in one container": doctor.Fail,
	"another role by hand": doctor.Fail, "a blank in the role": doctor.Skip, "the volume of a chosen audience": doctor.Unknown}

// What a pod's specification says of its identity: what is broken never passes, what is well never fails.
func TestPods(t *testing.T) {
	const otherRole, otherTenant = "arn:aws:iam::" + account + ":role/other", "00000000-86f1-41af-91ab-2d7cd011db47"
	for name, tc := range map[string]struct {
		provider string
		change   spec
		want     doctor.Result
		says     string
	}{
		"as the webhook leaves it":        {"aws", all(), doctor.Pass, "/var/run/token"},
		"as the webhook leaves it, azure": {"azure", all(), doctor.Pass, "/var/run/token"},
		"in capital letters":              {"azure", env("AZURE_CLIENT_ID", strings.ToUpper(azureClient)), doctor.Pass, "mounted"},
		"an init container":               {"aws", initContainer(false), doctor.Pass, "mounted"},
		"a sidecar":                       {"aws", initContainer(true), doctor.Unknown, "first"},
		"two containers":                  {"aws", beside("app", true), doctor.Pass, "mounted"},
		"a container without anything":    {"azure", beside("app", false), doctor.Unknown, "app"},
		"a container that is left out":    {"aws", all(podAnnotation("eks.amazonaws.com/skip-containers", "x, app"), beside("app", false)), doctor.Unknown, "app (eks.amazonaws.com/skip-containers leaves it out)"},
		"one of azure":                    {"azure", all(podAnnotation("azure.workload.identity/skip-containers", "x;app"), beside("app", false)), doctor.Unknown, "app (azure.workload.identity/skip-containers leaves it out)"},
		"an init container left out":      {"aws", all(podAnnotation("eks.amazonaws.com/skip-containers", "first"), initContainer(false)), doctor.Unknown, "first"},
		"all containers left out":         {"aws", all(podAnnotation("eks.amazonaws.com/skip-containers", "c"), func(_ *world, pod *corev1.Pod) { pod.Spec.Containers[0].Env = nil }), doctor.Fail, "skip-containers"},
		"a role by hand, nothing else":    {"aws", env("AWS_WEB_IDENTITY_TOKEN_FILE", ""), doctor.Fail, "AWS_ROLE_ARN was set by hand"},
		"such a container":                {"aws", beside("app", true, env("AWS_WEB_IDENTITY_TOKEN_FILE", "")), doctor.Unknown, "app (AWS_ROLE_ARN was set by hand"},
		"completed":                       {"aws", func(_ *world, pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }, doctor.Unknown, "has ended"},
		"failed":                          {"azure", func(_ *world, pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }, doctor.Unknown, "has ended"},
		"completed, of GKE":               {"gcp", func(_ *world, pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }, doctor.Unknown, "has ended"},
		"being deleted": {"aws", func(_ *world, pod *corev1.Pod) {
			pod.DeletionTimestamp, pod.Finalizers = &metav1.Time{Time: time.Now()}, []string{"x/y"}
		}, doctor.Unknown, "being deleted"},
		"static keys":                     {"aws", env("AWS_ACCESS_KEY_ID", "AKIA"), doctor.Fail, `the container "c" hides`},
		"static keys of a Secret":         {"aws", ref("AWS_ACCESS_KEY_ID", false), doctor.Fail, "hides"},
		"of a Secret that may be missing": {"aws", ref("AWS_ACCESS_KEY_ID", true), doctor.Warn, "if what it refers to exists"},
		"static keys in one of two":       {"aws", beside("app", true, env("AWS_ACCESS_KEY_ID", "AKIA")), doctor.Warn, `the container "app" hides`},
		"static keys in both":             {"aws", all(env("AWS_ACCESS_KEY_ID", "AKIA"), beside("app", true)), doctor.Fail, "hides"},
		"static keys, and nothing else":   {"aws", all(func(_ *world, pod *corev1.Pod) { pod.Spec.Containers[0].Env = nil }, env("AWS_ACCESS_KEY_ID", "AKIA")), doctor.Fail, "hides"},
		"an empty key": {"aws", func(_ *world, pod *corev1.Pod) {
			pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: "AWS_ACCESS_KEY_ID"})
		}, doctor.Pass, "mounted"},
		"a client secret":                  {"azure", ref("AZURE_CLIENT_SECRET", false), doctor.Fail, "hides"},
		"a profile":                        {"aws", env("AWS_PROFILE", "x"), doctor.Warn, "AWS_PROFILE"},
		"a file of Google":                 {"gcp", env("GOOGLE_APPLICATION_CREDENTIALS", "/key.json"), doctor.Unknown, "GOOGLE_APPLICATION_CREDENTIALS"},
		"envFrom":                          {"aws", envFrom(""), doctor.Unknown, "envFrom"},
		"envFrom of other names":           {"aws", envFrom("APP_"), doctor.Pass, "mounted"},
		"host network":                     {"gcp", func(_ *world, pod *corev1.Pod) { pod.Spec.HostNetwork = true }, doctor.Warn, "if this is GKE"},
		"another tenant":                   {"azure", env("AZURE_TENANT_ID", otherTenant), doctor.Fail, "another tenant"},
		"no tenant":                        {"azure", env("AZURE_TENANT_ID", ""), doctor.Fail, "without AZURE_TENANT_ID"},
		"no role":                          {"aws", env("AWS_ROLE_ARN", ""), doctor.Fail, "without AWS_ROLE_ARN"},
		"no role, but envFrom":             {"aws", all(env("AWS_ROLE_ARN", ""), envFrom("AWS_")), doctor.Unknown, "AWS_ROLE_ARN may be in it"},
		"a role of a Secret":               {"aws", ref("AWS_ROLE_ARN", false), doctor.Unknown, "cannot be read here"},
		"a role put together":              {"aws", env("AWS_ROLE_ARN", "arn:aws:iam::$(ACCOUNT):role/tenant-a"), doctor.Unknown, "cannot be read here"},
		"another role in one container":    {"aws", beside("app", true, env("AWS_ROLE_ARN", otherRole)), doctor.Fail, `the container "app" uses another identity`},
		"another role by hand":             {"aws", all(annotatedLongAgo, env("AWS_ROLE_ARN", otherRole)), doctor.Fail, "set by hand"},
		"a blank in the role":              {"aws", env("AWS_ROLE_ARN", roleARN+" "), doctor.Fail, "another identity"},
		"a name of the session":            {"aws", env("AWS_ROLE_SESSION_NAME", "app@pod"), doctor.Pass, "mounted"},
		"a bad name of the session":        {"aws", env("AWS_ROLE_SESSION_NAME", "tenant-a/app"), doctor.Fail, "AWS_ROLE_SESSION_NAME"},
		"the volume of another audience":   {"aws", audienceOfVolume("api://AzureADTokenExchange"), doctor.Fail, "another audience"},
		"the volume for the API server":    {"azure", audienceOfVolume(""), doctor.Fail, "another audience"},
		"the volume of a chosen audience":  {"azure", audienceOfVolume("chosen"), doctor.Unknown, "another audience"},
		"a blank in the volume's audience": {"aws", audienceOfVolume("sts.amazonaws.com "), doctor.Fail, "another audience"},
		"no volume":                        {"aws", func(_ *world, pod *corev1.Pod) { pod.Spec.Containers[0].VolumeMounts = nil }, doctor.Fail, "no volume is mounted"},
		"another path":                     {"aws", env("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/other"), doctor.Fail, "projects no token to that path"},
		"another volume": {"aws", func(_ *world, pod *corev1.Pod) {
			pod.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
		}, doctor.Unknown, "cannot be seen here"},
		"windows":                       {"aws", env("AWS_WEB_IDENTITY_TOKEN_FILE", `C:\var\run\token`), doctor.Pass, "mounted"},
		"a container by name":           {"aws", beside("app", false, named("c")), doctor.Pass, "mounted"},
		"a container by name, left out": {"aws", all(podAnnotation("eks.amazonaws.com/skip-containers", "app"), beside("app", false, named("app"))), doctor.Fail, "skip-containers"},
		"a container by name, hidden":   {"aws", beside("app", true, env("AWS_ACCESS_KEY_ID", "AKIA"), named("app")), doctor.Fail, "hides"},
		"a container by a wrong name":   {"azure", named("ap"), doctor.Fail, "no such container"},
		"an init container by name":     {"aws", all(initContainer(false), named("first")), doctor.Fail, "first"},
		"subPath": {"aws", func(_ *world, pod *corev1.Pod) {
			pod.Spec.Containers[0].VolumeMounts[0] = corev1.VolumeMount{Name: "identity", MountPath: "/var/run/token", SubPath: "token"}
		}, doctor.Warn, "subPath"},
		"by hand, without a webhook":        {"aws", noWebhook, doctor.Pass, "mounted"},
		"by hand, without a webhook, azure": {"azure", noWebhook, doctor.Pass, "mounted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, tc.provider)
			withPod(tc.change)(w)
			report := w.run()
			if f := report.Of("pod"); f.Result != tc.want || !strings.Contains(f.Message, tc.says) || tc.want != doctor.Pass && f.Remedy == "" {
				t.Errorf("%+v", f)
			}
			pasteable(t, report.Of("pod"))
			want, unlike := unlikePods[name]
			if !unlike {
				want = doctor.Pass // nothing of the pod stands in its way
			}
			if f := report.Of("exchange"); f.Result != want {
				t.Errorf("%s", report)
			}
		})
	}
}

// Nothing that a pod's specification or environment says is run by a shell or obeyed by a terminal.
func TestHostilePods(t *testing.T) {
	t.Parallel()
	for _, evil := range hostileValues() {
		for _, change := range []spec{
			env("AWS_ROLE_ARN", evil), env("AWS_WEB_IDENTITY_TOKEN_FILE", evil), env("AWS_ROLE_SESSION_NAME", evil), audienceOfVolume(evil),
			all(func(_ *world, pod *corev1.Pod) { pod.Spec.Containers[0].Name = evil }, env("AWS_ACCESS_KEY_ID", "x")),
			beside(evil, false), named(evil), all(beside(evil, false), podAnnotation("eks.amazonaws.com/skip-containers", evil)),
			all(func(_ *world, pod *corev1.Pod) {
				pod.Spec.Volumes[0].Name, pod.Spec.Volumes[0].VolumeSource = evil, corev1.VolumeSource{}
				pod.Spec.Containers[0].VolumeMounts[0].Name = evil
			}),
			func(_ *world, pod *corev1.Pod) {
				pod.Spec.Volumes[0].Projected.Sources[0].ServiceAccountToken.Path = evil
			},
			func(_ *world, pod *corev1.Pod) { pod.Status.Phase = corev1.PodPhase(evil) },
			func(w *world, _ *corev1.Pod) {
				w.account.Annotations[aws.AudienceAnnotation] = "api://AzureADTokenExchange" + evil
			},
			all(noWebhook, func(w *world, _ *corev1.Pod) { w.account.Annotations["azure.workload.identity/client-id"] = evil }),
			all(noWebhook, env("AWS_ROLE_ARN", evil)),
		} {
			w := newWorld(t, "aws")
			w.allowAudience()
			withPod(change)(w)
			harmless(t, w.run())
		}
		for _, name := range []string{"AWS_ROLE_ARN", "AWS_PROFILE", "AWS_ROLE_SESSION_NAME"} {
			w := newWorld(t, "aws")
			inPod(func(w *world) { w.env[name] = evil })(w)
			harmless(t, w.run())
		}
	}
}

// What an environment says of its identity.
func TestEnvironments(t *testing.T) {
	set := func(name, value string) func(w *world) { return func(w *world) { w.env[name] = value } }
	for name, tc := range map[string]struct {
		provider string
		change   func(w *world)
		want     doctor.Result
		says     string
	}{
		"a profile":                 {"aws", set("AWS_PROFILE", "x"), doctor.Warn, "AWS_PROFILE"},
		"an old name for it":        {"aws", set("AWS_DEFAULT_PROFILE", "x"), doctor.Warn, "AWS_DEFAULT_PROFILE"},
		"another cloud's":           {"azure", set("AWS_ACCESS_KEY_ID", "x"), doctor.Pass, "web identity"},
		"a name of the session":     {"aws", set("AWS_ROLE_SESSION_NAME", "app"), doctor.Pass, "web identity"},
		"a bad name of the session": {"aws", set("AWS_ROLE_SESSION_NAME", strings.Repeat("a", 65)), doctor.Fail, "AWS_ROLE_SESSION_NAME"},
		"a certificate":             {"azure", set("AZURE_CLIENT_CERTIFICATE_PATH", "/x"), doctor.Fail, "hides"},
		"a missing file of Google":  {"gcp", set("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/key.json"), doctor.Fail, "cannot be read"},
		"a key of Google":           {"gcp", googleFile(`{"type":"service_account","private_key":"hunter2-hunter2"}`), doctor.Fail, "hides"},
		"a user of Google":          {"gcp", googleFile(`{"type":"authorized_user"}`), doctor.Fail, "hides"},
		"no JSON":                   {"gcp", googleFile("hunter2-hunter2"), doctor.Fail, "not JSON"},
		"how to use a token":        {"gcp", googleFile(`{"type":"external_account"}`), doctor.Pass, "says how"},
		"something of Google":       {"gcp", googleFile(`{"type":"impersonated_service_account"}`), doctor.Unknown, "not known"},
	} {
		w := newWorld(t, tc.provider)
		inPod(tc.change)(w)
		w.config.Skip = []string{"exchange"} // which would take this process's own identity, without a token
		report := w.run()
		f := report.Of("source")
		if f.Result != tc.want || !strings.Contains(f.Message, tc.says) || tc.want != doctor.Pass && f.Remedy == "" {
			t.Errorf("%s: %+v", name, f)
		}
		if strings.Contains(report.String(), "hunter2") {
			t.Errorf("%s: %s", name, report)
		}
	}
}

// A pod that may not read itself is not told to, if nobody has asked for it.
func TestPodThatMayNotReadItself(t *testing.T) {
	w := newWorld(t, "aws")
	inPod(func(w *world) { w.withoutCluster = false })(w)
	w.rewrite(func(c map[string]any) {
		c["kubernetes.io"] = map[string]any{"namespace": "tenant-a", "pod": map[string]any{"name": "pod"}, "serviceaccount": map[string]any{"name": "app"}}
	})
	if f := w.run().Of("pod"); f.Result != doctor.Skip {
		t.Errorf("%+v", f)
	}
}

// A pod whose variables were set by hand is examined by them, where the ServiceAccount has no annotation.
func TestPodByHand(t *testing.T) {
	for _, provider := range []string{"aws", "azure"} {
		w := newWorld(t, provider)
		withPod(noWebhook)(w)
		report := w.run()
		for _, f := range report.Findings {
			if f.Result == doctor.Fail || f.Result == doctor.Warn {
				t.Errorf("false alarm: %+v", f)
			}
		}
		if f := report.Of("service-account"); f.Result != doctor.Unknown || !strings.Contains(f.Message, "the pod's specification has it") {
			t.Errorf("%+v", f)
		}
		// The annotation stays missing where the pod does not name an identity, or is another ServiceAccount's.
		for _, change := range []spec{func(_ *world, pod *corev1.Pod) { pod.Spec.Containers[0].Env = nil },
			func(_ *world, pod *corev1.Pod) { pod.Spec.ServiceAccountName = "other" }} {
			w := newWorld(t, provider)
			withPod(all(noWebhook, change))(w)
			if f := w.run().Of("service-account"); f.Result != doctor.Fail || !strings.Contains(f.Message, "missing") {
				t.Errorf("%+v", f)
			}
		}
	}
}

// EKS Pod Identity needs neither an annotation nor the webhook, and says where its credentials are from.
func TestPodIdentityOfContainers(t *testing.T) {
	endpoint := func(_ *world, pod *corev1.Pod) {
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "AWS_CONTAINER_CREDENTIALS_FULL_URI", Value: "http://169.254.170.23/v1/credentials"}}
	}
	for name, tc := range map[string]struct {
		change spec
		want   doctor.Result
	}{
		"well":                         {endpoint, doctor.Pass},
		"static keys":                  {all(endpoint, env("AWS_ACCESS_KEY_ID", "AKIA")), doctor.Fail},
		"a container without anything": {all(endpoint, beside("app", false)), doctor.Unknown},
		"completed":                    {all(endpoint, func(_ *world, pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }), doctor.Unknown},
	} {
		w := newWorld(t, "aws")
		delete(w.account.Annotations, aws.RoleARNAnnotation)
		withPod(tc.change)(w)
		report := w.run()
		for _, f := range report.Findings {
			if f.ID == "pod" && f.Result != tc.want || f.ID != "pod" && (f.Result == doctor.Fail || f.Result == doctor.Warn) {
				t.Errorf("%s: %+v", name, f)
			}
		}
	}
	w := newWorld(t, "aws")
	inPod(helper(http.StatusOK, "application/json", freshCredentials))(w)
	w.env = map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": w.config.Helper, "AWS_PROFILE": "x"}
	w.config.Helper, w.config.Skip = "", []string{"exchange"}
	if f := w.run().Of("source"); f.Result != doctor.Warn {
		t.Errorf("%+v", f)
	}
}
