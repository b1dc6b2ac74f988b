package hub

import (
	"errors"
	"slices"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The hub reads page after page, each where the last one ended, and ends at the
// first error.
func TestPages(t *testing.T) {
	failed := errors.New("failed")
	for name, test := range map[string]struct {
		answers []string
		err     error
		want    []string
	}{
		"one page":          {[]string{""}, nil, []string{""}},
		"three pages":       {[]string{"a", "b", ""}, nil, []string{"", "a", "b"}},
		"a page that fails": {[]string{"a"}, failed, []string{"", "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			err := pages(7, func(o *client.ListOptions) (string, error) {
				if asked = append(asked, o.Continue); o.Limit != 7 {
					t.Errorf("limit %d", o.Limit)
				}
				if len(asked) > len(test.answers) {
					return "", test.err
				}
				return test.answers[len(asked)-1], nil
			})
			if !errors.Is(err, test.err) || !slices.Equal(asked, test.want) {
				t.Errorf("asked for %q, %v", asked, err)
			}
		})
	}
}
