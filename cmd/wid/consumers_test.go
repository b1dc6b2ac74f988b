package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// registryWithImage fills the cloud's registry with an image, and returns its
// digest.
func (w *environment) registryWithImage(t *testing.T, repository string) v1.Hash {
	t.Helper()
	handler := registry.New()
	w.cloud.AWS().SetRegistry(handler)
	behind := httptest.NewServer(handler)
	defer behind.Close()
	image, err := random.Image(100, 1)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(strings.TrimPrefix(behind.URL, "http://") + "/" + repository + ":v1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, image); err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

// pull acts as a program that knows the user's docker configuration only.
func (w *environment) pull(t *testing.T, image string) (v1.Hash, error) {
	t.Helper()
	ref, err := name.ParseReference(image)
	if err != nil {
		t.Fatal(err)
	}
	got, err := remote.Image(ref, remote.WithAuthFromKeychain(authn.DefaultKeychain),
		remote.WithTransport(w.cloud.Client().Transport))
	if err != nil {
		return v1.Hash{}, err
	}
	return got.Digest()
}

// A helper for all registries leaves those alone that are nobody's: docker goes
// on without credentials.
func TestDockerCredentialOfAnotherRegistry(t *testing.T) {
	w := newEnvironment(t)
	if err := os.Symlink(filepath.Join(w.home, "bin", "wid"),
		filepath.Join(w.home, "bin", "docker-credential-wid")); err != nil {
		t.Fatal(err)
	}
	w.setenv(t)
	t.Setenv("DOCKER_CONFIG", filepath.Join(w.home, ".docker"))
	w.write(t, filepath.Join(w.home, ".docker", "config.json"), `{"credsStore": "wid"}`)
	for _, host := range []string{"ghcr.io", "index.docker.io", registryHost + ".evil.example"} {
		target, err := name.NewRegistry(host)
		if err != nil {
			t.Fatal(err)
		}
		authenticator, err := authn.DefaultKeychain.Resolve(target)
		if err != nil || authenticator != authn.Anonymous {
			t.Errorf("%s: %v, %v", host, authenticator, err)
		}
	}
	if n := w.cloud.Calls("", ""); n != 0 {
		t.Errorf("%d calls", n)
	}
}

func TestDockerCredentialActions(t *testing.T) {
	w := newEnvironment(t)
	args := append([]string{"docker-credential"}, w.inHand(t)...)
	var got struct{ ServerURL, Username, Secret string }
	if err := json.Unmarshal([]byte(w.mustWid(t, "https://"+registryHost+"/v2/\n", append(args, "get")...)),
		&got); err != nil || got.Username != "AWS" || got.ServerURL != registryHost {
		t.Errorf("%v, user %q for %q", err, got.Username, got.ServerURL)
	}
	if id, ok := w.cloud.AWS().ValidRegistryPassword(registryHost, got.Username, got.Secret); !ok ||
		id.RoleARN != role("tenant-a") {
		t.Errorf("the password is of %+v", id)
	}
	if out := w.mustWid(t, "", append(args, "list")...); out != "{}\n" {
		t.Errorf("list: %q", out)
	}
	if out := w.mustWid(t, registryHost, append(args, "erase")...); out != "" {
		t.Errorf("erase: %q", out)
	}
	if r := w.wid(t, `{"ServerURL":"`+registryHost+`","Username":"u","Secret":"s"}`,
		append(args, "store")...); r.code != 1 || !strings.Contains(r.stderr, "no need to log in") ||
		!strings.Contains(r.stdout, "no need to log in") {
		t.Errorf("store: %+v", r)
	}
}

// gitServer serves a repository with git itself, behind the cloud's check of
// the credential.
func (w *environment) gitServer(t *testing.T, git, repository string) {
	t.Helper()
	root := filepath.Join(w.home, "srv")
	bare, work := filepath.Join(root, "v1/repos", repository), filepath.Join(w.home, "work")
	env := []string{"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a",
		"GIT_COMMITTER_EMAIL=a@example.com"}
	for _, args := range [][]string{
		{"init", "-q", work}, {"-C", work, "commit", "-q", "--allow-empty", "-m", "first"},
		{"clone", "-q", "--bare", work, bare}, {"-C", bare, "update-server-info"},
	} {
		if r := w.exec(t, "", env, git, args...); r.code != 0 {
			t.Fatalf("git %s: %s", strings.Join(args, " "), r.stderr)
		}
	}
	w.cloud.AWS().SetGitServer(&cgi.Handler{Path: git, Args: []string{"http-backend"}, Dir: root,
		Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1"}})
}

// The answer to what git says to a helper. TestDocumentation clones with it.
func TestGitCredential(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	args := append([]string{"git-credential"}, w.inHand(t)...)
	request := "capability[]=authtype\nprotocol=https\nhost=" + gitHost +
		"\npath=v1/repos/my-repo\nwwwauth[]=Basic realm=\"AWS\"\n\n"
	lines := w.mustWid(t, request, append(args, "get")...)
	got := map[string]string{}
	for line := range strings.Lines(lines) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		got[key] = value
	}
	id, ok := w.cloud.AWS().ValidGitPassword(gitHost, "/v1/repos/my-repo", got["username"], got["password"])
	end, err := strconv.ParseInt(got["password_expiry_utc"], 10, 64)
	if !ok || id.RoleARN != role("tenant-a") || err != nil || time.Until(time.Unix(end, 0)) > 15*time.Minute ||
		time.Until(time.Unix(end, 0)) < 10*time.Minute || len(got) != 3 {
		t.Errorf("the credential is of %+v until %d, with %d lines", id, end, len(got))
	}
	for _, action := range []string{"store", "erase", "unheard-of"} {
		if out := w.mustWid(t, request+"password=x\n", append(args, action)...); out != "" {
			t.Errorf("%s: %q", action, out)
		}
	}
	if out := w.mustWid(t, "", append(args, "capability")...); out != "version 0\ncapability authtype\n" {
		t.Errorf("capability: %q", out)
	}
}

// What asks in vain is cancelled, and stops at once: a plugin must not outlive
// its caller's patience.
func TestInterrupt(t *testing.T) {
	w := newEnvironment(t)
	hanging := make(chan struct{}, 1)
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // does not wait
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			hanging <- struct{}{}
			<-r.Context().Done()
		})}
	go server.Serve(listener) //nolint:errcheck // ends with ErrServerClosed
	defer server.Close()      //nolint:errcheck // nothing is lost
	if stdout, said := w.interrupted(t, hanging, "",
		append([]string{"token", "--provider=aws", "--proxy-url=http://" + listener.Addr().String()},
			w.inHand(t)...)...); stdout != "" {
		t.Errorf("%q %q", stdout, said)
	}
}

// lines reports each line that is written to it.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// interrupted interrupts wid once it has called somebody, or has said a line
// that begins with until. It ends at once, and leaves what it has printed.
func (w *environment) interrupted(t *testing.T, called <-chan struct{}, until string,
	args ...string) (stdout string, said []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(w.home, "bin", "wid"), args...) //nolint:gosec // the test's own
	var out bytes.Buffer
	stderr := make(lines, 100)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), w.env...), &out, stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for isReady := false; !isReady; {
		select {
		case <-called:
			isReady = true
		case line := <-stderr:
			said = append(said, line)
			isReady = called == nil && strings.HasPrefix(line, until)
		case <-ctx.Done():
			t.Fatalf("no call, or no line %q on standard error: %q", until, said)
		}
	}
	start := time.Now()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the code tells
	if took := time.Since(start); took > 20*time.Second || cmd.ProcessState.ExitCode() != cli.ExitInterrupted {
		t.Errorf("wid %q: after %s with %d: %s", args, took, cmd.ProcessState.ExitCode(), out.String())
	}
	for len(stderr) > 0 {
		said = append(said, <-stderr)
	}
	return out.String(), said
}

// asked is what a service answers to a credential.
func (w *environment) asked(t *testing.T, url string, authorize func(r *http.Request)) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	authorize(r)
	resp, err := w.cloud.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // nothing to read
	return resp.StatusCode
}

// The provider is found by the registry's host, for all clouds.
func TestDockerCredentialsOfAllClouds(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	member := "principal://iam.googleapis.com/" + strings.TrimSuffix(gcpProvider, "/providers/east") + "/subject/" +
		subjectOfApp
	w.cloud.Azure().SetRegistry("teamregistry.azurecr.io",
		cloudtest.AzureRegistry{Tenant: azureTenant, Pull: []string{azureClient}})
	w.cloud.GCP().SetRepository("europe-docker.pkg.dev/project/repo", member)
	for host, tc := range map[string]struct {
		audience, user string
		valid          func(password string) bool
	}{
		"teamregistry.azurecr.io": {azure.DefaultAudience, "00000000-0000-0000-0000-000000000000", func(p string) bool {
			return strings.HasPrefix(p, "eyJ")
		}},
		"europe-docker.pkg.dev": {"//iam.googleapis.com/" + gcpProvider, "oauth2accesstoken", func(p string) bool {
			_, ok := w.cloud.GCP().Identity(p)
			return ok
		}},
		registryHost: {"sts.amazonaws.com", "AWS", func(p string) bool {
			_, ok := w.cloud.AWS().ValidRegistryPassword(registryHost, "AWS", p)
			return ok
		}},
	} {
		args := append(annotationFlags(), w.tokenFile(t, tc.audience), "docker-credential", "get")
		var got struct{ Username, Secret string }
		for range 2 {
			if err := json.Unmarshal([]byte(w.mustWid(t, host, args...)), &got); err != nil || got.Username != tc.user ||
				!tc.valid(got.Secret) {
				t.Errorf("%s: user %q, %v", host, got.Username, err)
			}
		}
	}
	for _, action := range [][2]string{{"ecr", ""}, {"sts", ""}, {"gcp-sts", ""}, {"acr", ""}} {
		if n := w.cloud.Calls(action[0], action[1]); n != 1 {
			t.Errorf("%d calls of %s", n, action[0])
		}
	}
}

// And by the repository's host: a bearer for Azure DevOps, a user and a
// password for the others.
func TestGitCredentialsOfAllClouds(t *testing.T) {
	w := newEnvironment(t)
	w.cloud.Azure().SetGitRepository("org/project/_git/repo", azureClient)
	get := func(audience, request string) map[string]string {
		args := append(annotationFlags(), w.tokenFile(t, audience), "git-credential", "get")
		got := map[string]string{}
		for line := range strings.Lines(w.mustWid(t, request, args...)) {
			key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			got[key] = value
		}
		return got
	}
	devops := "protocol=https\nhost=dev.azure.com\npath=org/project/_git/repo\n"
	bearer := get(azure.DefaultAudience, "capability[]=authtype\ncapability[]=state\n"+devops)
	if bearer["authtype"] != "Bearer" || bearer["capability[]"] != "authtype" || bearer["password"] != "" ||
		bearer["password_expiry_utc"] == "" {
		t.Errorf("%d attributes of type %q", len(bearer), bearer["authtype"])
	}
	refs := "https://dev.azure.com/org/project/_git/repo/info/refs?service=git-upload-pack"
	if status := w.asked(t, refs, func(r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+bearer["credential"])
	}); status != http.StatusOK {
		t.Errorf("Azure DevOps answers %d", status)
	}
	basic := get(azure.DefaultAudience, devops)
	if id, ok := w.cloud.Azure().Identity(basic["password"]); !ok || id.ClientID != azureClient ||
		basic["authtype"] != "" {
		t.Errorf("a git before 2.46 gets %d attributes", len(basic))
	}
	source := get("//iam.googleapis.com/"+gcpProvider,
		"protocol=https\nhost=inst-123-git.europe-west1.sourcemanager.dev\npath=p/r\n")
	if _, ok := w.cloud.GCP().Identity(source["password"]); !ok || source["username"] != "oauth2accesstoken" {
		t.Errorf("Secure Source Manager: %q", source["username"])
	}
}

// The kubelet's own types, in both directions.
func TestKubeletCredentialProvider(t *testing.T) {
	w := newEnvironment(t)
	request, err := json.Marshal(kubeletv1.CredentialProviderRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: kubeletv1.SchemeGroupVersion.String(), Kind: "CredentialProviderRequest"},
		Image:    registryHost + "/team/app", ServiceAccountToken: w.jwt(t, aws.DefaultAudience),
		ServiceAccountAnnotations: annotations(),
	})
	if err != nil {
		t.Fatal(err)
	}
	out := w.mustWid(t, string(request), "kubelet-credential-provider")
	var response kubeletv1.CredentialProviderResponse
	decoder := json.NewDecoder(strings.NewReader(out))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&response); err != nil {
		t.Fatal(err)
	}
	login, ok := response.Auth[registryHost]
	if id, valid := w.cloud.AWS().ValidRegistryPassword(registryHost, login.Username, login.Password); !ok || !valid ||
		id.RoleARN != role("tenant-a") || id.SessionName != "tenant-a.app" {
		t.Errorf("the password is of %+v", id)
	}
	if response.APIVersion != "credentialprovider.kubelet.k8s.io/v1" || response.Kind != "CredentialProviderResponse" ||
		response.CacheKeyType != kubeletv1.RegistryPluginCacheKeyType ||
		response.CacheDuration == nil || response.CacheDuration.Duration != time.Hour {
		t.Errorf("got %s %s by %s for %v", response.APIVersion, response.Kind, response.CacheKeyType, response.CacheDuration)
	}
	// Another repository of the registry costs nothing.
	if another := w.mustWid(t, strings.Replace(string(request), "team/app", "team/other", 1),
		"kubelet-credential-provider"); w.mints() != 1 || !strings.Contains(another, login.Password) {
		t.Errorf("%d exchanges", w.mints())
	}
}
