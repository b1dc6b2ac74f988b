package regtest

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/registration/ocm"
)

// clusterSetLabel is set by the mutating webhook of Open Cluster Management.
const clusterSetLabel = "cluster.open-cluster-management.io/clusterset"

// OCMWebhook installs what the registration webhook of Open Cluster Management
// does to ManagedClusters: it labels them, then asks whether their user may
// join the cluster set, and accept the cluster. Stop removes its
// configurations.
func OCMWebhook(t *testing.T, hub client.Client) (stop func()) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/mutate", reviewed(func(_ *admissionv1.AdmissionRequest, _, now *ocm.ManagedCluster) (string, bool) {
		patch := `[{"op":"add","path":"/metadata/labels","value":{"` + clusterSetLabel + `":"default"}}]`
		if len(now.Labels) > 0 {
			patch = `[{"op":"add","path":"/metadata/labels/cluster.open-cluster-management.io~1clusterset","value":"default"}]`
		}
		if now.Labels[clusterSetLabel] != "" {
			patch = ""
		}
		return patch, true
	}))
	mux.HandleFunc("/validate",
		reviewed(func(request *admissionv1.AdmissionRequest, before, now *ocm.ManagedCluster) (string, bool) {
			may := func(a authorizationv1.ResourceAttributes) bool {
				review := &authorizationv1.SubjectAccessReview{
					Spec: authorizationv1.SubjectAccessReviewSpec{User: request.UserInfo.Username, Groups: request.UserInfo.Groups,
						UID: request.UserInfo.UID, Extra: extraOf(request.UserInfo), ResourceAttributes: &a}}
				return hub.Create(t.Context(), review) == nil && review.Status.Allowed
			}
			accepts := now.Spec.HubAcceptsClient && !before.Spec.HubAcceptsClient
			moves := now.Labels[clusterSetLabel] != before.Labels[clusterSetLabel]
			return "",
				(!accepts ||
					may(authorizationv1.ResourceAttributes{Group: "register.open-cluster-management.io", Resource: "managedclusters",
						Subresource: "accept", Verb: "update", Name: now.Name})) &&
					(!moves ||
						may(authorizationv1.ResourceAttributes{Group: ocm.GroupVersion.Group, Resource: "managedclustersets",
							Subresource: "join", Verb: "create", Name: now.Labels[clusterSetLabel]}))
		}))
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	call := func(path string) admissionregistrationv1.WebhookClientConfig {
		url := server.URL + path
		return admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: ca}
	}
	const mutating, validating = "managedclustermutators.admission.cluster.open-cluster-management.io",
		"managedclustervalidators.admission.cluster.open-cluster-management.io"
	none := admissionregistrationv1.SideEffectClassNone
	rules := []admissionregistrationv1.RuleWithOperations{
		{Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			Rule: admissionregistrationv1.Rule{APIGroups: []string{ocm.GroupVersion.Group}, APIVersions: []string{"*"},
				Resources: []string{"managedclusters"}}}}
	objects := []client.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: mutating},
			Webhooks: []admissionregistrationv1.MutatingWebhook{{
				Name: mutating, ClientConfig: call("/mutate"), Rules: rules, SideEffects: &none,
				AdmissionReviewVersions: []string{"v1"}}}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: validating},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: validating, ClientConfig: call("/validate"), Rules: rules, SideEffects: &none,
				AdmissionReviewVersions: []string{"v1"}}}},
	}
	for _, o := range objects {
		Must(t, hub.Create(t.Context(), o))
	}
	return func() {
		for _, o := range objects {
			if err := hub.Delete(t.Context(), o); err != nil {
				t.Error(err)
			}
		}
	}
}

func extraOf(user authenticationv1.UserInfo) map[string]authorizationv1.ExtraValue {
	extra := map[string]authorizationv1.ExtraValue{}
	for key, value := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(value)
	}
	return extra
}

// reviewed answers an AdmissionReview of a ManagedCluster with a JSON patch, if
// any, or a refusal.
func reviewed(check func(request *admissionv1.AdmissionRequest, before, now *ocm.ManagedCluster) (patch string,
	allowed bool)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		before, now := &ocm.ManagedCluster{}, &ocm.ManagedCluster{}
		err := json.NewDecoder(r.Body).Decode(&review)
		if err == nil {
			err = json.Unmarshal(review.Request.Object.Raw, now)
		}
		if err == nil && len(review.Request.OldObject.Raw) > 0 {
			err = json.Unmarshal(review.Request.OldObject.Raw, before)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		patch, allowed := check(review.Request, before, now)
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: allowed}
		if !allowed {
			review.Response.Result = &metav1.Status{Code: http.StatusForbidden,
				Message: "the webhook of Open Cluster Management refuses user " + review.Request.UserInfo.Username}
		}
		if kind := admissionv1.PatchTypeJSONPatch; patch != "" {
			review.Response.Patch, review.Response.PatchType = []byte(patch), &kind
		}
		review.Request = nil
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review) // the API server notices
	}
}
