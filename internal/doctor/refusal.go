package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/doctor/internal/reason"
	"github.com/workloadid/workloadid/internal/transport"
)

// Refusal returns the finding of a failed call of this module: Fail if the service has checked, Unknown if it gave no usable
// answer. service names the called service in the latter case: "AWS STS (sts.eu-central-1.amazonaws.com)".
func Refusal(service string, err error) Finding {
	var e *auth.Error
	if !errors.As(err, &e) {
		return outage(service, &auth.Error{Message: err.Error()}, err)
	}
	class := classify(e)
	if e.Reason == auth.ErrThrottled || class.Reason == "" && (e.Reason == auth.ErrUnavailable || e.Reason == "") {
		return outage(service, e, err)
	}
	f := Failed(class.Reason, class.remedy(), "%s", e.Message)
	if class.Reason != "" {
		f.Message = class.Service + ": " + class.Summary + "."
		f.Causes = class.Causes
		f = f.Detail("answer", e.Message)
	}
	f.StatusCode, f.Code, f.RequestID = e.StatusCode, e.Code, e.RequestID
	return f
}

// outage says why a service gave no usable answer. Nothing has been checked.
func outage(service string, e *auth.Error, err error) Finding {
	var f Finding
	switch {
	case isUntrusted(err):
		f = Unclear(Do("Add the CA to this machine's certificates, or name it in SSL_CERT_FILE, if it is that of your network's proxy."),
			"%s shows a certificate that this machine does not trust.", service)
		f.Class = reason.CertificateNotTrusted
	case e.Reason == auth.ErrThrottled:
		f = Unclear(Do("Try again in a few minutes."), "%s throttles%s.", service, answer(e))
		f.Class = reason.ServiceThrottles
	case e.StatusCode >= http.StatusInternalServerError:
		f = Unclear(Do("Try again. If it lasts, look at the status page of the service."), "%s fails%s.", service, answer(e))
		f.Class = reason.ServiceFails
	case isUnreached(err):
		f = Unclear(Do("Check HTTPS_PROXY, NO_PROXY, DNS and firewall of this machine."), "%s gives no answer.", service)
		f.Class = reason.ServiceUnreachable
	default:
		f = Unclear(Do("Check what answers there, such as a proxy or a login page."), "%s gives an unusable answer%s.", service, answer(e))
		f.Class = reason.AnswerUnusable
	}
	f.StatusCode, f.Code, f.RequestID = e.StatusCode, e.Code, e.RequestID
	return f.Detail("error", e.Message)
}

func answer(e *auth.Error) string {
	switch {
	case e.StatusCode == 0:
		return ""
	case e.Code == "":
		return fmt.Sprintf(" (HTTP %d)", e.StatusCode)
	}
	return fmt.Sprintf(" (HTTP %d, %s)", e.StatusCode, e.Code)
}

func isUntrusted(err error) bool {
	var verification *tls.CertificateVerificationError
	return errors.As(err, &verification)
}

func isUnreached(err error) bool {
	var request *url.Error
	var op *net.OpError
	var dns *net.DNSError
	var proxy *transport.ProxyError
	return errors.As(err, &request) || errors.As(err, &op) || errors.As(err, &dns) || errors.As(err, &proxy) ||
		errors.Is(err, context.DeadlineExceeded)
}
