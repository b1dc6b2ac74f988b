package webhook

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/workloadid/workloadid/internal/quota"
)

// Limits on the cost of requests. The author of a pod writes most of a request,
// and each pod of the cluster may reach the webhook.
const (
	maxBody         = 2 << 20 // etcd stores no larger pod
	maxBodies       = 16 << 20
	maxOfConnection = 4 << 20
	// maxOfNamespace bounds the bytes of one namespace's pods that wait for a
	// list, so a namespace with long lists leaves memory to the others.
	maxOfNamespace = 2 << 20
	maxElements    = 500
	maxWarnings    = 10
	// maxSlots bounds the requests that decode and inject. Each takes up to
	// 16 MB.
	maxSlots = 4

	readTimeout   = 5 * time.Second  // of a body
	answerTimeout = 10 * time.Second // the API server's default timeout
	writeTimeout  = 5 * time.Second
)

// errBusy asks the client to retry. The pod is not at fault.
var errBusy = errors.New("the webhook has too many requests at the moment: try again")

// review has only the fields of an AdmissionReview that the handler reads.
// admission.Webhook would also decode the user's groups.
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

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	response, result := h.respond(w, r)
	h.results.WithLabelValues(result).Inc()
	if r.URL.Path == BindingsPath && !response.Allowed { // with failurePolicy Ignore, an error has no effect
		http.Error(w, result, http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // every http.Server supports it
	_ = json.NewEncoder(w).Encode(admissionv1.AdmissionReview{                       // fails if the client is gone
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Response: &response.AdmissionResponse})
}

// respond returns as soon as it no longer needs the body. A client that reads
// slowly then occupies nothing.
func (h *handler) respond(w http.ResponseWriter, r *http.Request) (response admission.Response, result string) {
	body := &quota.Reader{Reader: http.MaxBytesReader(w, r.Body, maxBody), Budget: &h.bodies, Key: r.RemoteAddr}
	defer body.Release()
	raw, err := read(w, r, body)
	if err != nil {
		return refuse(http.StatusBadRequest, err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
	defer cancel()
	leave, err := h.slots.Take(ctx)
	if err != nil {
		return refuse(http.StatusInternalServerError, errBusy)
	}
	defer leave()
	request, err := decode(raw)
	if err != nil {
		return refuse(http.StatusBadRequest, err)
	}
	response, result = h.handle(ctx, request)
	if err := response.Complete(admission.Request{AdmissionRequest: *request}); err != nil {
		return refuse(http.StatusInternalServerError, err)
	}
	return response, result
}

// refuse returns an error with a code, or with the code that asks for a retry.
func refuse(code int32, err error) (admission.Response, string) {
	if errors.Is(err, errBusy) {
		return admission.Errored(http.StatusTooManyRequests, err), "busy"
	}
	return admission.Errored(code, err), "error"
}

func read(w http.ResponseWriter, r *http.Request, body io.Reader) ([]byte, error) {
	if given := r.Header.Get("Content-Type"); given != "application/json" {
		return nil, fmt.Errorf("content type %.100q: use application/json", given)
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(readTimeout)) // every http.Server supports it
	raw, err := io.ReadAll(body)
	if errors.Is(err, quota.ErrExceeded) {
		return nil, errBusy
	} else if err != nil {
		return nil, fmt.Errorf("read the review: %.300s", err.Error())
	}
	_ = control.SetReadDeadline(time.Time{}) // if it expired later, it would cancel the request's context
	return raw, nil
}

func decode(raw []byte) (*admissionv1.AdmissionRequest, error) {
	var parsed review
	if err := json.Unmarshal(raw, &parsed); err != nil {
		return nil, fmt.Errorf("decode the review: %.300s", err.Error())
	}
	in := &parsed.Request
	request := &admissionv1.AdmissionRequest{UID: in.UID, Operation: in.Operation, Resource: in.Resource,
		SubResource: in.SubResource, Namespace: in.Namespace, Name: in.Name}
	request.Object.Raw = in.Object
	return request, nil
}
