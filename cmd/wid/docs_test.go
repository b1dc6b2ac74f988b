package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfigv1 "k8s.io/kubelet/config/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/cmd/wid/internal/credentials"
	"github.com/workloadid/workloadid/internal/testing/controlplane"
	"github.com/workloadid/workloadid/internal/testing/document"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

const prodARN = "arn:aws:eks:eu-central-1:" + account + ":cluster/prod"

// newDocsEnvironment is what docs/wid.md takes for granted.
func newDocsEnvironment(t *testing.T) *kubeEnvironment {
	t.Helper()
	cluster := kubetest.Start(t)
	w := &kubeEnvironment{newEnvironment(t), cluster, "tenant-a", ""}
	for _, obj := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant-a"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app",
			Annotations: map[string]string{aws.RoleARNAnnotation: role("tenant-a")}}},
	} {
		if err := cluster.Client().Create(t.Context(), obj); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	w.cloud.AWS().AddOIDCProvider(account, cluster.IssuerURL(), cluster.IssuerClient(t), aws.DefaultAudience)
	w.cloud.AWS().SetRole(role("tenant-a"), cloudtest.Trust{Issuer: cluster.IssuerURL(), Subjects: []string{subjectOfApp}})
	kubeconfig, err := os.ReadFile(cluster.Kubeconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	w.write(t, filepath.Join(w.home, ".kube", "config"), string(kubeconfig))
	w.env = append(w.env, "KUBECONFIG=")
	return w
}

// eks is a real API server that asks the cloud who a bearer token belongs to,
// as EKS does, with the admission plugin that test control planes leave out.
func (w *kubeEnvironment) eks(t *testing.T) *kubetest.Cluster {
	t.Helper()
	flags, stop, err := controlplane.TokenWebhook(func(token string) (authenticationv1.UserInfo, error) {
		_, id, err := w.cloud.AWS().VerifyEKSToken(prodARN, token)
		return authenticationv1.UserInfo{Username: id.RoleARN}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stop() }) // nothing is lost
	prod := kubetest.StartNew(t,
		append(flags, kubetest.Flag{Name: "disable-admission-plugins", Value: "NodeRestriction"})...)
	w.admin(t, prod,
		"kubectl create namespace this-is-prod; kubectl create clusterrolebinding tenant-a --clusterrole=cluster-admin --user="+role("tenant-a"))
	w.cloud.AWS().SetEKSCluster(cloudtest.EKSCluster{ARN: prodARN, Endpoint: prod.Config().Host, CA: prod.Config().CAData})
	w.cloud.AWS().SetEKSAccessEntry(prodARN, role("tenant-a"), cloudtest.EKSAccessEntry{})
	return prod
}

// All that docs/wid.md tells people to do, word for word.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	w := newDocsEnvironment(t)
	prod := w.eks(t)
	docs := map[string]string{}
	for _, b := range document.Read(t, "docs/wid.md").Blocks("sh", "ini", "yaml", "dockerfile") {
		docs[b.Heading] += b.Text
	}
	run := func(heading string) result {
		r := w.exec(t, "", nil, "bash", "-euc", docs[heading])
		if r.code != 0 || docs[heading] == "" {
			t.Errorf("%s: %+v", heading, r)
		}
		delete(docs, heading)
		return r
	}
	if r := run("A token"); !strings.Contains(r.stdout, "assumed-role/tenant-a/tenant-a.app") ||
		!strings.Contains(r.stdout, `"WID_TOKEN": "eyJ`) {
		t.Errorf("%+v", r)
	}
	if r := run("kubectl and client-go"); !strings.Contains(r.stdout, "this-is-prod") {
		t.Errorf("%+v", r)
	}
	w.tryDocker(t, docs["docker, podman, go-containerregistry"], func() { run("docker, podman, go-containerregistry") })
	if git, err := exec.LookPath("git"); err == nil {
		w.gitServer(t, git, "my-repo")
		// What keeps passwords in a file is neither asked nor told.
		if r := w.exec(t, "", nil, git, "config", "--global", "credential.helper", "store"); r.code != 0 {
			t.Fatal(r.stderr)
		}
		run("git")
		if kept, err := os.ReadFile(filepath.Join(w.home, ".git-credentials")); err == nil {
			t.Errorf("another helper keeps %d bytes", len(kept))
		}
		if r := w.exec(t, "", nil, git, "-C", "my-repo", "log", "--format=%s"); strings.TrimSpace(r.stdout) != "first" {
			t.Errorf("cloned %+v", r)
		}
	}
	delete(docs, "git")
	w.tryProfile(t, docs["AWS SDKs and the aws command"])
	delete(docs, "AWS SDKs and the aws command")
	const second = "apiVersion: rbac.authorization.k8s.io"
	configuration, grant, _ := strings.Cut(docs["The kubelet"], second)
	w.tryGrant(t, second+grant)
	var kubelet kubeletconfigv1.CredentialProviderConfig
	if err := yaml.UnmarshalStrict([]byte(configuration), &kubelet); err != nil || len(kubelet.Providers) != 1 ||
		strings.Join(kubelet.Providers[0].Args, " ") != newKubeletName()+" --no-cache" {
		t.Errorf("%+v, %v", kubelet, err)
	}
	delete(docs, "The kubelet")
	w.tryDebug(t, prod, docs["In a failing pod"])
	delete(docs, "In a failing pod")
	if r := run("Completion"); !strings.Contains(r.stdout, "wid ") {
		t.Errorf("%+v", r)
	}
	delete(docs, hubHeading) // TestDocumentedHub runs it
	if len(docs) != 0 {
		t.Errorf("not tried: %q", docs)
	}
}

// tryGrant has the API server say whether kubelets may ask for tokens of the
// audience.
func (w *kubeEnvironment) tryGrant(t *testing.T, manifest string) {
	t.Helper()
	file := filepath.Join(w.home, "grant.yaml")
	w.write(t, file, manifest)
	w.admin(t, w.cluster, "kubectl apply -f "+file)
	defer w.admin(t, w.cluster, "kubectl delete -f "+file)
	tokenOf := func(audience string) authorizationv1.SubjectAccessReviewSpec {
		return authorizationv1.SubjectAccessReviewSpec{User: "system:node:one",
			Groups: []string{"system:nodes", "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "request-serviceaccounts-token-audience",
				Resource: audience, Namespace: "tenant-a", Name: "app"}}
	}
	w.cluster.Await(t, tokenOf(aws.DefaultAudience))
	vault := &authorizationv1.SubjectAccessReview{Spec: tokenOf("vault")}
	if err := w.cluster.Client().Create(t.Context(), vault); err != nil || vault.Status.Allowed {
		t.Errorf("kubelets may ask for vault: %t, %v", vault.Status.Allowed, err)
	}
}

// admin runs a script as the administrator of a cluster.
func (w *kubeEnvironment) admin(t *testing.T, cluster *kubetest.Cluster, script string) {
	t.Helper()
	if r := w.exec(t, "", []string{"KUBECONFIG=" + cluster.Kubeconfig(t)}, "bash", "-euc", script); r.code != 0 {
		t.Fatalf("%s: %+v", script, r)
	}
}

// tryDebug has the API server admit the copy of a pod. No kubelet runs it.
func (w *kubeEnvironment) tryDebug(t *testing.T, cluster *kubetest.Cluster, block string) {
	t.Helper()
	_, command, _ := strings.Cut(block, "\nkubectl debug")
	w.admin(t, cluster, `kubectl create namespace tenant-a; kubectl create serviceaccount -n tenant-a app
kubectl run -n tenant-a app-5f7c --image=registry.example/app:v1 --overrides='{"spec":{"serviceAccountName":"app"}}'
kubectl debug`+command)
	pod := &corev1.Pod{}
	if err := cluster.Client().Get(t.Context(), client.ObjectKey{Namespace: "tenant-a", Name: "app-wid"},
		pod); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == "wid" })
	if i < 0 || pod.Spec.ServiceAccountName != "app" ||
		strings.Join(pod.Spec.Containers[i].Command, " ") != "wid doctor --provider aws" {
		t.Fatalf("the copy is %+v", pod.Spec)
	}
	mounted := func(m corev1.VolumeMount) bool { return m.MountPath == "/var/run/secrets/kubernetes.io/serviceaccount" }
	if !slices.ContainsFunc(pod.Spec.Containers[i].VolumeMounts, mounted) {
		t.Errorf("the container has no token: %+v", pod.Spec.Containers[i])
	}
}

func newKubeletName() string { return (&credentials.App{}).NewKubeletProvider().Name() }

// tryDocker pulls with the set-up. What it exports counts for the program that
// pulls.
func (w *kubeEnvironment) tryDocker(t *testing.T, block string, setUp func()) {
	t.Helper()
	want := w.registryWithImage(t, "team/app")
	setUp()
	configuration := filepath.Join(w.home, ".docker", "config.json")
	before, err := os.ReadFile(configuration)
	if err != nil {
		t.Fatal(err)
	}
	w.exec(t, "", nil, "bash", "-uc", strings.ReplaceAll(block, "wid\"}}", "other\"}}"))
	if after, err := os.ReadFile(configuration); err != nil || string(after) != string(before) {
		t.Errorf("a configuration that exists is replaced by %s, %v", after, err)
	}
	var env []string
	for _, export := range regexp.MustCompile(`(?m)^export (\w+=\S+)$`).FindAllStringSubmatch(block, -1) {
		env = append(env, export[1])
	}
	if r := w.other(t, env, "docker pull", registryHost+"/team/app:v1"); r.stdout != want {
		t.Errorf("got %+v, want the image %s", r, want)
	}
}

func (w *kubeEnvironment) tryProfile(t *testing.T, block string) {
	t.Helper()
	w.write(t, filepath.Join(w.home, ".aws", "config"), block)
	r := w.other(t, []string{"AWS_CA_BUNDLE="}, "aws sdk", "tenant-a")
	if id, ok := w.cloud.AWS().Identity(r.stdout); !ok || id.SessionName != "tenant-a.app" {
		t.Errorf("got %+v, keys of %+v; want the session tenant-a.app", r, id)
	}
}

// The exit codes that the documentation lists are those that the program has.
func TestDocumentedExitCodes(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile(filepath.Join("internal", "cli", "run.go"))
	if err != nil {
		t.Fatal(err)
	}
	numbers := func(text, pattern string) (codes []string) {
		for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			codes = append(codes, match[1])
		}
		return codes
	}
	want := append([]string{"0"}, numbers(string(source), `(?m)^\tExit[A-Z]\w+ += (\d+)$`)...)
	var got []string
	for _, row := range document.Read(t, "docs/wid.md").Section("Exit codes").Rows("code") {
		got = append(got, row[0])
	}
	if !slices.Equal(got, want) || len(want) < 8 {
		t.Errorf("documented are %q, want %q", got, want)
	}
	if got := numbers(must(t, "--help"), `(?m)^  (\d+) `); !slices.Equal(got, want) {
		t.Errorf("--help tells %q, want %q", got, want)
	}
}

func TestEveryCommandIsDocumented(t *testing.T) {
	t.Parallel()
	docs := ""
	for _, name := range []string{"wid.md", "doctor.md", "bootstrap.md"} {
		docs += document.Read(t, "docs/"+name).Text
	}
	for _, cmd := range newRoot().Commands() {
		if cmd.Name() != "help" && !strings.Contains(docs, cmd.CommandPath()) && !strings.Contains(docs, "`"+cmd.Name()+"`") {
			t.Errorf("nothing in docs is about %s", cmd.CommandPath())
		}
	}
}

// The tables of flags in the documentation name those of the program, and the
// providers and commands that have them. docs/doctor.md and docs/bootstrap.md
// have those of others.
func TestDocumentedFlags(t *testing.T) {
	t.Parallel()
	page := document.Read(t, "docs/wid.md").Section("All flags")
	want, got := map[string]bool{}, map[string]bool{}
	common := map[string]bool{"help": true, "help-all": true}
	for _, s := range parsed(t).Settings() {
		provider := "all"
		if s.OfOther("") {
			provider = s.Group
		}
		common[s.Name] = true
		want["--"+s.Name+" of "+provider] = true
	}
	for _, cmd := range newRoot().Commands() {
		if cmd.Flags().Lookup("provider") == nil || cmd.Name() == "doctor" {
			continue
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !common[f.Name] {
				want["--"+f.Name+" of "+cmd.Name()] = true
			}
		})
	}
	for _, row := range page.Rows("flag") {
		got[document.Names(row[0])[0]+" of "+row[1]] = true
	}
	for _, row := range page.Rows("command") {
		for _, command := range document.Names(row[0]) {
			got[document.Names(row[1])[0]+" of "+command] = true
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("docs/wid.md has the flags\n%q\nwant\n%q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
	}
}
