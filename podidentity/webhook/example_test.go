package webhook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/podidentity/webhook"
)

// The API server asks the webhook about a new pod of a ServiceAccount with an
// IAMBinding.
func Example() {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		fmt.Println(err)
		return
	}
	kube := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&v1alpha1.IAMBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "reporting"},
		Spec: v1alpha1.IAMBindingSpec{
			AWS:               v1alpha1.AWSRole{RoleARN: "arn:aws:iam::123456789012:role/team-a/reporting"},
			ServiceAccountRef: v1alpha1.ServiceAccountReference{Name: "reporting"},
		},
	}).Build()
	handler, err := webhook.New(webhook.Options{
		Bindings: kube, // in a program the manager's client, and its API reader as Live
		Live:     kube,
		Image:    "registry.example/iam-credentials-pod:v1",
		Server:   "https://pod-identity.iam-system.svc:8443",
		CA:       func() []byte { return []byte("the CA of the server, in PEM") },
		Audience: "pod-identity.example.com",
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	pod := []byte(`{"apiVersion":"v1","kind":"Pod","spec":{"serviceAccountName":"reporting",` +
		`"containers":[{"name":"app","image":"app:v1"}]}}`)
	review, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{UID: "1", Namespace: "team-a", Operation: admissionv1.Create,
			Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}, Object: runtime.RawExtension{Raw: pod}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/pods", bytes.NewReader(review))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)

	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		fmt.Println(err)
		return
	}
	patch, err := jsonpatch.DecodePatch(answer.Response.Patch)
	if err != nil {
		fmt.Println(err)
		return
	}
	patched, err := patch.Apply(pod)
	if err != nil {
		fmt.Println(err)
		return
	}
	var admitted corev1.Pod
	if err := json.Unmarshal(patched, &admitted); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("sidecar:", admitted.Spec.InitContainers[0].Image)
	for _, variable := range admitted.Spec.Containers[0].Env {
		fmt.Println("variable:", variable.Name)
	}
	// Output:
	// sidecar: registry.example/iam-credentials-pod:v1
	// variable: AWS_CONTAINER_CREDENTIALS_FULL_URI
	// variable: AWS_CONTAINER_AUTHORIZATION_TOKEN
}
