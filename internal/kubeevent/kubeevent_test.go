package kubeevent_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/workloadid/workloadid/internal/kubeevent"
)

func record(message string) string {
	recorder := events.NewFakeRecorder(1)
	kubeevent.Record(recorder, &corev1.Pod{}, corev1.EventTypeWarning, "Reason", "Act", message)
	return strings.TrimPrefix(<-recorder.Events, "Warning Reason ")
}

func TestNoteIsBounded(t *testing.T) {
	for name, row := range map[string]struct{ message, want string }{
		"short":                      {"the hub refuses 100%", "the hub refuses 100%"},
		"longest":                    {strings.Repeat("x", 1024), strings.Repeat("x", 1024)},
		"too long":                   {strings.Repeat("x", 1025), strings.Repeat("x", 1021) + "…"},
		"characters of two bytes":    {strings.Repeat("é", 600), strings.Repeat("é", 510) + "…"},
		"characters of four bytes":   {strings.Repeat("🔑", 300), strings.Repeat("🔑", 255) + "…"},
		"bytes of no character":      {"a\xffb", "ab"},
		"a large body of a response": {strings.Repeat("x", 1<<20), strings.Repeat("x", 1021) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := record(row.message); got != row.want || len(got) > 1024 || !utf8.ValidString(got) {
				t.Errorf("a note of %d bytes: %q", len(got), got)
			}
		})
	}
}

func TestNoRecorder(*testing.T) {
	kubeevent.Record(nil, &corev1.Pod{}, corev1.EventTypeWarning, "Reason", "Act", "dropped")
}

// A writer of its own would bound its notes by a rule of its own.
func TestProductsRecordEventsHereOnly(t *testing.T) {
	root, calls := filepath.Join("..", ".."), 0
	for _, dir := range []string{"auth", "bootstrap", "cache", "cmd", "internal", "issuer", "podidentity",
		"registration"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				if f, ok := call.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "Eventf" {
					if calls++; filepath.Base(path) != "kubeevent.go" {
						t.Errorf("%s calls Eventf: call kubeevent.Record of internal/kubeevent", path)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if calls != 1 {
		t.Errorf("%d calls of Eventf, want one", calls)
	}
}
