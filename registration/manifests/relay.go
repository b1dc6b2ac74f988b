package manifests

import (
	_ "embed"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

// Relay is the kind of impersonation that a relay uses for client certificates.
type Relay string

// Constrained impersonation needs an API server since 1.36, and gives the relay
// only the rights of the agents of accepted clusters. The legacy right works on
// all servers, and equals an administrator's.
const (
	RelayConstrained Relay = "constrained"
	RelayLegacy      Relay = "legacy"
)

// relayService holds the Service in front of the relay.
//
//go:embed relay-service.yaml
var relayService string

// RelayBase returns the manifests of a relay with constrained impersonation,
// the Deployment last, for a hub that has --grant-relay.
func RelayBase(image string) (string, error) {
	return HubOptions{Image: image, AuthTypes: []string{registration.AuthTypeCSR}, Relay: RelayConstrained}.relay()
}

// relay returns the manifests of the relay, the Deployment last. A hub without
// certificates needs no right to impersonate.
func (o HubOptions) relay() (string, error) {
	manifests := []string{RelayRBAC()}
	switch {
	case !o.usesCertificates():
	case o.Relay == RelayLegacy:
		manifests = append(manifests, RelayLegacyRBAC())
	default:
		manifests = append(manifests, RelayConstrainedRBAC())
	}
	program, err := program{Namespace: ocm.RelayNamespace, Name: ocm.RelayName, Account: ocm.RelayName, Image: o.Image,
		Args:        []string{"relay", "--tls-cert-file=/tls/tls.crt", "--tls-private-key-file=/tls/tls.key"},
		pullSecrets: o.ImagePullSecrets, CPU: "50m", MemoryRequest: 128, MemoryLimit: 512, Egress: hubEgress,
		TLSSecret: ocm.RelaySecret}.manifest()
	return join(append(manifests, relayService, program)), err
}
