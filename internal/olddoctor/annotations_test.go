package doctor_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

// In the pod, what the cluster says is compared with what the pod uses, not that with itself.
func TestAnnotationsInThePod(t *testing.T) {
	const other = "arn:aws:iam::" + account + ":role/new"
	for name, tc := range map[string]struct {
		annotation string
		alone      doctor.Result // of check 14
		pod        doctor.Result // of check 15
	}{
		"as annotated": {roleARN, doctor.Pass, doctor.Pass},
		"changed":      {other, doctor.Warn, doctor.Fail},
		"removed":      {"", doctor.Unknown, doctor.Pass},
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
			if f := report.Of("exchange"); f.Result != doctor.Pass {
				t.Errorf("%s: %+v", name, f) // the environment is what counts
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
		if f.Result != doctor.Fail || !strings.Contains(f.Message, "annotated for Azure: azure.workload.identity/client-id") ||
			!slices.ContainsFunc(f.Fields, func(own doctor.Field) bool { return own.Name == "for Azure" }) {
			t.Errorf("%+v", f)
		}
	}
}

// An audience in the annotation that cannot be meant is named where it is, not by the cloud's refusal.
func TestAudienceAnnotation(t *testing.T) {
	for value, want := range map[string]doctor.Result{
		"sts.amazonaws.com": doctor.Pass, "chosen": doctor.Pass, "": doctor.Fail, " ": doctor.Fail, "sts.amazonaws.com ": doctor.Fail,
		"sts.amazonaws.com\u200b": doctor.Fail, "api://AzureADTokenExchange": doctor.Fail, "//iam.googleapis.com/" + poolProvider: doctor.Fail,
		"https://kubernetes.default.svc": doctor.Fail, "STS.amazonaws.com": doctor.Fail,
	} {
		w := newWorld(t, "aws")
		w.account.Annotations[aws.AudienceAnnotation] = value
		w.allowAudience()
		report := w.run()
		f := report.Of("audience")
		if value == "" {
			f = report.Of("identifiers") // nobody can ask for it
		}
		if f.Result != want || want == doctor.Fail && (f.Class != "A4" || !strings.Contains(f.Message, aws.AudienceAnnotation) ||
			!strings.Contains(f.Remedy, "\nkubectl annotate serviceaccount -n tenant-a app --overwrite "+aws.AudienceAnnotation+"-")) {
			t.Errorf("%q: %+v", value, f)
		}
		if value == "chosen" && !strings.Contains(f.Message, aws.AudienceAnnotation) {
			t.Errorf("%+v", f)
		}
	}
}

// What stands in the wrong place or under the wrong key is put into the command, quoted.
func TestMisplacedAnnotations(t *testing.T) {
	const right = "kubectl annotate serviceaccount -n tenant-a app --overwrite "
	for name, tc := range map[string]struct {
		change func(w *world)
		says   string
		remedy string
	}{
		"on the pod": {withPod(func(w *world, pod *corev1.Pod) {
			pod.Spec.Containers[0].Env = nil
			podAnnotation(aws.RoleARNAnnotation, w.account.Annotations[aws.RoleARNAnnotation])(w, pod)
			delete(w.account.Annotations, aws.RoleARNAnnotation)
		}), "the pod has eks.amazonaws.com/role-arn, where it has no effect", right + aws.RoleARNAnnotation + "=" + roleARN},
		"on the pod, misspelt": {withPod(func(w *world, pod *corev1.Pod) {
			pod.Spec.Containers[0].Env = nil
			podAnnotation("eks.amazonaws.com/role-arm", roleARN)(w, pod)
			delete(w.account.Annotations, aws.RoleARNAnnotation)
		}), "the pod has eks.amazonaws.com/role-arm", right + aws.RoleARNAnnotation + "=" + roleARN},
		"misspelt": {annotate(aws.RoleARNAnnotation, "", "eks.amazonaws.com/role-arm", roleARN), "looks like", right + aws.RoleARNAnnotation + "=" + roleARN},
		"hostile":  {annotate(aws.RoleARNAnnotation, "", "eks.amazonaws.com/role-arm", "$(touch owned)"), "looks like", right + aws.RoleARNAnnotation + "='$(touch owned)'"},
		"nowhere":  {annotate(aws.RoleARNAnnotation, ""), "is missing", right + aws.RoleARNAnnotation + "=VALUE"},
	} {
		w := newWorld(t, "aws")
		tc.change(w)
		report := w.run()
		for _, id := range []string{"identifiers", "service-account"} {
			f := report.Of(id)
			if f.Result != doctor.Fail || f.Class != "A14" || !strings.Contains(f.Message, tc.says) ||
				f.Remedy != tc.remedy && (name != "nowhere" || id == "service-account") {
				t.Errorf("%s: %+v", name, f)
			}
		}
		if f := report.Of("service-account"); name == "nowhere" && (len(f.Fields) == 0 || f.Fields[0].Expected != "the ARN of the role") {
			t.Errorf("%+v", f)
		}
		harmless(t, report)
	}
}
