package registration

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/kube"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/ocm"
)

const bootstrapSecret = agent.DefaultBootstrapSecret

// checkSecrets shows names, keys and the public part of the certificate.
func (e *examination) checkSecrets(ctx context.Context) doctor.Finding {
	if e.Spoke == nil {
		return doctor.Skipped("There is no kubeconfig of the cluster.")
	}
	hub, err := e.readSecret(ctx, ocm.HubKubeconfigSecret)
	boot, bootErr := e.readSecret(ctx, bootstrapSecret)
	for _, err := range []error{err, bootErr} {
		if client.IgnoreNotFound(err) != nil {
			return kube.Unread("the agent's Secrets", err, "kubectl get secrets -n "+e.agentNamespace)
		}
	}
	issue := e.readLog("In the cluster, read in the agent's log why:")
	needed := []string{"kubeconfig", "cluster-name", "agent-name", "tls.crt", "tls.key"}
	if !e.usesCertificates() {
		needed = needed[:3]
	}
	switch absent := lacking(hub, needed); {
	case hub == nil && boot == nil:
		return doctor.Failed("O24", doctor.Do("Join the cluster again:", "wid join --cluster-name "+e.name()+" --hub-apiserver URL --hub-token -"),
			"Both Secrets of the agent are missing in namespace %s.", e.agentNamespace)
	case hub == nil:
		return doctor.Failed("O24", issue, "The agent has a bootstrap credential, but no credential of its own yet.").
			Compare(ocm.HubKubeconfigSecret, "not found", "expected", "in namespace "+e.agentNamespace)
	case len(absent) > 0:
		return doctor.Failed("O25", issue, "The agent has not been issued a credential yet: its Secret is incomplete.").
			Compare("keys", keysOf(hub), "missing", strings.Join(absent, ", "))
	}
	if f := e.judgeCertificate(hub["tls.crt"]); f.Result != doctor.Pass {
		return f
	}
	switch {
	case boot == nil:
		return doctor.Failed("O24", doctor.Do("Create it again with a kubeconfig of the hub. The agent needs it when its certificate has expired."),
			"The Secret %s of the agent is missing.", bootstrapSecret).As(doctor.Warn)
	case len(boot["kubeconfig"]) == 0:
		return doctor.Failed("O25", doctor.Do("Create it again with a kubeconfig of the hub under the key kubeconfig."),
			"The Secret %s has no kubeconfig.", bootstrapSecret).As(doctor.Warn)
	}
	return doctor.Passed("The agent has its Secrets.").Detail("keys", keysOf(hub))
}

// readSecret returns nil data if there is no Secret.
func (e *examination) readSecret(ctx context.Context, name string) (map[string][]byte, error) {
	var secret corev1.Secret
	err := kube.Get(ctx, e.Spoke, corev1.SchemeGroupVersion.WithKind("Secret"), client.ObjectKey{Namespace: e.agentNamespace, Name: name}, &secret)
	if secret.Data == nil && !apierrors.IsNotFound(err) {
		secret.Data = map[string][]byte{}
	}
	return secret.Data, err
}

func keysOf(data map[string][]byte) string {
	if len(data) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(data)), ", ")
}

func lacking(data map[string][]byte, keys []string) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return len(data[key]) > 0 })
}

func (e *examination) judgeCertificate(content []byte) doctor.Finding {
	if !e.usesCertificates() {
		return doctor.Passed("The agent uses no certificate.")
	}
	block, _ := pem.Decode(content)
	malformed := doctor.Failed("O25", e.rejoin(), "tls.crt in the Secret %s is not a certificate.", ocm.HubKubeconfigSecret)
	if block == nil {
		return malformed
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return malformed
	}
	const overdue = 10 // a tenth; the agent renews while a fifth is left
	left, life := c.NotAfter.Sub(e.now()), c.NotAfter.Sub(c.NotBefore)
	var f doctor.Finding
	switch user := registration.AgentUser(e.ClusterName, ""); {
	case !strings.HasPrefix(c.Subject.CommonName, user):
		return doctor.Failed("O26", e.rejoin(), "The agent's certificate is of another cluster.").Compare("certificate", c.Subject.CommonName, "expected", user+"AGENT")
	case left <= 0:
		f = doctor.Failed("O27", e.rejoin(), "The agent's certificate for the hub has expired.")
	case left < life/overdue:
		f = doctor.Failed("O27", e.readLog("In the cluster, read in the agent's log why:"), "The agent's certificate expires soon and was not renewed in time.").As(doctor.Warn)
	default:
		return doctor.Passed("The agent has a certificate until %s.", c.NotAfter.UTC().Format(time.RFC3339))
	}
	return f.Compare("expiry", kube.Stamp(c.NotAfter), "now", kube.Stamp(e.now()))
}
