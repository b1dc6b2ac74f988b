package serviceaccounts_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/auth/serviceaccounts"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/annotation"
	"github.com/workloadid/workloadid/internal/testing/testworld"
)

// A provider that reads an annotation which is not kept would say that it is missing.
func TestAnnotationsOfTheProvidersAreKept(t *testing.T) {
	declared := map[string]string{}
	for name, value := range constantsOf(t, "../../internal/annotation") {
		literal, ok := value.(*ast.BasicLit)
		if !ok {
			t.Fatalf("annotation.%s is no literal", name)
		}
		unquoted, err := strconv.Unquote(literal.Value)
		if err != nil {
			t.Fatal(err)
		}
		declared[name] = unquoted
	}
	known, want := annotation.All(), slices.Sorted(maps.Values(declared))
	slices.Sort(known)
	if !slices.Equal(known, want) {
		t.Errorf("annotation.All returns %q, the constants are %q", known, want)
	}
	found := 0
	for _, provider := range []string{"aws", "azure", "gcp", "token", "exchange"} {
		for name, value := range constantsOf(t, filepath.Join("..", provider)) {
			if !strings.HasSuffix(name, "Annotation") {
				continue
			}
			found++
			if selector, ok := value.(*ast.SelectorExpr); !ok || declared[selector.Sel.Name] == "" {
				t.Errorf("%s.%s is not declared in internal/annotation", provider, name)
			}
		}
	}
	if found != len(want) {
		t.Errorf("the providers have %d annotations instead of %d", found, len(want))
	}
}

// constantsOf returns the values of the constants in the sources of a package.
func constantsOf(t *testing.T, folder string) map[string]ast.Expr {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no sources in %s: %v", folder, err)
	}
	values := map[string]ast.Expr{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok {
				for i, value := range spec.Values {
					values[spec.Names[i].Name] = value
				}
			}
			return true
		})
	}
	return values
}

// The values that a tenant may set to anything lead to the same error as without a Reader, however long they are.
func TestHugeValuesAreErrors(t *testing.T) {
	issuer := testworld.Issuer(t)
	cloud := testworld.Cloud(t)
	lengths := regexp.MustCompile(`[0-9]+ characters`)
	const pool = "projects/123456/locations/global/workloadIdentityPools/pool/providers/provider"
	const guid = "0a1b2c3d-0000-4000-8000-000000000000"
	for annotation, tt := range map[string]struct {
		provider auth.Provider
		start    string
		others   map[string]string
	}{
		aws.RoleARNAnnotation:                  {&aws.Provider{}, roleARN, nil},
		aws.AudienceAnnotation:                 {&aws.Provider{}, aws.DefaultAudience, map[string]string{aws.RoleARNAnnotation: roleARN}},
		aws.TokenExpirationAnnotation:          {&aws.Provider{}, "3600", map[string]string{aws.RoleARNAnnotation: roleARN}},
		azure.ClientIDAnnotation:               {&azure.Provider{}, guid, map[string]string{azure.TenantIDAnnotation: guid}},
		azure.TenantIDAnnotation:               {&azure.Provider{}, "example.com", map[string]string{azure.ClientIDAnnotation: guid}},
		azure.TokenExpirationAnnotation:        {&azure.Provider{}, "3600", map[string]string{azure.ClientIDAnnotation: guid, azure.TenantIDAnnotation: guid}},
		gcp.ServiceAccountAnnotation:           {&gcp.Provider{}, "name@project.iam.gserviceaccount.com", map[string]string{gcp.WorkloadIdentityProviderAnnotation: pool}},
		gcp.WorkloadIdentityProviderAnnotation: {&gcp.Provider{}, pool, nil},
	} {
		t.Run(annotation, func(t *testing.T) {
			annotations := map[string]string{annotation: tt.start + strings.Repeat("0", 200<<10)}
			for name, value := range tt.others {
				annotations[name] = value
			}
			base := issuer.Client(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app", UID: "tenant-a/app", Annotations: annotations}})
			r := newReader(t, fakeClient(metadataOf("tenant-a", "app", annotations)), serviceaccounts.Options{})
			start(t, r)
			var texts []string
			for _, reads := range []auth.Option{auth.WithServiceAccount(app, base), auth.WithServiceAccount(app, r.Client(base))} {
				_, err := auth.GetAccessToken(t.Context(), tt.provider, reads, auth.WithSTSRegion("eu-central-1"), auth.WithHTTPClient(cloud.Client()),
					auth.WithOwner(cache.InvolvedObject{Kind: "Bucket", Namespace: "tenant-a", Name: "b"}))
				if err == nil {
					t.Fatal("it was accepted")
				}
				texts = append(texts, lengths.ReplaceAllString(err.Error(), "n characters"))
			}
			if texts[0] != texts[1] {
				t.Errorf("without a Reader it is %s\nand with one %s", texts[0], texts[1])
			}
		})
	}
}

// A tenant's huge annotations are not kept in memory.
func TestHugeValuesAreNotKept(t *testing.T) {
	const count, size = 100, 200 << 10
	annotations := map[string]string{aws.RoleARNAnnotation: roleARN + strings.Repeat("x", size), "example.com/a": strings.Repeat("y", size)}
	c := fakeClient()
	for i := range count {
		if err := c.Tracker().Add(metadataOf("tenant-a", "app-"+strconv.Itoa(i), annotations)); err != nil {
			t.Fatal(err)
		}
	}
	before := heap()
	r := newReader(t, c, serviceaccounts.Options{AnnotationPrefixes: []string{"example.com/"}})
	start(t, r)
	if each := (heap() - before) / count; each > 20<<10 {
		t.Errorf("%d bytes are kept of each", each)
	}
	if sa := get(t, r, "tenant-a", "app-0"); len(sa.Annotations) != len(annotations) || !strings.HasPrefix(sa.Annotations["example.com/a"], "yyy") {
		t.Errorf("annotations are missing: %d", len(sa.Annotations))
	}
	runtime.KeepAlive(c)
}
