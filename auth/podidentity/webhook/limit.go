package webhook

import (
	stdjson "encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// review has only the fields of an AdmissionReview that the handler reads. admission.Webhook would also decode the user's groups.
type review struct {
	Request struct {
		UID         types.UID                   `json:"uid"`
		Operation   admissionv1.Operation       `json:"operation"`
		Resource    metav1.GroupVersionResource `json:"resource"`
		SubResource string                      `json:"subResource"`
		Namespace   string                      `json:"namespace"`
		Name        string                      `json:"name"`
		Object      stdjson.RawMessage          `json:"object"`
	} `json:"request"`
}

// limited bounds the memory of all requests together: each reads its body only while it holds a slot, and for a limited time.
type limited struct {
	hook  *admission.Webhook
	slots chan struct{}
}

// ServeHTTP implements http.Handler.
func (l *limited) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case l.slots <- struct{}{}:
		defer func() { <-l.slots }()
	case <-r.Context().Done():
		return
	}
	var response admission.Response
	if request, err := read(w, r); err != nil {
		response = admission.Errored(http.StatusBadRequest, err)
	} else {
		response = l.hook.Handle(r.Context(), admission.Request{AdmissionRequest: *request})
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(admissionv1.AdmissionReview{ // fails if the client is gone
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"}, Response: &response.AdmissionResponse})
}

func read(w http.ResponseWriter, r *http.Request) (*admissionv1.AdmissionRequest, error) {
	if given := r.Header.Get("Content-Type"); given != "application/json" {
		return nil, fmt.Errorf("content type %.100q: use application/json", given)
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(readTimeout)) // every http.Server supports it
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, fmt.Errorf("read the review: %.300s", err.Error())
	}
	_ = control.SetReadDeadline(time.Time{}) // if it expires later, it cancels the request's context
	var parsed review
	if err := json.Unmarshal(raw, &parsed); err != nil {
		return nil, fmt.Errorf("decode the review: %.300s", err.Error())
	}
	in := &parsed.Request
	request := &admissionv1.AdmissionRequest{UID: in.UID, Operation: in.Operation, Resource: in.Resource, SubResource: in.SubResource, Namespace: in.Namespace, Name: in.Name}
	request.Object.Raw = in.Object
	return request, nil
}
