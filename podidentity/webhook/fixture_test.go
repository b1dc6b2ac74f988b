package webhook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4" // the one of the API server
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/podidentity/webhook"
)

// bindings is a reader of a fixed list. It counts the calls.
type bindings struct {
	client.Reader
	items []v1alpha1.IAMBinding
	err   error
	calls int64
	pages bool // whether the list ends at its limit
}

func (b *bindings) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	atomic.AddInt64(&b.calls, 1)
	namespace := (&client.ListOptions{}).ApplyOptions(opts).Namespace
	items := slices.DeleteFunc(slices.Clone(b.items), func(b v1alpha1.IAMBinding) bool { return b.Namespace != namespace })
	into := list.(*v1alpha1.IAMBindingList) //nolint:forcetypeassert // the only kind
	into.Items = items
	if b.pages {
		o := (&client.ListOptions{}).ApplyOptions(opts)
		start, _ := strconv.Atoi(o.Continue)
		end := min(start+int(o.Limit), len(items))
		if into.Items = items[start:end]; end < len(items) {
			into.Continue = strconv.Itoa(end)
		}
	}
	return b.err
}

func bind(name, account string, containers ...string) v1alpha1.IAMBinding {
	return v1alpha1.IAMBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name},
		Spec: v1alpha1.IAMBindingSpec{AWS: v1alpha1.AWSRole{RoleARN: "arn:aws:iam::123456789012:role/app"},
			ServiceAccountRef: v1alpha1.ServiceAccountReference{Name: account}, Containers: containers},
	}
}

func options(items ...v1alpha1.IAMBinding) webhook.Options {
	return webhook.Options{
		Bindings: &bindings{items: items}, Live: &bindings{items: items}, Image: "registry.example/pod:1",
		Server: "https://iam-credentials-provider.iam-system.svc:8443", CA: func() []byte {
			return []byte("PEM")
		}, Audience: audience,
	}
}

func newHandler(t testing.TB, o webhook.Options) http.Handler {
	t.Helper()
	h, err := webhook.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func review(t testing.TB, change func(*admissionv1.AdmissionRequest), pod string) []byte {
	t.Helper()
	req := &admissionv1.AdmissionRequest{UID: "1", Namespace: "team", Operation: admissionv1.Create,
		Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}}
	req.Object.Raw = []byte(pod)
	if change != nil {
		change(req)
	}
	body,
		err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1",
		Kind: "AdmissionReview"}, Request: req})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func post(t testing.TB, h http.Handler, contentType string, body []byte) *admissionv1.AdmissionResponse {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Response == nil ||
		answer.Response.Result == nil {
		t.Fatalf("got %.300q: %v", w.Body, err)
	}
	if strings.Contains(answer.Response.Result.Message, "panic") {
		t.Fatal(answer.Response.Result.Message)
	}
	return answer.Response
}

func admit(t testing.TB, h http.Handler, pod string) *admissionv1.AdmissionResponse {
	t.Helper()
	return post(t, h, "application/json", review(t, nil, pod))
}

func apply(t testing.TB, pod string, response *admissionv1.AdmissionResponse) string {
	t.Helper()
	if len(response.Patch) == 0 {
		return pod
	}
	patch, err := jsonpatch.DecodePatch(response.Patch)
	if err != nil {
		t.Fatal(err)
	}
	patched, err := patch.Apply([]byte(pod))
	if err != nil {
		t.Fatalf("%v: %s to %s", err, response.Patch, pod)
	}
	return string(patched)
}

func decode(t testing.TB, pod string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{}
	if err := json.Unmarshal([]byte(pod), p); err != nil {
		t.Fatal(err)
	}
	return p
}

// inject returns the pod that is admitted, and fails if a second call would
// change it.
func inject(t testing.TB, h http.Handler, pod string) (*corev1.Pod, []string) {
	t.Helper()
	response := admit(t, h, pod)
	if !response.Allowed {
		t.Fatal(response.Result.Message)
	}
	patched := apply(t, pod, response)
	if again := admit(t, h, patched); !again.Allowed || len(again.Patch) > 0 ||
		!slices.Equal(again.Warnings, response.Warnings) {
		t.Fatalf("the second call gives %+v with the patch %s and the warnings %q", again.Result, again.Patch, again.Warnings)
	}
	return decode(t, patched), response.Warnings
}

func env(c corev1.Container) map[string]string {
	m := map[string]string{}
	for _, v := range c.Env {
		m[v.Name] = v.Value
	}
	return m
}
