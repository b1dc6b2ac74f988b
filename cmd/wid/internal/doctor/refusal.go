package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/cause"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/transport"
)

// Refusal returns the finding of a failed call of this module: Fail if the
// service has checked, Unknown if it gave no usable answer. service names the
// called service in the latter case: "AWS STS
// (sts.eu-central-1.amazonaws.com)".
func Refusal(service string, err error) Finding {
	var e *auth.Error
	if !errors.As(err, &e) {
		return outage(service, &auth.Error{Message: err.Error()}, err)
	}
	class := cause.ClassOf(e)
	if e.Reason == auth.ErrThrottled || class.Reason == "" && (e.Reason == auth.ErrUnavailable || e.Reason == "") {
		return outage(service, e, err)
	}
	f := Failed(class.Reason, Advice(&class, &TrustQuery{}), "%s", e.Message)
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
	class, remedy, says := cause.AnswerUnusable, "Check what answers there, such as a proxy or a login page.",
		" gives an unusable answer"+answer(e)
	switch {
	case IsUntrusted(err):
		class, says = cause.CertificateNotTrusted, " shows a certificate that this machine does not trust"
		remedy =
			"Add the CA to this machine's certificates, or name it in SSL_CERT_FILE, if it is that of your network's proxy."
	case e.Reason == auth.ErrThrottled:
		class, remedy, says = cause.ServiceThrottles, "Try again in a few minutes.", " throttles"+answer(e)
	case e.StatusCode >= http.StatusInternalServerError:
		class, remedy, says = cause.ServiceFails, "Try again. If it lasts, look at the status page of the service.", " fails"+
			answer(e)
	// the service may still answer
	case errors.As(err, new(*cache.PendingError)), errors.Is(err, context.DeadlineExceeded):
		class, says = cause.ServiceUnreachable, " has not answered in time"
		remedy =
			"Try again. If it lasts, check HTTPS_PROXY, DNS and firewall of this machine, and the status page of the service."
	case errors.As(err, new(net.Error)), errors.As(err, new(*transport.ProxyError)): // a request, a connection or a lookup
		class, remedy, says = cause.ServiceUnreachable, "Check HTTPS_PROXY, NO_PROXY, DNS and firewall of this machine.",
			" gives no answer"
	}
	f := Unclear(Do(remedy), "%s.", service+says)
	f.Class, f.StatusCode, f.Code, f.RequestID = string(class), e.StatusCode, e.Code, e.RequestID
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

// IsUntrusted reports that this machine does not trust the certificate of a
// server.
func IsUntrusted(err error) bool {
	var verification *tls.CertificateVerificationError
	return errors.As(err, &verification)
}

// Advice returns the remedy of a class as sentences and commands, with the
// names of a call. A sentence of the Grant is part of the condition.
func Advice(c *cause.Class, q *TrustQuery) Remedy {
	text := q.Fill(c.Remedy)
	r := Do(Sentence(text))
	program, _, _ := strings.Cut(text, " ")
	if slices.Contains([]string{"kubectl", "aws", "az", "gcloud"}, program) {
		r = Do("Run:", text)
	}
	if c.Show != "" {
		r = Do(r.Text+" See:", strings.Split(q.Fill(c.Show), "\n")...)
	}
	if c.Grant != "" {
		r = r.OrTrust(q.IfMeant(), strings.Split(q.FillGrant(c.Grant), "\n")...)
	}
	return r
}

// Sentence begins with a capital and ends with a full stop.
func Sentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + strings.TrimSuffix(text[1:], ".") + "."
}
