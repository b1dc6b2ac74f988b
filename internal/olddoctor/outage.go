package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/transport"
)

// outage names the service that gave no usable answer to the exchange of a token, so that nobody has judged the token, and what
// to do about that. What changes from try to try is in a field.
func (e *examination) outage(f Finding, err error) Finding {
	own, ok := asError(err)
	if !ok || f.Result != Unknown || e.own() {
		return f
	}
	said := f.Message
	service := "the token service of " + e.cloud.name
	remedy := ""
	switch {
	case untrusted(err):
		f.Class, remedy = "N5", trustRemedy
		f.Message = service + " shows a certificate that this machine does not trust, or another one is shown in its place"
	case own.Reason == auth.ErrThrottled:
		f.Class, remedy = "N2", "try again in some minutes, and see who asks so often: programs should keep a credential while it is valid"
		f.Message = service + " throttles" + answerOf(own)
	case own.StatusCode >= http.StatusInternalServerError:
		f.Class, remedy = "N3", "try again; if it lasts, look at the service's status: "+e.statusPage()
		f.Message = service + " fails" + answerOf(own)
	case unreached(err):
		f.Class, remedy = "N1", "see why this machine does not reach it (HTTPS_PROXY, NO_PROXY, resolver, firewall), or run this where there is a way out"
		f.Message = service + " gives no answer"
	case e.byFile:
		return f // the file is wrong, perhaps
	default:
		f.Class, remedy = "N4", "see what answers there: a proxy, or a portal that wants a login, perhaps"
		f.Message = service + " gives an answer that cannot be used, or something else answers" + answerOf(own)
	}
	f.Remedy = strings.TrimSpace(f.Remedy + "\n" + remedy)
	return f.with(same("said", said))
}

// trustRemedy is for certificates of an authority that this machine does not know. Programs in Go read SSL_CERT_FILE on Unix, but
// on macOS.
const trustRemedy = "have this machine trust the authority, if it is the one of your own network's proxy: add it to the system's " +
	"certificates, or name a file that has it beside the public ones in SSL_CERT_FILE; a machine without any needs the package ca-certificates"

func answerOf(e *auth.Error) string {
	switch {
	case e.StatusCode == 0:
		return ""
	case e.Code == "":
		return fmt.Sprintf(" (HTTP %d)", e.StatusCode)
	}
	return fmt.Sprintf(" (HTTP %d, %s)", e.StatusCode, shown(e.Code))
}

// untrusted says that this machine did not believe a certificate.
func untrusted(err error) bool {
	var verification *tls.CertificateVerificationError
	return errors.As(err, &verification)
}

func unreached(err error) bool {
	var request *url.Error
	var op *net.OpError
	var dns *net.DNSError
	var refused *transport.ProxyError
	return errors.As(err, &request) || errors.As(err, &op) || errors.As(err, &dns) || errors.As(err, &refused) ||
		errors.Is(err, context.DeadlineExceeded)
}

func (e *examination) statusPage() string {
	switch e.Provider.GetName() {
	case "aws":
		return "https://health.aws.amazon.com/health/status"
	case "azure":
		return "https://azure.status.microsoft"
	}
	return "https://status.cloud.google.com"
}
