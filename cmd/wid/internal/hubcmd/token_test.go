package hubcmd

import (
	"slices"
	"testing"
)

func TestChangedFlags(t *testing.T) {
	for name, tc := range map[string]struct{ running, next, want []string }{
		"the same":      {[]string{"--a=1", "--b"}, []string{"--b", "--a=1"}, nil},
		"one more":      {[]string{"--a=1"}, []string{"--a=1", "--b"}, nil},
		"another value": {[]string{"--a=1"}, []string{"--a=2"}, []string{"--a=1 becomes --a=2"}},
		"no value":      {[]string{"--a"}, []string{"--a=false"}, []string{"--a becomes --a=false"}},
		"dropped":       {[]string{"--a=1", "--b"}, nil, []string{"--a=1 is dropped", "--b is dropped"}},
		"repeated":      {[]string{"--a=1", "--a=2"}, []string{"--a=1,2"}, nil},
		"two words":     {[]string{"--a", "1"}, []string{"--a=1"}, nil},
		"value with =":  {[]string{"--a=b=c"}, []string{"--a=b"}, []string{"--a=b=c becomes --a=b"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := changedFlags(flagsIn(tc.running), flagsIn(tc.next)); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
