package bootstrap

import (
	"context"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/kube"
)

// checkCluster examines what a discovery needs, as an administrator of the cluster. A fault explains those after it.
func (e *examination) checkCluster(ctx context.Context) doctor.Finding {
	if e.Client == nil {
		return doctor.Skipped("There is no kubeconfig of an administrator, so the cluster's objects are not examined.")
	}
	info, secret, name := &corev1.ConfigMap{}, &corev1.Secret{}, bootstrapapi.BootstrapTokenSecretPrefix+e.id
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "system:anonymous", Groups: []string{"system:unauthenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: metav1.NamespacePublic, Verb: "get", Resource: "configmaps", Name: bootstrapapi.ConfigMapClusterInfo}}}
	for _, read := range []struct {
		what, command string
		err           error
	}{
		{"cluster-info", "kubectl get configmap -n kube-public cluster-info -o yaml", e.Client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespacePublic, Name: bootstrapapi.ConfigMapClusterInfo}, info)},
		{"the rights of anonymous clients", "kubectl auth can-i get configmaps/cluster-info -n kube-public --as system:anonymous --as-group system:unauthenticated", e.Client.Create(ctx, review)},
		{"the Secret of the token", "kubectl get secret -n kube-system " + name, e.Client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: name}, secret)},
	} {
		if client.IgnoreNotFound(read.err) != nil {
			return kube.Unread(read.what, read.err, e.side.Command(read.command))
		}
	}
	content := info.Data[bootstrapapi.KubeConfigKey]
	_, err := bootstrap.ParseClusterInfo([]byte(content))
	switch {
	case content == "":
		return e.fault("NotPublished", "The cluster has no cluster-info with a kubeconfig in the namespace kube-public.")
	case err != nil:
		return e.fault("ClusterInfoMalformed", "cluster-info is refused: %s.", err)
	case !review.Status.Allowed:
		return e.fault("AnonymousForbidden", "Anonymous clients may not read cluster-info, because its RoleBinding is missing.")
	case e.id == "":
		return doctor.Passed("Anonymous clients may read cluster-info. There is no token to examine.")
	}
	if says := e.flaw(secret); says != "" {
		return e.fault("TokenUnusable", "%s", says)
	}
	if bootstrap.Verify([]byte(content), info.Data[bootstrapapi.JWSSignatureKeyPrefix+e.id], e.token) != nil {
		return e.fault("NotSigned", "cluster-info is not signed with the token, although the token may sign.")
	}
	return doctor.Passed("Anonymous clients may read cluster-info, which is signed with the token.")
}

// flaw says why the signer does not use the token of the Secret.
func (e *examination) flaw(secret *corev1.Secret) string {
	if secret.Name == "" || secret.DeletionTimestamp != nil {
		return "There is no token " + e.id + " in this cluster."
	}
	stored, err := bootstrap.ParseSecret(secret)
	if err != nil {
		return fmt.Sprintf("Kubernetes ignores the token: %s.", err)
	}
	if e.groups = stored.Groups; e.token.IsZero() {
		e.token = stored.Token
	}
	switch {
	case !stored.Token.Equal(e.token):
		return "The Secret of token " + e.id + " holds another secret half."
	case stored.Expired(time.Now()):
		return "The token has expired, or its expiration is malformed."
	case !stored.Allows(bootstrap.UsageSigning):
		return "The token may not sign cluster-info, since it lacks the usage signing."
	case !stored.Allows(bootstrap.UsageAuthentication) || stored.MalformedGroups:
		return "The token does not log in, since it lacks the usage authentication, or a group does not begin with system:bootstrappers:."
	}
	return ""
}
