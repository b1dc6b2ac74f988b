// Package lenient decodes custom resources. Their schemas accept values that Go
// refuses, and one such value would fail a whole list.
package lenient

import (
	"encoding/base64"
	gojson "encoding/json"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
)

// epoch replaces a time that Go cannot read, or cannot write in a form that API
// servers accept. They refuse the zero time, which is null, so the conditions
// could not be written again.
const epoch = "1970-01-01T00:00:00Z"

// maxProblem bounds what is kept of a value that another user wrote.
const maxProblem = 300

// Unmarshal decodes a custom resource. conditions is its field for
// status.conditions. A value that Go refuses stays zero, and a
// lastTransitionTime becomes 1970. The problem quotes the first such value.
// Invalid metadata is an error: API servers decode it themselves.
func Unmarshal[T any](data []byte, into *T, conditions *[]metav1.Condition) (problem string, err error) {
	refused := json.Unmarshal(data, into)
	if refused != nil {
		*into = *new(T)
		if err := json.Unmarshal(mendTimes(data), into); !isSkipped(err) {
			return "", err
		}
	}
	for i := range *conditions {
		t := &(*conditions)[i].LastTransitionTime
		year := t.UTC().Year()
		if year < 1 || year > 9999 {
			refused = errors.Join(refused, fmt.Errorf("lastTransitionTime of the year %d in UTC", year))
		}
		if t.IsZero() || year < 1 || year > 9999 {
			*t = metav1.Unix(0, 0)
		}
	}
	if refused != nil {
		problem = fmt.Sprintf("%.*s", maxProblem, refused)
	}
	return problem, nil
}

// isSkipped reports whether the decoder left out a value and read all others.
func isSkipped(err error) bool {
	var kind *gojson.UnmarshalTypeError
	var encoding base64.CorruptInputError
	return err == nil || errors.As(err, &kind) || errors.As(err, &encoding)
}

// mendTimes replaces the times of conditions at which the decoder would stop.
func mendTimes(data []byte) []byte {
	var object map[string]any
	if err := json.Unmarshal(data, &object); !isSkipped(err) {
		return data
	}
	found, _, _ := unstructured.NestedFieldNoCopy(object, "status", "conditions") // else there are none
	conditions, _ := found.([]any)
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["lastTransitionTime"] != nil {
			text, _ := c["lastTransitionTime"].(string)
			if _, err := time.Parse(time.RFC3339, text); err != nil {
				c["lastTransitionTime"] = epoch
			}
		}
	}
	mended, err := json.Marshal(object)
	if err != nil {
		return data
	}
	return mended
}
