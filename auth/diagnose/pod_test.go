package diagnose_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/diagnose"
)

const freshCredentials = `{"AccessKeyId":"a","SecretAccessKey":"b","Token":"c","Expiration":"2099-01-01T00:00:00Z"}`

// spec changes the pod that the webhook has left.
type spec func(w *world, pod *corev1.Pod)

// env sets a variable of the first container.
func env(name, value string) spec {
	return func(_ *world, pod *corev1.Pod) {
		setEnv(&pod.Spec.Containers[0], corev1.EnvVar{Name: name, Value: value})
	}
}

func setEnv(c *corev1.Container, v corev1.EnvVar) {
	c.Env = slices.DeleteFunc(c.Env, func(own corev1.EnvVar) bool { return own.Name == v.Name })
	if v.Value != "" || v.ValueFrom != nil {
		c.Env = append(c.Env, v)
	}
}

// ref sets a variable of the first container to a key of a Secret.
func ref(name string, optional bool) spec {
	return func(_ *world, pod *corev1.Pod) {
		setEnv(&pod.Spec.Containers[0], corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k", Optional: &optional}}})
	}
}

// beside adds a container, as the webhook has left it or without anything.
func beside(name string, injected bool, more ...spec) spec {
	return func(w *world, pod *corev1.Pod) {
		c := corev1.Container{Name: name, Image: "i"}
		if injected {
			c = *pod.Spec.Containers[0].DeepCopy()
			c.Name = name
		}
		pod.Spec.Containers = append([]corev1.Container{c}, pod.Spec.Containers...)
		for _, change := range more {
			change(w, pod)
		}
	}
}

func initContainer(always bool) spec {
	return func(_ *world, pod *corev1.Pod) {
		c := corev1.Container{Name: "first", Image: "i"}
		if policy := corev1.ContainerRestartPolicyAlways; always {
			c.RestartPolicy = &policy
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
}

func podAnnotation(key, value string) spec {
	return func(_ *world, pod *corev1.Pod) { pod.Annotations = map[string]string{key: value} }
}

func envFrom(prefix string) spec {
	return func(_ *world, pod *corev1.Pod) {
		pod.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{Prefix: prefix, SecretRef: &corev1.SecretEnvSource{}}}
	}
}

func audienceOfVolume(audience string) spec {
	return func(_ *world, pod *corev1.Pod) {
		pod.Spec.Volumes[0].Projected.Sources[0].ServiceAccountToken.Audience = audience
	}
}

// named has the caller name the container.
func named(container string) spec {
	return func(w *world, _ *corev1.Pod) { w.config.Container = container }
}

func noWebhook(w *world, pod *corev1.Pod) {
	pod.Labels = nil
	for _, key := range []string{aws.RoleARNAnnotation, "azure.workload.identity/client-id", "azure.workload.identity/tenant-id"} {
		delete(w.account.Annotations, key)
	}
}

func all(changes ...spec) spec {
	return func(w *world, pod *corev1.Pod) {
		for _, change := range changes {
			change(w, pod)
		}
	}
}

// annotatedLongAgo has the API server's record say so.
func annotatedLongAgo(w *world, _ *corev1.Pod) {
	at := metav1.NewTime(time.Now().Add(-time.Hour))
	w.managed = []metav1.ManagedFieldsEntry{{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", Time: &at, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:` + aws.RoleARNAnnotation + `":{}}}}`)}}
}

// What a pod's specification says of its identity: what is broken never passes, what is well never fails.
func TestPods(t *testing.T) {
	const otherRole, otherTenant = "arn:aws:iam::" + account + ":role/other", "00000000-86f1-41af-91ab-2d7cd011db47"
	for name, tc := range map[string]struct {
		provider string
		change   spec
		want     diagnose.Result
		says     string
	}{
		"as the webhook leaves it":        {"aws", all(), diagnose.Pass, "/var/run/token"},
		"as the webhook leaves it, azure": {"azure", all(), diagnose.Pass, "/var/run/token"},
		"in capital letters":              {"azure", env("AZURE_CLIENT_ID", strings.ToUpper(azureClient)), diagnose.Pass, "mounted"},
		"an init container":               {"aws", initContainer(false), diagnose.Pass, "mounted"},
		"a sidecar":                       {"aws", initContainer(true), diagnose.Unknown, "first"},
		"two containers":                  {"aws", beside("app", true), diagnose.Pass, "mounted"},
		"a container without anything":    {"azure", beside("app", false), diagnose.Unknown, "app"},
		"a container that is left out":    {"aws", all(podAnnotation("eks.amazonaws.com/skip-containers", "x, app"), beside("app", false)), diagnose.Unknown, "app (eks.amazonaws.com/skip-containers leaves it out)"},
		"one of azure":                    {"azure", all(podAnnotation("azure.workload.identity/skip-containers", "x;app"), beside("app", false)), diagnose.Unknown, "app (azure.workload.identity/skip-containers leaves it out)"},
		"an init container left out":      {"aws", all(podAnnotation("eks.amazonaws.com/skip-containers", "first"), initContainer(false)), diagnose.Unknown, "first"},
		"all containers left out":         {"aws", all(podAnnotation("eks.amazonaws.com/skip-containers", "c"), func(_ *world, pod *corev1.Pod) { pod.Spec.Containers[0].Env = nil }), diagnose.Fail, "skip-containers"},
		"a role by hand, nothing else":    {"aws", env("AWS_WEB_IDENTITY_TOKEN_FILE", ""), diagnose.Fail, "AWS_ROLE_ARN was set by hand"},
		"such a container":                {"aws", beside("app", true, env("AWS_WEB_IDENTITY_TOKEN_FILE", "")), diagnose.Unknown, "app (AWS_ROLE_ARN was set by hand"},
		"completed":                       {"aws", func(_ *world, pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }, diagnose.Unknown, "has ended"},
		"failed":                          {"azure", func(_ *world, pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }, diagnose.Unknown, "has ended"},
		"completed, of GKE":               {"gcp", func(_ *world, pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }, diagnose.Unknown, "has ended"},
		"being deleted": {"aws", func(_ *world, pod *corev1.Pod) {
			pod.DeletionTimestamp, pod.Finalizers = &metav1.Time{Time: time.Now()}, []string{"x/y"}
		}, diagnose.Unknown, "being deleted"},
		"static keys":                     {"aws", env("AWS_ACCESS_KEY_ID", "AKIA"), diagnose.Fail, `the container "c" hides`},
		"static keys of a Secret":         {"aws", ref("AWS_ACCESS_KEY_ID", false), diagnose.Fail, "hides"},
		"of a Secret that may be missing": {"aws", ref("AWS_ACCESS_KEY_ID", true), diagnose.Warn, "if what it refers to exists"},
		"static keys in one of two":       {"aws", beside("app", true, env("AWS_ACCESS_KEY_ID", "AKIA")), diagnose.Warn, `the container "app" hides`},
		"static keys in both":             {"aws", all(env("AWS_ACCESS_KEY_ID", "AKIA"), beside("app", true)), diagnose.Fail, "hides"},
		"static keys, and nothing else":   {"aws", all(func(_ *world, pod *corev1.Pod) { pod.Spec.Containers[0].Env = nil }, env("AWS_ACCESS_KEY_ID", "AKIA")), diagnose.Fail, "hides"},
		"an empty key": {"aws", func(_ *world, pod *corev1.Pod) {
			pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: "AWS_ACCESS_KEY_ID"})
		}, diagnose.Pass, "mounted"},
		"a client secret":                  {"azure", ref("AZURE_CLIENT_SECRET", false), diagnose.Fail, "hides"},
		"a profile":                        {"aws", env("AWS_PROFILE", "x"), diagnose.Warn, "AWS_PROFILE"},
		"a file of Google":                 {"gcp", env("GOOGLE_APPLICATION_CREDENTIALS", "/key.json"), diagnose.Unknown, "GOOGLE_APPLICATION_CREDENTIALS"},
		"envFrom":                          {"aws", envFrom(""), diagnose.Unknown, "envFrom"},
		"envFrom of other names":           {"aws", envFrom("APP_"), diagnose.Pass, "mounted"},
		"host network":                     {"gcp", func(_ *world, pod *corev1.Pod) { pod.Spec.HostNetwork = true }, diagnose.Warn, "if this is GKE"},
		"another tenant":                   {"azure", env("AZURE_TENANT_ID", otherTenant), diagnose.Fail, "another tenant"},
		"no tenant":                        {"azure", env("AZURE_TENANT_ID", ""), diagnose.Fail, "without AZURE_TENANT_ID"},
		"no role":                          {"aws", env("AWS_ROLE_ARN", ""), diagnose.Fail, "without AWS_ROLE_ARN"},
		"no role, but envFrom":             {"aws", all(env("AWS_ROLE_ARN", ""), envFrom("AWS_")), diagnose.Unknown, "AWS_ROLE_ARN may be in it"},
		"a role of a Secret":               {"aws", ref("AWS_ROLE_ARN", false), diagnose.Unknown, "cannot be read here"},
		"a role put together":              {"aws", env("AWS_ROLE_ARN", "arn:aws:iam::$(ACCOUNT):role/tenant-a"), diagnose.Unknown, "cannot be read here"},
		"another role in one container":    {"aws", beside("app", true, env("AWS_ROLE_ARN", otherRole)), diagnose.Fail, `the container "app" uses another identity`},
		"another role by hand":             {"aws", all(annotatedLongAgo, env("AWS_ROLE_ARN", otherRole)), diagnose.Warn, "set by hand"},
		"a blank in the role":              {"aws", env("AWS_ROLE_ARN", roleARN+" "), diagnose.Fail, "another identity"},
		"a name of the session":            {"aws", env("AWS_ROLE_SESSION_NAME", "app@pod"), diagnose.Pass, "mounted"},
		"a bad name of the session":        {"aws", env("AWS_ROLE_SESSION_NAME", "tenant-a/app"), diagnose.Fail, "AWS_ROLE_SESSION_NAME"},
		"the volume of another audience":   {"aws", audienceOfVolume("api://AzureADTokenExchange"), diagnose.Fail, "another audience"},
		"the volume for the API server":    {"azure", audienceOfVolume(""), diagnose.Fail, "another audience"},
		"the volume of a chosen audience":  {"azure", audienceOfVolume("chosen"), diagnose.Warn, "another audience"},
		"a blank in the volume's audience": {"aws", audienceOfVolume("sts.amazonaws.com "), diagnose.Fail, "another audience"},
		"no volume":                        {"aws", func(_ *world, pod *corev1.Pod) { pod.Spec.Containers[0].VolumeMounts = nil }, diagnose.Fail, "no volume is mounted"},
		"another path":                     {"aws", env("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/other"), diagnose.Fail, "projects no token to that path"},
		"another volume": {"aws", func(_ *world, pod *corev1.Pod) {
			pod.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
		}, diagnose.Unknown, "cannot be seen here"},
		"windows":                       {"aws", env("AWS_WEB_IDENTITY_TOKEN_FILE", `C:\var\run\token`), diagnose.Pass, "mounted"},
		"a container by name":           {"aws", beside("app", false, named("c")), diagnose.Pass, "mounted"},
		"a container by name, left out": {"aws", all(podAnnotation("eks.amazonaws.com/skip-containers", "app"), beside("app", false, named("app"))), diagnose.Fail, "skip-containers"},
		"a container by name, hidden":   {"aws", beside("app", true, env("AWS_ACCESS_KEY_ID", "AKIA"), named("app")), diagnose.Fail, "hides"},
		"a container by a wrong name":   {"azure", named("ap"), diagnose.Fail, "no such container"},
		"an init container by name":     {"aws", all(initContainer(false), named("first")), diagnose.Fail, "first"},
		"subPath": {"aws", func(_ *world, pod *corev1.Pod) {
			pod.Spec.Containers[0].VolumeMounts[0] = corev1.VolumeMount{Name: "identity", MountPath: "/var/run/token", SubPath: "token"}
		}, diagnose.Warn, "subPath"},
		"by hand, without a webhook":        {"aws", noWebhook, diagnose.Pass, "mounted"},
		"by hand, without a webhook, azure": {"azure", noWebhook, diagnose.Pass, "mounted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, tc.provider)
			withPod(tc.change)(w)
			report := w.run()
			if f := report.Of("pod"); f.Result != tc.want || !strings.Contains(f.Message, tc.says) || tc.want != diagnose.Pass && f.Remedy == "" {
				t.Errorf("%+v", f)
			}
			pasteable(t, report.Of("pod"))
			if f := report.Of("exchange"); f.Result != diagnose.Pass {
				t.Errorf("%s", report) // nothing of the pod stands in its way
			}
		})
	}
}

// googleFile has Google's SDKs read a file.
func googleFile(content string) func(w *world) {
	return func(w *world) {
		path := filepath.Join(w.dir, "credentials.json")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			w.t.Fatal(err)
		}
		w.env["GOOGLE_APPLICATION_CREDENTIALS"] = path
	}
}

// pasteable runs no command, but sees to it that lines that begin with one are nothing else: what follows a comma is for people.
func pasteable(t *testing.T, f *diagnose.Finding) {
	t.Helper()
	for line := range strings.SplitSeq(f.Remedy, "\n") {
		program, rest, _ := strings.Cut(line, " ")
		if slices.Contains([]string{"kubectl", "az", "aws", "gcloud", "eksctl"}, program) &&
			(strings.Contains(rest, ", ") || strings.Contains(rest, "; ") || strings.Contains(rest, " or ") || strings.Contains(rest, " then ")) {
			t.Errorf("%s: no command alone: %s", f.ID, line)
		}
	}
}

// Nothing that a pod's specification or environment says is run by a shell or obeyed by a terminal.
func TestHostilePods(t *testing.T) {
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
		want     diagnose.Result
		says     string
	}{
		"a profile":                 {"aws", set("AWS_PROFILE", "x"), diagnose.Warn, "AWS_PROFILE"},
		"an old name for it":        {"aws", set("AWS_DEFAULT_PROFILE", "x"), diagnose.Warn, "AWS_DEFAULT_PROFILE"},
		"another cloud's":           {"azure", set("AWS_ACCESS_KEY_ID", "x"), diagnose.Pass, "web identity"},
		"a name of the session":     {"aws", set("AWS_ROLE_SESSION_NAME", "app"), diagnose.Pass, "web identity"},
		"a bad name of the session": {"aws", set("AWS_ROLE_SESSION_NAME", strings.Repeat("a", 65)), diagnose.Fail, "AWS_ROLE_SESSION_NAME"},
		"a certificate":             {"azure", set("AZURE_CLIENT_CERTIFICATE_PATH", "/x"), diagnose.Fail, "hides"},
		"a missing file of Google":  {"gcp", set("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/key.json"), diagnose.Fail, "cannot be read"},
		"a key of Google":           {"gcp", googleFile(`{"type":"service_account","private_key":"hunter2-hunter2"}`), diagnose.Fail, "hides"},
		"a user of Google":          {"gcp", googleFile(`{"type":"authorized_user"}`), diagnose.Fail, "hides"},
		"no JSON":                   {"gcp", googleFile("hunter2-hunter2"), diagnose.Fail, "not JSON"},
		"how to use a token":        {"gcp", googleFile(`{"type":"external_account"}`), diagnose.Pass, "says how"},
		"something of Google":       {"gcp", googleFile(`{"type":"impersonated_service_account"}`), diagnose.Unknown, "not known"},
	} {
		w := newWorld(t, tc.provider)
		inPod(tc.change)(w)
		w.config.Skip = []string{"exchange"} // which would take this process's own identity, without a token
		report := w.run()
		f := report.Of("source")
		if f.Result != tc.want || !strings.Contains(f.Message, tc.says) || tc.want != diagnose.Pass && f.Remedy == "" {
			t.Errorf("%s: %+v", name, f)
		}
		if strings.Contains(report.String(), "hunter2") {
			t.Errorf("%s: %s", name, report)
		}
	}
}

// In the pod, what the cluster says is compared with what the pod uses, not that with itself.
func TestAnnotationsInThePod(t *testing.T) {
	const other = "arn:aws:iam::" + account + ":role/new"
	for name, tc := range map[string]struct {
		annotation string
		alone      diagnose.Result // of check 14
		pod        diagnose.Result // of check 15
	}{
		"as annotated": {roleARN, diagnose.Pass, diagnose.Pass},
		"changed":      {other, diagnose.Warn, diagnose.Fail},
		"removed":      {"", diagnose.Unknown, diagnose.Pass},
	} {
		for _, named := range []bool{true, false} {
			w := newWorld(t, "aws")
			annotate(aws.RoleARNAnnotation, tc.annotation)(w)
			withPod(func(*world, *corev1.Pod) {})(w)
			inPod(func(w *world) { w.withoutCluster = false })(w)
			if !named { // its own token names it
				w.config.Pod.Name, w.config.Pod.Namespace = "", ""
				w.rewrite(func(c map[string]any) {
					c["kubernetes.io"] = map[string]any{"namespace": "tenant-a", "pod": map[string]any{"name": "pod"}, "serviceaccount": map[string]any{"name": "app"}}
				})
			}
			report := w.run()
			if a, p := report.Of("service-account"), report.Of("pod"); a.Result != tc.alone || p.Result != tc.pod {
				t.Errorf("%s: %+v\n%+v", name, a, p)
			}
			if f := report.Of("exchange"); f.Result != diagnose.Pass {
				t.Errorf("%s: %+v", name, f) // the environment is what counts
			}
		}
	}
}

// rewrite changes the token that the environment of the pod leads to.
func (w *world) rewrite(change func(claims map[string]any)) {
	if err := os.WriteFile(w.env["AWS_WEB_IDENTITY_TOKEN_FILE"], []byte(w.sign(change)), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// A pod that may not read itself is not told to, if nobody has asked for it.
func TestPodThatMayNotReadItself(t *testing.T) {
	w := newWorld(t, "aws")
	inPod(func(w *world) { w.withoutCluster = false })(w)
	w.rewrite(func(c map[string]any) {
		c["kubernetes.io"] = map[string]any{"namespace": "tenant-a", "pod": map[string]any{"name": "pod"}, "serviceaccount": map[string]any{"name": "app"}}
	})
	if f := w.run().Of("pod"); f.Result != diagnose.Skip {
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
			if f.Result == diagnose.Fail || f.Result == diagnose.Warn {
				t.Errorf("false alarm: %+v", f)
			}
		}
		if f := report.Of("service-account"); f.Result != diagnose.Unknown || !strings.Contains(f.Message, "the pod's specification has it") {
			t.Errorf("%+v", f)
		}
		// The annotation stays missing where the pod does not name an identity, or is another ServiceAccount's.
		for _, change := range []spec{func(_ *world, pod *corev1.Pod) { pod.Spec.Containers[0].Env = nil },
			func(_ *world, pod *corev1.Pod) { pod.Spec.ServiceAccountName = "other" }} {
			w := newWorld(t, provider)
			withPod(all(noWebhook, change))(w)
			if f := w.run().Of("service-account"); f.Result != diagnose.Fail || !strings.Contains(f.Message, "missing") {
				t.Errorf("%+v", f)
			}
		}
	}
}

// Other annotations than those of the cloud that was asked for are named.
func TestAnnotationsOfAnotherCloud(t *testing.T) {
	w := newWorld(t, "aws")
	annotate(aws.RoleARNAnnotation, "", "azure.workload.identity/client-id", azureClient)(w)
	report := w.run()
	for _, id := range []string{"identifiers", "service-account"} {
		f := report.Of(id)
		if f.Result != diagnose.Fail || !strings.Contains(f.Message, "annotated for Azure: azure.workload.identity/client-id") ||
			!slices.ContainsFunc(f.Fields, func(own diagnose.Field) bool { return own.Name == "for Azure" }) {
			t.Errorf("%+v", f)
		}
	}
}

// An audience in the annotation that cannot be meant is named where it is, not by the cloud's refusal.
func TestAudienceAnnotation(t *testing.T) {
	for value, want := range map[string]diagnose.Result{
		"sts.amazonaws.com": diagnose.Pass, "chosen": diagnose.Pass, "": diagnose.Fail, " ": diagnose.Fail, "sts.amazonaws.com ": diagnose.Fail,
		"sts.amazonaws.com\u200b": diagnose.Fail, "api://AzureADTokenExchange": diagnose.Fail, "//iam.googleapis.com/" + poolProvider: diagnose.Fail,
		"https://kubernetes.default.svc": diagnose.Fail, "STS.amazonaws.com": diagnose.Fail,
	} {
		w := newWorld(t, "aws")
		w.account.Annotations[aws.AudienceAnnotation] = value
		w.allowAudience()
		report := w.run()
		f := report.Of("audience")
		if value == "" {
			f = report.Of("identifiers") // nobody can ask for it
		}
		if f.Result != want || want == diagnose.Fail && (f.Class != "A4" || !strings.Contains(f.Message, aws.AudienceAnnotation) ||
			!strings.Contains(f.Remedy, "\nkubectl annotate serviceaccount -n tenant-a app --overwrite "+aws.AudienceAnnotation+"-")) {
			t.Errorf("%q: %+v", value, f)
		}
		if value == "chosen" && !strings.Contains(f.Message, aws.AudienceAnnotation) {
			t.Errorf("%+v", f)
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
		want   diagnose.Result
	}{
		"well":                         {endpoint, diagnose.Pass},
		"static keys":                  {all(endpoint, env("AWS_ACCESS_KEY_ID", "AKIA")), diagnose.Fail},
		"a container without anything": {all(endpoint, beside("app", false)), diagnose.Unknown},
		"completed":                    {all(endpoint, func(_ *world, pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded }), diagnose.Unknown},
	} {
		w := newWorld(t, "aws")
		delete(w.account.Annotations, aws.RoleARNAnnotation)
		withPod(tc.change)(w)
		report := w.run()
		for _, f := range report.Findings {
			if f.ID == "pod" && f.Result != tc.want || f.ID != "pod" && (f.Result == diagnose.Fail || f.Result == diagnose.Warn) {
				t.Errorf("%s: %+v", name, f)
			}
		}
	}
	w := newWorld(t, "aws")
	inPod(helper(http.StatusOK, "application/json", freshCredentials))(w)
	w.env = map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": w.config.Helper, "AWS_PROFILE": "x"}
	w.config.Helper, w.config.Skip = "", []string{"exchange"}
	if f := w.run().Of("source"); f.Result != diagnose.Warn {
		t.Errorf("%+v", f)
	}
}
