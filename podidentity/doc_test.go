package podidentity_test

import (
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
)

// The package comment shows lines of the example, which compiles and runs.
func TestTheCodeOfThePackageCommentIsTheExample(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("example_provide_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(code), "package podidentity_test\n\n")
	var want strings.Builder
	for line := range strings.Lines(program) {
		if line == "\n" {
			want.WriteString("//\n")
		} else {
			want.WriteString("//\t" + line)
		}
	}
	_, rest, ok := strings.Cut(string(doc), want.String())
	if !ok {
		t.Errorf("doc.go differs from example_provide_test.go: copy these lines to it\n%s", want.String())
	}
	example, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	_, objects, _ := strings.Cut(rest, "# Objects")
	for line := range strings.Lines(objects) {
		if line, ok := strings.CutPrefix(line, "//\t"); ok {
			lines++
			if !strings.Contains(string(example), "\t"+line) {
				t.Errorf("the example lacks %s", line)
			}
		}
	}
	if lines < 20 {
		t.Errorf("%d lines of code", lines)
	}
}

func TestObjectsOfTheExample(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if policy, err := bind(t.Context(), fake.NewClientBuilder().WithScheme(scheme).Build()); err != nil || !strings.Contains(string(policy), `"prod.team-a.reporting"`) {
		t.Errorf("%s: %v", policy, err)
	}
}
