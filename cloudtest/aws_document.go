package cloudtest

import (
	"encoding/json"
	"encoding/xml"
	"net/http"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// node is an element of an answer of a query API, in XML or in JSON.
type node struct {
	name, text string
	children   []node
}

func element(name, text string, children ...node) node { return node{name, text, children} }

// xml indents by two spaces and ends with a line break, without a prolog, as
// STS does.
func (n node) xml(namespace string) string {
	var b strings.Builder
	n.writeXML(&b, "", ` xmlns="`+namespace+`"`)
	return b.String()
}

func (n node) writeXML(b *strings.Builder, indent, attributes string) {
	b.WriteString(indent + "<" + n.name + attributes + ">")
	if len(n.children) == 0 {
		_ = xml.EscapeText(b, []byte(n.text)) // a Builder takes everything
	} else {
		b.WriteByte('\n')
		for _, c := range n.children {
			c.writeXML(b, indent+"  ", "")
		}
		b.WriteString(indent)
	}
	b.WriteString("</" + n.name + ">\n")
}

// json nests the same elements, sorted by name. An error appears without its
// outer element.
func (n node) json() []byte {
	if n.name != "ErrorResponse" {
		n = node{children: []node{n}}
	}
	encoded, _ := json.Marshal(n.value()) // strings always encode
	return encoded
}

func (n node) value() any {
	if len(n.children) == 0 {
		return n.text
	}
	members := map[string]any{}
	for _, c := range n.children {
		members[c.name] = c.value()
	}
	return members
}

// modelled translates the codes of the query protocol into codes of JSON
// services.
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

func sendJSON(cloud *Cloud, w http.ResponseWriter, r *http.Request, fault *Fault, status int, contentType string,
	out any) {
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
