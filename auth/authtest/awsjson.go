package authtest

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/workloadid/workloadid/internal/awsname"
)

// jsonService is a service that speaks awsJson1.1: the action is in the header X-Amz-Target, input and output are JSON.
type jsonService struct {
	aws *AWS
	// name is that in signatures and in Call.Service; permission is the prefix of its permissions.
	name, permission string
	// target is what stands before the action.
	target string
	// hosts are the labels before the region; only is the one region, if there is but one.
	hosts []string
	only  string
	// actions answer with what is to be encoded.
	actions map[string]func(*awsCall) (any, *awsError)
}

// awsCall is a signed request to a service.
type awsCall struct {
	aws    *AWS
	caller accessKey
	region string
}

func (s *jsonService) service() service {
	return service{at: func(host string) bool { _, ok := s.region(host); return ok }, serve: s.serve}
}

func (s *jsonService) region(host string) (string, bool) {
	e, ok := awsname.ParseEndpoint(host, s.hosts...)
	return e.Region, ok && (s.only == "" || e.Region == s.only)
}

func (s *jsonService) serve(w http.ResponseWriter, r *http.Request, host string) {
	action, ok := strings.CutPrefix(r.Header.Get("X-Amz-Target"), s.target+".")
	fault, proceed := s.aws.cloud.begin(w, r, Call{Service: s.name, Action: action, Host: host},
		func(f Fault) { s.fail(w, r, nil, &awsError{f.Status, f.Code, f.Message}) })
	if !proceed {
		return
	}
	handle := s.actions[action]
	if !ok || handle == nil || r.Method != http.MethodPost {
		s.fail(w, r, fault, refuse(http.StatusBadRequest, "UnknownOperationException", ""))
		return
	}
	body, ok := readBody(w, r)
	if !ok {
		s.fail(w, r, fault, refuse(http.StatusRequestEntityTooLarge, "RequestEntityTooLargeException", "Request size exceeded"))
		return
	}
	region, _ := s.region(host)
	caller, refused := s.aws.authenticate(signedRequest{r, body, s.name, region})
	if refused != nil {
		s.fail(w, r, fault, modelled(refused, http.StatusBadRequest))
		return
	}
	out, refused := handle(&awsCall{s.aws, caller, region})
	if refused != nil {
		s.fail(w, r, fault, refused)
		return
	}
	s.send(w, r, fault, http.StatusOK, out)
}

// modelled turns the codes of the query protocol into those of JSON services.
func modelled(err *awsError, status int) *awsError {
	code := map[string]string{
		"MissingAuthenticationToken": "MissingAuthenticationTokenException",
		"IncompleteSignature":        "IncompleteSignatureException",
		"InvalidClientTokenId":       "UnrecognizedClientException",
		"ExpiredToken":               "ExpiredTokenException",
		"SignatureDoesNotMatch":      "InvalidSignatureException",
	}[err.code]
	return &awsError{status, firstOf(code, err.code), err.message}
}

// deniedJSON is what services with the JSON protocols answer. It spells its key "Message".
func (c *awsCall) deniedJSON(status int, action, resource string) *awsError {
	return refuse(status, "AccessDeniedException",
		"User: %s is not authorized to perform: %s on resource: %s because no identity-based policy allows the %s action",
		c.caller.ARN, action, resource, action)
}

// fail spells the key of the text as the service does: "Message" where the front door refuses, "message" where the service's
// own model has the error.
func (s *jsonService) fail(w http.ResponseWriter, r *http.Request, fault *Fault, err *awsError) {
	out := map[string]string{"__type": err.code, messageKey(err.code): err.message}
	s.send(w, r, fault, err.status, out)
}

func messageKey(code string) string {
	if code == "AccessDeniedException" {
		return "Message"
	}
	return "message"
}

func (s *jsonService) send(w http.ResponseWriter, r *http.Request, fault *Fault, status int, out any) {
	sendJSON(s.aws.cloud, w, r, fault, status, "application/x-amz-json-1.1", out)
}

func sendJSON(cloud *Cloud, w http.ResponseWriter, r *http.Request, fault *Fault, status int, contentType string, out any) {
	body, err := json.Marshal(out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h["x-amzn-RequestId"] = []string{uuid.NewString()} //nolint:staticcheck // spelt as AWS does
	h.Set("Date", cloud.time().UTC().Format(http.TimeFormat))
	h.Set("Content-Type", contentType)
	if fault == nil || fault.Rewrite == nil {
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
	fault.send(w, r, cloud.closing, status, body)
}
