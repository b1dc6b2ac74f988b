package workloadid_test

import (
	"context"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/workloadid/workloadid"

// sdks are the import paths of the clouds' SDKs, by the package that may use
// them.
var sdks = map[string][]string{
	"aws":   {"github.com/aws/"},
	"azure": {"github.com/Azure/"},
	"gcp":   {"cloud.google.com/", "google.golang.org/api/"},
}

// graph maps each package of this module to the import paths that it compiles,
// itself included.
var graph = sync.OnceValues(func() (map[string][]string, error) { return list("Deps") })

// imports maps each package of this module to itself and what its files import,
// without tests.
var imports = sync.OnceValues(func() (map[string][]string, error) { return list("Imports") })

func list(field string) (map[string][]string, error) {
	line := `{{.ImportPath}} {{join .` + field + ` " "}}`
	//nolint:gosec // one of the two above
	out, err := exec.CommandContext(context.Background(), "go", "list", "-f", line, "./...").Output()
	packages := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		paths := strings.Fields(line)
		packages[paths[0]] = paths
	}
	return packages, err
}

func dependencies(t *testing.T, pkg string) []string {
	t.Helper()
	packages, err := graph()
	if err != nil {
		t.Fatalf("go list ./...: %v", err)
	}
	if packages[pkg] == nil {
		t.Fatalf("there is no package %q", pkg)
	}
	return packages[pkg]
}

// refuse fails if importing pkg compiles a package with one of the prefixes. A
// prefix that no package has is a mistake of the rule: it would hold for ever.
func refuse(t *testing.T, pkg, remedy string, prefixes ...string) {
	t.Helper()
	for _, prefix := range prefixes {
		if !exists(t, prefix) {
			t.Errorf("the rule for %s refuses %q, which no package begins with: correct it", pkg, prefix)
		}
	}
	for _, dep := range dependencies(t, pkg) {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(dep, p) }) {
			t.Errorf("importing %s compiles %s: %s", pkg, dep, remedy)
			return
		}
	}
}

// exists reports whether a package of this module or a dependency begins with
// the prefix, or the prefix names a package of a required module.
func exists(t *testing.T, prefix string) bool {
	t.Helper()
	known, err := known()
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(known, func(path string) bool {
		// of a required module
		return strings.HasPrefix(path+"/", prefix) ||
			!strings.HasPrefix(prefix, module) && strings.HasPrefix(prefix, path+"/")
	})
}

// known returns the import paths that a rule may refuse.
var known = sync.OnceValues(func() ([]string, error) {
	packages, err := graph()
	if err != nil {
		return nil, err
	}
	paths := map[string]bool{}
	for _, deps := range packages {
		for _, dep := range deps {
			paths[dep] = true
		}
	}
	err = filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Base(path) != "go.mod" {
			return err
		}
		content, err := os.ReadFile(path) //nolint:gosec // of this repository
		for _, required := range regexp.MustCompile(`(?m)^(?:require)?\s+(\S+) v`).FindAllStringSubmatch(string(content),
			-1) {
			paths[required[1]] = true
		}
		return err
	})
	return slices.Collect(maps.Keys(paths)), err
})

// The files that depguard names exist.
func TestRulesOfTheLinterNameFiles(t *testing.T) {
	content, err := os.ReadFile(".golangci.yml")
	if err != nil {
		t.Fatal(err)
	}
	patterns := regexp.MustCompile(`"\*\*/([^"]+)"`).FindAllStringSubmatch(string(content), -1)
	if len(patterns) < 3 {
		t.Fatalf("found %q", patterns)
	}
	for _, pattern := range patterns {
		if files, err := filepath.Glob(filepath.FromSlash(pattern[1])); err != nil || len(files) == 0 {
			t.Errorf("no file matches %q: %v", pattern[0], err)
		}
	}
}

// Importing a package compiles only what that package needs.
func TestImportGraph(t *testing.T) {
	var all []string
	for _, prefixes := range sdks {
		all = append(all, prefixes...)
	}
	const own = "keep the SDK in auth/<provider>, and have users import that where they need it"
	refuse(t, module+"/cache", "hand it over as a function or an interface; auth imports cache, not the other way round",
		"k8s.io/", "sigs.k8s.io/", module+"/auth", module+"/issuer", module+"/podidentity", module+"/cloudtest")
	refuse(t, module+"/cache", own, all...)
	refuse(t, module+"/cache", "implement cache.Observer in cache/metrics", "github.com/prometheus/")
	refuse(t, module+"/cache/disk", "it is for programs that know nothing of Kubernetes too", "k8s.io/", "sigs.k8s.io/",
		module+"/auth")
	refuse(t, module+"/auth/plugin", "a protocol takes plain values; the program around it has the provider", all...)
	refuse(t, module+"/bootstrap", "what needs a client or a cloud lives below bootstrap, not in it",
		append([]string{"k8s.io/client-go/", "sigs.k8s.io/controller-runtime/", module + "/auth", module + "/cache",
			module + "/issuer", module + "/podidentity"}, all...)...)
	refuse(t, module+"/auth", own, all...)
	for _, pkg := range []string{"/auth", "/auth/clientgo"} {
		refuse(t, module+pkg,
			"the API group core is all that auth needs: take its typed client or an interface, not the clientset",
			"k8s.io/client-go/kubernetes/typed/apps", "k8s.io/client-go/informers")
	}
	refuse(t, module+"/auth", "what is made of a clientset lives in auth/clientgo", "k8s.io/client-go/kubernetes/typed/",
		"k8s.io/client-go/applyconfigurations/")
	refuse(t, module+"/auth/token", own, all...)
	const store = "a store uses its own cloud's SDK only, and the issuer none"
	refuse(t, module+"/issuer", store, append([]string{module + "/issuer/"}, all...)...)
	refuse(t, module+"/issuer/s3", store,
		append([]string{module + "/auth/aws"}, slices.Concat(sdks["azure"], sdks["gcp"])...)...)
	refuse(t, module+"/issuer/azblob", store,
		append([]string{module + "/auth/azure"}, slices.Concat(sdks["aws"], sdks["gcp"])...)...)
	refuse(t, module+"/issuer/gcppool", store, slices.Concat(sdks["aws"], sdks["azure"])...)
	refuse(t, module+"/auth/exchange", own, all...)
	refuse(t, module+"/auth/github", own, all...)
	refuse(t, module+"/auth/clientgo", own, all...)
	refuse(t, module+"/auth/clusterprofile", own, all...)
	refuse(t, module+"/auth/clusterprofile",
		"take client-go's Cluster; the inventory's types and library stay in auth/clusterprofile/interop",
		"sigs.k8s.io/cluster-inventory-api")
	refuseInDoctor(t, all)
	for _, core := range []string{"/auth", "/cache", "/bootstrap", "/auth/aws", "/auth/azure", "/auth/gcp", "/auth/token",
		"/auth/exchange", "/auth/github", "/auth/authtest", "/cloudtest", "/bootstrap/controllers"} {
		refuse(t, module+core, "errors do not know their explanations: auth/cause and the doctor import what they explain",
			module+"/auth/cause", module+"/cmd")
	}
	for _, pkg := range []string{"/registration", "/registration/agent", "/registration/hub", "/registration/csr",
		"/registration/relay", "/registration/token"} {
		refuse(t, module+pkg, "what calls AWS lives in registration/awsirsa, and hubs import that where they need it", all...)
	}
	refuse(t, module+"/registration/awsirsa", "it uses the SDK of AWS only", append(sdks["azure"], sdks["gcp"]...)...)
	for _, pkg := range []string{"", "/agent", "/hub", "/csr", "/awsirsa", "/token", "/relay", "/ocm", "/ocm/addon",
		"/kubeconfig", "/manifests"} {
		refuse(t, module+"/registration"+pkg,
			"registration knows no registries and no exchange: take a function that returns a *rest.Config, which the program builds from auth/aws",
			module+"/auth", module+"/cache", module+"/issuer", module+"/podidentity", "github.com/google/go-containerregistry",
			"github.com/docker/", "github.com/aws/aws-sdk-go-v2/service/ecr")
	}
	refuse(t, module+"/podidentity/api/v1alpha1",
		"the types need apimachinery only; clients and providers belong into the server, the proxy or the webhook",
		append([]string{"k8s.io/client-go/", "sigs.k8s.io/controller-runtime/", module + "/auth/aws"}, all...)...)
	refuse(t, module+"/podidentity/server", "it uses the SDK of AWS only", append(sdks["azure"], sdks["gcp"]...)...)
	refuse(t, module+"/podidentity/server", "the doctor imports what it examines, never the other way round",
		module+"/auth/cause", module+"/cmd", module+"/registration")
	for _, core := range []string{"/auth", "/cache", "/auth/aws", "/auth/authtest", "/cloudtest"} {
		refuse(t, module+core, "these systems use auth and its providers; what they lack there is an option for all users",
			module+"/podidentity", module+"/issuer", module+"/registration")
	}
	refuse(t, module+"/bootstrap/controllers", "bootstrap stands alone",
		append([]string{module + "/auth", module + "/cache"}, all...)...)
	refuse(t, module+"/podidentity/webhook", "the webhook injects the proxy and calls no cloud", all...)
	for _, program := range []string{"/cmd/wid-hub", "/cmd/wid-agent", "/cmd/iam-credentials-provider"} {
		refuse(t, module+program, "it needs AWS only", append(sdks["azure"], sdks["gcp"]...)...)
	}
	for _, sidecar := range []string{"/podidentity/proxy", "/cmd/iam-credentials-pod"} {
		refuse(t, module+sidecar, "it runs in every pod and stays below 20 MiB: use net/http and the standard library",
			append([]string{"k8s.io/", "sigs.k8s.io/", "github.com/prometheus/", module + "/auth/aws",
				module + "/podidentity/api", module + "/cache"}, all...)...)
	}
	refuse(t, module+"/cloudtest", "it stands alone: users test programs with it that import no auth", module+"/auth",
		module+"/cache")
	refuse(t, module+"/auth/authtest", own, all...)
	refuse(t, module+"/cloudtest", "speak the protocol itself; only tests may use an SDK", all...)
	for _, pkg := range []string{"/cloudtest", "/examples/quickstart"} {
		refuse(t, module+pkg,
			"it costs a build a hundred packages: hold objects in Issuer.Client, and take k8s.io/client-go/discovery rather than a clientset",
			"k8s.io/client-go/applyconfigurations", "k8s.io/client-go/kubernetes/typed/",
			"sigs.k8s.io/controller-runtime/pkg/client/fake")
	}
	for provider := range sdks {
		if _, err := os.Stat(filepath.Join("auth", provider)); err != nil {
			continue // not written yet
		}
		for other, prefixes := range sdks {
			if other != provider {
				refuse(t, module+"/auth/"+provider, "a provider uses its own cloud's SDK only", prefixes...)
			}
		}
	}
}

// refuseInDoctor keeps clouds out of the doctor, and its packages of checks
// apart.
func refuseInDoctor(t *testing.T, all []string) {
	t.Helper()
	const value = "a value of the Config does what only an SDK can do: a Provider, a Trust, Identify"
	refuse(t, module+"/auth/cause", value, all...)
	for _, pkg := range []string{"", "/podidentity"} { // identity names what an SDK's token is; wid links all of them
		refuse(t, module+"/cmd/wid/internal/doctor"+pkg, value, all...)
	}
	refuse(t, module+"/cmd/wid/internal/doctor/registration", "it uses the SDK of AWS only, through registration/awsirsa",
		append(sdks["azure"], sdks["gcp"]...)...)
	packages := []string{"identity", "registration", "podidentity"}
	for _, pkg := range append(packages, "trust/aws") { // identity uses it
		refuse(t, module+"/cmd/wid/internal/doctor/"+pkg, "tests use the fakes, programs do not", module+"/cloudtest",
			module+"/auth/authtest")
		for _, other := range packages {
			if other != pkg {
				refuse(t, module+"/cmd/wid/internal/doctor/"+pkg,
					"what two packages of checks need belongs into the package doctor of wid, or its internal",
					module+"/cmd/wid/internal/doctor/"+other)
			}
		}
	}
}

// Only programs import two providers.
func TestOnlyProgramsImportTwoProviders(t *testing.T) {
	packages, err := graph()
	if err != nil {
		t.Fatal(err)
	}
	for pkg, deps := range packages {
		if strings.HasPrefix(pkg, module+"/examples/") || strings.HasPrefix(pkg, module+"/cmd/") {
			continue
		}
		var providers []string
		for _, dep := range deps {
			if p, ok := strings.CutPrefix(dep, module+"/auth/"); ok && sdks[p] != nil {
				providers = append(providers, p)
			}
		}
		if len(providers) > 1 {
			t.Errorf("%s imports the providers %v: take an auth.Provider or an auth.ProviderSet from the caller instead", pkg,
				providers)
		}
	}
}

// Internal packages are leaves, and importers can do what the programs can.
// wid hub, wid join and the doctor thus import no package of internal that
// imports registration.
func TestInternalImportsNothingAboveIt(t *testing.T) {
	packages, err := imports()
	if err != nil {
		t.Fatal(err)
	}
	const internal = module + "/internal/"
	for pkg, all := range packages {
		name, ok := strings.CutPrefix(pkg, internal)
		if !ok || strings.HasPrefix(name, "testing/") {
			continue
		}
		for _, imported := range all {
			if strings.HasPrefix(imported, module+"/") && !strings.HasPrefix(imported, internal) {
				t.Errorf("%s imports %s: move the code to that package or below it, since internal holds leaves", pkg, imported)
			}
		}
	}
}

// Users copy examples. The exempt ones play with the helpers of tests.
func TestExamplesImportNothingInternal(t *testing.T) {
	packages, err := imports()
	if err != nil {
		t.Fatal(err)
	}
	exempt := []string{module + "/examples/registration", module + "/examples/podidentity"}
	for pkg, all := range packages {
		if !strings.HasPrefix(pkg, module+"/examples/") || slices.Contains(exempt, pkg) {
			continue
		}
		for _, imported := range all {
			if strings.HasPrefix(imported, module+"/internal/") {
				t.Errorf("%s imports %s: make public what an importer needs, or leave it out", pkg, imported)
			}
		}
	}
}
