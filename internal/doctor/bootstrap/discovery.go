package bootstrap

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/shell"
)

const discoveryTimeout = 15 * time.Second

// checkDiscovery does the same as a joining machine. A discovery never sends the token.
func (e *examination) checkDiscovery(ctx context.Context) doctor.Finding {
	switch {
	case e.Server == "":
		return doctor.Skipped("No server was named, so only the cluster's objects were examined.")
	case e.id == "":
		return doctor.Unclear(doctor.Do("Name the token, or its ID."), "There is no token to discover the cluster with.")
	}
	token := e.token
	if token.IsZero() { // reaches the server, and cannot verify what it answers
		token, _ = bootstrap.ParseToken(e.id + ".0000000000000000")
	}
	opts := []bootstrap.DiscoverOption{bootstrap.WithTimeout(discoveryTimeout), bootstrap.WithServerName(e.ServerName), bootstrap.WithoutWaiting(), bootstrap.WithoutPins()}
	info, err := bootstrap.Discover(ctx, []string{e.Server}, token, append(opts, bootstrap.WithPins(e.pins))...)
	var failed *bootstrap.AddressError
	switch {
	case errors.As(err, &failed) && failed.Cause == bootstrap.CauseSignatureWrong && e.token.IsZero():
		return doctor.Unclear(doctor.Do("Name the whole token, or a kubeconfig of an administrator."), "cluster-info is signed for the token, but only its secret tells whether the signature is right.")
	case errors.As(err, &failed):
		return e.explain(failed)
	case err != nil:
		return doctor.Unclear(doctor.Do("Try again."), "The discovery did not finish: %s.", err)
	case len(e.pins) == 0 && !e.WithoutPins:
		authorities, _ := info.Certificates() // they parsed a moment ago
		return withPins(doctor.Failed("NoPin", howToPin(), "There is no pin, so everyone with the token could pretend to be the cluster.").As(doctor.Warn), authorities)
	}
	e.discovered = info
	return doctor.Passed("The discovery works; the cluster is at %s.", info.Server)
}

// explain adds the remedy to the cause. The message is the reason that the machine gets.
func (e *examination) explain(failed *bootstrap.AddressError) doctor.Finding {
	notHere := doctor.Do("Try again. If it stays, do not join: an attacker is in between.")
	path := "/api/v1/namespaces/" + bootstrap.ConfigMapNamespace + "/configmaps/" + bootstrap.ConfigMapName
	look := "curl -ki " + shell.Word(failed.Address+path, "https://HOST:PORT"+path)
	remedy := map[bootstrap.Cause]doctor.Remedy{
		bootstrap.CauseUnreachable:          doctor.Do("Correct the address, or open the network path to it:", look),
		bootstrap.CauseNotAPIServer:         doctor.Do("Correct address and port. API servers mostly listen on 6443 or 443, and have no path:", look),
		bootstrap.CauseStarting:             doctor.Do("Try again in a minute."),
		bootstrap.CauseAnonymousRefused:     doctor.Do("Use wid bootstrap discover --discovery-file, or add the path to anonymous.conditions in the API server's AuthenticationConfiguration:", "- path: "+path),
		bootstrap.CauseForbidden:            publish(),
		bootstrap.CauseNotPublished:         publish(),
		bootstrap.CauseClusterInfoMalformed: publish(),
		bootstrap.CauseNotSignedForToken:    e.newToken(createToken),
		bootstrap.CauseNotSigned:            runSigner(),
		bootstrap.CauseSignatureWrong:       e.newToken("Do not join before the administrator has compared cluster-info with what it should be. Then create a new token"),
		bootstrap.CauseCANotPinned:          howToPin(),
		bootstrap.CauseContentDiffers:       notHere,
		bootstrap.CauseCertificateName:      doctor.Do("Use an address that the certificate names, or name the right one with --tls-server-name."),
		bootstrap.CauseCertificateCA:        doctor.Do("Name the API server itself, not a load balancer with a certificate of its own. If this is it, do not join."),
		bootstrap.CauseCertificateTime:      doctor.Do("Synchronize this machine's clock. If it is right, renew the certificate on the control plane nodes:", "sudo timedatectl set-ntp true", "kubeadm certs renew apiserver"),
	}[failed.Cause]
	f := doctor.Failed(string(failed.Cause), remedy, "The discovery fails: %.300s.", failed.Err)
	switch failed.Cause {
	case bootstrap.CauseNotAPIServer:
		f.Message = fmt.Sprintf("Something other than an API server answers: %.300s.", failed.Err)
	case bootstrap.CauseStarting:
		f.Class = ""
		return f.As(doctor.Unknown)
	case bootstrap.CauseCANotPinned:
		return e.notPinned(failed.CAs, f)
	case bootstrap.CauseNotSignedForToken:
		f.Causes = []string{"the token has expired or was deleted", "the ID is mistyped, or of another cluster", "the token lacks the usage signing"}
	case bootstrap.CauseSignatureWrong:
		f.Causes = []string{"the secret half of the token is mistyped", "cluster-info was edited, and the signer does not run", "an attacker is in between"}
		if e.stored != nil { // its secret half is right, and the cluster's own signature too
			f.Causes = []string{"the kubeconfig is of another cluster than the server", "an attacker is in between"}
		}
	}
	return f
}

// notPinned knows the hash that is mistaken for a pin.
func (e *examination) notPinned(authorities []*x509.Certificate, f doctor.Finding) doctor.Finding {
	f.Message, f.Causes = "The pin fits none of the cluster's CAs.", []string{"the pin is of another cluster", "the CA was rotated", "an attacker is in between"}
	if slices.ContainsFunc(authorities, func(c *x509.Certificate) bool { return slices.Contains(e.pins, sha256.Sum256(c.Raw)) }) {
		f.Message, f.Causes = "The pin is the hash of the CA's whole certificate instead of its public key.", nil
	}
	return withPins(f.Compare("pin", e.pins[0].String(), "CA", firstPin(authorities)), authorities)
}

func firstPin(authorities []*x509.Certificate) (pin string) {
	for _, c := range authorities {
		pin = cmp.Or(pin, bootstrap.PinOf(c).String())
	}
	return cmp.Or(pin, "none")
}

// withPins lists the pins, to be compared with those that the administrator knows.
func withPins(f doctor.Finding, authorities []*x509.Certificate) doctor.Finding {
	const maxShown = 10
	for n, c := range authorities[:min(maxShown, len(authorities))] {
		f = f.Detail(fmt.Sprintf("CA %d (%.100s)", n+1, c.Subject.CommonName), bootstrap.PinOf(c).String())
	}
	return f
}
