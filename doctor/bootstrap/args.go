package bootstrap

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/kube"
)

const (
	idLength     = 6
	secretLength = 16
	pinForm      = "sha256:<64 hexadecimal digits>"
)

func howToPin() doctor.Remedy {
	return doctor.Do("Compute the pin on a control plane node, and put sha256: before it:",
		"openssl x509 -pubkey -noout -in /etc/kubernetes/pki/ca.crt | openssl pkey -pubin -outform der | sha256sum")
}

// checkArguments examines everything that needs no network.
func (e *examination) checkArguments(context.Context) doctor.Finding {
	remedy := doctor.Do("Name the API server as HOST:PORT.")
	switch {
	case e.Server == "":
		return doctor.Failed("B1", remedy, "There is no server.")
	case isToken(e.Server) || isToken(e.ServerName):
		return doctor.Failed("B1", remedy, "There is a token in the place of the server.")
	case e.urlErr != nil:
		return doctor.Failed("B1", remedy, "The server is malformed: %s.", e.urlErr)
	case !validServerName(e.ServerName):
		return doctor.Failed("B1", doctor.Do("Write a name of the certificate, without a port."), "The server name is malformed: %.100q.", e.ServerName)
	}
	if f, malformed := e.malformedToken(); malformed {
		return f
	}
	if len(e.wrongPins) > 0 {
		return malformedPin(e.wrongPins[0])
	}
	what := "no token"
	if e.isWhole {
		what = "token " + e.id
	} else if e.id != "" {
		what = "token " + e.id + " without its secret"
	}
	return doctor.Passed("The arguments are well formed: %s, %s.", what, kube.Count(len(e.pins), "pin"))
}

// malformedToken shows lengths alone, since a malformed token may be the secret half.
func (e *examination) malformedToken() (doctor.Finding, bool) {
	remedy := doctor.Do("Write ID.SECRET as kubeadm token create prints it, or the ID alone.")
	var f doctor.Finding
	switch {
	case e.Token == "" || e.id != "":
		return f, false
	case e.tokenErr != nil:
		f = doctor.Failed("B2", remedy, "The token is malformed: %s.", e.tokenErr)
	case len(e.Token) == secretLength && bootstrap.ValidTokenID(e.Token[:idLength]):
		f = doctor.Failed("B2", remedy, "This may be the secret half of a token; its ID is the 6 characters before the dot.")
	default:
		f = doctor.Failed("B2", remedy, "This is neither a token nor the ID of a token.")
	}
	return f.Compare("token", kube.Count(len(e.Token), "character"), "form", "6 characters, a dot, 16 characters, all of a-z and 0-9"), true
}

var (
	bareHash    = regexp.MustCompile(`\A[0-9a-fA-F]{64}\z`)
	anyToken    = regexp.MustCompile(`(?:\A|[^a-z0-9.-])[a-z0-9]{6}\.([a-z0-9]{16})(?:\z|[^a-z0-9.-])`)
	colonedHash = regexp.MustCompile(`\A(?i:sha256:)?[0-9a-fA-F]{2}(:[0-9a-fA-F]{2})+\z`)
)

// isToken finds a token in the wrong argument, so that no report repeats it and no resolver is asked for it. The secret of a token
// hardly ever lacks a digit, unlike a domain of that length.
func isToken(text string) bool {
	found := anyToken.FindStringSubmatch(text)
	return found != nil && strings.ContainsAny(found[1], "0123456789")
}

func validServerName(name string) bool {
	if _, err := netip.ParseAddr(name); err == nil || name == "" {
		return true
	}
	_, err := (&bootstrap.ClusterInfo{Server: "https://" + name}).Encode() // refuses everything but hosts
	return err == nil && !strings.ContainsAny(name, ":/")
}

func malformedPin(text string) doctor.Finding {
	if isToken(text) {
		return doctor.Failed("B3", howToPin(), "There is a token in the place of a pin.")
	}
	_, err := bootstrap.ParsePin(text)
	what := fmt.Sprintf("The pin is malformed: %s.", err)
	switch {
	case bareHash.MatchString(text):
		what = "The pin lacks the prefix sha256:."
	case colonedHash.MatchString(text):
		what = "This looks like the fingerprint of a certificate; a pin is the hash of its public key, without colons."
	case strings.TrimSpace(text) != text:
		what = "There are blanks around the pin."
	}
	return doctor.Failed("B3", howToPin(), "%s", what).Compare("pin", fmt.Sprintf("%.100q", text), "form", pinForm)
}
