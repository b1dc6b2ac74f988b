package doctor

import (
	"context"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/bootstrap"
)

// elsewhere reports that the kubeconfig is of another cluster than the server, going by what both hold, not by their addresses:
// a load balancer has another one than the API server.
func (b *bootstrapping) elsewhere(ctx context.Context) bool {
	if b.served == nil {
		return false
	}
	if _, signed := b.served[bootstrap.SignaturePrefix+b.id]; !signed {
		return false
	}
	own := &corev1.ConfigMap{}
	err := readObject(ctx, b.Client, "v1", "ConfigMap",
		client.ObjectKey{Namespace: bootstrap.ConfigMapNamespace, Name: bootstrap.ConfigMapName}, own)
	switch {
	case apierrors.IsNotFound(err):
		return true
	case err != nil:
		return b.whole && b.verify() // what has made the signature had the token
	}
	return own.Data[bootstrap.KubeConfigKey] != b.served[bootstrap.KubeConfigKey]
}

// otherCluster is the finding then. The Secret is not in the wrong cluster; that says nothing of it.
func (b *bootstrapping) otherCluster() Finding {
	f := unknown("the kubeconfig is of another cluster, it seems: that has no token with this ID, but cluster-info of the server is "+
		"signed with one",
		"pass the kubeconfig of an administrator of the cluster at "+shown(b.url)+", or none")
	f.elsewhere = true
	return f.with(b.addresses()...)
}

// addresses are those of server and kubeconfig, if they differ.
func (b *bootstrapping) addresses() []Field {
	if b.RESTConfig == nil || sameHost(b.url, b.RESTConfig.Host) {
		return nil
	}
	return []Field{differs("server of the kubeconfig", strings.TrimSuffix(b.RESTConfig.Host, "/"), b.url+", or another address of the same cluster")}
}

// doubtAddress puts the address before remedies that change a cluster: they are for the right one only.
func (b *bootstrapping) doubtAddress(f Finding) Finding {
	u, err := url.Parse(b.url)
	if err != nil || f.Result != Fail {
		return f
	}
	switch f.Class {
	case "B5", "B6", "B7", "B8", "B9":
	default:
		return f
	}
	if path := strings.Trim(u.Path, "/"); path != "" {
		f.Class, f.Causes = "B1", nil
		f.Remedy = "name the API server without a path: " + shown(u.Host)
		f.Message += "; the address has a path, which API servers mostly do not have"
		return f.with(differs("path", u.Path, "none"))
	}
	if fields := b.addresses(); f.Class != "B5" && len(fields) > 0 {
		f.Message += "; the kubeconfig leads to another address"
		f.Remedy = "see first that both are the same cluster; if they are not, name the server of the right one; if they are:\n" + f.Remedy
		return f.with(fields...)
	}
	return f
}

// settleLogin has what is wrong with the Secret come before the refusal that it causes.
func settleLogin(r *Report) {
	secret, login := r.Of("bootstrap-token"), r.Of("bootstrap-login")
	if secret.Result == Warn && (secret.Class == "B28" || secret.Class == "B32") && login.Result == Fail && login.Class == "B30" {
		secret.Result = Fail
		login.Causes, login.Remedy = nil, "see bootstrap-token"
	}
}

// badGroup is the first of a Secret's groups that no token can give.
func badGroup(secret *corev1.Secret) string {
	for group := range strings.SplitSeq(string(secret.Data["auth-extra-groups"]), ",") {
		if bootstrap.ValidateGroup(group) != nil {
			return group
		}
	}
	return "malformed"
}
