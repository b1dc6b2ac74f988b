package doctor

import (
	"slices"

	"github.com/google/cel-go/cel"
)

// celNames are what mappings and conditions speak of, and what of it is not known. cel-go answers with an unknown where the
// answer would depend on that, so whatever else it answers is right.
type celNames struct {
	declared []cel.EnvOption
	known    map[string]any
	unknown  []*cel.AttributePatternType
}

// namesOf knows the claims without numbers, of which programs differ in whether they are whole, and google.subject unless it is
// nil. The provider's other mappings, which make the rest of google and attribute, are not read.
func namesOf(claims map[string]any, subject *string) celNames {
	n := celNames{known: map[string]any{"assertion": claims}}
	for _, name := range []string{"assertion", "google", "attribute"} {
		n.declared = append(n.declared, cel.Variable(name, cel.MapType(cel.StringType, cel.DynType)))
	}
	if subject != nil {
		// A variable with a full stop in its name: of google itself nothing is known, such as what else it holds.
		const name = "google.subject"
		n.declared = append(n.declared, cel.Variable(name, cel.DynType))
		n.known[name] = *subject
	}
	for _, path := range numbersIn(claims, nil) {
		pattern := cel.AttributePattern("assertion")
		for _, member := range path {
			pattern.QualString(member)
		}
		n.unknown = append(n.unknown, pattern)
	}
	if len(n.unknown) > maxNumbers {
		n.unknown = []*cel.AttributePatternType{cel.AttributePattern("assertion")}
	}
	n.unknown = append(n.unknown, cel.AttributePattern("google"), cel.AttributePattern("attribute"))
	return n
}

const (
	// maxNumbers is how many claims may hold one. Each is compared with each look at the claims.
	maxNumbers = 100
	// maxClaimDepth is down to where it is told which member holds one.
	maxClaimDepth = 8
)

// numbersIn returns the paths of the members that are a number, or hold one somewhere that has no path.
func numbersIn(members map[string]any, path []string) [][]string {
	var found [][]string
	for name, value := range members {
		here := append(slices.Clip(path), name)
		if inner, ok := value.(map[string]any); ok && len(here) < maxClaimDepth {
			found = append(found, numbersIn(inner, here)...)
		} else if holdsNumber(value) {
			found = append(found, here)
		}
	}
	return found
}

func holdsNumber(value any) bool {
	switch value := value.(type) {
	case nil, bool, string:
		return false
	case []any:
		return slices.ContainsFunc(value, holdsNumber)
	case map[string]any:
		for _, member := range value {
			if holdsNumber(member) {
				return true
			}
		}
		return false
	}
	return true
}
