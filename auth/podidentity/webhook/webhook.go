package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/workloadid/workloadid/auth/podidentity/api/v1alpha1"
)

// Options configures the handler. Bindings, Live, Image, Server, CA and Audience are required.
type Options struct {
	// Bindings lists the IAMBindings of a namespace, from a cache.
	Bindings client.Reader
	// Live lists them from the API server, if the cache has none for a pod: the binding may have been created just before.
	Live client.Reader
	// Image is the image of the sidecar. Its program, Command, is examples/iam-credentials-provider/pod.
	Image string
	// Command runs the program. Default: /pod.
	Command string
	// Server is the server's address, https://host:port.
	Server string
	// CA returns the PEM certificates that the server's certificate chains to. A pod keeps them for its life, so while the CA is being
	// replaced it returns the old one and the new one.
	CA func() []byte
	// Audience is the audience of the pods' tokens, the one that the server reviews.
	Audience string
	// Port is the loopback port of the sidecar. Default: DefaultPort.
	Port int
	// Logger records denials and failures. The zero value drops them.
	Logger logr.Logger
	// Registerer takes the metrics. Nil: none.
	Registerer prometheus.Registerer
}

// DefaultPort is the loopback port of the sidecar.
const DefaultPort = 2020

// Annotations of pods.
const (
	// AnnotationInject keeps the sidecar out of a pod if its value is "false".
	AnnotationInject = "iam.aws.k8s.io/inject"
	// AnnotationSkipContainers lists containers, separated by commas, that get no variables.
	AnnotationSkipContainers = "iam.aws.k8s.io/skip-containers"
	// AnnotationRedirect asks with "true" for AWS_CONTAINER_CREDENTIALS_RELATIVE_URI and 169.254.170.2, for SDKs that know nothing else. It
	// takes an init container with the capability NET_ADMIN, which the Pod Security levels restricted and baseline refuse.
	AnnotationRedirect = "iam.aws.k8s.io/redirect"
)

type handler struct {
	o       Options
	results *prometheus.CounterVec
}

// New checks the options and returns the handler. It answers AdmissionReviews of v1, and is safe for concurrent use.
func New(o Options) (http.Handler, error) {
	if o.Bindings == nil || o.Live == nil || o.CA == nil || o.Image == "" || o.Audience == "" {
		return nil, errors.New("webhook: Bindings, Live, Image, CA and Audience are required")
	}
	if u, err := url.Parse(o.Server); err != nil || u.Scheme != "https" || u.Host == "" || *u != (url.URL{Scheme: u.Scheme, Host: u.Host}) {
		return nil, fmt.Errorf("webhook: server %.200q: use https://host:port without a path", o.Server)
	}
	if o.Port == 0 {
		o.Port = DefaultPort
	}
	if o.Command == "" {
		o.Command = "/pod"
	}
	h := &handler{o: o, results: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "podidentity_webhook_pods_total",
		Help: "Pods that the webhook was asked about, by result: injected, unchanged, unbound, denied or error."}, []string{"result"})}
	if o.Registerer != nil {
		if err := o.Registerer.Register(h.results); err != nil {
			return nil, fmt.Errorf("webhook: register the metrics: %w", err)
		}
	}
	return admission.StandaloneWebhook(&admission.Webhook{Handler: h}, admission.StandaloneOptions{Logger: o.Logger})
}

// Handle implements admission.Handler.
func (h *handler) Handle(ctx context.Context, req admission.Request) admission.Response {
	response, result := h.answer(ctx, req)
	h.results.WithLabelValues(result).Inc()
	if !response.Allowed {
		h.o.Logger.Info("pod not admitted", "namespace", req.Namespace, "pod", req.Name, "result", result, "reason", response.Result.Message)
	}
	return response
}

func (h *handler) answer(ctx context.Context, req admission.Request) (admission.Response, string) {
	const unbound = "unbound"
	if req.Operation != admissionv1.Create || req.Resource.Resource != "pods" || req.SubResource != "" {
		return admission.Allowed("not the creation of a pod"), unbound
	}
	pod := &corev1.Pod{}
	if err := json.Unmarshal(req.Object.Raw, pod); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode the pod: %w", err)), "error"
	}
	if _, isMirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; isMirror || pod.Annotations[AnnotationInject] == "false" {
		return admission.Allowed("opted out"), unbound
	}
	binding, err := h.binding(ctx, req.Namespace, pod.Spec.ServiceAccountName)
	var no denial
	switch {
	case errors.As(err, &no):
		return admission.Denied(no.Error()), "denied"
	case err != nil:
		return admission.Errored(http.StatusInternalServerError, err), "error"
	case binding == nil:
		return admission.Allowed("no IAMBinding"), unbound
	}
	in := injection{options: h.o, pod: pod, binding: binding}
	if err := in.run(); err != nil {
		return admission.Denied(err.Error()), "denied"
	}
	response := admission.Patched("", in.patch...)
	response.Warnings = in.warnings
	if len(in.patch) == 0 {
		return response, "unchanged"
	}
	return response, "injected"
}

// denial says why a pod cannot be created.
type denial string

func (d denial) Error() string { return string(d) }

func deniedf(format string, args ...any) error { return denial(fmt.Sprintf(format, args...)) }

// binding returns the only binding of a ServiceAccount, or nil. It believes a cache only what is there.
func (h *handler) binding(ctx context.Context, namespace, account string) (*v1alpha1.IAMBinding, error) {
	if account == "" {
		account = "default"
	}
	found, err := bindings(ctx, h.o.Bindings, namespace, account)
	if err == nil && len(found) == 0 {
		found, err = bindings(ctx, h.o.Live, namespace, account)
	}
	if err != nil {
		return nil, fmt.Errorf("list the IAMBindings of namespace %q: %w", namespace, err)
	}
	switch len(found) {
	case 0:
		return nil, nil
	case 1:
		return &found[0], nil
	}
	names := make([]string, len(found))
	for i := range found {
		names[i] = found[i].Name
	}
	slices.Sort(names)
	return nil, deniedf("the IAMBindings %.500q of namespace %q all name the ServiceAccount %q, so none of them serves: delete all but one",
		strings.Join(names, ", "), namespace, account)
}

func bindings(ctx context.Context, from client.Reader, namespace, account string) ([]v1alpha1.IAMBinding, error) {
	var list v1alpha1.IAMBindingList
	if err := from.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(b v1alpha1.IAMBinding) bool { return b.Spec.ServiceAccountRef.Name != account }), nil
}
