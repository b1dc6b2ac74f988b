package authtest

import (
	"encoding/json"
	"encoding/xml"
	"strings"
)

// node is an element of an answer of a query API, in XML or in JSON.
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
