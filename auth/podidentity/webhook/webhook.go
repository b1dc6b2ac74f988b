package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/workloadid/workloadid/auth/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/internal/address"
	"github.com/workloadid/workloadid/internal/redact"
)

// Options configures the handler. Bindings, Live, Image, Server, CA and Audience are required.
type Options struct {
	// Bindings lists the IAMBindings of a namespace from a cache. The webhook uses only name, namespace and deletionTimestamp of
	// their metadata. Strip the rest with the cache's DefaultTransform, because it may take 1.5 MB each.
	Bindings client.Reader
	// Live lists them from the API server, in pages, if the cache has none for a pod. The binding may be newer than the cache.
	Live client.Reader
	// Image is the image of the sidecar. Its program, Command, is cmd/iam-credentials-pod.
	Image string
	// Command runs the program. Default: /pod.
	Command string
	// Server is the server's address, https://host:port.
	Server string
	// CA returns the PEM certificates that verify the server's certificate. A pod keeps them for its lifetime, so during a rotation
	// CA returns the old and the new CA.
	CA func() []byte
	// Audience is the audience of the pods' tokens, the same as the server's.
	Audience string
	// Port is the loopback port of the sidecar, 1024 or higher. Default: DefaultPort.
	Port int
	// Logger records denials and failures. The zero value drops them.
	Logger logr.Logger
	// Registerer takes the metrics. Nil drops them.
	Registerer prometheus.Registerer
}

const (
	// DefaultPort is the loopback port of the sidecar.
	DefaultPort = 2020
	// AnnotationInject keeps the sidecar out of a pod if its value is "false".
	AnnotationInject = "iam.aws.k8s.io/inject"
	// AnnotationSkipContainers lists containers, separated by commas, that get no variables.
	AnnotationSkipContainers = "iam.aws.k8s.io/skip-containers"
	// AnnotationRedirect requests AWS_CONTAINER_CREDENTIALS_RELATIVE_URI and 169.254.170.2 if its value is "true", for SDKs that
	// know no other variable. It adds an init container with the capability NET_ADMIN, which the Pod Security levels restricted and
	// baseline refuse.
	AnnotationRedirect = "iam.aws.k8s.io/redirect"
)

// Limits on the cost of a request. The author of a pod writes most of it, and each pod of the cluster may reach the webhook.
const (
	maxBody     = 2 << 20 // etcd stores no larger pod
	maxElements = 500
	maxWarnings = 10
	maxInFlight = 8
	maxPage     = 50
	// readTimeout is how long a body may take. The API server waits 10 s for the answer.
	readTimeout = 5 * time.Second
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
	if u, err := address.Parse("server", o.Server, 0); err != nil || u.Path != "" {
		return nil, fmt.Errorf("webhook: server %q: use https://host:port without a path", redact.URL(o.Server))
	}
	o.Command, o.Port = cmp.Or(o.Command, "/pod"), cmp.Or(o.Port, DefaultPort)
	if o.Port < 1024 || o.Port > 65535 {
		return nil, fmt.Errorf("webhook: port %d: use one of 1024 to 65535, since the sidecar has no privileges", o.Port)
	}
	if o.Logger.GetSink() == nil {
		o.Logger = logr.FromSlogHandler(slog.DiscardHandler) // controller-runtime would take its global one
	}
	h := &handler{o: o, results: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "podidentity_webhook_pods_total",
		Help: "Requests for the admission of pods, by result: injected, unchanged, unbound, skipped, denied or error."}, []string{"result"})}
	if o.Registerer != nil {
		if err := o.Registerer.Register(h.results); err != nil {
			return nil, fmt.Errorf("webhook: register the metrics: %w", err)
		}
	}
	// Its own logger would repeat names of the request, which are as long as their author likes.
	hook := &admission.Webhook{Handler: h, LogConstructor: func(logr.Logger, *admission.Request) logr.Logger { return o.Logger }}
	return &limited{hook: hook, slots: make(chan struct{}, maxInFlight)}, nil
}

// Handle implements admission.Handler.
func (h *handler) Handle(ctx context.Context, req admission.Request) admission.Response {
	response, result := h.answer(ctx, req)
	h.results.WithLabelValues(result).Inc()
	if !response.Allowed {
		h.o.Logger.Info("pod not admitted", "namespace", fmt.Sprintf("%.253q", req.Namespace), "pod", fmt.Sprintf("%.253q", req.Name), "result", result, "reason", response.Result.Message)
	}
	return response
}

func (h *handler) answer(ctx context.Context, req admission.Request) (admission.Response, string) {
	if req.Operation != admissionv1.Create || req.Resource.Resource != "pods" || req.SubResource != "" {
		return admission.Allowed("not the creation of a pod"), "skipped"
	}
	pod := &pod{}
	if err := json.Unmarshal(req.Object.Raw, pod); errors.Is(err, errLongList) {
		return admission.Denied(err.Error()), "denied"
	} else if err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("decode the pod: %.300s", err.Error())), "error"
	}
	if a := pod.Metadata.Annotations; a.Mirror != nil || a.Inject == "false" {
		return admission.Allowed("opted out"), "skipped"
	}
	account := cmp.Or(pod.Spec.ServiceAccountName, "default")
	found, err := h.bindings(ctx, req.Namespace, account)
	switch {
	case err != nil:
		return admission.Errored(http.StatusInternalServerError, err), "error"
	case len(found) == 0:
		return admission.Allowed("no IAMBinding"), "unbound"
	case len(found) > 1:
		return admission.Denied(fmt.Sprintf("the IAMBindings %.253q and %.253q of namespace %.253q name the same ServiceAccount %.253q, so none of them serves: delete all but one",
			found[0].Name, found[1].Name, req.Namespace, account)), "denied"
	}
	in := injection{options: h.o, ca: h.o.CA(), pod: pod, binding: &found[0]}
	if len(in.ca) == 0 {
		return admission.Errored(http.StatusInternalServerError, errors.New("the webhook has no CA of the server")), "error"
	}
	if err := in.run(); err != nil {
		return admission.Denied(err.Error()), "denied"
	}
	response := admission.Patched("", in.patch...).WithWarnings(in.warnings[:min(len(in.warnings), maxWarnings)]...)
	if len(in.patch) == 0 {
		return response, "unchanged"
	}
	return response, "injected"
}

// bindings returns the bindings of a ServiceAccount, or the first ones if there are more than one. A cache without any may be behind.
func (h *handler) bindings(ctx context.Context, namespace, account string) ([]v1alpha1.IAMBinding, error) {
	found, _, err := find(ctx, h.o.Bindings, namespace, account)
	if err != nil || len(found) > 0 {
		return found, err
	}
	for next := ""; ; {
		var page []v1alpha1.IAMBinding
		page, next, err = find(ctx, h.o.Live, namespace, account, client.Limit(maxPage), client.Continue(next))
		if found = append(found, page...); err != nil || next == "" || len(found) > 1 {
			return found, err
		}
	}
}

// find returns the bindings of a ServiceAccount in one page, and where the next page continues. The server ignores deleted ones too.
func find(ctx context.Context, from client.Reader, namespace, account string, page ...client.ListOption) ([]v1alpha1.IAMBinding, string, error) {
	var list v1alpha1.IAMBindingList
	if err := from.List(ctx, &list, append(page, client.InNamespace(namespace))...); err != nil {
		return nil, "", fmt.Errorf("list the IAMBindings of namespace %.253q: %.500s", namespace, err.Error())
	}
	return slices.DeleteFunc(list.Items, func(b v1alpha1.IAMBinding) bool {
		return !b.DeletionTimestamp.IsZero() || b.Spec.ServiceAccountRef.Name != account
	}), list.Continue, nil
}
