package bootstrap

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"github.com/workloadid/workloadid/bootstrap"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/kube"
)

func howToPin() doctor.Remedy {
	return doctor.Do("Compute the pin on a control plane node, and put sha256: before it:",
		"openssl x509 -pubkey -noout -in /etc/kubernetes/pki/ca.crt | openssl pkey -pubin -outform der | sha256sum")
}

// checkArguments examines everything that needs no network.
func (e *examination) checkArguments(context.Context) doctor.Finding {
	remedy := doctor.Do("Name the API server as HOST:PORT.")
	switch {
	case e.Server == "" && e.Client == nil:
		return doctor.Failed("ServerMalformed", remedy, "There is no server.")
	case isToken(e.Server) || isToken(e.ServerName):
		return doctor.Failed("ServerMalformed", remedy, "There is a token in the place of the server.")
	case e.urlErr != nil && e.Server != "":
		return doctor.Failed("ServerMalformed", remedy, "The server is malformed: %s.", e.urlErr)
	case !validServerName(e.ServerName):
		return doctor.Failed("ServerMalformed", doctor.Do("Write a name of the certificate, without a port."), "The server name is malformed: %.100q.", e.ServerName)
	case e.Token != "" && e.id == "":
		return e.malformedToken()
	case len(e.wrongPins) > 0:
		return malformedPin(e.wrongPins[0])
	}
	return doctor.Passed("The arguments are well formed, with %s.", kube.Count(len(e.pins), "pin"))
}

// malformedToken shows lengths alone, since a malformed token may be the secret half.
func (e *examination) malformedToken() doctor.Finding {
	const secretLength = 16
	what := "This is neither a token nor the ID of a token."
	if e.tokenErr != nil {
		what = fmt.Sprintf("The token is malformed: %s.", e.tokenErr)
	} else if len(e.Token) == secretLength {
		what = "This may be the secret half of a token; its ID is the 6 characters before the dot."
	}
	return doctor.Failed("TokenMalformed", doctor.Do("Write ID.SECRET as kubeadm token create prints it, or the ID alone."), "%s", what).
		Compare("token", kube.Count(len(e.Token), "character"), "form", "6 characters, a dot, 16 characters, all of a-z and 0-9")
}

var anyToken = regexp.MustCompile(`(?:\A|[^a-z0-9.-])[a-z0-9]{6}\.([a-z0-9]{16})(?:\z|[^a-z0-9.-])`)

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
		return doctor.Failed("PinMalformed", howToPin(), "There is a token in the place of a pin.")
	}
	what := "The pin is malformed."
	if strings.Count(text, ":") > 2 {
		what = "This looks like the fingerprint of a certificate; a pin is the hash of its public key."
	}
	return doctor.Failed("PinMalformed", howToPin(), "%s", what).Compare("pin", fmt.Sprintf("%.100q", text), "form", "sha256:<64 hexadecimal digits>")
}
