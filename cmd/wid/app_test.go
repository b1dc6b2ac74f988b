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

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/credentials"
	"github.com/workloadid/workloadid/internal/buildinfo"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	var v buildinfo.Info
	if err := json.Unmarshal([]byte(must(t, "version", "-o", "json")), &v); err != nil || v.Go == "" || v.Platform == "" ||
		v.Version == "" {
		t.Errorf("got %+v, %v; want version and platform", v, err)
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
	t.Parallel()
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
					t.Errorf("got %d columns, want 84 at most: %s", utf8.RuneCountInString(line), line)
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
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out := must(t, "completion", shell); !strings.Contains(out, "wid") {
			t.Errorf("%s: got %.100s, want a script", shell, out)
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
			t.Errorf("wid %s: got %s:%s, want %s", tc, values, directive, tc[2])
		}
	}
}

// argv[0] decides.
func TestCalledAsDockerHelper(t *testing.T) {
	t.Parallel()
	for argv0, want := range map[string]string{"wid": "get", "/usr/bin/docker-credential-wid": "docker-credential get",
		`docker-credential-wid.exe`: "docker-credential get"} {
		if got := strings.Join(argumentsOf([]string{argv0, "get"}), " "); got != want {
			t.Errorf("%s: got %q, want %q", argv0, got, want)
		}
	}
}

// All commands have one shape: output as JSON and YAML, a context for each
// kubeconfig. The doctor follows with its own flags.
func TestCommandsHaveOneShape(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	kubeconfig := "--kubeconfig=" +
		writeFile(t, "hostile.yaml", strings.Replace(kubeconfigThrough("https://127.0.0.1:1", ""), `"contexts":[`,
			`"contexts":[{"name":"evil\u001b[2J","context":{"cluster":"c","user":"u"}},`, 1))
	broken := "--kubeconfig=" + writeFile(t, "broken.yaml", "{")
	for _, flag := range []string{"--kubeconfig", "--token-file"} { // the shell itself completes names of files
		if out := must(t, "__completeNoDesc", "token", flag, ""); !strings.HasPrefix(out, ":0") {
			t.Errorf("%s: got %s, want names of files", flag, out)
		}
	}
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
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
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
	t.Parallel()
	usage := must(t, "token", "--help-all")
	for _, s := range parsed(t).Settings() {
		if n := strings.Count(usage, "      --"+s.Name+" "); n != 1 {
			t.Errorf("--%s is there %d times, want once", s.Name, n)
		}
		if variable := "WID_" + strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_")); !strings.Contains(usage, variable) {
			t.Errorf("--help-all lacks %s", variable)
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
	t.Parallel()
	flag := regexp.MustCompile(`(?m)^ +(?:-\w, +|)--([a-z-]+)`)
	for target, want := range map[string][]string{
		"registration": {"cluster-name", "context", "help", "help-all", "hub-context", "hub-kubeconfig", "kubeconfig",
			"namespace", "output", "timeout", "verbose"},
	} {
		var got []string
		for _, match := range flag.FindAllStringSubmatch(must(t, "doctor", target, "--help"), -1) {
			got = append(got, match[1])
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: --help has %q, want %q", target, got, want)
		}
	}
	for _, s := range parsed(t).Settings() {
		if s.Group == credentials.GroupProgram || s.Group == credentials.GroupIdentity {
			continue
		}
		for _, args := range [][]string{{"doctor", "registration", "--" + s.Name},
			{"doctor", "--" + s.Name + "=x", "registration"}} {
			if _, err := wid(t, "", args...); err == nil || !strings.Contains(err.Error(), "unknown flag: --"+s.Name) {
				t.Errorf("wid %q: got %v, want an unknown flag", args, err)
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
