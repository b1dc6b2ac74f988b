package identity

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/internal/transport"
)

// checkCluster asks the named cluster who the credential belongs to.
func (e *examination) checkCluster(ctx context.Context) doctor.Finding {
	opts := append(e.options(), auth.WithClusterResource(e.Cluster), auth.WithClusterAddress(e.ClusterAddress), auth.WithCAData(e.ClusterCA))
	access, err := auth.GetRESTConfig(ctx, e.Provider, opts...)
	if err != nil {
		f := e.refusal("The cluster's API", err)
		if f.Class == "" && f.Result == doctor.Fail {
			class, _ := doctor.ClassByID(e.cloud.cluster)
			f.Class, f.Remedy = class.ID, sentence(cmp.Or(class.Remedy, "correct the name of the cluster"))
		}
		return f
	}
	e.keepSecret(access.BearerToken())
	review := &authenticationv1.SelfSubjectReview{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "SelfSubjectReview"}}
	status, err := e.post(ctx, access, "/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
	user := review.Status.UserInfo.Username
	switch {
	case err != nil:
		return doctor.Unclear(doctor.Do("Check address and CA of the cluster."), "The cluster cannot be reached: %s.", strings.TrimRight(transport.Message(err, e.secrets...), "."))
	case status == http.StatusUnauthorized:
		return e.unknownToCluster()
	case status != http.StatusCreated && status != http.StatusOK:
		return doctor.Unclear(doctor.Do("Try again."), "The cluster answers %d.", status)
	case user == "" || redact.Clean(user, e.secrets...) != user: // no user, or what it was sent
		return doctor.Unclear(doctor.Do("Check that the address is that of the cluster's API server."), "The answer is not that of an API server.")
	}
	return e.mayAct(ctx, access, user)
}

// unknownToCluster explains a 401, which has no reason in it.
func (e *examination) unknownToCluster() doctor.Finding {
	id := map[string]string{"aws": "A19", "generic": "K6"}[e.Provider.GetName()]
	cluster, role := e.Cluster[strings.LastIndexByte(e.Cluster, '/')+1:], e.serviceAccount().Annotations[e.cloud.required]
	class, _ := doctor.ClassByID(id)
	remedy := doctor.Do("Configure the cluster to accept tokens of " + e.cloud.name + ".")
	switch id {
	case "A19":
		remedy = doctor.Do("If another cluster is meant, correct its name.").OrTrust("If the role is meant to have access",
			strings.NewReplacer("CLUSTER_NAME", shell.Word(cluster, "CLUSTER_NAME"), "ROLE_ARN", shell.Word(role, "ROLE_ARN")).Replace(class.Remedy))
	case "K6":
		remedy = doctor.Do("Configure the cluster to trust issuer and audience of the token (AuthenticationConfiguration).")
	}
	f := doctor.Failed(id, remedy, "The cluster refuses the credential (401).")
	f.Causes, f.StatusCode = class.Causes, http.StatusUnauthorized
	return f
}

// mayAct distinguishes a user without a role in Azure, as AKS words it.
func (e *examination) mayAct(ctx context.Context, access *auth.RESTConfig, user string) doctor.Finding {
	ok := doctor.Passed("The cluster knows you as %s.", user)
	if e.Provider.GetName() != "azure" {
		return ok
	}
	review := &authorizationv1.SelfSubjectAccessReview{TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"},
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "namespaces"}}}
	_, err := e.post(ctx, access, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
	if err != nil || review.Status.Allowed || !strings.Contains(review.Status.Reason, "does not have access to the resource in Azure") {
		return ok
	}
	class, _ := doctor.ClassByID("Z18")
	return doctor.Failed(class.ID, sentence(e.filled(class.Remedy)), "The cluster knows you as %s, but Azure RBAC denies.", user).Detail("answer", review.Status.Reason)
}

// post creates a review at the cluster and reads the answer into it.
func (e *examination) post(ctx context.Context, access *auth.RESTConfig, path string, review any) (status int, err error) {
	httpClient, err := e.pool.Client(e.resolved().ProxyURL, string(access.CAData()))
	if err != nil {
		return 0, err
	}
	body, err := json.Marshal(review)
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(access.Host(), "/")+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+access.BearerToken())
	resp, err := httpClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close() //nolint:errcheck // read as far as it is of use
	answer, err := io.ReadAll(io.LimitReader(resp.Body, transport.MaxBody))
	if err != nil {
		return 0, err
	}
	_ = json.Unmarshal(answer, review) // anything but a review stays empty
	return resp.StatusCode, nil
}
