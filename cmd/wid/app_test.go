package main

import (
	"bytes"
	"encoding/json"
	"iter"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/credentials"
	"github.com/workloadid/workloadid/internal/buildinfo"
)

// The key of the cache holds all that shapes a credential. Nobody gets what was
// made for something else.
func TestTheCacheKeepsThingsApart(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	w.cloud.AWS().SetRole(role("other"), w.trustOfApp())
	file := w.tokenFile(t, aws.DefaultAudience)
	annotation := "--annotation=" + aws.RoleARNAnnotation + "="
	variants := [][]string{
		{file, "--region=eu-central-1", annotation + role("tenant-a")},
		{file, "--region=eu-west-1", annotation + role("tenant-a")},
		{file, "--region=eu-central-1", annotation + role("other")},
		{file, "--region=eu-central-1", annotation + role("tenant-a"),
			"--annotation=" + aws.TokenExpirationAnnotation + "=900"},
		{file, "--region=eu-central-1", annotation + role("tenant-a"),
			"--sts-endpoint=https://sts.eu-central-1.amazonaws.com"},
	}
	seen := map[string]bool{}
	for range 2 {
		for _, args := range variants {
			seen[w.mustWid(t, "", append([]string{"credential-process"}, args...)...)] = true
		}
	}
	if len(seen) != len(variants) || w.mints() != len(variants) {
		t.Errorf("%d credentials in %d exchanges for %d variants", len(seen), w.mints(), len(variants))
	}
	// The region may come from the environment, which is in the key too.
	for _, region := range []string{"us-east-1", "us-west-2"} {
		r := w.exec(t, "", []string{"AWS_REGION=" + region}, "wid", "credential-process", file, annotation+role("tenant-a"))
		if r.code != 0 || seen[r.stdout] {
			t.Errorf("%s: %+v", region, r)
		}
		seen[r.stdout] = true
	}
	// Another token of the same ServiceAccount proves itself anew.
	w.mustWid(t, w.jwt(t, aws.DefaultAudience)+" ", "credential-process", "--token-file=/dev/stdin",
		"--region=eu-central-1", annotation+role("tenant-a"))
	before := w.mints()
	sa := strings.TrimPrefix(w.tokenFile(t, aws.DefaultAudience), "--token-file=") // a new one under the old name
	w.mustWid(t, "", "credential-process", "--token-file="+sa, "--region=eu-central-1", annotation+role("tenant-a"))
	if w.mints() != before+1 {
		t.Errorf("%d exchanges for another token", w.mints()-before)
	}
}

func TestVersion(t *testing.T) {
	var v buildinfo.Info
	if err := json.Unmarshal([]byte(must(t, "version", "-o", "json")), &v); err != nil || v.Go == "" || v.Platform == "" ||
		v.Version == "" {
		t.Errorf("%+v, %v", v, err)
	}
	if out := must(t, "version"); !strings.HasPrefix(out, "wid ") || !strings.Contains(out, v.Go) {
		t.Error(out)
	}
	if out := must(t, "--version"); !strings.HasPrefix(out, "wid version "+v.Version) || !strings.Contains(out, v.Go) {
		t.Error(out)
	}
}

// Every command explains itself: usage first, an example, lines of 80 columns,
// exit codes last. --help-all works everywhere.
func TestHelp(t *testing.T) {
	for cmd := range commands(newRoot()) {
		t.Run(cmd.CommandPath(), func(t *testing.T) {
			path := strings.Fields(cmd.CommandPath())[1:]
			out := must(t, append(path, "--help")...)
			if cmd.Short == "" || !strings.HasPrefix(out, "Usage: "+cmd.CommandPath()) ||
				!regexp.MustCompile(`(?m)^ +.*\b(wid |kubelet-credential-provider)`).MatchString(out) {
				t.Errorf("it lacks description, usage or example:\n%s", out)
			}
			if last := out[strings.LastIndex(out, "\n\n")+2:]; !strings.HasPrefix(last, "Exit codes:") {
				t.Errorf("it ends with %q", last)
			}
			for line := range strings.SplitSeq(out, "\n") {
				if indent := len(line) - len(strings.TrimLeft(line, " ")); utf8.RuneCountInString(line) > 84 && indent == 0 {
					t.Errorf("%d columns: %s", utf8.RuneCountInString(line), line)
				}
			}
			if all := must(t, append(path, "--help-all")...); len(all) < len(out)-40 {
				t.Errorf("--help-all is shorter:\n%s", all)
			}
		})
	}
	root := must(t, "--help")
	for _, cmd := range newRoot().Commands() {
		if cmd.GroupID == "" && cmd.Name() != "help" || !strings.Contains(root, "\n  "+cmd.Name()+" ") {
			t.Errorf("%s is in no group", cmd.CommandPath())
		}
	}
}

// commands yields a command and all below it.
func commands(cmd *cobra.Command) iter.Seq[*cobra.Command] {
	return func(yield func(*cobra.Command) bool) {
		if !yield(cmd) {
			return
		}
		for _, child := range cmd.Commands() {
			for c := range commands(child) {
				if !yield(c) {
					return
				}
			}
		}
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out := must(t, "completion", shell); !strings.Contains(out, "wid") {
			t.Errorf("%s: %.100s", shell, out)
		}
	}
	if out := must(t, "__complete", "git-credential", ""); !strings.Contains(out, "get\n") {
		t.Error(out)
	}
	for _, tc := range [][]string{{"token", "--provider", "aws azure gcp generic exchange"},
		{"doctor", "--provider", "aws azure gcp generic exchange"},
		{"token", "-o", "table json yaml env"}, {"doctor", "--output", "text json yaml"},
		{"version", "-o", "table json yaml"},
		{"hub status", "-o", "table json yaml"}, {"join", "--registration-auth", "csr aws-irsa"},
		{"bootstrap create", "--usages", "signing authentication"}} {
		values, directive,
			_ := strings.Cut(must(t, slices.Concat([]string{"__complete"}, strings.Fields(tc[0]), []string{tc[1], ""})...), ":")
		if strings.Join(strings.Fields(values), " ") != tc[2] || !strings.HasPrefix(directive, "4") {
			t.Errorf("%s: %s:%s", tc, values, directive)
		}
	}
}

// argv[0] decides.
func TestCalledAsDockerHelper(t *testing.T) {
	for argv0, want := range map[string]string{"wid": "get", "/usr/bin/docker-credential-wid": "docker-credential get",
		`docker-credential-wid.exe`: "docker-credential get"} {
		if got := strings.Join(argumentsOf([]string{argv0, "get"}), " "); got != want {
			t.Errorf("%s: %s", argv0, got)
		}
	}
}

// Flags are described once: in the flags. The environment has them all.
func TestVariables(t *testing.T) {
	usage := must(t, "docker-credential", "--help-all")
	for _, want := range []string{"WID_SERVICE_ACCOUNT", "WID_TOKEN_FILE", "WID_CACHE_DIR", "WID_PROVIDER"} {
		if !strings.Contains(usage, want) {
			t.Errorf("--help lacks %s", want)
		}
	}
}

// All commands have one shape: output as JSON and YAML, a context for each
// kubeconfig. The doctor follows with its own flags.
func TestCommandsHaveOneShape(t *testing.T) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, child := range cmd.Commands() {
			walk(child)
		}
		if strings.HasPrefix(cmd.CommandPath(), "wid doctor") {
			return
		}
		if f := cmd.Flag("output"); f != nil {
			o, ok := f.Value.(*cli.Output)
			if !ok || f.Shorthand != "o" || !slices.Contains(o.All, "json") || !slices.Contains(o.All, "yaml") {
				t.Errorf("%s: -o is %s", cmd.CommandPath(), f.Usage)
			}
		}
		if (cmd.Flag("kubeconfig") == nil) != (cmd.Flag("context") == nil) {
			t.Errorf("%s has only one of --kubeconfig and --context", cmd.CommandPath())
		}
	}
	walk(newRoot())
	out := must(t, "hub", "policies", "--eks-hub-cluster-arn="+eksHub, eksIssuer, "-o", "yaml")
	if !strings.Contains(out, "\ntrustPolicy:\n") {
		t.Error(out)
	}
}

// Shells print what they are offered.
func TestCompletionOfContexts(t *testing.T) {
	kubeconfig := "--kubeconfig=" +
		writeFile(t, "hostile.yaml", strings.Replace(kubeconfigThrough("https://127.0.0.1:1", ""), `"contexts":[`,
			`"contexts":[{"name":"evil\u001b[2J","context":{"cluster":"c","user":"u"}},`, 1))
	broken := "--kubeconfig=" + writeFile(t, "broken.yaml", "{")
	for name, tc := range map[string]struct{ args, want []string }{
		"of a credential":      {[]string{"token", kubeconfig}, []string{"c"}},
		"of a group":           {[]string{"bootstrap", kubeconfig, "list"}, []string{"c"}},
		"in a broken file":     {[]string{"token", broken}, nil},
		"without a kubeconfig": {[]string{"token", "--kubeconfig=" + filepath.Join(t.TempDir(), "none")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			out := must(t, slices.Concat([]string{"__completeNoDesc"}, tc.args, []string{"--context", ""})...)
			values, _, _ := strings.Cut(out, ":")
			if got := strings.Fields(values); !slices.Equal(got, tc.want) {
				t.Errorf("offered %q, not %q", got, tc.want)
			}
		})
	}
}

// The shell itself completes names of files.
func TestCompletionOfFiles(t *testing.T) {
	for _, flag := range []string{"--kubeconfig", "--token-file"} {
		if out := must(t, "__completeNoDesc", "token", flag, ""); !strings.HasPrefix(out, ":0") {
			t.Errorf("%s: %s", flag, out)
		}
	}
}

func kubeconfigThrough(server, proxy string) string {
	return `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],` +
		`"users":[{"name":"u","user":{"token":"secret"}}],"clusters":[{"name":"c","cluster":{"server":"` + server +
		`","proxy-url":"` + proxy + `"}}]}`
}

// --help-all has every flag once, under a heading. --help leaves out the rare
// ones.
func TestHelpIsGrouped(t *testing.T) {
	usage := must(t, "token", "--help-all")
	for _, s := range parsed(t).Settings() {
		if n := strings.Count(usage, "      --"+s.Name+" "); n != 1 {
			t.Errorf("--%s is there %d times", s.Name, n)
		}
		if !strings.Contains(usage, s.Title()+":\n") {
			t.Errorf("--%s has no group", s.Name)
		}
	}
	short := must(t, "token", "--help")
	for flag, want := range map[string]bool{"--service-account": true, "--region": true, "--help-all": true,
		"--exchange-issuer": false, "--no-environment": false} {
		if strings.Contains(short, " "+flag+" ") != want {
			t.Errorf("--help shows %s: %t", flag, !want)
		}
	}
	if !strings.Contains(short, " more flags: wid token --help-all\n") &&
		!strings.HasSuffix(short, " more flags: wid token --help-all") {
		t.Errorf("--help does not name --help-all: %s", short)
	}
	if !strings.Contains(usage, "--reveal") || strings.Index(usage, "--reveal") > strings.Index(usage, "Whose identity:") {
		t.Error("the command's own flags do not come first")
	}
}

// --help of what needs no provider has the command's own flags, and each flag
// of it is taken.
func TestHelpOfTargetsIsTheirOwn(t *testing.T) {
	flag := regexp.MustCompile(`(?m)^ +(?:-\w, +|)--([a-z-]+)`)
	for target, want := range map[string][]string{
		"registration": {"cluster-name", "context", "help", "help-all", "hub-context", "hub-kubeconfig", "kubeconfig",
			"output", "timeout", "verbose"},
	} {
		var got []string
		for _, match := range flag.FindAllStringSubmatch(must(t, "doctor", target, "--help"), -1) {
			got = append(got, match[1])
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: --help has %q", target, got)
		}
	}
	for _, s := range parsed(t).Settings() {
		if s.Group == credentials.GroupProgram || s.Group == credentials.GroupIdentity {
			continue
		}
		for _, args := range [][]string{{"doctor", "registration", "--" + s.Name},
			{"doctor", "--" + s.Name + "=x", "registration"}} {
			if _, err := wid(t, "", args...); err == nil || !strings.Contains(err.Error(), "unknown flag: --"+s.Name) {
				t.Errorf("%q: %v", args, err)
			}
		}
	}
}

// parsed is an identity as a command has it with these arguments.
func parsed(t *testing.T, args ...string) *credentials.Identity {
	t.Helper()
	cmd := &cobra.Command{Use: "wid"}
	id := (&credentials.App{Stderr: &bytes.Buffer{}}).NewIdentity(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	return id
}
