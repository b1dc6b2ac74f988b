package shell_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/shell"
)

func TestWord(t *testing.T) {
	for value, want := range map[string]string{
		"system:serviceaccount:a:b": "system:serviceaccount:a:b", "Jane Doe": "'Jane Doe'", "it's": `'it'\''s'`,
		"x;touch y": "'x;touch y'", "$(id)": "'$(id)'", "a*b": "'a*b'", "=ls": "'=ls'", "": "<x>", "a\nb": "<x>",
		"a\x1b[2J": "<x>", "a\u202eb": "<x>", "\xff": "<x>", "-o": "<x>", "a\u00a0b": "<x>",
		strings.Repeat("a", 1025): "<x>",
	} {
		if got := shell.Word(value, "<x>"); got != want {
			t.Errorf("%.40q: got %s, want %s", value, got, want)
		}
	}
}

func FuzzWord(f *testing.F) {
	for _, seed := range []string{"a", "x;y", "it's", "$(id)", "`id`", `\`, "a b", "''", "~", "{a,b}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		word := shell.Word(value, "placeholder")
		want := value
		if word == "placeholder" {
			want = word
		}
		got, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", "printf '%s|' "+word).Output()
		if err != nil || string(got) != want+"|" {
			t.Errorf("%q is written %s, and the shell reads %q, %v", value, word, got, err)
		}
	})
}
