package github

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/exactjson"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

// refused explains an answer without a token.
func (r *request) refused(answer transport.Answer) error {
	e := self.Refused(opExchange, answer.Status, answer.Header)
	e.RequestID, e.Message = requestID(answer), "GitHub fails"
	app, remedies := r.grant.AppID, map[int]string{
		http.StatusForbidden:           "check at GitHub that the installation is not suspended",
		http.StatusNotFound:            "install the App, or correct the installation",
		http.StatusUnprocessableEntity: "allow these to the installation at GitHub, or grant less",
	}
	wait, throttled := rateLimit(answer, time.Now())
	skew, skewed := clockSkew(answer.Header, r.sentAt)
	switch status := answer.Status; {
	case throttled:
		e.Reason, e.Wait, e.Message = auth.ErrThrottled, wait, "GitHub limits the rate of requests"
	case status == http.StatusUnauthorized && skewed:
		e.Message = fmt.Sprintf("the clock of this machine is off by about %s, so GitHub refuses the JWT of the App", skew)
		e.Remedy = "synchronize the clock"
	case status == http.StatusUnauthorized:
		e.Reason, e.Message = auth.ErrMisconfigured, fmt.Sprintf("GitHub refuses the JWT of the App %q", app)
		e.Remedy, e.Option = "use an RSA key and the ID of the same App", optionAppID+", "+optionSign
	case remedies[status] != "":
		e.Reason, e.Remedy, e.Option = auth.ErrDenied, remedies[status], optionGrant
		e.Message = fmt.Sprintf("GitHub refuses installation %d of the App %q, repositories %s, permissions %s",
			r.grant.Installation, app, brief(r.grant.Repositories), brief(r.grant.permissions()))
	case status < http.StatusInternalServerError && status != http.StatusRequestTimeout:
		e.Message, e.Remedy, e.Option = "this is not what GitHub answers", "check the URL of the API", optionURL
	}
	if o, err := exactjson.ParseObject(answer.Body); err == nil && o.Text("message") != "" {
		e.Message += ": " + redact.Text(o.Text("message"), r.jwt)
	}
	return e
}

// failed returns the error of a function that the controller supplies.
func failed(err error, otherwise provider.Reason, what string) error {
	if known := (*auth.Error)(nil); errors.As(err, &known) {
		return err
	}
	return &auth.Error{Reason: otherwise, Message: what + ": " + transport.Message(err), Err: err}
}

// requestID returns GitHub's ID of the request.
func requestID(answer transport.Answer) string {
	return redact.Text(answer.Header.Get("X-Github-Request-Id"))
}

// rateLimit recognizes the primary and the secondary rate limits, which also
// answer 403. If an answer names no time, GitHub asks clients to wait a minute.
func rateLimit(answer transport.Answer, now time.Time) (wait time.Duration, throttled bool) {
	h := answer.Header
	reset, err := strconv.ParseInt(h.Get("X-Ratelimit-Reset"), 10, 64)
	switch {
	case answer.Status != http.StatusForbidden && answer.Status != http.StatusTooManyRequests:
		return 0, false
	case h.Get("Retry-After") != "":
		return max(transport.RetryAfter(h, now), time.Second), true
	case h.Get("X-Ratelimit-Remaining") == "0" && err == nil:
		if date, err := http.ParseTime(h.Get("Date")); err == nil {
			now = date // GitHub's clock, to which the reset refers
		}
		return min(max(time.Unix(reset, 0).Sub(now), time.Second), time.Hour), true
	}
	// Only the text distinguishes a secondary limit from a suspended
	// installation. A denial would drop tokens that are valid.
	secondary := bytes.Contains(bytes.ToLower(answer.Body), []byte("secondary rate limit"))
	return time.Minute, secondary || answer.Status == http.StatusTooManyRequests
}

// clockSkew compares the local clock with GitHub's. It reports a difference at
// which GitHub refuses the JWT. The unit is minutes, because the text of an
// error has to be stable.
func clockSkew(h http.Header, sentAt time.Time) (skew time.Duration, refused bool) {
	const tolerance = 5 * time.Second // for the header and the network
	date, err := http.ParseTime(h.Get("Date"))
	ahead := sentAt.Sub(date)
	refused = err == nil && (ahead > jwtBackdated-tolerance || ahead < tolerance-(jwtLifetime-jwtBackdated))
	return ahead.Abs().Round(time.Minute), refused
}
