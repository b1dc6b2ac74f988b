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
	"github.com/workloadid/workloadid/internal/shell"
)

const (
	// showInfo shows cluster-info.
	showInfo = "kubectl get configmap -n " + bootstrap.ConfigMapNamespace + " " + bootstrap.ConfigMapName + " -o yaml"
	// newGroup says which group a token needs. The usual one of kubeadm has no right to register a cluster.
	newGroup = "GROUP is system:bootstrappers:managedcluster for a cluster that joins a hub, system:bootstrappers:kubeadm:default-node-token for a node."
)

func noKubeconfig() doctor.Finding {
	return doctor.Skipped("There is no kubeconfig of an administrator, so the cluster's objects are not examined.")
}

// publish returns the remedy that creates ConfigMap, Role and RoleBinding at once.
func publish() doctor.Remedy {
	return doctor.Do("In that cluster, as its administrator:", "wid bootstrap publish")
}

// newToken returns the remedy that creates a token with the groups of the stored one, if that was read.
func (e *examination) newToken(text string) doctor.Remedy {
	if e.stored != nil && len(e.stored.Groups) > 0 {
		return doctor.Do(text+":", "wid bootstrap create --groups "+shell.Word(strings.Join(e.stored.Groups, ","), "GROUP"))
	}
	return doctor.Do(text+". "+newGroup, "wid bootstrap create --groups GROUP")
}

const createToken = "In that cluster, as its administrator, create a new token"

func runSigner() doctor.Remedy {
	return doctor.Do("Run the signer; kube-controller-manager takes:", "--controllers=*,bootstrapsigner,tokencleaner")
}

func (e *examination) checkPublished(ctx context.Context) doctor.Finding {
	if e.Client == nil {
		return noKubeconfig()
	}
	info := &corev1.ConfigMap{}
	err := kube.Get(ctx, e.Client, corev1.SchemeGroupVersion.WithKind("ConfigMap"), client.ObjectKey{Namespace: bootstrap.ConfigMapNamespace, Name: bootstrap.ConfigMapName}, info)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return kube.Unread("cluster-info", err, showInfo)
	case err != nil || info.Data[bootstrap.KubeConfigKey] == "":
		return doctor.Failed("NotPublished", publish(), "The cluster has no cluster-info with a kubeconfig in the namespace kube-public.")
	}
	parsed, err := bootstrap.ParseClusterInfo([]byte(info.Data[bootstrap.KubeConfigKey]))
	if err != nil {
		return doctor.Failed("ClusterInfoMalformed", publish(), "cluster-info is refused: %s.", err)
	}
	e.published = info
	return doctor.Passed("cluster-info names %s.", parsed.Server)
}

func (e *examination) checkAccess(ctx context.Context) doctor.Finding {
	if e.published == nil {
		return doctor.Skipped("cluster-info was not read.")
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "system:anonymous", Groups: []string{"system:unauthenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: bootstrap.ConfigMapNamespace, Verb: "get", Resource: "configmaps", Name: bootstrap.ConfigMapName}}}
	if err := e.Client.Create(ctx, review); err != nil {
		return kube.Unread("the rights of anonymous clients", err, "kubectl auth can-i get configmaps/cluster-info -n kube-public --as system:anonymous --as-group system:unauthenticated")
	}
	if !review.Status.Allowed {
		return doctor.Failed("AnonymousForbidden", publish(), "Anonymous clients may not read cluster-info, because its RoleBinding is missing.")
	}
	return doctor.Passed("Anonymous clients may read cluster-info.")
}

func (e *examination) checkToken(ctx context.Context) doctor.Finding {
	switch {
	case e.Client == nil:
		return noKubeconfig()
	case e.id == "":
		return doctor.Skipped("There is no token.")
	}
	name, secret := bootstrap.SecretNamePrefix+e.id, &corev1.Secret{}
	err := kube.Get(ctx, e.Client, corev1.SchemeGroupVersion.WithKind("Secret"), client.ObjectKey{Namespace: bootstrap.SecretNamespace, Name: name}, secret)
	switch {
	case apierrors.IsNotFound(err), err == nil && secret.DeletionTimestamp != nil:
		f := doctor.Failed("NoToken", e.newToken(createToken), "There is no token %s in this cluster.", e.id)
		f.Causes = []string{"it has expired or was deleted", "it is of another cluster, or the kubeconfig is"}
		return f
	case err != nil:
		return kube.Unread("the Secret of the token", err, "kubectl get secret -n kube-system "+name)
	}
	if e.stored, err = bootstrap.ParseSecret(secret); err != nil {
		return doctor.Failed("TokenSecretMalformed", doctor.Do("Kubernetes ignores the Secret, so nothing is lost with it. Delete it, then create a token. "+newGroup,
			"kubectl delete secret -n kube-system "+name, "wid bootstrap create --groups GROUP"), "Kubernetes ignores the token: %s.", err)
	}
	return e.examineToken(e.stored)
}

func (e *examination) examineToken(c *bootstrap.TokenConfig) doctor.Finding {
	usages := strings.Join(c.Usages, ", ")
	switch now := e.Now(); {
	case e.isWhole && !c.Token.Equal(e.token):
		return doctor.Failed("TokenDiffers", e.newToken("Use the right secret half, or create a new token"), "The Secret of token %s holds another secret half.", e.id)
	case c.MalformedExpiration:
		return doctor.Failed("TokenExpired", e.newToken(createToken), "The expiration of the token is malformed, so the token counts as expired.")
	case c.Expired(now):
		return doctor.Failed("TokenExpired", e.newToken(createToken), "The token has expired.").Compare("expiration", kube.Stamp(c.Expires), "this machine", kube.Stamp(now))
	case !c.Allows(bootstrap.UsageSigning):
		return doctor.Failed("TokenMayNotSign", e.newToken(createToken), "The token may not sign cluster-info.").Compare("usages", usages, "needed", bootstrap.UsageSigning)
	}
	e.token = c.Token
	return doctor.Passed("The token may sign cluster-info.").Detail("usages", usages)
}

func (e *examination) checkSignature(context.Context) doctor.Finding {
	if e.published == nil || e.stored == nil {
		return doctor.Skipped("cluster-info or the token was not read.")
	}
	jws := e.published.Data[bootstrap.SignaturePrefix+e.id]
	switch {
	case jws == "":
		return doctor.Failed("NotSigned", runSigner(), "cluster-info is not signed for the token, although the token may sign.")
	case bootstrap.Verify([]byte(e.published.Data[bootstrap.KubeConfigKey]), jws, e.stored.Token) != nil:
		return doctor.Failed("SignatureWrong", runSigner(), "The signature of cluster-info is wrong: it was edited, and the signer does not run.")
	}
	return doctor.Passed("cluster-info is signed with the token.")
}
