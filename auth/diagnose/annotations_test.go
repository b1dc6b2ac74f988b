package diagnose_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/diagnose"
)

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
