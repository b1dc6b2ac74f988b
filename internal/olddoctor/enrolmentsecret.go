package doctor

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	bootstrapSecret = "bootstrap-hub-kubeconfig"
	hubSecret       = "hub-kubeconfig-secret"
)

// checkSecrets shows names, keys, and of the certificate, which is public, how long it lives. Nothing else of a Secret
// leaves this function.
func (e *enrolment) checkSecrets(ctx context.Context) Finding {
	if e.Spoke == nil {
		return unknown("there is no access to the cluster itself", noSpoke)
	}
	switch {
	case e.sides.swapped:
		return skip("skipped: this is the hub, see enrolment-hub")
	case e.wrongCluster():
		return skip("skipped: they are another enrolment's, " + seeAgent)
	}
	hub, missing, f := e.secretKeys(ctx, hubSecret)
	if f.Result != "" {
		return f
	}
	boot, bootMissing, f := e.secretKeys(ctx, bootstrapSecret)
	if f.Result != "" {
		return f
	}
	needed := []string{"kubeconfig", "cluster-name", "agent-name", "tls.crt", "tls.key"}
	if e.usesIAM() {
		needed = needed[:3]
	}
	switch {
	case missing && bootMissing:
		return fail("O24", "clusteradm get token, at the hub, and clusteradm join with what it prints, in the cluster",
			"neither of the agent's Secrets is in namespace %s", e.agentNamespace).
			with(differs("Secrets", "none", bootstrapSecret+", then "+hubSecret))
	case missing:
		return fail("O24", e.accept()+"\n"+e.agentLog(), "the agent has a credential for its first request, but none for the "+
			"hub yet").with(differs("Secret", "not found", e.agentNamespace+"/"+hubSecret))
	}
	if absent := lacking(hub, needed); len(absent) > 0 {
		return fail("O25", e.accept()+"\n"+e.agentLog(), "%s lacks %s: the agent has not been issued a credential yet",
			hubSecret, strings.Join(absent, ", ")).
			with(differs("keys", keysOf(hub), strings.Join(needed, ", ")))
	}
	if f := e.judgeCertificate(hub["tls.crt"]); f.Result != Pass {
		return f
	}
	switch {
	case bootMissing:
		return Finding{Result: Warn, Class: "O24", Remedy: "keep a bootstrap kubeconfig there: without one the agent cannot " +
			"begin anew when its certificate has expired",
			Message: hubSecret + " is good, but " + bootstrapSecret + " is missing"}.with(differs("Secret", "not found",
			e.agentNamespace+"/"+bootstrapSecret))
	case len(lacking(boot, []string{"kubeconfig"})) > 0:
		return Finding{Result: Warn, Class: "O25", Remedy: "join again: clusteradm join",
			Message: bootstrapSecret + " has no kubeconfig"}.
			with(differs("keys", keysOf(boot), "kubeconfig"))
	}
	return e.judgeCertificate(hub["tls.crt"]).with(same(hubSecret, keysOf(hub)), same(bootstrapSecret, keysOf(boot)))
}

// secretKeys has a finding of its own if the Secret could not be read.
func (e *enrolment) secretKeys(ctx context.Context, name string) (data map[string][]byte, missing bool, f Finding) {
	secret := &corev1.Secret{}
	err := readObject(ctx, e.Spoke, "v1", "Secret", client.ObjectKey{Namespace: e.agentNamespace, Name: name}, secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, true, f
	case err != nil:
		return nil, false, unread("the agent's Secrets", err,
			fmt.Sprintf("grant get on the Secret %s in namespace %s", name, e.agentNamespace))
	}
	return secret.Data, false, f
}

func keysOf(data map[string][]byte) string {
	return firstOf(strings.Join(slices.Sorted(maps.Keys(data)), ", "), "none")
}

func lacking(data map[string][]byte, keys []string) (absent []string) {
	for _, key := range keys {
		if len(data[key]) == 0 {
			absent = append(absent, key)
		}
	}
	return absent
}

func (e *enrolment) judgeCertificate(content []byte) Finding {
	if e.usesIAM() {
		return pass("the agent has its credential for the hub, of IAM")
	}
	block, _ := pem.Decode(content)
	if block == nil || block.Type != "CERTIFICATE" {
		return fail("O25", e.rejoin(), "tls.crt in %s is not a certificate", hubSecret)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return fail("O25", e.rejoin(), "tls.crt in %s is not a certificate", hubSecret)
	}
	left, life := c.NotAfter.Sub(e.time()), c.NotAfter.Sub(c.NotBefore)
	const overdue = 10 // a tenth; the agent renews while a fifth is left
	end := differs("notAfter", stamp(c.NotAfter), "after "+stamp(e.time()))
	switch {
	case !strings.HasPrefix(c.Subject.CommonName, e.agentUser()):
		return fail("O26", e.rejoin(), "the agent's certificate is of another cluster: it is left over from an older enrolment").
			with(differs("CN", c.Subject.CommonName, e.agentUser()+"<agent>"))
	case left <= 0:
		return fail("O27", e.rejoin()+", with a new token", "the agent's certificate for the hub has expired").with(end)
	case left < life/overdue:
		return Finding{Result: Warn, Class: "O27", Remedy: e.agentLog(),
			Message: "the agent's certificate for the hub ends soon, and was not renewed in time"}.with(end)
	}
	return pass("the agent has its certificate for the hub, until %s", stamp(c.NotAfter)).
		with(same("notAfter", stamp(c.NotAfter)))
}
