package doctor_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

// A container that was left out is told by what, and what else is missing.
func TestLeftOutContainers(t *testing.T) {
	alone := func(_ *world, pod *corev1.Pod) { pod.Spec.Containers[0].Env = nil }
	for name, tc := range map[string]struct {
		provider string
		change   spec
		says     string
		remedies []string
	}{
		"by the annotation": {"aws", all(podAnnotation("eks.amazonaws.com/skip-containers", "x,app"), beside("app", false, named("app"))),
			"skip-containers leaves it out", []string{"take app out of the annotation eks.amazonaws.com/skip-containers"}},
		"without a webhook": {"aws", all(alone, podAnnotation("eks.amazonaws.com/skip-containers", "c"), named("c")),
			"there is no webhook in this cluster", []string{"take c out of the annotation", "install the webhook"}},
		"all of azure": {"azure", all(alone, podAnnotation("azure.workload.identity/skip-containers", "c")),
			"there is no webhook in this cluster", []string{"take c out of the annotation azure.workload.identity/skip-containers", "install the webhook"}},
		"by a role": {"aws", all(env("AWS_WEB_IDENTITY_TOKEN_FILE", ""), named("c")), "set by hand",
			[]string{"remove AWS_ROLE_ARN from the container's environment"}},
		"by nothing":           {"aws", all(alone, named("c")), "there is none in this cluster", []string{"install the webhook"}},
		"by coming afterwards": {"aws", beside("app", false, named("app")), "though others of the pod", []string{"reinvocationPolicy"}},
	} {
		w := newWorld(t, tc.provider)
		withPod(tc.change)(w)
		withoutWebhooks(w)
		f := w.run().Of("pod")
		if f.Result != doctor.Fail || !strings.Contains(f.Message, tc.says) {
			t.Errorf("%s: %+v", name, f)
		}
		for _, remedy := range tc.remedies {
			if !strings.Contains(f.Remedy, remedy) {
				t.Errorf("%s: %s", name, f.Remedy)
			}
		}
		pasteable(t, f)
	}
}

// withoutWebhooks is a cluster whose webhooks may be listed, of which there are none.
func withoutWebhooks(w *world) {
	w.config.RESTConfig = w.api()
	w.config.Client = interceptor.NewClient(asUser(w.issuer, w.issuer.Client(w.account, w.pod), w.user), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return nil }})
}

// Where nothing was injected, the pod's own access tells whether the annotation is what is missing.
func TestNothingInjected(t *testing.T) {
	for name, tc := range map[string]struct {
		change       func(w *world)
		says, remedy string
	}{
		"annotated":       {func(*world) {}, "is not set", "the ServiceAccount is annotated: restart the pod"},
		"not annotated":   {annotate(aws.RoleARNAnnotation, ""), "is not set", "kubectl annotate serviceaccount -n tenant-a app --overwrite eks.amazonaws.com/role-arn=VALUE\n"},
		"may not look":    {func(w *world) { w.silent(errNowhere) }, "is not set", "annotate the ServiceAccount with eks.amazonaws.com/role-arn"},
		"a role by hand":  {func(w *world) { w.env["AWS_ROLE_ARN"] = roleARN }, "is not set", "remove AWS_ROLE_ARN from the pod's template"},
		"no token for it": {func(w *world) { w.config.RESTConfig.BearerToken = "" }, "is not set", "annotate the ServiceAccount with"},
	} {
		w := newWorld(t, "aws")
		w.config.InPod, w.config.ServiceAccount = true, client.ObjectKey{}
		w.config.Skip = []string{"exchange"}
		api := w.api()
		api.BearerToken = w.sign(nil)
		w.config.RESTConfig = api
		tc.change(w)
		if w.config.RESTConfig != api {
			w.config.RESTConfig = api
		}
		f := w.run().Of("source")
		if f.Result != doctor.Fail || f.Class != "A14" || !strings.Contains(f.Message, tc.says) || !strings.HasPrefix(f.Remedy, tc.remedy) {
			t.Errorf("%s: %+v", name, f)
		}
		pasteable(t, f)
	}
}
