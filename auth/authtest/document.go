package authtest

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"slices"
	"strings"
)

// node is an element of an answer of a query API, which exists in XML and in JSON.
type node struct {
	name, text string
	children   []node
}

func element(name, text string, children ...node) node { return node{name, text, children} }

// xml indents by two spaces and ends in a line break, without a prolog, like STS.
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

// json nests the same elements, sorted by name. An error stands without its outer element.
func (n node) json() []byte {
	var b bytes.Buffer
	if n.name == "ErrorResponse" {
		n.writeJSON(&b)
	} else {
		(node{children: []node{n}}).writeJSON(&b)
	}
	return b.Bytes()
}

func (n node) writeJSON(b *bytes.Buffer) {
	if len(n.children) == 0 {
		writeString(b, n.text)
		return
	}
	b.WriteByte('{')
	sorted := slices.SortedFunc(slices.Values(n.children), func(a, b node) int { return strings.Compare(a.name, b.name) })
	for i, c := range sorted {
		if i > 0 {
			b.WriteByte(',')
		}
		writeString(b, c.name)
		b.WriteByte(':')
		c.writeJSON(b)
	}
	b.WriteByte('}')
}

func writeString(b *bytes.Buffer, s string) {
	encoded, _ := json.Marshal(s) // strings always encode
	b.Write(encoded)
}
