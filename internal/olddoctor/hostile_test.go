package doctor_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/internal/olddoctor"
)

// hostileValues would each leave a file called owned, if a shell read them unquoted, or obey the terminal.
func hostileValues() []string {
	return []string{"x;touch owned;echo", "x$(touch${IFS}owned)`touch owned`", "x'$(touch owned)';touch owned;'", "x|touch owned",
		"x\n25 PASS    helpers forged\ntouch owned\x1b[2J\u009b31m\u202e"}
}

var placeholder = regexp.MustCompile(`<[a-z][A-Za-z: ]*>`)

// standing sees to it that what is left open in a remedy is a word that a shell leaves alone.
func standing(t *testing.T, r *doctor.Report) {
	t.Helper()
	for _, f := range r.Findings {
		if found := placeholder.FindString(f.Remedy); found != "" {
			t.Errorf("%s: a shell takes %s for a redirection: %s", f.ID, found, f.Remedy)
		}
	}
}

// harmless runs what a remedy says where no command is found but touch, and reads the report as a terminal does.
func harmless(t *testing.T, r *doctor.Report) {
	t.Helper()
	text := r.String()
	whole, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	condition := r.Condition("Ready", 1)
	for name, s := range map[string]string{"text": strings.ReplaceAll(text, "\n", ""), "JSON": string(whole), "condition": condition.Message} {
		if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) || strings.Contains(s, `\u001b`) {
			t.Errorf("the %s holds what a terminal obeys: %q", name, s)
		}
	}
	if strings.Contains(text, "\n25 PASS    helpers forged") {
		t.Errorf("a forged line: %s", text)
	}
	standing(t, r)
	dir := t.TempDir()
	touch, err := exec.LookPath("touch")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(touch, filepath.Join(dir, "touch")); err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Findings {
		for line := range strings.SplitSeq(f.Remedy, "\n") {
			cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", line)
			cmd.Dir, cmd.Env = dir, []string{"PATH=" + dir}
			_ = cmd.Run() // fails: there is no kubectl
			if _, err := os.Stat(filepath.Join(dir, "owned")); err == nil {
				t.Fatalf("%s: the remedy runs a stranger's command: %q", f.ID, line)
			}
		}
	}
}

func TestHostileClaimsInRemedies(t *testing.T) {
	t.Parallel()
	trusts := map[string][]string{
		"aws": {`{"Role":{"AssumeRolePolicyDocument":{"Statement":[]}}} {"Url":"issuer.example","ClientIDList":["other"]}`},
		"azure": {`[]`, `[{"name":"a;touch owned","issuer":"https://o","subject":"s","audiences":["a"]}]`,
			`[{"name":"$(touch owned)","issuer":"https://issuer.example","subject":"s","audiences":["a"]}]`},
		"gcp": {`{"name":"` + poolProvider + `","oidc":{"issuerUri":"https://o"}} {"etag":"x","bindings":[]}`,
			`{"name":"` + poolProvider + `","oidc":{"issuerUri":"https://issuer.example"}} {"etag":"x","bindings":[]}`},
	}
	for provider, files := range trusts {
		for _, claim := range []string{"iss", "sub", "aud", "kid"} {
			for _, evil := range hostileValues() {
				for _, trust := range files {
					w := newWorld(t, provider)
					w.config.ServiceAccount, w.withoutCluster, w.trust = client.ObjectKey{}, true, trust
					w.config.Annotations = w.account.Annotations
					w.write(w.sign(func(c map[string]any) {
						c["iss"] = "https://issuer.example"
						switch claim {
						case "iss":
							c["iss"] = "https://issuer.example/" + evil
						case "sub":
							c["sub"] = "system:serviceaccount:" + evil + ":" + evil
							c["kubernetes.io"] = map[string]any{"namespace": evil, "serviceaccount": map[string]any{"name": evil}}
						case "aud":
							c["aud"] = []string{evil}
						}
					}))
					harmless(t, w.run())
				}
			}
		}
	}
}

func TestHostileObjects(t *testing.T) {
	t.Parallel()
	for _, provider := range []string{"aws", "azure", "gcp"} {
		for _, evil := range hostileValues() {
			for _, change := range []func(w *world){
				func(w *world) { w.user.name = evil },
				func(w *world) { w.user.name = "system:serviceaccount:a:" + evil },
				func(w *world) { w.config.ServiceAccount = client.ObjectKey{Namespace: "tenant-a", Name: evil} },
				func(w *world) {
					w.account.Annotations[aws.RoleARNAnnotation] = "arn:aws:iam::" + account + ":role/" + evil
				},
				func(w *world) { w.account.Annotations[azure.ClientIDAnnotation] = evil },
				func(w *world) { w.account.Annotations[gcp.ServiceAccountAnnotation] = evil },
				func(w *world) {
					w.account.Annotations = map[string]string{"eks.amazonaws.com/role-arm": evil, "x" + evil: "y"}
				},
				func(w *world) { w.config.Pod = client.ObjectKey{Namespace: "tenant-a", Name: evil} },
			} {
				w := newWorld(t, provider)
				change(w)
				harmless(t, w.run())
			}
		}
	}
}

func TestHostileHub(t *testing.T) {
	t.Parallel()
	for _, evil := range hostileValues() {
		for _, change := range []func(w *hubWorld){
			func(w *hubWorld) {
				w.irsa()
				w.annotate("arn:aws:eks:"+evil+":123456789012:cluster/"+evil, evil)
			},
			func(w *hubWorld) { w.config.ClusterName = evil },
			func(w *hubWorld) { w.csrs = []object{newCSR("cluster1-a", evil, "Pending", time.Hour)} },
			func(w *hubWorld) { setCondition(w.cluster, "ManagedClusterJoined", "False", "Other", evil) },
			func(w *hubWorld) { setCondition(w.klusterlet, "HubConnectionDegraded", "True", evil, evil) },
			func(w *hubWorld) { part(w.klusterlet, "spec")["namespace"] = evil },
		} {
			w := newHubWorld(t)
			change(w)
			harmless(t, w.run())
		}
	}
}

func TestHostileBootstrap(t *testing.T) {
	t.Parallel()
	for _, evil := range hostileValues() {
		for _, change := range []func(w *bootWorld){
			func(w *bootWorld) { w.config.Server = evil },
			func(w *bootWorld) { w.config.ServerName = evil },
			func(w *bootWorld) { w.config.Token = evil },
			func(w *bootWorld) { w.config.Pins = []string{evil} },
			func(w *bootWorld) { w.publishRaw(evil) },
		} {
			w := newBootWorld(t)
			change(w)
			harmless(t, w.run())
		}
	}
}
