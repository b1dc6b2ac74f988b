package credentials

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/plugin"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// The provider is found by the registry's host, for all clouds. The second call
// costs nothing.
func TestDockerCredentials(t *testing.T) {
	w := newEnvironment(t)
	w.cloud.Azure().SetRegistry("teamregistry.azurecr.io",
		cloudtest.AzureRegistry{Tenant: azureTenant, Pull: []string{azureClient}})
	w.cloud.GCP().SetRepository("europe-docker.pkg.dev/project/repo", principal)
	for host, tc := range map[string]struct {
		audience, user string
		valid          func(password string) bool
	}{
		"teamregistry.azurecr.io": {azure.DefaultAudience, "00000000-0000-0000-0000-000000000000",
			func(p string) bool { return strings.HasPrefix(p, "eyJ") }},
		"europe-docker.pkg.dev": {gcpAudience, "oauth2accesstoken",
			func(p string) bool { _, ok := w.cloud.GCP().Identity(p); return ok }},
		registryHost: {aws.DefaultAudience, "AWS", func(p string) bool {
			id, ok := w.cloud.AWS().ValidRegistryPassword(registryHost, "AWS", p)
			return ok && id.RoleARN == role("tenant-a")
		}},
	} {
		args := append([]string{"docker-credential", "get", w.tokenFile(tc.audience)}, w.annotationFlags("")...)
		for range 2 {
			var got struct{ ServerURL, Username, Secret string }
			err := json.Unmarshal([]byte(w.must("https://"+host+"/v2/\n", args...)), &got)
			if err != nil || got.ServerURL != host || got.Username != tc.user || !tc.valid(got.Secret) {
				t.Errorf("%s: got the user %q for %q, %v; want %q", host, got.Username, got.ServerURL, err, tc.user)
			}
		}
	}
	for _, service := range []string{"ecr", "sts", "gcp-sts", "acr"} {
		if n := w.cloud.Calls(service, ""); n != 1 {
			t.Errorf("got %d calls of %s, want 1", n, service)
		}
	}
}

func TestDockerActions(t *testing.T) {
	w := newEnvironment(t)
	for action, want := range map[string]string{"list": "{}\n", "erase": ""} {
		if out := w.must(registryHost, append([]string{"docker-credential", action}, w.inHand()...)...); out != want {
			t.Errorf("%s: got %q, want %q", action, out, want)
		}
	}
	for _, host := range []string{"ghcr.io", "https://[::1]/v1/", "[::1]:5000", "teamregistry.azurecr.cn",
		registryHost + ".evil.example"} {
		if r := w.run(host, "docker-credential", "get"); r.code != cli.ExitMisconfigured || r.stdout != "" {
			t.Errorf("%s: got %+v, want exit code %d", host, r, cli.ExitMisconfigured)
		}
	}
	// docker shows what a helper prints to standard output, and goes on after
	// these words alone.
	for err, want := range map[error]string{errNotOurs: plugin.DockerNotFound + "\n", errors.New("no"): "wid: no\n"} {
		var out strings.Builder
		cmd := &cobra.Command{Use: dockerName}
		cmd.SetOut(&out)
		if !TellDocker(cmd, err) || out.String() != want {
			t.Errorf("%v: docker is told %q, want %q", err, out.String(), want)
		}
	}
}

// git has the answer to what it says to a helper.
func TestGitCredentials(t *testing.T) {
	w := newEnvironment(t)
	w.cloud.Azure().SetGitRepository("org/project/_git/repo", azureClient)
	args := func(audience, action string) []string {
		return append([]string{"git-credential", action, w.tokenFile(audience)}, w.annotationFlags("")...)
	}
	get := func(audience, request string) map[string]string {
		got := map[string]string{}
		for line := range strings.Lines(w.must(request, args(audience, "get")...)) {
			key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			got[key] = value
		}
		return got
	}
	const codeCommit = "capability[]=authtype\nprotocol=https\nhost=" + gitHost +
		"\npath=v1/repos/my-repo\nwwwauth[]=Basic realm=\"AWS\"\n\n"
	got := get(aws.DefaultAudience, codeCommit)
	id, _ := w.cloud.AWS().ValidGitPassword(gitHost, "/v1/repos/my-repo", got["username"], got["password"])
	end, err := strconv.ParseInt(got["password_expiry_utc"], 10, 64)
	if left := time.Until(time.Unix(end, 0)); err != nil || id.RoleARN != role("tenant-a") || left > 15*time.Minute ||
		left < 10*time.Minute || len(got) != 3 {
		t.Errorf("got %d lines of %+v until %d, want a password for 15m", len(got), id, end)
	}
	// A bearer for Azure DevOps, a user and a password for a git before 2.46
	// and for others.
	const devops = "protocol=https\nhost=dev.azure.com\npath=org/project/_git/repo\n"
	bearer := get(azure.DefaultAudience, "capability[]=authtype\ncapability[]=state\n"+devops)
	id2, _ := w.cloud.Azure().Identity(bearer["credential"])
	if bearer["authtype"] != "Bearer" || bearer["password"] != "" || id2.ClientID != azureClient {
		t.Errorf("got %d lines of type %q, want a bearer token", len(bearer), bearer["authtype"])
	}
	basic := get(azure.DefaultAudience, devops)
	if id, _ := w.cloud.Azure().Identity(basic["password"]); id.ClientID != azureClient || basic["authtype"] != "" {
		t.Errorf("got %d lines of type %q, want a password", len(basic), basic["authtype"])
	}
	source := get(gcpAudience, "protocol=https\nhost=inst-123-git.europe-west1.sourcemanager.dev\npath=p/r\n")
	if _, ok := w.cloud.GCP().Identity(source["password"]); !ok || source["username"] != "oauth2accesstoken" {
		t.Errorf("got the user %q, want oauth2accesstoken", source["username"])
	}
	for action, want := range map[string]string{"store": "", "erase": "", "unheard-of": "",
		"capability": "version 0\ncapability authtype\n"} {
		if out := w.must(codeCommit, args(aws.DefaultAudience, action)...); out != want {
			t.Errorf("%s: got %q, want %q", action, out, want)
		}
	}
}

// The advice that CodeCommit needs is for its hosts only.
func TestAdviceOfGit(t *testing.T) {
	w := newEnvironment(t)
	for host, want := range map[string]bool{gitHost: true,
		strings.Replace(gitHost, "codecommit", "codecommit-fips", 1): true, strings.ToUpper(gitHost): true,
		"github.com": false, gitHost + ".evil.example": false, "git-codecommit.evil.example": false} {
		for _, more := range []string{"--provider=aws", "--no-cache"} {
			r := w.run("protocol=https\nhost="+host+"\n", append([]string{"git-credential", "get", more}, w.inHand()...)...)
			if strings.Contains(r.err, "useHttpPath true") != want || r.code == 0 || r.stdout != "" {
				t.Errorf("%s: got %+v, want the advice: %t", host, r, want)
			}
		}
	}
}

// The kubelet's own types, in both directions.
func TestKubelet(t *testing.T) {
	w := newEnvironment(t)
	request, err := json.Marshal(kubeletv1.CredentialProviderRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: kubeletv1.SchemeGroupVersion.String(), Kind: "CredentialProviderRequest"},
		Image:    registryHost + "/team/app", ServiceAccountToken: w.jwt([]string{aws.DefaultAudience}, time.Hour),
		ServiceAccountAnnotations: w.app.Annotations})
	if err != nil {
		t.Fatal(err)
	}
	var response kubeletv1.CredentialProviderResponse
	decoder := json.NewDecoder(strings.NewReader(w.must(string(request), "kubelet-credential-provider")))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&response); err != nil {
		t.Fatal(err)
	}
	login := response.Auth[registryHost]
	id, _ := w.cloud.AWS().ValidRegistryPassword(registryHost, login.Username, login.Password)
	if id.RoleARN != role("tenant-a") || id.SessionName != "tenant-a.app" {
		t.Errorf("the password is of %+v, want the role of tenant A", id)
	}
	if response.Kind != "CredentialProviderResponse" || response.CacheKeyType != kubeletv1.RegistryPluginCacheKeyType ||
		response.CacheDuration == nil || response.CacheDuration.Duration != time.Hour {
		t.Errorf("got a %s by %s for %v, want one by Registry for 1h", response.Kind, response.CacheKeyType,
			response.CacheDuration)
	}
	// Another repository of the registry costs nothing.
	another := w.must(strings.Replace(string(request), "team/app", "team/other", 1), "kubelet-credential-provider")
	if w.mints() != 1 || !strings.Contains(another, login.Password) {
		t.Errorf("got %d exchanges, want 1", w.mints())
	}
}

// A standard input that stays open and silent ends with the time-out.
func TestSilentStandardInput(t *testing.T) {
	for _, command := range []string{"kubelet-credential-provider", "git-credential get"} {
		silent, open := io.Pipe()
		defer open.Close() //nolint:errcheck // nothing was written
		root := cli.Group("wid", "", (&App{HTTPClient: http.DefaultClient}).NewPlugins()...)
		root.SetIn(silent)
		root.SetArgs(append(strings.Fields(command), "--timeout=10ms"))
		root.SilenceErrors, root.SilenceUsage = true, true
		err := root.ExecuteContext(t.Context())
		if err == nil || cli.ExitCode(t.Context(), err) != cli.ExitMisconfigured ||
			!strings.Contains(err.Error(), "does not end") {
			t.Errorf("%s: got %v, want that standard input does not end", command, err)
		}
	}
}
