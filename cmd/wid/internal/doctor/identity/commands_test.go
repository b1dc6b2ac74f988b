package identity_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth/cause"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
)

// cloudCommands are the subcommands that the doctor prints, with their flags as
// documented by AWS, Azure and Google Cloud. A ! marks a required flag, an
// argument stands for itself.
var cloudCommands = map[string]string{
	"aws sts get-caller-identity":                              "--query --output",
	"aws sso login":                                            "--profile",
	"aws iam get-role":                                         "--role-name! --query --output",
	"aws iam update-assume-role-policy":                        "--role-name! --policy-document!",
	"aws iam get-open-id-connect-provider":                     "--open-id-connect-provider-arn!",
	"aws iam create-open-id-connect-provider":                  "--url! --client-id-list --thumbprint-list --tags",
	"aws iam add-client-id-to-open-id-connect-provider":        "--open-id-connect-provider-arn! --client-id!",
	"aws iam update-open-id-connect-provider-thumbprint":       "--open-id-connect-provider-arn! --thumbprint-list!",
	"aws iam attach-role-policy":                               "--role-name! --policy-arn!",
	"aws iam put-role-policy":                                  "--role-name! --policy-name! --policy-document!",
	"aws eks create-access-entry":                              "--cluster-name! --principal-arn! --region --kubernetes-groups --username --type",
	"aws eks describe-access-entry":                            "--cluster-name! --principal-arn! --region",
	"aws eks delete-access-entry":                              "--cluster-name! --principal-arn! --region",
	"az identity show":                                         "--name! --resource-group! --query --output",
	"az identity federated-credential list":                    "--identity-name! --resource-group!",
	"az identity federated-credential create":                  "--name! --identity-name! --resource-group! --issuer --subject --audiences",
	"az identity federated-credential update":                  "--name! --identity-name! --resource-group! --issuer --subject --audiences",
	"az role assignment create":                                "--assignee --role! --scope!",
	"gcloud services enable":                                   "ARGUMENT --project",
	"gcloud iam workload-identity-pools providers describe":    "ARGUMENT --location --workload-identity-pool --project",
	"gcloud iam workload-identity-pools providers update-oidc": "ARGUMENT --issuer-uri --allowed-audiences --attribute-condition --jwk-json-path --location --project",
	"gcloud iam service-accounts get-iam-policy":               "ARGUMENT --project --format",
	"gcloud iam service-accounts add-iam-policy-binding":       "ARGUMENT --member! --role! --condition --project",
	"gcloud artifacts repositories add-iam-policy-binding":     "ARGUMENT --location --project --member! --role! --condition",
	"gcloud projects add-iam-policy-binding":                   "ARGUMENT --member! --role! --condition",
	"jq":                                                       "ARGUMENT",
}

// argv runs a command in a shell whose programs record how they were called.
// Programs of a pipe come in the order of their names.
func argv(t *testing.T, command string) (calls [][]string) {
	t.Helper()
	dir := t.TempDir()
	for _, program := range []string{"aws", "az", "gcloud", "jq", "kubectl"} {
		script := "#!/bin/sh\nprintf '%s\\0' " + program + " \"$@\" >" + dir + "/" + program + ".argv\n"
		if err := os.WriteFile(filepath.Join(dir, program), []byte(script), 0o700); err != nil { //nolint:gosec // it is run
			t.Fatal(err)
		}
	}
	sh := exec.CommandContext(t.Context(), "/bin/sh", "-euc", command) //nolint:gosec // a command of the doctor
	sh.Dir, sh.Env = dir, []string{"PATH=" + dir}
	if out, err := sh.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.argv")) // the pattern is well formed
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, strings.Split(strings.TrimSuffix(string(content), "\x00"), "\x00"))
	}
	return calls
}

// flagsOf separates words before the first flag, flags with their values, and
// other arguments.
func flagsOf(args []string) (flags map[string]string, arguments []string) {
	flags = map[string]string{}
	for i := 0; i < len(args); i++ {
		name, value, ok := strings.Cut(args[i], "=")
		switch {
		case !strings.HasPrefix(name, "--"):
			arguments = append(arguments, args[i])
		case ok:
			flags[name] = value
		case i+1 < len(args):
			i++
			flags[name] = args[i]
		default:
			flags[name] = ""
		}
	}
	return flags, arguments
}

// knownCommand returns the subcommand of a call.
func knownCommand(call []string) string {
	for n := len(call); n > 0; n-- {
		if name := strings.Join(call[:n], " "); cloudCommands[name] != "" {
			return name
		}
	}
	return ""
}

func wrongCloudCommand(call []string) error {
	name := knownCommand(call)
	if name == "" {
		return fmt.Errorf("no such subcommand: %q", call)
	}
	flags, arguments := flagsOf(call[strings.Count(name, " ")+1:])
	known := strings.Fields(cloudCommands[name])
	if len(arguments) != strings.Count(cloudCommands[name], "ARGUMENT") {
		return fmt.Errorf("arguments %q of %s", arguments, name)
	}
	for flag, value := range flags {
		if !slices.Contains(known, flag) && !slices.Contains(known, flag+"!") || value == "" {
			return fmt.Errorf("flag %s=%q of %s", flag, value, name)
		}
	}
	for _, flag := range known {
		if required, ok := strings.CutSuffix(flag, "!"); ok && flags[required] == "" {
			return fmt.Errorf("%s lacks %s", name, required)
		}
	}
	return nil
}

// remediesOfClasses renders those of all classes with the names of a call.
func remediesOfClasses(t *testing.T) map[string]doctor.Remedy {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "..", "auth", "cause", "reason.go"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]doctor.Remedy{}
	for _, provider := range []string{"", "aws", "azure", "gcp"} {
		w := newEnvironment(t, "gcp")
		q := &doctor.TrustQuery{Identity: roleARN, Annotations: w.account.Annotations,
			Claims: doctor.Claims{Issuer: w.issuer.URL(), Subject: subject,
				Audiences: []string{"sts.amazonaws.com"}, Namespace: "tenant-a", ServiceAccount: "app"}}
		for _, name := range regexp.MustCompile(`= "(\w+)"`).FindAllStringSubmatch(string(source), -1) {
			if class := cause.ClassFor(provider, cause.Reason(name[1])); class.Reason != "" {
				all[provider+" "+string(class.Reason)] = doctor.Advice(&class, q)
			}
		}
	}
	if len(all) < 60 {
		t.Errorf("%d classes", len(all))
	}
	return all
}

// remedies collects the remedies of reports, each once.
type remedies map[string]doctor.Remedy

func (r remedies) add(report *doctor.Report) {
	for _, f := range report.Findings {
		r[f.Check+" "+f.Class+" "+f.Remedy.Text+strings.Join(f.Remedy.Commands, "\n")] = f.Remedy
	}
}

func isProgram(command string) bool {
	return regexp.MustCompile(`^(AWS_PROFILE=PROFILE )?(aws|az|gcloud|kubectl|curl) `).MatchString(command)
}

// check asserts that each command is whole: a program that exists, with
// subcommand and flags. wid adds kubeconfig and context to a command that
// begins with kubectl, so none is within a sentence or after another program.
func (r remedies) check(t *testing.T, kubectl string) {
	t.Helper()
	shapes := map[string]bool{}
	for name, remedy := range r {
		commands, texts := remedy.Commands, []string{remedy.Text}
		if remedy.Or != nil {
			commands, texts = slices.Concat(commands, remedy.Or.Commands), append(texts, remedy.Or.When)
		}
		for _, command := range commands {
			switch shape := regexp.MustCompile(`[^ ]*[0-9/:@=].*|'.*'`).ReplaceAllString(command, ""); {
			case !isProgram(command):
				texts = append(texts, command)
			case strings.Contains(command, " delete") && !strings.Contains(strings.Join(texts, " "), "los"):
				t.Errorf("%s: %s does not say what is lost", name, command)
			case strings.Contains(command[1:], "kubectl "), strings.HasPrefix(name, "cluster ") &&
				strings.HasPrefix(command, "kubectl "):
				t.Errorf("%s: no context can be added to %s", name, command)
			case !shapes[shape+name[:3]]:
				shapes[shape+name[:3]] = true
				r.checkCommand(t, kubectl, name, command)
			}
		}
		for _, text := range texts {
			if regexp.MustCompile(`(^|[ :])(aws|az|gcloud|kubectl|eksctl) [a-z]+ [a-z-]+`).MatchString(text) {
				t.Errorf("%s: a command within a sentence: %s", name, text)
			}
		}
	}
}

func (r remedies) checkCommand(t *testing.T, kubectl, name, command string) {
	t.Helper()
	if strings.HasPrefix(command, "curl ") {
		return
	}
	for _, call := range argv(t, command) {
		var err error
		switch call[0] {
		case "kubectl":
			err = wrongKubectl(t, kubectl, call[1:])
		default:
			err = wrongCloudCommand(call)
		}
		if err != nil {
			t.Errorf("%s: %s: %v", name, command, err)
		}
	}
}

// wrongKubectl lets kubectl parse a command: it refuses unknown flags before it
// shows the help of the subcommand.
func wrongKubectl(t *testing.T, kubectl string, args []string) error {
	t.Helper()
	if args[0] == "--kubeconfig" {
		args = args[2:]
	}
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	out, err := exec.CommandContext(t.Context(), kubectl,
		append(slices.Clone(args), "--context=prod", "--help")...).CombinedOutput() //nolint:gosec // parsed only
	if err != nil || !strings.Contains(string(out), "  kubectl "+args[0]) {
		return fmt.Errorf("%w: %.200s", err, out)
	}
	return nil
}

func TestCommandsOfClasses(t *testing.T) {
	remedies(remediesOfClasses(t)).check(t, builtKubectl())
}

// builtKubectl is the one of make test.
func builtKubectl() string {
	return filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl")
}
