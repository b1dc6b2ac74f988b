package bootstrap

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/kube"
	"github.com/workloadid/workloadid/internal/transport"
)

func (e *examination) checkPins(context.Context) doctor.Finding {
	if e.served == nil {
		return doctor.Skipped("cluster-info was not read.")
	}
	info, err := bootstrap.ParseClusterInfo([]byte(e.served[bootstrap.KubeConfigKey]))
	var authorities []*x509.Certificate
	if err == nil {
		authorities, err = info.Certificates()
	}
	if err != nil {
		return doctor.Failed("ClusterInfoMalformed", publish(), "cluster-info is refused: %s.", err)
	}
	e.info, e.pinned = info, e.pins.Pinned(authorities)
	var f doctor.Finding
	switch {
	case len(authorities) == 0 && len(e.pins) > 0:
		return doctor.Failed("NoCA", publish(), "cluster-info names no CA, so none can be pinned.")
	case len(e.pins) == 0 && e.WithoutPins:
		f = doctor.Skipped("Pins are not wanted: everyone with the token could pretend to be the cluster.")
	case len(e.pins) == 0:
		f = doctor.Failed("CANotPinned", howToPin(), "There is no pin, so everyone with the token could pretend to be the cluster.").As(doctor.Warn)
	case len(e.pinned) == 0:
		f = e.notPinned(authorities)
	default:
		f = doctor.Passed("%d of %s is pinned.", len(e.pinned), kube.Count(len(authorities), "CA"))
	}
	const maxShown = 10 // to be compared with those that the administrator knows
	for n, c := range authorities[:min(maxShown, len(authorities))] {
		f = f.Detail(fmt.Sprintf("CA %d (%.100s)", n+1, c.Subject.CommonName), bootstrap.PinOf(c).String())
	}
	return f
}

// notPinned knows the hashes that are mistaken for a pin.
func (e *examination) notPinned(authorities []*x509.Certificate) doctor.Finding {
	is := func(hash [sha256.Size]byte) bool { return slices.Contains(e.pins, hash) }
	f := doctor.Failed("CANotPinned", howToPin(), "The pin fits none of the cluster's CAs.")
	f.Causes = []string{"the pin is of another cluster", "the CA was rotated", "an attacker is in between"}
	switch {
	case slices.ContainsFunc(authorities, func(c *x509.Certificate) bool { return is(sha256.Sum256(c.Raw)) }):
		f = doctor.Failed("PinOfSomethingElse", howToPin(), "The pin is the hash of the CA's whole certificate instead of its public key.")
	case slices.ContainsFunc(e.chain, func(c *x509.Certificate) bool { return is(bootstrap.PinOf(c)) || is(sha256.Sum256(c.Raw)) }):
		f = doctor.Failed("PinOfSomethingElse", howToPin(), "The pin is that of the server's own certificate instead of the CA's.")
	}
	return f.Compare("pin", e.pins[0].String(), "CA", bootstrap.PinOf(authorities[0]).String())
}

// checkCertificate reads cluster-info again over a connection that trusts the pinned CAs alone.
func (e *examination) checkCertificate(ctx context.Context) doctor.Finding {
	if len(e.pinned) == 0 {
		return doctor.Skipped("There is no pinned CA to verify the server with.")
	}
	at := &bootstrap.ClusterInfo{Server: e.url, TLSServerName: e.ServerName}
	for _, c := range e.pinned {
		at.CAData = append(at.CAData, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	fresh, err := at.Refresh(ctx)
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.As(err, &untrusted):
		return e.untrusted(untrusted)
	case err != nil:
		return doctor.Unclear(doctor.Do("Try again."), "cluster-info could not be read over a verified connection: %s.", transport.Message(err))
	case fresh.Server != e.info.Server || string(fresh.CAData) != string(e.info.CAData) || fresh.TLSServerName != e.info.TLSServerName:
		return doctor.Failed("ContentDiffers", doctor.Do("Try again. If it stays, do not join: an attacker is in between."),
			"Over the verified connection cluster-info is another one.").Compare("before", e.info.Server, "verified", fresh.Server)
	}
	e.isVerified = true
	return doctor.Passed("The server's certificate is from a pinned CA.")
}

func (e *examination) untrusted(err *tls.CertificateVerificationError) doctor.Finding {
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	leaf := err.UnverifiedCertificates[0]
	switch {
	case errors.As(err.Err, &name):
		names := slices.Clone(leaf.DNSNames)
		for _, ip := range leaf.IPAddresses {
			names = append(names, ip.String())
		}
		return doctor.Failed("CertificateForAnotherName", doctor.Do("Use an address that the certificate names, or name the right one with --tls-server-name."),
			"The server's certificate is for other names.").Compare("certificate", strings.Join(names, ", "), "server", name.Host)
	case errors.As(err.Err, &invalid) && invalid.Reason == x509.Expired:
		remedy := doctor.Do("Renew the certificate on the control plane nodes:", "kubeadm certs renew apiserver")
		if e.ahead != 0 {
			remedy = doctor.Do("Synchronize this machine's clock, then try again:", "sudo timedatectl set-ntp true")
		}
		return doctor.Failed("CertificateNotValidNow", remedy, "The certificate of the server or of its CA is not valid now.").
			Compare("valid", kube.Stamp(leaf.NotBefore)+" to "+kube.Stamp(leaf.NotAfter), "this machine", kube.Stamp(e.Now()))
	}
	f := doctor.Failed("CertificateOfAnotherCA", doctor.Do("Name the API server itself. If this is it, do not join."),
		"The server's certificate is not from a pinned CA.").Detail("issuer", leaf.Issuer.String())
	f.Causes = []string{"a load balancer or proxy with a certificate of its own is in front of the API server",
		"the API server has a certificate of another CA than cluster-info names", "an attacker is in between"}
	return f
}
