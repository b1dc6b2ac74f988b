package server

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/internal/podidentity"
)

// Codes of answers, in addition to the reasons of package v1alpha1 and the
// codes of AWS.
const (
	codeNotAttested   = "NotAttested"
	codeUnavailable   = "Unavailable"
	codeThrottled     = "Throttled"
	codeMisconfigured = "Misconfigured"
	codeDenied        = "Denied"
)

// refusal is an answer without credentials.
type refusal struct {
	status        int
	code, message string
	result        string // a label of metrics, with few values
	retryAfter    time.Duration
}

func (r *refusal) Error() string { return r.message }

func unavailable(message string, retryAfter time.Duration) *refusal {
	return &refusal{status: http.StatusServiceUnavailable, code: codeUnavailable, result: codeUnavailable,
		message: message, retryAfter: retryAfter}
}

// refusalOf makes an answer from any error. Pods never get the texts of AWS and
// of the API server, because they name principals of the server.
func refusalOf(err error) *refusal {
	var known *refusal
	if errors.As(err, &known) {
		return known
	}
	if isRefused(err) {
		code := codeOf(err)
		return &refusal{status: http.StatusForbidden, code: code, result: resultRefused,
			message: fmt.Sprintf(
				"the role of the IAMBinding cannot be assumed (%s): see the Events of the pod and the condition RoleAssumable of the binding", code)}
	}
	if isOwnIdentity(err) {
		return unavailable(noOwnIdentity, auth.RetryAfter(err))
	}
	if errors.Is(err, auth.ErrThrottled) {
		return throttled(auth.RetryAfter(err))
	}
	return unavailable("no credentials at the moment: see the log of the server", auth.RetryAfter(err))
}

// noOwnIdentity leaves out the cause. Only the administrator can correct it,
// and the log states it.
const noOwnIdentity = "the server has no identity that AWS accepts: ask the administrator of the cluster"

// codeOf returns the code of AWS, or one of ours if AWS was not asked.
func codeOf(err error) string {
	var known *auth.Error
	switch {
	case errors.As(err, &known) && known.Code != "":
		return known.Code
	case errors.Is(err, auth.ErrMisconfigured):
		return codeMisconfigured
	}
	return codeDenied
}

// throttledSpread is the time over which pods return that were throttled
// together, such as all pods after a restart.
const throttledSpread = 8 * time.Second

func spread() time.Duration { return rand.N(throttledSpread) } //nolint:gosec // spreads load, keeps no secret

// credentialsBody is the JSON of the container-credentials protocol, with one
// additional member for sidecars.
type credentialsBody struct {
	AccessKeyID     string `json:"AccessKeyId"`
	SecretAccessKey string
	Token           string
	Expiration      string
	CABundle        string `json:",omitempty"`
}

func (r *refusal) write(w http.ResponseWriter) {
	if r.status == http.StatusServiceUnavailable {
		seconds := max(1, int((r.retryAfter+time.Second-1)/time.Second))
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	switch r.status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	case http.StatusMethodNotAllowed:
		w.Header().Set("Allow", http.MethodPost)
	case http.StatusBadRequest:
		w.Header().Set("Connection", "close") // else net/http reads the body
	}
	podidentity.Write(w, r.status, podidentity.Error{Code: r.code, Message: r.message})
}

func (s *Server) writeCredentials(w http.ResponseWriter, t *aws.Token) {
	c := t.Credentials()
	podidentity.Write(w, http.StatusOK, credentialsBody{c.AccessKeyID, c.SecretAccessKey, c.SessionToken,
		c.Expires.UTC().Format(time.RFC3339), s.bundle()})
}

// bundle returns the CAs that sidecars are to trust. If it returns none, a
// sidecar keeps its CAs.
func (s *Server) bundle() string {
	if s.options.CA == nil {
		return ""
	}
	text := s.options.CA()
	if len(text) == 0 {
		return ""
	}
	cas, err := podidentity.ParseBundle(text)
	if err != nil {
		s.options.Logger.Error(err, "sidecars do not get the CAs of Options.CA")
		return ""
	}
	return podidentity.EncodeBundle(cas)
}
