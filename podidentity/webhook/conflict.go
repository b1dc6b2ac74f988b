package webhook

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
)

// BindingsPath is the path for reviews of IAMBindings. The handler never denies
// an IAMBinding there, so a busy webhook delays none.
const BindingsPath = "/iambindings"

// answerBinding admits an IAMBinding, with a warning if it conflicts with
// another one. The cache may lag behind, so a condition reports the conflict
// too.
func (h *handler) answerBinding(ctx context.Context, req *admissionv1.AdmissionRequest) admission.Response {
	response := admission.Allowed("")
	binding := struct {
		Spec struct {
			ServiceAccountRef v1alpha1.ServiceAccountReference `json:"serviceAccountRef"`
		} `json:"spec"`
	}{}
	if json.Unmarshal(req.Object.Raw, &binding) != nil {
		return response // the CRD refuses the object
	}
	account := binding.Spec.ServiceAccountRef.Name
	// An error yields no warning.
	found, _, _ := find(ctx, h.o.Bindings, req.Namespace, account, client.UnsafeDisableDeepCopy)
	for _, other := range found {
		if other.Name != req.Name {
			return response.WithWarnings(
				fmt.Sprintf("the IAMBinding %.253q of namespace %.253q names the same ServiceAccount %.253q, "+
					"so neither of them serves, and new pods are refused: delete one", other.Name, req.Namespace, account))
		}
	}
	return response
}
