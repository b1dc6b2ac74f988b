package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/workloadid/workloadid/internal/address"
	"github.com/workloadid/workloadid/internal/buildinfo"
	"github.com/workloadid/workloadid/internal/buildinfo/metric"
	"github.com/workloadid/workloadid/internal/quota"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
)

// Options configures the handler. Bindings, Live, Image, Server, CA and
// Audience are required.
type Options struct {
	// Bindings lists the IAMBindings of a namespace from a cache. The webhook
	// uses only spec.serviceAccountRef, spec.containers, and name, namespace
	// and deletionTimestamp of their metadata. Strip the rest with the cache's
	// DefaultTransform. Without the admission policy v1alpha1.Policy it may
	// take 1.5 MB for each binding.
	Bindings client.Reader
	// Live lists the IAMBindings from the API server, in small pages, if the
	// cache holds none for a pod. A binding may be newer than the cache. Use a
	// client without a rate limit (rest.Config.QPS -1).
	Live client.Reader
	// Image is the image of the sidecar. Its program, Command, is
	// cmd/iam-credentials-pod.
	Image string
	// Command runs the program. Default: /ko-app/iam-credentials-pod, as in the
	// images that ko builds.
	Command string
	// Server is the server's address, https://host:port.
	Server string
	// CA returns the PEM certificates that verify the server's certificate. A
	// sidecar begins with them at each start of its container, as long as its
	// pod lives. So during a rotation CA returns the old and the new CA.
	CA func() []byte
	// Audience is the audience of the pods' tokens, the same as the server's.
	Audience string
	// Resources apply to the sidecar and to the init container of
	// AnnotationRedirect. The default is DefaultResources.
	Resources corev1.ResourceRequirements
	// CPULimit is the CPU limit of these containers in a pod whose own
	// containers all have a CPU limit. A CPU limit in Resources takes
	// precedence. Default: DefaultCPULimit.
	CPULimit resource.Quantity
	// Port is the loopback port of the sidecar, 1024 or higher. Default:
	// DefaultPort.
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
	// AnnotationSkipContainers lists containers, separated by commas, that get
	// no variables.
	AnnotationSkipContainers = "iam.aws.k8s.io/skip-containers"
	// AnnotationRedirect requests AWS_CONTAINER_CREDENTIALS_RELATIVE_URI and
	// 169.254.170.2 if its value is "true", for SDKs that know no other
	// variable. It adds an init container with the capability NET_ADMIN, which
	// the Pod Security levels restricted and baseline refuse.
	AnnotationRedirect = "iam.aws.k8s.io/redirect"
)

type handler struct {
	o       Options
	results *prometheus.CounterVec
	bodies  quota.Budget // limits request bodies by connection
	slots   quota.Slots
	waiting quota.Budget // limits pods that wait for a list, by namespace
	// A namespace takes its turn before one of the lists, so namespaces
	// alternate, however many pods of one wait.
	turns quota.Map[string, quota.Slots]
	lists quota.Slots
}

// New checks the options and returns the handler. It answers AdmissionReviews
// of v1, and is safe for concurrent use.
//
// All bodies together take at most 16 MiB, the bodies of one connection at most
// 4 MiB. Serve HTTP/1.1 only, so that each request of the API server has a
// connection of its own.
func New(o Options) (http.Handler, error) {
	if o.Bindings == nil || o.Live == nil || o.CA == nil || o.Image == "" || o.Audience == "" {
		return nil, errors.New("webhook: Bindings, Live, Image, CA and Audience are required")
	}
	if u, err := address.Parse("server", o.Server, 0); err != nil || u.Path != "" {
		return nil, fmt.Errorf("webhook: server %q: use https://host:port without a path", redact.URL(o.Server))
	}
	o.Command, o.Port = cmp.Or(o.Command, "/ko-app/iam-credentials-pod"), cmp.Or(o.Port, DefaultPort)
	if o.Port < 1024 || o.Port > 65535 {
		return nil, fmt.Errorf("webhook: port %d: use one of 1024 to 65535, since the sidecar has no privileges", o.Port)
	}
	if o.Resources.Requests == nil && o.Resources.Limits == nil {
		o.Resources = DefaultResources()
	}
	if o.CPULimit.IsZero() {
		o.CPULimit = DefaultCPULimit()
	}
	if err := o.checkResources(); err != nil {
		return nil, err
	}
	if o.Logger.GetSink() == nil {
		o.Logger = logr.FromSlogHandler(slog.DiscardHandler) // else controller-runtime would take its global logger
	}
	h := &handler{
		o: o,
		results: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "podidentity_webhook_pods_total",
			Help: "Requests for the admission of pods, by result: injected, unchanged, unbound, skipped, denied, busy or error."}, []string{"result"}),
		bodies:  quota.Budget{Max: maxBodies, Share: maxOfConnection},
		slots:   make(quota.Slots, maxSlots),
		waiting: quota.Budget{Max: maxBodies, Share: maxOfNamespace},
		turns:   quota.Map[string, quota.Slots]{New: func() quota.Slots { return make(quota.Slots, 1) }},
		lists:   make(quota.Slots, maxLists),
	}
	if o.Registerer != nil {
		if err := errors.Join(o.Registerer.Register(h.results),
			metric.Register(buildinfo.OfModule(), o.Registerer, "podidentity", "webhook")); err != nil {
			return nil, fmt.Errorf("webhook: register the metrics: %w", err)
		}
	}
	return h, nil
}

func (h *handler) handle(ctx context.Context, req *admissionv1.AdmissionRequest) (admission.Response, string) {
	response, result := h.answer(ctx, req)
	if !response.Allowed {
		h.o.Logger.Info("pod not admitted", "namespace", fmt.Sprintf("%.253q", req.Namespace), "pod",
			fmt.Sprintf("%.253q", req.Name), "result", result, "reason", response.Result.Message)
	}
	return response, result
}

// answer decodes the pod only after it has found a binding, because a decoded
// pod takes several times its size.
func (h *handler) answer(ctx context.Context, req *admissionv1.AdmissionRequest) (admission.Response, string) {
	if req.Resource.Group == v1alpha1.GroupVersion.Group && req.Resource.Resource == "iambindings" &&
		req.SubResource == "" {
		return h.answerBinding(ctx, req), "skipped"
	}
	if req.Operation != admissionv1.Create || req.Resource.Resource != "pods" || req.SubResource != "" {
		return admission.Allowed("not the creation of a pod"), "skipped"
	}
	head := &head{}
	if err := json.Unmarshal(req.Object.Raw, head); err != nil {
		return refuse(http.StatusBadRequest, undecoded(err))
	}
	if a := head.Metadata.Annotations; a.Mirror != nil || a.Inject == "false" {
		return admission.Allowed("opted out"), "skipped"
	}
	account := cmp.Or(head.Spec.ServiceAccountName, "default")
	found, err := h.bindings(ctx, req.Namespace, account, len(req.Object.Raw))
	switch {
	case err != nil:
		return refuse(http.StatusInternalServerError, err)
	case len(found) == 0:
		response := admission.Allowed("no IAMBinding")
		if len(head.Metadata.OwnerReferences) == 0 { // else only the log of a controller would show it, for each pod
			response = response.WithWarnings(
				fmt.Sprintf(
					"no IAMBinding of namespace %.253q names the ServiceAccount %.253q, so the pod gets no AWS credentials: "+
						"create one and then the pod again, or set the annotation %s: \"false\"", req.Namespace, account,
					AnnotationInject))
		}
		return response, "unbound"
	case len(found) > 1:
		return admission.Denied(
			fmt.Sprintf(
				"the IAMBindings %.253q and %.253q of namespace %.253q name the same ServiceAccount %.253q, so none of them serves: delete all but one",
				found[0].Name, found[1].Name, req.Namespace, account)), "denied"
	}
	return h.inject(req.Object.Raw, &found[0])
}

func undecoded(err error) error { return fmt.Errorf("decode the pod: %.300s", err.Error()) }

func (h *handler) inject(raw []byte, binding *v1alpha1.IAMBinding) (admission.Response, string) {
	pod := &pod{}
	if err := json.Unmarshal(raw, pod); errors.Is(err, errLongList) {
		return admission.Denied(err.Error()), "denied"
	} else if err != nil {
		return refuse(http.StatusBadRequest, undecoded(err))
	}
	in := injection{options: h.o, ca: h.o.CA(), pod: pod, binding: binding}
	if len(in.ca) == 0 {
		return refuse(http.StatusInternalServerError, errors.New("the webhook has no CA of the server"))
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
