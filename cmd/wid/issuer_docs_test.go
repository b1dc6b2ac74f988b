package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/testing/document"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
)

func issuerBlocks(t *testing.T) []document.Block {
	t.Helper()
	return document.Read(t, "docs/issuer.md").Blocks()
}

// recordingProgram writes its arguments into a line, with the content of files
// in place of their names. It finds nothing but the account.
const recordingProgram = `#!/bin/bash
for argument in "$(basename "$0")" "$@"; do
	case $argument in
	file://*) tr -d '\n\t' < "${argument#file://}" ;;
	*) printf %s "$argument" ;;
	esac
	printf '\t'
done >> "$HOME/calls"
echo >> "$HOME/calls"
case "$*" in
"sts get-caller-identity "*) echo ` + account + ` ;;
*" get-"*) exit 1 ;;
esac
`

// issuerEnvironment is an administrator with a cluster, a web server for
// oidc.example.com that serves a directory, and clouds. The programs aws, az
// and gcloud are a recordingProgram.
type issuerEnvironment struct {
	*environment
	t       *testing.T
	cluster *kubetest.Cluster
	applied int
}

func newIssuerEnvironment(t *testing.T, flags ...kubetest.Flag) *issuerEnvironment {
	t.Helper()
	w := newIssuerAdministrator(t)
	w.start(flags...)
	return w
}

// newIssuerAdministrator returns an environment without a cluster.
func newIssuerAdministrator(t *testing.T) *issuerEnvironment {
	t.Helper()
	w := &issuerEnvironment{environment: newEnvironment(t), t: t}
	if err := os.MkdirAll(filepath.Join(w.home, "oidc.example.com"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"aws", "az", "gcloud"} {
		w.write(t, filepath.Join(w.home, "bin", program), recordingProgram)
		if err := os.Chmod(filepath.Join(w.home, "bin", program), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	w.cloud.Handle("oidc.example.com", webServer(filepath.Join(w.home, "oidc.example.com")))
	w.write(t, filepath.Join(w.home, ".config", "gcloud", "application_default_credentials.json"),
		string(w.cloud.GCP().AddUser("admin@example.com")))
	w.cloud.Azure().SetClientSecret(azureTenant, azureClient, "admin")
	id, secret := w.cloud.AWS().AddUser(account, "admin")
	w.env = append(w.env, "KUBECONFIG=", "AWS_ACCESS_KEY_ID="+id, "AWS_SECRET_ACCESS_KEY="+secret)
	return w
}

// start starts the cluster.
func (w *issuerEnvironment) start(flags ...kubetest.Flag) {
	w.t.Helper()
	w.cluster = kubetest.StartNew(w.t, flags...)
	kubeconfig, err := os.ReadFile(w.cluster.Kubeconfig(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	w.write(w.t, filepath.Join(w.home, ".kube", "config"), string(kubeconfig))
	w.sh("kubectl create serviceaccount default") // which kube-controller-manager creates in a whole cluster
}

// webServer serves a directory as the page's configuration of nginx does.
func webServer(dir string) http.Handler {
	files := http.FileServer(http.Dir(dir))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=300")
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.Contains(r.URL.Path, "/.workloadid/"):
			http.Error(w, "", http.StatusForbidden)
			return
		case strings.HasSuffix(r.URL.Path, "/openid/v1/jwks"):
			w.Header().Set("Content-Type", "application/jwk-set+json")
		}
		files.ServeHTTP(w, r)
	})
}

// sh runs a block, and has the cloud do what its programs were told.
func (w *issuerEnvironment) sh(script string, env ...string) result {
	w.t.Helper()
	r := w.exec(w.t, "", env, "bash", "-euc", script)
	if r.code != 0 || script == "" {
		w.t.Fatalf("%s\nends with %d:\n%s%s", script, r.code, r.stdout, r.stderr)
	}
	w.apply()
	return r
}

// apply has AWS do what the commands in the file say. AWS fetches the documents
// at the issuer's address.
func (w *issuerEnvironment) apply() {
	w.t.Helper()
	content, _ := os.ReadFile(filepath.Join(w.home, "calls")) // missing: nothing was called
	calls := slices.Collect(strings.Lines(string(content)))
	for _, call := range calls[w.applied:] {
		args := strings.Split(strings.TrimSuffix(call, "\t\n"), "\t")
		value := func(flag string) string { return args[slices.Index(args, flag)+1] }
		switch strings.Join(args[:min(3, len(args))], " ") {
		case "aws iam create-open-id-connect-provider":
			if slices.Contains(args, "--thumbprint-list") {
				w.t.Error("a thumbprint")
			}
			w.cloud.AWS().AddOIDCProvider(account, value("--url"), w.cloud.Client(), value("--client-id-list"))
		case "aws iam create-role":
			w.cloud.AWS().SetRole(role(value("--role-name")), w.trustPolicy(value("--assume-role-policy-document")))
		case "aws s3api create-bucket":
			w.cloud.AWS().SetBucket(value("--bucket"), cloudtest.S3Bucket{Account: account, Region: value("--region")})
		case "aws s3api put-bucket-policy":
			w.publish(value("--bucket"), value("--policy"))
		case "aws iam delete-role":
			w.cloud.AWS().RemoveRole(role(value("--role-name")))
		case "aws iam delete-open-id-connect-provider":
			_, host, _ := strings.Cut(value("--open-id-connect-provider-arn"), "oidc-provider/")
			w.cloud.AWS().RemoveOIDCProvider(account, "https://"+host)
		case "gcloud iam workload-identity-pools":
			w.createPoolProvider(args, value)
		case "az storage account":
			w.cloud.Azure().SetContainer(value("--name"), "$web",
				cloudtest.AzureContainer{Tenant: azureTenant, Writers: []string{azureClient}})
		}
	}
	w.applied = len(calls)
}

// createPoolProvider has Google read the uploaded keys.
func (w *issuerEnvironment) createPoolProvider(args []string, value func(flag string) string) {
	w.t.Helper()
	if args[4] != "create-oidc" {
		return // the pool
	}
	keys, err := os.ReadFile(filepath.Join(w.home, value("--jwk-json-path")))
	if err != nil {
		w.t.Fatal(err)
	}
	name := "projects/" + value("--project") + "/locations/global/workloadIdentityPools/" +
		value("--workload-identity-pool") + "/providers/" + args[5]
	if want := "//iam.googleapis.com/" + name; value("--allowed-audiences") != want {
		w.t.Errorf("audience %s, not %s", value("--allowed-audiences"), want)
	}
	w.cloud.GCP().SetWorkloadIdentityProvider(name,
		cloudtest.WorkloadIdentityProvider{Issuer: value("--issuer-uri"), JWKS: keys,
			Admins: []string{"user:admin@example.com"}})
}

// trustPolicy reads what IAM reads.
func (w *issuerEnvironment) trustPolicy(content string) cloudtest.Trust {
	w.t.Helper()
	var policy struct {
		Version   string
		Statement []struct {
			Effect, Action string
			Principal      struct{ Federated string }
			Condition      struct{ StringEquals map[string]string }
		}
	}
	err := json.Unmarshal([]byte(content), &policy)
	if err != nil || len(policy.Statement) != 1 || policy.Statement[0].Action != "sts:AssumeRoleWithWebIdentity" {
		w.t.Fatalf("%s, %v", content, err)
	}
	host, ok := strings.CutPrefix(policy.Statement[0].Principal.Federated, "arn:aws:iam::"+account+":oidc-provider/")
	equals := policy.Statement[0].Condition.StringEquals
	if !ok || len(equals) != 2 {
		w.t.Fatalf("%s", content)
	}
	return cloudtest.Trust{Issuer: "https://" + host, Subjects: []string{equals[host+":sub"]},
		Audiences: []string{equals[host+":aud"]}}
}

// flagsOf returns those of the API server in a configuration of kubeadm. Its
// files are in a folder of the test's.
func (w *issuerEnvironment) flagsOf(text string) map[string][]string {
	return kubeadmFlags(w.t,
		strings.NewReplacer("/etc/kubernetes/pki/sa.pub", filepath.Join(w.cluster.APIServer().CertDir, "sa-signer.crt"),
			"/etc/kubernetes/pki", w.home).Replace(text))
}

func kubeadmFlags(t *testing.T, text string) map[string][]string {
	t.Helper()
	var config struct {
		APIVersion, Kind string
		APIServer        struct {
			ExtraArgs []struct{ Name, Value string }
		}
	}
	if err := yaml.Unmarshal([]byte(text), &config); err != nil || config.APIVersion != "kubeadm.k8s.io/v1beta4" ||
		config.Kind != "ClusterConfiguration" || len(config.APIServer.ExtraArgs) == 0 {
		t.Fatalf("%+v, %v", config, err)
	}
	flags := map[string][]string{}
	for _, arg := range config.APIServer.ExtraArgs {
		flags[arg.Name] = append(flags[arg.Name], arg.Value)
	}
	return flags
}

// restart gives the API server the flags, as kubeadm does.
func (w *issuerEnvironment) restart(flags map[string][]string) {
	w.t.Helper()
	for name, values := range flags {
		w.cluster.APIServer().Configure().Set(name, values...)
	}
	w.cluster.Restart(w.t, nil)
}

// The page leads from nothing to a credential, through a rotation, and to
// another issuer. Everything is run word for word.
func TestIssuerDocumentation(t *testing.T) {
	t.Parallel()
	kubetest.Assets(t)
	blocks := issuerBlocks(t)
	var flags []kubetest.Flag
	for name, values := range kubeadmFlags(t, blocks[0].Text) {
		flags = append(flags, kubetest.Flag{Name: name, Value: values[0]})
	}
	w := newIssuerEnvironment(t, flags...)
	const credential = "5. A tenant's credential"
	token := ""
	got := func(role string) {
		t.Helper()
		if r := w.sh(token); !strings.Contains(r.stdout, "assumed-role/"+role+"/tenant-a.app") {
			t.Errorf("%+v", r)
		}
	}
	manual := map[string]string{}
	for _, b := range blocks[1:] {
		switch {
		case b.Language == "sh" && b.Heading == credential && token == "":
			token = b.Text
			got("tenant-a")
			w.sh("kubectl create token -n tenant-a app --audience sts.amazonaws.com > old-token")
		case b.Language == "sh":
			w.sh(b.Text, "AZURE_TENANT_ID="+azureTenant, "AZURE_CLIENT_ID="+azureClient, "AZURE_CLIENT_SECRET=admin")
		case b.Language == "yaml":
			w.restart(w.flagsOf(b.Text))
		case b.Language == "":
			manual[b.Heading] = b.Text
		}
		if b.Heading == "Rotate the signing key" && strings.Contains(b.Text, "check") {
			got("tenant-a")
			w.sh("wid token --token-file old-token --annotation eks.amazonaws.com/role-arn=" + role("tenant-a") +
				" --region eu-central-1")
		}
		if b.Heading == "Move an issuer" && strings.Contains(b.Text, "check\n") {
			got("tenant-a-2")
		}
	}
	w.sh("wid token --provider gcp --service-account tenant-a/app")
	w.sh("wid issuer check --issuer https://oidc.example.com/cluster-1 --token-file old-token | grep 'ok    TokenReview'")
	w.watch(manual["Keep publishing"])
	w.removeKey(manual["Remove a leaked key"])
	if r := w.wid(t, "", "issuer", "publish",
		"--to=file://"+w.home+"/oidc.example.com/cluster-1"); r.code != cli.ExitMisconfigured ||
		!strings.Contains(r.stderr, "belongs to the issuer") || strings.Contains(r.stderr, "kubectl version") {
		t.Errorf("the store of another issuer: %+v", r)
	}
	if len(manual) != 3 { // TestIssuerLockOut runs the third
		t.Errorf("not tried: %q", manual)
	}
}

// A publisher with its own ServiceAccount is locked out by a signing key that
// is not published yet. A person lets it in again.
func TestIssuerLockOut(t *testing.T) {
	t.Parallel()
	kubetest.Assets(t)
	const issuer = "https://my-oidc.s3.eu-central-1.amazonaws.com/cluster-1"
	w := newIssuerEnvironment(t, kubetest.Flag{Name: "service-account-issuer", Value: issuer},
		kubetest.Flag{Name: "service-account-max-token-expiration", Value: "24h"})
	w.cloud.AWS().SetBucket("my-oidc", cloudtest.S3Bucket{Account: account, Region: "eu-central-1", Public: true})
	w.cloud.AWS().AddOIDCProvider(account, issuer, w.cloud.Client(), "sts.amazonaws.com")
	w.cloud.AWS().SetRole(role("publisher"),
		cloudtest.Trust{Issuer: issuer, Subjects: []string{"system:serviceaccount:oidc:publisher"}})
	repair := document.Read(t, "docs/issuer.md").Section("The publisher's credentials").Block("", "wid issuer publish")
	w.sh(repair)
	w.sh("kubectl create namespace oidc; kubectl create serviceaccount -n oidc publisher; wid issuer check")
	own := func() result {
		w.sh("kubectl create token -n oidc publisher --audience sts.amazonaws.com > token")
		return w.exec(t, "", []string{"AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY=", "AWS_ROLE_ARN=" + role("publisher"),
			"AWS_WEB_IDENTITY_TOKEN_FILE=" + filepath.Join(w.home, "token")}, "bash", "-euc", repair)
	}
	if r := own(); r.code != 0 || !strings.Contains(r.stdout, "nothing to change") {
		t.Fatalf("%+v", r)
	}
	w.sh("openssl genrsa -out sa-new.key 2048; openssl rsa -in sa-new.key -pubout -out sa-new.pub")
	w.restart(map[string][]string{"service-account-signing-key-file": {filepath.Join(w.home, "sa-new.key")},
		"service-account-key-file": {filepath.Join(w.cluster.APIServer().CertDir, "sa-signer.crt"),
			filepath.Join(w.home, "sa-new.pub")}})
	if r := own(); r.code == 0 || !strings.Contains(r.stderr, "verification key") {
		t.Errorf("with an unpublished key: %+v", r)
	}
	if r := w.wid(t, "", "issuer", "check"); r.code != cli.ExitMisconfigured ||
		!strings.Contains(r.stdout, "FAIL  SigningKey") || !strings.Contains(r.stdout, "FAIL  KeysOfCluster") {
		t.Errorf("check: %+v", r)
	}
	w.sh(repair)
	w.sh("wid issuer check")
	if r := own(); r.code != 0 {
		t.Errorf("after the repair: %+v", r)
	}
}

// watch runs the program until it has published the removed file again.
func (w *issuerEnvironment) watch(command string) {
	w.t.Helper()
	keys := filepath.Join(w.home, "oidc.example.com", "cluster-1", "openid", "v1", "jwks")
	if err := os.Remove(keys); err != nil {
		w.t.Fatal(err)
	}
	w.sh("timeout --signal=INT --kill-after=10 120 " + strings.TrimSpace(command) +
		" --issuer https://oidc.example.com/cluster-1 &\n" +
		"until test -e " + keys +
		"; do sleep 0.1; done; kill -INT $!; code=0; wait $! || code=$?; test $code = 124 || test $code = 130")
}

// removeKey unpublishes one of two keys, also while the API server shows it.
func (w *issuerEnvironment) removeKey(command string) {
	w.t.Helper()
	id := func() string {
		var set struct{ Keys []struct{ Kid string } }
		out := w.sh("kubectl get --raw /openid/v1/jwks").stdout
		if err := json.Unmarshal([]byte(out), &set); err != nil || len(set.Keys) != 2 {
			w.t.Fatalf("%s, %v", out, err)
		}
		return set.Keys[0].Kid
	}()
	r := w.sh(document.Replace(w.t, strings.TrimSpace(command), "KID", id) +
		" --issuer https://oidc.example.com/cluster-1")
	if !strings.Contains(r.stdout, "removed key \""+id) {
		w.t.Errorf("%+v", r)
	}
	if content,
		err := os.ReadFile(filepath.Join(w.home, "oidc.example.com", "cluster-1", "openid", "v1", "jwks")); err != nil ||
		strings.Contains(string(content), id) {
		w.t.Errorf("%s, %v", content, err)
	}
}
