package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// registryWithImage fills the cloud's registry with an image, and returns its
// digest.
func (w *environment) registryWithImage(t *testing.T, repository string) string {
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
	return digest.String()
}

// asProgram has the test binary behave as another program, which has its own
// environment.
const asProgram = "WID_TEST_AS_PROGRAM"

// programs are those of other makers, by their names. They return what they
// print.
func programs() map[string]func(ctx context.Context, argument string) (string, error) {
	return map[string]func(context.Context, string) (string, error){"docker pull": dockerPull, "docker login": dockerLogin,
		"aws sdk": keyOfProfile, "interrupts": interrupts}
}

// other runs one of programs.
func (w *environment) other(t *testing.T, env []string, program, argument string) result {
	t.Helper()
	return w.exec(t, "", append(env, asProgram+"="+program), os.Args[0], argument)
}

// dockerPull knows the user's docker configuration only, and returns a digest.
func dockerPull(ctx context.Context, image string) (string, error) {
	ref, err := name.ParseReference(image)
	if err != nil {
		return "", err
	}
	got, err := remote.Image(ref, remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithContext(ctx))
	if err != nil {
		return "", err
	}
	digest, err := got.Digest()
	return digest.String(), err
}

// dockerLogin returns whether docker has a login for a host.
func dockerLogin(_ context.Context, host string) (string, error) {
	target, err := name.NewRegistry(host)
	if err != nil {
		return "", err
	}
	authenticator, err := authn.DefaultKeychain.Resolve(target)
	return map[bool]string{true: "anonymous", false: "logged in"}[authenticator == authn.Anonymous], err
}

// keyOfProfile returns the ID of a key that the AWS SDK gets.
func keyOfProfile(ctx context.Context, profile string) (string, error) {
	cfg, err := config.LoadDefaultConfig(ctx, config.WithSharedConfigProfile(profile))
	if err != nil {
		return "", err
	}
	keys, err := cfg.Credentials.Retrieve(ctx)
	return keys.AccessKeyID, err
}

// interrupts is a program that counts interrupts until it is terminated, and
// ends with their number.
func interrupts(context.Context, string) (string, error) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	fmt.Println("ready")
	for n := 0; ; n++ {
		if s := <-signals; s != os.Interrupt {
			os.Exit(n)
		}
		fmt.Println("interrupted")
	}
}

// A helper for all registries leaves those alone that are nobody's: docker goes
// on without credentials.
func TestDockerCredentialOfAnotherRegistry(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	if err := os.Symlink(program(t), filepath.Join(w.home, "bin", "docker-credential-wid")); err != nil {
		t.Fatal(err)
	}
	w.write(t, filepath.Join(w.home, ".docker", "config.json"), `{"credsStore": "wid"}`)
	for _, host := range []string{"ghcr.io", "index.docker.io", registryHost + ".evil.example"} {
		if r := w.other(t, nil, "docker login", host); r.stdout != "anonymous" {
			t.Errorf("%s: got %+v, want nobody's login", host, r)
		}
	}
	if n := w.cloud.Calls("", ""); n != 0 {
		t.Errorf("got %d calls, want none", n)
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

// What asks in vain is cancelled, and stops at once: a plugin must not outlive
// its caller's patience.
func TestInterrupt(t *testing.T) {
	t.Parallel()
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
		t.Errorf("got %q on standard output, and %q on standard error; want nothing on the first", stdout, said)
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
