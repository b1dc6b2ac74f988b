package bootstrap

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/kube"
)

func newToken() doctor.Remedy {
	return doctor.Do("Create a new token on a control plane node:", "kubeadm token create --print-join-command")
}

// checkSecret precedes the signature, since it knows the cause of a missing one.
func (e *examination) checkSecret(ctx context.Context) doctor.Finding {
	switch {
	case e.id == "":
		return doctor.Skipped("There is no token.")
	case e.Client == nil:
		return doctor.Skipped("There is no kubeconfig of an administrator, so the Secret of the token is not read.")
	}
	name := bootstrap.SecretNamePrefix + e.id
	secret := &corev1.Secret{}
	err := kube.Get(ctx, e.Client, corev1.SchemeGroupVersion.WithKind("Secret"), client.ObjectKey{Namespace: bootstrap.SecretNamespace, Name: name}, secret)
	switch {
	case apierrors.IsNotFound(err) && e.isElsewhere(ctx):
		return doctor.Unclear(doctor.Do("Use the kubeconfig of an administrator of the cluster at the server's address, or none."),
			"The kubeconfig is of another cluster: it lacks token %s, which signs the server's cluster-info.", e.id)
	case apierrors.IsNotFound(err):
		f := doctor.Failed("NoToken", newToken(), "There is no token %s in this cluster.", e.id)
		f.Causes = []string{"it has expired or was deleted", "it is of another cluster, or the kubeconfig is"}
		return f
	case err != nil:
		return kube.Unread("the Secret of the token", err, "kubectl get secret -n kube-system "+name)
	}
	return e.judgeSecret(secret)
}

func (e *examination) judgeSecret(secret *corev1.Secret) doctor.Finding {
	c, err := bootstrap.ParseSecret(secret)
	if err == nil {
		e.stored = c
	}
	switch now := e.now(); {
	case secret.DeletionTimestamp != nil:
		return doctor.Failed("TokenDeleted", newToken(), "The token %s is being deleted.", e.id)
	case err != nil:
		return doctor.Failed("TokenSecretMalformed", doctor.Do("Delete the Secret, and create a new token on a control plane node:",
			"kubectl delete secret -n kube-system "+bootstrap.SecretNamePrefix+e.id, "kubeadm token create --print-join-command"),
			"Kubernetes ignores the token: %s.", err)
	case e.isWhole && !c.Token.Equal(e.token):
		return doctor.Failed("TokenDiffers", newToken(), "The Secret of token %s holds another secret half.", e.id)
	case c.MalformedExpiration:
		return doctor.Failed("TokenSecretMalformed", newToken(), "The expiration of the token is malformed, so the token counts as expired.")
	case c.Expired(now):
		return doctor.Failed("TokenExpired", newToken(), "The token has expired.").Compare("expiration", kube.Stamp(c.Expires), "now", kube.Stamp(now))
	case !c.Allows(bootstrap.UsageSigning):
		return doctor.Failed("TokenMayNotSign", newToken(), "The token may not sign cluster-info.").Compare("usages", strings.Join(c.Usages, ", "), "needed", bootstrap.UsageSigning)
	}
	e.token = c.Token
	return doctor.Passed("The token may sign cluster-info.").Detail("usages", strings.Join(c.Usages, ", "))
}

// isElsewhere reports that Client reads another cluster than the server's. It goes by content, since a load balancer has another
// address than the API server.
func (e *examination) isElsewhere(ctx context.Context) bool {
	_, signed := e.served[bootstrap.SignaturePrefix+e.id]
	own, err := e.own(ctx)
	return signed && (apierrors.IsNotFound(err) || err == nil && own != e.served[bootstrap.KubeConfigKey])
}

// own returns cluster-info as the administrator reads it.
func (e *examination) own(ctx context.Context) (string, error) {
	var info corev1.ConfigMap
	err := kube.Get(ctx, e.Client, corev1.SchemeGroupVersion.WithKind("ConfigMap"),
		client.ObjectKey{Namespace: bootstrap.ConfigMapNamespace, Name: bootstrap.ConfigMapName}, &info)
	return info.Data[bootstrap.KubeConfigKey], err
}
