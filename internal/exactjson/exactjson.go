// Package exactjson reads JSON from outside. It compares member names whole, as
// the services do that read the same documents. Encoding/json takes ISSUER for
// issuer.
package exactjson

import (
	"encoding/json"
	"errors"

	kubejson "k8s.io/apimachinery/pkg/util/json"
)

// Unmarshal is json.Unmarshal with member names that are compared whole. Its
// syntax errors are of no exported type.
func Unmarshal(content []byte, into any) error {
	return kubejson.Unmarshal(content, into)
}

// Object is a JSON object. Of a repeated member the last value counts.
type Object map[string]json.RawMessage

// ParseObject reads a JSON object. Its errors never hold a part of it.
func ParseObject(body []byte) (Object, error) {
	var o Object
	if err := json.Unmarshal(body, &o); err != nil || o == nil {
		return nil, errors.New("it is not a JSON object") // the decoder's error could quote the body
	}
	return o, nil
}

// Object returns a member that is an object, else nil.
func (o Object) Object(name string) Object {
	var member Object
	if json.Unmarshal(o[name], &member) != nil {
		return nil
	}
	return member
}

// Text returns a member that is a string, else "".
func (o Object) Text(name string) string {
	var s string
	_ = json.Unmarshal(o[name], &s) // s stays empty
	return s
}

// Texts returns a member that is a list of strings, else nil.
func (o Object) Texts(name string) []string {
	var list []string
	if json.Unmarshal(o[name], &list) != nil {
		return nil
	}
	return list
}

// Has ignores empty members, because some servers send every member.
func (o Object) Has(name string) bool {
	raw := string(o[name])
	return raw != "" && raw != "null" && raw != `""`
}

// Seconds returns a number of seconds, also from a string: zero if the member
// is missing, negative if it is malformed or not positive, and perhaps
// infinite.
func (o Object) Seconds(name string) float64 {
	if !o.Has(name) {
		return 0
	}
	var n json.Number
	if json.Unmarshal(o[name], &n) != nil {
		return -1
	}
	if seconds, _ := n.Float64(); seconds > 0 { // the error says that it is infinite
		return seconds
	}
	return -1
}
