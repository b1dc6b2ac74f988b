package doctor_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/internal/olddoctor"
)

// The texts of Kubernetes' authenticator: what was re-created is no other cluster's.
func TestReviewTexts(t *testing.T) {
	for text, want := range map[string]struct{ says, remedy string }{
		"[invalid bearer token, pod UID (a) does not match service account pod ref claim (b)]":       {"its pod was re-created since", "the kubelet writes a new token into the new pod"},
		"[invalid bearer token, secret UID (a) does not match service account secret ref claim (b)]": {"its Secret was re-created", "of the new Secret"},
		"[invalid bearer token, node UID (a) does not match service account node ref claim (b)]":     {"its node was re-created", "restart the pod"},
		"[invalid bearer token, service account UID (a) does not match claim (b)]":                   {"the ServiceAccount was re-created", "restart the pod"},
		`[invalid bearer token, serviceaccounts "app" not found]`:                                    {"the ServiceAccount was deleted", "create it again"},
		"[invalid bearer token, service account token has been invalidated]":                         {"is gone", "that lives"},
		"[invalid bearer token, service account token has expired]":                                  {"it has expired", "restart the pod"},
		"invalid bearer token": {"no authenticator", "the cluster that issued it"},
	} {
		w := newWorld(t, "aws")
		w.user.reviewError = text
		withPod(func(*world, *corev1.Pod) {})(w)
		w.write(w.sign(func(c map[string]any) {
			c["kubernetes.io"] = map[string]any{"namespace": "tenant-a", "pod": map[string]any{"name": "pod"}, "serviceaccount": map[string]any{"name": "app"}}
		}))
		f := w.run().Of("token-review")
		if f.Result != doctor.Fail || f.Class != "K6" || !strings.Contains(f.Message, want.says) || !strings.Contains(f.Remedy, want.remedy) {
			t.Errorf("%s: %+v", text, f)
		}
	}
}

// A token of a former ServiceAccount or pod is named, whoever may ask the API server; the exchange is that of the cloud, which
// knows no UIDs.
func TestTokenOfFormerObjects(t *testing.T) {
	const former = "11111111-0000-4000-8000-000000000001"
	claims := func(account, pod string) func(c map[string]any) {
		return func(c map[string]any) {
			c["kubernetes.io"] = map[string]any{"namespace": "tenant-a", "pod": map[string]any{"name": "pod", "uid": pod},
				"serviceaccount": map[string]any{"name": "app", "uid": account}}
		}
	}
	for name, tc := range map[string]struct {
		account, pod string
		mayNot       []string
		want         doctor.Result
		says         string
	}{
		"of today":                        {"", "", nil, doctor.Pass, "accepts"},
		"of today, unseen":                {"", "", []string{"tokenreviews"}, doctor.Unknown, "may not"},
		"a former ServiceAccount":         {former, "", []string{"tokenreviews"}, doctor.Fail, "the ServiceAccount was re-created"},
		"a former pod":                    {"", former, []string{"tokenreviews"}, doctor.Fail, "its pod was re-created"},
		"one that the server still knows": {former, "", nil, doctor.Warn, "still accepts"},
	} {
		w := newWorld(t, "aws")
		w.user.mayNot = tc.mayNot
		withPod(func(_ *world, pod *corev1.Pod) { pod.UID = "22222222-0000-4000-8000-000000000002" })(w)
		account, pod := string(w.account.UID), string(w.pod.UID)
		if tc.account != "" {
			account = tc.account
		}
		if tc.pod != "" {
			pod = tc.pod
		}
		w.write(w.sign(claims(account, pod)))
		report := w.run()
		f := report.Of("token-review")
		if f.Result != tc.want || !strings.Contains(f.Message, tc.says) {
			t.Errorf("%s: %+v", name, f)
		}
		if tc.want == doctor.Fail && (!strings.HasPrefix(f.Remedy, "restart the pod") || f.Class != "K6") {
			t.Errorf("%s: %+v", name, f)
		}
		if f := report.Of("exchange"); f.Result != doctor.Pass {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
