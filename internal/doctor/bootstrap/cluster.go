package bootstrap

import (
	"context"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/kube"
)

// onCluster skips a check without the kubeconfig of an administrator.
func (e *examination) onCluster(check func(context.Context) doctor.Finding) func(context.Context) doctor.Finding {
	return func(ctx context.Context) doctor.Finding {
		if e.Client == nil {
			return doctor.Skipped("There is no kubeconfig of an administrator, so the cluster's objects are not examined.")
		}
		return check(ctx)
	}
}

func (e *examination) checkPublished(ctx context.Context) doctor.Finding {
	info := &corev1.ConfigMap{}
	err := e.Client.Get(ctx, client.ObjectKey{Namespace: bootstrap.ConfigMapNamespace, Name: bootstrap.ConfigMapName}, info)
	if client.IgnoreNotFound(err) != nil {
		return kube.Unread("cluster-info", err, e.side.Command("kubectl get configmap -n kube-public cluster-info -o yaml"))
	}
	if info.Data[bootstrap.KubeConfigKey] == "" {
		return e.fault("NotPublished", "The cluster has no cluster-info with a kubeconfig in the namespace kube-public.")
	}
	parsed, err := bootstrap.ParseClusterInfo([]byte(info.Data[bootstrap.KubeConfigKey]))
	if err != nil {
		return e.fault("ClusterInfoMalformed", "cluster-info is refused: %s.", err)
	}
	e.published = info
	return doctor.Passed("cluster-info names %s.", parsed.Server)
}

func (e *examination) checkAccess(ctx context.Context) doctor.Finding {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "system:anonymous", Groups: []string{"system:unauthenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: bootstrap.ConfigMapNamespace, Verb: "get", Resource: "configmaps", Name: bootstrap.ConfigMapName}}}
	if err := e.Client.Create(ctx, review); err != nil {
		return kube.Unread("the rights of anonymous clients", err, e.side.Command("kubectl auth can-i get configmaps/cluster-info -n kube-public --as system:anonymous --as-group system:unauthenticated"))
	}
	if !review.Status.Allowed {
		return e.fault("AnonymousForbidden", "Anonymous clients may not read cluster-info, because its RoleBinding is missing.")
	}
	return doctor.Passed("Anonymous clients may read cluster-info.")
}

func (e *examination) checkToken(ctx context.Context) doctor.Finding {
	if e.id == "" {
		return doctor.Skipped("There is no token.")
	}
	name, secret := bootstrap.SecretNamePrefix+e.id, &corev1.Secret{}
	err := e.Client.Get(ctx, client.ObjectKey{Namespace: bootstrap.SecretNamespace, Name: name}, secret)
	switch {
	case apierrors.IsNotFound(err), err == nil && secret.DeletionTimestamp != nil:
		f := e.fault("NoToken", "There is no token %s in this cluster.", e.id)
		f.Causes = []string{"it has expired or was deleted", "it is of another cluster, or the kubeconfig is"}
		return f
	case err != nil:
		return kube.Unread("the Secret of the token", err, e.side.Command("kubectl get secret -n kube-system "+name))
	}
	stored, err := bootstrap.ParseSecret(secret)
	if err != nil {
		return e.fault("TokenSecretMalformed", "Kubernetes ignores the token: %s.", err)
	}
	e.stored = stored
	switch usages := strings.Join(stored.Usages, ", "); {
	case !e.token.IsZero() && !stored.Token.Equal(e.token):
		return e.fault("TokenDiffers", "The Secret of token %s holds another secret half.", e.id)
	case stored.MalformedExpiration:
		return e.fault("TokenExpired", "The expiration of the token is malformed, so the token counts as expired.")
	case stored.Expired(e.Now()):
		return e.fault("TokenExpired", "The token has expired.").Compare("expiration", kube.Stamp(stored.Expires), "this machine", kube.Stamp(e.Now()))
	case !stored.Allows(bootstrap.UsageSigning):
		return e.fault("TokenMayNotSign", "The token may not sign cluster-info.").Compare("usages", usages, "needed", bootstrap.UsageSigning)
	}
	return doctor.Passed("The token may sign cluster-info.")
}

func (e *examination) checkSignature(context.Context) doctor.Finding {
	if e.published == nil || e.stored == nil {
		return doctor.Skipped("cluster-info or the token was not read.")
	}
	jws := e.published.Data[bootstrap.SignaturePrefix+e.id]
	switch {
	case jws == "":
		return e.fault("NotSigned", "cluster-info is not signed for the token, although the token may sign.")
	case bootstrap.Verify([]byte(e.published.Data[bootstrap.KubeConfigKey]), jws, e.stored.Token) != nil:
		f := e.fault("SignatureWrong", "The signature of cluster-info is wrong: it was edited, and the signer does not run.")
		f.Remedy = e.remedies()["NotSigned"]
		return f
	}
	return doctor.Passed("cluster-info is signed with the token.")
}
