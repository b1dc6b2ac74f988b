package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"github.com/workloadid/workloadid/bootstrap"
)

const howToPin = "on a control plane node: " +
	"openssl x509 -pubkey -noout -in /etc/kubernetes/pki/ca.crt | openssl pkey -pubin -outform der | sha256sum\n" +
	"and pass it as sha256:<64 hexadecimal digits>"

// checkArguments judges everything that can be judged without the network.
func (b *bootstrapping) checkArguments(context.Context) Finding {
	switch {
	case b.Server == "":
		return fail("B1", "name the API server, as host:port", "no server was named")
	case isToken(b.Server) || isToken(b.ServerName):
		return fail("B1", "name the API server, as host:port", "there is a token where the server belongs")
	case b.urlErr != nil:
		return fail("B1", "name the API server, as host:port", "%s", oneLine(b.urlErr.Error()))
	case !validServerName(b.ServerName):
		return fail("B1", "name what the server's certificate names, without a port", "the server name is malformed: %.100q",
			b.ServerName)
	}
	if f, bad := b.malformedToken(); bad {
		return f
	}
	if len(b.wrongPins) > 0 {
		return malformedPin(b.wrongPins[0])
	}
	switch {
	case b.id == "":
		return pass("%s, %s", shown(b.url), count(len(b.pins), "pin", "pins"))
	case b.whole:
		return pass("%s, token %s, %s", shown(b.url), b.id, count(len(b.pins), "pin", "pins"))
	}
	return pass("%s, token ID %s without its secret, %s", shown(b.url), b.id, count(len(b.pins), "pin", "pins"))
}

// malformedToken shows lengths alone: what is malformed may be the secret half.
func (b *bootstrapping) malformedToken() (Finding, bool) {
	const remedy = "pass ID.SECRET as kubeadm token create prints it, or the ID alone"
	form := Field{Name: "token", Observed: fmt.Sprintf("%d characters", len(b.Token)),
		Expected: "6 characters, a dot, 16 characters, all a-z and 0-9", Differs: true}
	switch {
	case b.Token == "" || b.id != "":
		return Finding{}, false
	case b.tokenErr != nil:
		return fail("B2", remedy, "%s", b.tokenErr).with(form), true
	case bootstrap.ValidTokenID(b.Token[:min(6, len(b.Token))]) && len(b.Token) == 16:
		return fail("B2", remedy, "this is the secret half of a token, perhaps: its ID is the 6 characters before the dot").
			with(form), true
	}
	return fail("B2", remedy, "this is neither a token nor a token's ID").with(form), true
}

var (
	bareHash    = regexp.MustCompile(`\A[0-9a-fA-F]{64}\z`)
	anyToken    = regexp.MustCompile(`(?:\A|[^a-z0-9.-])[a-z0-9]{6}\.([a-z0-9]{16})(?:\z|[^a-z0-9.-])`)
	colonedHash = regexp.MustCompile(`\A(?i:sha256:)?[0-9a-fA-F]{2}(:[0-9a-fA-F]{2})+\z`)
)

// isToken finds arguments that were mixed up: no finding repeats them, and no resolver of names is asked. The secret of a token
// is hardly ever without a digit, unlike a domain of that length.
func isToken(text string) bool {
	found := anyToken.FindStringSubmatch(text)
	return found != nil && strings.ContainsAny(found[1], "0123456789")
}

func validServerName(name string) bool {
	if _, err := netip.ParseAddr(name); err == nil || name == "" {
		return true
	}
	_, err := (&bootstrap.ClusterInfo{Server: "https://" + name}).Encode() // refuses what is no host
	return err == nil && !strings.ContainsAny(name, ":/")
}

func malformedPin(text string) Finding {
	if isToken(text) {
		return fail("B3", howToPin, "there is a token where a pin belongs")
	}
	_, err := bootstrap.ParsePin(text)
	what := oneLine(err.Error())
	switch {
	case bareHash.MatchString(text):
		what = "the pin lacks the prefix sha256:"
	case colonedHash.MatchString(text):
		what = "this looks like the fingerprint of a certificate: a pin is the hash of its public key, without colons"
	case strings.TrimSpace(text) != text:
		what = "there are blanks around the pin"
	}
	return fail("B3", howToPin, "%s", what).
		with(Field{Name: "pin", Observed: fmt.Sprintf("%.100q", text), Expected: "sha256:<64 hexadecimal digits>", Differs: true})
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
