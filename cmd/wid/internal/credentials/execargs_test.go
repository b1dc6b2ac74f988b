package credentials

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// flagValues returns the flags that are set.
func flagValues(id *Identity) map[string]any {
	values := map[string]any{}
	id.Flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			values[f.Name] = valueOf(f)
		}
	})
	return values
}

// bare are the arguments of every kubeconfig.
var bare = []string{"exec-credential", "--no-environment"}

// What kubectl is told to pass on means the same, flag by flag.
func TestKubeconfigCarriesEveryFlag(t *testing.T) {
	for _, v := range shaping {
		t.Setenv(v.name, "")
	}
	for _, s := range parsed(t).Settings() {
		if slices.Contains([]string{"kubeconfig", "context", "in-cluster", "service-account"}, s.Name) {
			continue // clusterArgs
		}
		provider := s.Group
		if !s.OfOther("") {
			provider = "aws"
		}
		id := parsed(t, flagsFor(s)...)
		args, env, err := id.execArgs(provider, target{})
		if err != nil || !slices.Equal(args[:2], bare) {
			t.Errorf("--%s: %q, %v, %v", s.Name, args, env, err)
			continue
		}
		want, got := flagValues(id), flagValues(parsed(t, args[1:]...))
		if s.marks&isPath != 0 {
			absolute, err := filepath.Abs(sample(s)[0])
			if err != nil {
				t.Fatal(err)
			}
			want[s.Name] = absolute
		}
		if !reflect.DeepEqual(got, want) || len(got) != 1 {
			t.Errorf("--%s: %v becomes %v", s.Name, want, got)
		}
		// Another provider has no use for it, and would refuse it.
		if args, _, err := id.execArgs("generic", target{}); s.OfOther("") && (err != nil || len(args) != len(bare)) {
			t.Errorf("--%s is passed on for the provider generic: %q, %v", s.Name, args, err)
		}
	}
}

// A name that is empty is not that of the working directory.
func TestKubeconfigWithAnEmptyPath(t *testing.T) {
	args, _, err := parsed(t, "--cache-dir=").execArgs("aws", target{})
	if err != nil || !slices.Equal(args, append(slices.Clone(bare), "--cache-dir=")) {
		t.Errorf("%q, %v", args, err)
	}
}

// Whatever a value is, it is one value again in kubectl's call.
func FuzzListsInKubeconfigs(f *testing.F) {
	for _, s := range []string{"", "a", "a,b", `"`, `""`, " a", "a\nb", "\\.", "#", "'", "=", "\r"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if strings.Contains(value, "\r") {
			return // readers of CSV drop it
		}
		id := parsed(t)
		id.audiences = []string{value, "next"}
		list, ok := id.Flags.Lookup("audience").Value.(pflag.SliceValue)
		if !ok || list.Replace(id.audiences) != nil {
			t.Fatal("--audience is no list")
		}
		s := Setting{Name: "audience", target: &id.audiences}
		args, err := s.values(id.Flags.Lookup("audience"))
		if err != nil {
			t.Fatalf("%q: %v", value, err)
		}
		if got := parsed(t, "--audience="+args[0]).audiences; !slices.Equal(got, []string{value, "next"}) {
			t.Errorf("%q becomes %q", value, got)
		}
	})
}

// What the environment says here goes along. For a ServiceAccount, what is not
// set here is empty there. Wid's own identity is that of where kubectl runs.
func TestKubeconfigCarriesTheEnvironment(t *testing.T) {
	here, err := filepath.Abs("cloud.json")
	if err != nil {
		t.Fatal(err)
	}
	const tenant = "AZURE_TENANT_ID=" + azureTenant
	held := "--token-file=token"
	for name, tc := range map[string]struct {
		provider, variable string
		given              string
		cluster            string
		want               string // variables
	}{
		"region":            {"aws", "AWS_REGION=eu-west-1", "", "", "AWS_REGION=eu-west-1"},
		"region, flag":      {"aws", "AWS_REGION=eu-west-1", "--region=us-east-1", "", "AWS_REGION=eu-west-1"},
		"region, ARN":       {"aws", "AWS_REGION=eu-west-1", "", prodARN, "AWS_REGION=eu-west-1"},
		"region, elsewhere": {"gcp", "AWS_REGION=eu-west-1", "", "", ""},
		"authority": {"azure", "AZURE_AUTHORITY_HOST=https://login.microsoftonline.us", "", "",
			"AZURE_AUTHORITY_HOST=https://login.microsoftonline.us"},
		"cloud": {"azure", "AZURE_ENVIRONMENT_FILEPATH=cloud.json", "", "",
			"AZURE_ENVIRONMENT_FILEPATH=" + here},
		"metadata": {"gcp", "GCE_METADATA_HOST=127.0.0.1:1", "", "", "GCE_METADATA_HOST=127.0.0.1:1"},
		"tenant":   {"azure", tenant, "", "", tenant},
		"ServiceAccount": {"azure", tenant, held, "",
			tenant + " AZURE_AUTHORITY_HOST= AZURE_ENVIRONMENT_FILEPATH="},
		"ServiceAccount, AWS":        {"aws", tenant, held, "", "AWS_REGION="},
		"ServiceAccount, AWS by ARN": {"aws", tenant, held, prodARN, "AWS_REGION="},
		"ServiceAccount, Google":     {"gcp", tenant, held, "", "GCE_METADATA_HOST="},
		"ServiceAccount, generic":    {"generic", tenant, held, "", ""},
		"own, Google":                {"gcp", tenant, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range shaping {
				t.Setenv(v.name, "")
			}
			variable, value, _ := strings.Cut(tc.variable, "=")
			t.Setenv(variable, value)
			args, env, err := parsed(t, strings.Fields(tc.given)...).execArgs(tc.provider, target{resource: tc.cluster})
			var got []string
			for _, v := range env {
				got = append(got, v.Name+"="+v.Value)
			}
			if err != nil || strings.Join(got, " ") != tc.want ||
				tc.cluster != "" && !slices.Contains(args, "--cluster="+tc.cluster) {
				t.Errorf("%q with %q, %v", args, got, err)
			}
		})
	}
}
