package cloudtest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"
)

// googleError is an error of Google's APIs in the form of AIP-193.
type googleError struct {
	status  int
	code    string // as in google.rpc.Code; empty: follows from the status
	message string
	// reason, domain and metadata are the fields of google.rpc.ErrorInfo. An
	// error without a reason has no ErrorInfo.
	reason, domain string
	metadata       map[string]string
}

func googleRPCCode(status int) string {
	code := map[int]string{http.StatusBadRequest: "INVALID_ARGUMENT", http.StatusUnauthorized: "UNAUTHENTICATED",
		http.StatusForbidden: "PERMISSION_DENIED", http.StatusNotFound: "NOT_FOUND",
		http.StatusTooManyRequests: "RESOURCE_EXHAUSTED", http.StatusServiceUnavailable: "UNAVAILABLE"}[status]
	return firstOf(code, "INTERNAL")
}

type googleErrorInfo struct {
	Type     string            `json:"@type"`
	Reason   string            `json:"reason"`
	Domain   string            `json:"domain"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// body returns the error in JSON, indented by two spaces, with a final line
// break.
func (e *googleError) body() []byte {
	var document struct {
		Error struct {
			Code    int               `json:"code"`
			Message string            `json:"message"`
			Status  string            `json:"status"`
			Details []googleErrorInfo `json:"details,omitempty"`
		} `json:"error"`
	}
	document.Error.Code, document.Error.Message = e.status, e.message
	document.Error.Status = firstOf(e.code, googleRPCCode(e.status))
	if e.reason != "" {
		document.Error.Details = []googleErrorInfo{{"type.googleapis.com/google.rpc.ErrorInfo", e.reason, e.domain,
			e.metadata}}
	}
	return googleJSON(document)
}

// googleJSON formats JSON like Google's APIs.
func googleJSON(document any) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(document) // a Buffer takes everything, and our documents always encode
	return b.Bytes()
}

const googleContentType = "application/json; charset=UTF-8"

// serveAPI answers a call of one of Google's APIs with the result of handle.
func (g *GCP) serveAPI(w http.ResponseWriter, r *http.Request, call Call, handle func() (any, *googleError)) {
	fault, ok := g.cloud.begin(w, r, call, func(f Fault) {
		g.send(w, r, nil, f.Status, googleContentType,
			(&googleError{status: f.Status, code: f.Code, message: f.Message}).body())
	})
	if !ok {
		return
	}
	answer, err := handle()
	if err != nil {
		g.send(w, r, fault, err.status, googleContentType, err.body())
		return
	}
	body, ok := answer.([]byte)
	if !ok {
		body = googleJSON(answer)
	}
	g.send(w, r, fault, http.StatusOK, googleContentType, body)
}

func (g *GCP) send(w http.ResponseWriter, r *http.Request, fault *Fault, status int, contentType string, body []byte) {
	h := w.Header()
	h.Set("Date", g.cloud.time().UTC().Format(http.TimeFormat))
	if h.Get("Content-Type") == "" {
		h.Set("Content-Type", contentType)
	}
	fault.send(w, r, g.cloud.closing, status, body)
}

func googleNotFound(format string) *googleError {
	return &googleError{status: http.StatusNotFound, message: format}
}

func googleTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
