package doctor

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/transport"
)

const compareFirst = "compare the pins above with what the cluster's administrator says, then pass the right one;\n" +
	howToPin

func (b *bootstrapping) checkPins(context.Context) Finding {
	if b.served == nil {
		return skip("cluster-info was not read")
	}
	info, err := bootstrap.ParseClusterInfo([]byte(b.served[bootstrap.KubeConfigKey]))
	if err != nil {
		return fail("B11", "publish a clean one: "+publishInfo, "cluster-info is refused: %s", oneLine(err.Error()))
	}
	b.info = info
	authorities, err := info.Certificates()
	if err != nil {
		return fail("B11", "publish a clean one: "+publishInfo, "cluster-info is refused: %s", oneLine(err.Error()))
	}
	fields := pinFields(authorities)
	b.pinned = b.pins.Pinned(authorities)
	switch {
	case len(authorities) == 0 && len(b.pins) > 0:
		return fail("B18", publishInfo, "cluster-info names no certificate authority, so nothing can be pinned").
			with(differs("certificate-authority-data", "", "the cluster's authority"))
	case len(b.pins) == 0 && b.WithoutPins:
		return skip("pins are not wanted: whoever knows the token is trusted").with(fields...)
	case len(b.pins) == 0:
		return Finding{Result: Warn, Class: "B16", Remedy: compareFirst,
			Message: "no pin was given: everybody who was given the same token could pretend to be the cluster"}.with(fields...)
	case len(b.pinned) == 0:
		return b.notPinned(authorities).with(fields...)
	}
	return pass("%d of %s pinned: %s", len(b.pinned), isAre(len(authorities), "certificate authority",
		"certificate authorities"),
		b.allPins(authorities)).with(fields...)
}

// allPins has the pins of all authorities in one line, those that count first.
func (b *bootstrapping) allPins(authorities []*x509.Certificate) string {
	const most = 5
	var good, other []string
	for _, c := range authorities[:min(most, len(authorities))] {
		if pin := bootstrap.PinOf(c); contains(b.pins, pin) {
			good = append(good, pin.String())
		} else {
			other = append(other, pin.String())
		}
	}
	line := strings.Join(good, ", ")
	if len(other) > 0 {
		line += "; not pinned: " + strings.Join(other, ", ")
	}
	return line
}

func isAre(n int, one, many string) string {
	if n == 1 {
		return "1 " + one + " is"
	}
	return fmt.Sprintf("%d %s are", n, many)
}

func pinFields(authorities []*x509.Certificate) (fields []Field) {
	const most = 10
	for n, c := range authorities[:min(most, len(authorities))] {
		name := fmt.Sprintf("authority %d", n+1)
		if c.Subject.CommonName != "" {
			name += fmt.Sprintf(" (%s)", shown(c.Subject.CommonName))
		}
		fields = append(fields, Field{Name: name, Observed: bootstrap.PinOf(c).String()})
	}
	return fields
}

// notPinned knows the hashes that people take for a pin.
func (b *bootstrapping) notPinned(authorities []*x509.Certificate) Finding {
	given := make([]string, 0, len(b.pins))
	for _, p := range b.pins {
		given = append(given, p.String())
	}
	field := Field{Name: "pins given", Observed: shown(strings.Join(given, ", ")), Expected: "one of those below",
		Differs: true}
	for _, c := range authorities {
		if contains(b.pins, sha256.Sum256(c.Raw)) {
			return fail("B17", compareFirst, "the pin is the hash of the authority's whole certificate; it has to be that of its "+
				"public key").with(field)
		}
	}
	for _, c := range b.chain {
		if contains(b.pins, bootstrap.PinOf(c)) || contains(b.pins, sha256.Sum256(c.Raw)) {
			return fail("B17", compareFirst, "the pin is that of the server's own certificate; it has to be that of the "+
				"authority").with(field)
		}
	}
	f := fail("B16", compareFirst, "none of the cluster's certificate authorities is pinned").with(field)
	f.Causes = []string{"the pin is of another cluster", "the certificate authority was rotated", "somebody is in between"}
	return f
}

func contains(pins bootstrap.PinSet, hash [sha256.Size]byte) bool {
	for _, p := range pins {
		if p == hash {
			return true
		}
	}
	return false
}

// checkCertificate reads cluster-info again over a connection that trusts the pinned authorities alone.
func (b *bootstrapping) checkCertificate(ctx context.Context) Finding {
	if len(b.pinned) == 0 {
		return skip("there is no pinned authority to verify the server with")
	}
	at := &bootstrap.ClusterInfo{Server: b.url, TLSServerName: b.ServerName}
	for _, c := range b.pinned {
		at.CAData = append(at.CAData, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	defer waiting(ctx, "the server "+hostOf(b.url))()
	fresh, err := at.Refresh(ctx)
	var untrusted *tls.CertificateVerificationError
	switch {
	case errors.As(err, &untrusted):
		return b.untrusted(untrusted)
	case err != nil:
		return unknown("cluster-info could not be read over a verified connection: "+transport.Message(err), "try again")
	case fresh.Server != b.info.Server || string(fresh.CAData) != string(b.info.CAData) ||
		fresh.TLSServerName != b.info.TLSServerName:
		return fail("B22", "try again; if it stays, do not join: somebody is in between",
			"over the verified connection cluster-info is another one: it has just changed, or somebody is in between").
			with(differs("server", b.info.Server, fresh.Server))
	}
	return pass("the server's certificate is from a pinned authority")
}

// invalidNow has the certificate renewed only if it is at its end by the server's clock too.
func (b *bootstrapping) invalidNow(leaf *x509.Certificate) Finding {
	valid := differs("valid", stamp(leaf.NotBefore)+" to "+stamp(leaf.NotAfter), "at "+stamp(b.Now()))
	if now := b.time(); !now.Equal(b.Now()) && now.After(leaf.NotBefore) && now.Before(leaf.NotAfter) {
		return fail("B21", "correct this machine's clock, then try again: timedatectl",
			"the server's certificate is valid by the server's clock, but not by that of this machine").with(valid)
	}
	return fail("B21", "correct this machine's clock, or renew the certificate: kubeadm certs renew apiserver",
		"the server's certificate or its authority is not valid at the time of this machine").with(valid)
}

func (b *bootstrapping) untrusted(err *tls.CertificateVerificationError) Finding {
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	leaf := &x509.Certificate{}
	if len(b.chain) > 0 {
		leaf = b.chain[0]
	}
	switch {
	case errors.As(err.Err, &name):
		names := append([]string(nil), leaf.DNSNames...)
		for _, ip := range leaf.IPAddresses {
			names = append(names, ip.String())
		}
		host := firstOf(b.ServerName, strings.TrimPrefix(b.url, "https://"))
		return fail("B20", "use an address that the certificate names\nor pass --tls-server-name if you know the right one",
			"the server's certificate is for other names").with(differs("names", strings.Join(names, ", "), host))
	case errors.As(err.Err, &invalid) && invalid.Reason == x509.Expired:
		return b.invalidNow(leaf)
	}
	f := fail("B19", "name the API server itself, not what terminates TLS in front of it; if it is that, do not join",
		"the server's certificate is not from a pinned authority").
		with(differs("issuer", leaf.Issuer.String(), "a pinned authority"))
	f.Causes = []string{"a load balancer or proxy with a certificate of its own is in front of the API server",
		"the API server has a certificate of another authority than cluster-info says", "somebody is in between"}
	return f
}
