package registration

import (
	"context"
	"crypto/x509"
	"encoding/pem"
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
			return kube.Unread("the agent's Secrets", err, e.spoke.command("kubectl get secrets -n "+e.agentNamespace))
		}
	}
	switch {
	case hub == nil && boot == nil:
		return e.fault("BootstrapSecretMissing", "Both Secrets of the agent are missing in namespace %s.", e.agentNamespace)
	case hub == nil:
		return e.quoteAgent(ctx, e.fault("HubKubeConfigSecretMissing", "The agent has a bootstrap credential, but no credential of its own yet."))
	case len(hub["kubeconfig"]) == 0 && len(hub["tls.crt"]) == 0:
		return e.quoteAgent(ctx, e.fault("HubKubeConfigMissing", "The agent has not been issued a credential yet: its Secret is incomplete."))
	case len(hub["kubeconfig"]) == 0:
		return e.fault("HubKubeConfigUnusable", "The Secret %s has no kubeconfig.", ocm.HubKubeconfigSecret)
	}
	if f := e.judgeCertificate(hub["tls.crt"]); f.Result != doctor.Pass {
		return f
	}
	switch {
	case boot == nil:
		return e.fault("BootstrapSecretMissing", "The Secret %s of the agent is missing. It needs it when its certificate has expired.", bootstrapSecret).As(doctor.Warn)
	case len(boot["kubeconfig"]) == 0:
		return e.fault("BootstrapSecretError", "The Secret %s has no kubeconfig. The agent needs it when its certificate has expired.", bootstrapSecret).As(doctor.Warn)
	}
	return doctor.Passed("The agent has its Secrets.")
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

// hasCredential reports whether the hub has given the agent a credential.
func (e *examination) hasCredential(ctx context.Context) bool {
	if e.Spoke == nil {
		return false
	}
	data, err := e.readSecret(ctx, ocm.HubKubeconfigSecret)
	return err == nil && len(data["kubeconfig"]) > 0
}

func (e *examination) judgeCertificate(content []byte) doctor.Finding {
	if !e.usesCertificates() {
		return doctor.Passed("The agent uses no certificate.")
	}
	var c *x509.Certificate
	if block, _ := pem.Decode(content); block != nil {
		c, _ = x509.ParseCertificate(block.Bytes) //nolint:errcheck // nil says the same
	}
	user := registration.AgentUser(e.ClusterName, "")
	switch {
	case c == nil:
		return e.fault("HubKubeConfigUnusable", "tls.crt in the Secret %s is not a certificate.", ocm.HubKubeconfigSecret)
	case !strings.HasPrefix(c.Subject.CommonName, user):
		return e.fault("HubKubeConfigUnusable", "The agent's certificate belongs to another cluster.").Compare("certificate", c.Subject.CommonName, "expected", user+"AGENT")
	}
	const overdue = 10 // a tenth; the agent renews while a fifth is left
	f := doctor.Passed("The agent has a certificate until %s.", c.NotAfter.UTC().Format(time.RFC3339))
	switch left := c.NotAfter.Sub(e.now()); {
	case left <= 0:
		f = e.fault("CertificateExpired", "The agent's certificate for the hub has expired.")
	case left < c.NotAfter.Sub(c.NotBefore)/overdue:
		f = e.fault("ClientCertificateUpdateFailed", "The agent's certificate expires soon and was not renewed in time.").As(doctor.Warn)
	}
	return f.Compare("expiry", kube.Stamp(c.NotAfter), "now", kube.Stamp(e.now()))
}
