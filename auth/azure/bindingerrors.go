package azure

import (
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
)

// bindingError explains why the token proxy gave no token for a ServiceAccount.
func bindingError(answer entraAnswer, tenant, clientID string, sa *corev1.ServiceAccount, oidcToken string) error {
	e := classify(answer, opExchange, oidcToken)
	explainBinding(e, answer, clientID, fmt.Sprintf("the ServiceAccount %q", sa.Namespace+"/"+sa.Name))
	e.Message = fmt.Sprintf("client ID %q of tenant %q: %s", clientID, tenant, e.Message)
	return e
}

// explainBinding completes the error of a refusal. Microsoft documents no body
// for the proxy's own refusals, so those are the answers without an AADSTS
// number.
func explainBinding(e *auth.Error, answer entraAnswer, clientID, subject string) {
	const maintained = "create the identity binding of %q with the cluster again: AKS maintains its federated credential"
	number, _ := aadsts(e.Code)
	switch {
	case number == noFederation, number == wrongFederation, number == wrongIssuer, number == wrongAudience,
		number == wrongSubject:
		e.Remedy = fmt.Sprintf(maintained, clientID)
	case number != 0:
	case answer.Status == http.StatusForbidden:
		e.Reason, e.Remedy = auth.ErrDenied, fmt.Sprintf("bind %s to a ClusterRole with the verb use-managed-identity "+
			"in the API group cid.wi.aks.azure.com on the resource %q, and that identity to the cluster", subject, clientID)
	case answer.Status == http.StatusUnauthorized:
		e.Reason, e.Remedy = auth.ErrDenied, fmt.Sprintf("check that %s belongs to the cluster of the token proxy, "+
			"and that its token has the audience %q", subject, IdentityBindingAudience)
	}
	if answer.refusal == nil && e.Reason == auth.ErrDenied {
		e.Message = "the token proxy of the cluster refuses the request"
	}
}
