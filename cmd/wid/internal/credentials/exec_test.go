package credentials

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/aws/aws-sdk-go-v2/config"
	"golang.org/x/oauth2/google"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// asChild has the test binary behave as one of children.
const asChild = "WID_TEST_AS_CHILD"

func init() {
	if run := children()[os.Getenv(asChild)]; run != nil {
		out, err := run(context.Background())
		if err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err) // the last resort
			os.Exit(1)
		}
		_, _ = fmt.Print(out) // the test sees it
		os.Exit(0)
	}
}

// children are commands that wid runs, by name. They know their environment
// only.
func children() map[string]func(ctx context.Context) (string, error) {
	return map[string]func(context.Context) (string, error){"report": report, "copy": copyInput, "exit 7": exitWith7,
		"killed": killed, "wait": waitForSignal, "aws sdk": awsKey, "azure sdk": azureToken, "google sdk": googleToken}
}

// reported holds the environment and files that a child finds.
type reported struct {
	Args        []string
	Environment map[string]string
	// Files are the contents of the files that variables name, and their modes.
	Files map[string]string
}

func report(context.Context) (string, error) {
	r := reported{os.Args[1:], map[string]string{}, map[string]string{}}
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		r.Environment[name] = value
		info, err := os.Stat(value)
		if err != nil || !info.Mode().IsRegular() || !strings.Contains(value, "wid-exec-") {
			continue
		}
		dir, err := os.Stat(filepath.Dir(value))
		if err != nil {
			return "", err
		}
		content, err := os.ReadFile(value) //nolint:gosec // the test's own
		if err != nil {
			return "", err
		}
		r.Files[name] = fmt.Sprintf("%s %s %s", dir.Mode(), info.Mode(), content)
	}
	out, err := json.Marshal(r)
	return string(out), err
}

func copyInput(context.Context) (string, error) {
	_, err := fmt.Fprint(os.Stderr, "to standard error")
	content, _ := io.ReadAll(os.Stdin)
	return string(content), err
}

func exitWith7(context.Context) (string, error) {
	os.Exit(7)
	return "", nil
}

func killed(ctx context.Context) (string, error) {
	if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
		return "", err
	}
	<-ctx.Done()
	return "", nil
}

// waitForSignal returns the signal that it gets after it has said that it is
// ready.
func waitForSignal(context.Context) (string, error) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	fmt.Println("ready")
	return (<-signals).String(), nil
}

func awsKey(ctx context.Context) (string, error) {
	loaded, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return "", err
	}
	keys, err := loaded.Credentials.Retrieve(ctx)
	if err == nil && !keys.CanExpire && os.Getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI") != "" {
		err = errors.New("the SDK would never renew the keys")
	}
	return keys.AccessKeyID, err
}

func azureToken(ctx context.Context) (string, error) {
	credential, err := azidentity.NewDefaultAzureCredential(
		&azidentity.DefaultAzureCredentialOptions{DisableInstanceDiscovery: true})
	if err != nil {
		return "", err
	}
	got, err := credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{"https://vault.azure.net/.default"}})
	return got.Token, err
}

func googleToken(ctx context.Context) (string, error) {
	found, err := google.FindDefaultCredentials(ctx, "https://www.googleapis.com/auth/cloud-platform")
	if err != nil {
		return "", err
	}
	got, err := found.TokenSource.Token()
	if err != nil {
		return "", err
	}
	return got.AccessToken, nil
}

// child runs a child with wid exec.
func (w *environment) child(name string, flags ...string) result {
	w.t.Helper()
	w.t.Setenv(asChild, name)
	return w.run("", slices.Concat([]string{"exec"}, flags, []string{"--", os.Args[0], ""})...)
}

// reports is child for one that reports.
func (w *environment) reports(flags ...string) (r reported) {
	w.t.Helper()
	got := w.child("report", flags...)
	if err := json.Unmarshal([]byte(got.stdout), &r); err != nil || got.code != 0 || got.stderr != "" {
		w.t.Fatalf("got %+v, want a report", got)
	}
	return r
}

// proxied lets the SDKs of children reach the cloud.
func (w *environment) proxied() {
	w.t.Helper()
	variables, err := w.cloud.ProxyEnv(w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, variable := range variables {
		name, value, _ := strings.Cut(variable, "=")
		w.t.Setenv(name, value)
	}
}

// A child that finds other credentials of AWS first would act as the person, or
// as the machine, in silence.
func TestExecWithTheGoSDKOfAWSAmongOtherCredentials(t *testing.T) {
	const keys = "aws_access_key_id = AKIAPERSON\naws_secret_access_key = secret\n"
	for name, row := range map[string]struct{ environment, files map[string]string }{
		"none": {},
		"keys in the environment": {map[string]string{"AWS_ACCESS_KEY_ID": "AKIAPERSON", "AWS_SECRET_ACCESS_KEY": "secret",
			"AWS_SESSION_TOKEN": "token"}, nil},
		"keys by their old names": {map[string]string{"AWS_ACCESS_KEY": "AKIAPERSON", "AWS_SECRET_KEY": "secret"}, nil},
		"keys of the default profile": {nil, map[string]string{".aws/credentials": "[default]\n" + keys,
			".aws/config": "[default]\n" + keys}},
		"a program of the default profile": {nil,
			map[string]string{".aws/config": "[default]\ncredential_process = /bin/sh -c 'touch called'\n"}},
		"a profile by name": {map[string]string{"AWS_PROFILE": "person", "AWS_DEFAULT_PROFILE": "person"},
			map[string]string{".aws/credentials": "[person]\n" + keys}},
		"other files": {map[string]string{"AWS_CONFIG_FILE": "mine", "AWS_SHARED_CREDENTIALS_FILE": "mine"},
			map[string]string{"mine": "[default]\n" + keys}},
		"a role of the pod": {map[string]string{"AWS_ROLE_ARN": role("pod"), "AWS_WEB_IDENTITY_TOKEN_FILE": "token"},
			map[string]string{"token": "token"}},
		"a container's": {map[string]string{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v1/other",
			"AWS_CONTAINER_CREDENTIALS_FULL_URI":     "http://127.0.0.1:1/v1/other",
			"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": "token"}, map[string]string{"token": "token"}},
		"a proxy": {map[string]string{"HTTP_PROXY": "http://127.0.0.1:1", "http_proxy": "http://127.0.0.1:1"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			t.Setenv("HOME", w.dir)
			t.Chdir(w.dir)
			for name, value := range row.environment {
				t.Setenv(name, value)
			}
			for name, content := range row.files {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(w.dir, name)), 0o700); err != nil {
					t.Fatal(err)
				}
				w.write(name, content)
			}
			flags := append(w.inHand(), "--provider=aws")
			for _, flags := range [][]string{flags, append(flags, "--static")} {
				got := w.child("aws sdk", flags...)
				if identity, ok := w.cloud.AWS().Identity(got.stdout); !ok || identity.RoleARN != role("tenant-a") {
					t.Errorf("wid exec %s: got %+v, want a key of tenant A", flags[len(flags)-1], got)
				}
			}
			if _, err := os.Stat(filepath.Join(w.dir, "called")); err == nil {
				t.Error("the program of the profile ran")
			}
		})
	}
}

func TestExecWithTheGoSDKOfAzure(t *testing.T) {
	w := newEnvironment(t)
	w.proxied()
	for name, value := range map[string]string{"AZURE_CLIENT_ID": "99999999-2222-4333-8444-555555555555",
		"AZURE_TENANT_ID": "88888888-2222-4333-8444-555555555555", "AZURE_CLIENT_SECRET": "secret"} {
		t.Setenv(name, value)
	}
	got := w.child("azure sdk", append(w.annotationFlags(""), w.tokenFile(azure.DefaultAudience), "--provider=azure")...)
	if identity, ok := w.cloud.Azure().Identity(got.stdout); !ok || identity.ClientID != azureClient {
		t.Errorf("got %+v, want a token of tenant A", got)
	}
}

func TestExecWithTheGoSDKOfGoogle(t *testing.T) {
	w := newEnvironment(t)
	w.proxied()
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", w.write("adc.json", `{"type": "authorized_user"}`))
	got := w.child("google sdk", append(w.annotationFlags(""), w.tokenFile(gcpAudience), "--provider=gcp")...)
	if identity, ok := w.cloud.GCP().Identity(got.stdout); !ok || !slices.Contains(identity.Members, principal) {
		t.Errorf("got %+v, want a token of tenant A", got)
	}
}

// The child gets variables and files, whose secrets no other user can read, and
// no more. Nothing is left behind it.
func TestExecChangesTheEnvironment(t *testing.T) {
	w := newEnvironment(t)
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("AWS_REGION", "us-east-1")
	for name := range strings.FieldsSeq("AWS_CREDENTIAL_FILE AWS_PROFILE AWS_SECURITY_TOKEN AZURE_CLIENT_SECRET " +
		"AZURE_USERNAME CLOUDSDK_AUTH_ACCESS_TOKEN GOOGLE_CREDENTIALS GOOGLE_IMPERSONATE_SERVICE_ACCOUNT") {
		t.Setenv(name, "person")
	}
	before := w.reports("--provider=generic", "--audience=vault", w.tokenFile("vault")).Environment
	const mode = "drwx------ -rw------- "
	for name, row := range map[string]struct {
		flags   []string
		changed string
		// values are beginnings of variables, or of files with their modes.
		values, files map[string]string
	}{
		"AWS": {append(w.inHand(), "--provider=aws"), "-AWS_CREDENTIAL_FILE -AWS_PROFILE -AWS_SECURITY_TOKEN AWS_CONFIG_FILE " +
			"AWS_CONTAINER_AUTHORIZATION_TOKEN AWS_CONTAINER_CREDENTIALS_FULL_URI AWS_DEFAULT_REGION " +
			"AWS_EC2_METADATA_DISABLED AWS_REGION AWS_SHARED_CREDENTIALS_FILE BOTO_CONFIG",
			map[string]string{"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:", "AWS_REGION": "eu-central-1",
				"AWS_DEFAULT_REGION": "eu-central-1"},
			map[string]string{"AWS_CONFIG_FILE": mode, "AWS_SHARED_CREDENTIALS_FILE": mode, "BOTO_CONFIG": mode}},
		"AWS, static": {append(w.annotationFlags(""), w.tokenFile(aws.DefaultAudience), "--provider=aws", "--static"),
			"-AWS_CREDENTIAL_FILE -AWS_PROFILE -AWS_SECURITY_TOKEN AWS_ACCESS_KEY_ID " +
				"AWS_CONFIG_FILE AWS_CREDENTIAL_EXPIRATION AWS_EC2_METADATA_DISABLED AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN " +
				"AWS_SHARED_CREDENTIALS_FILE BOTO_CONFIG",
			map[string]string{"AWS_ACCESS_KEY_ID": "ASIA", "AWS_CREDENTIAL_EXPIRATION": time.Now().UTC().Format("2006-")}, nil},
		"Azure": {append(w.annotationFlags(""), w.tokenFile(azure.DefaultAudience), "--provider=azure"),
			"-AZURE_CLIENT_SECRET -AZURE_USERNAME AZURE_AUTHORITY_HOST AZURE_CLIENT_ID AZURE_CONFIG_DIR " +
				"AZURE_FEDERATED_TOKEN_FILE AZURE_TENANT_ID AZURE_TOKEN_CREDENTIALS",
			map[string]string{"AZURE_CLIENT_ID": azureClient, "AZURE_TENANT_ID": azureTenant,
				"AZURE_AUTHORITY_HOST": "https://login.microsoftonline.com/"},
			map[string]string{"AZURE_FEDERATED_TOKEN_FILE": mode + "ey"}},
		"Google Cloud": {append(w.annotationFlags(""), w.tokenFile(gcpAudience), "--provider=gcp"),
			"-CLOUDSDK_AUTH_ACCESS_TOKEN -GOOGLE_CREDENTIALS -GOOGLE_IMPERSONATE_SERVICE_ACCOUNT " +
				"CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE GOOGLE_APPLICATION_CREDENTIALS", nil,
			map[string]string{"GOOGLE_APPLICATION_CREDENTIALS": mode + `{"audience":"` + gcpAudience + `"`}},
		"a service": {append(w.annotationFlags(""), w.tokenFile("vault"), "--provider=generic", "--audience=vault"), "",
			map[string]string{"WID_TOKEN": "ey"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := w.reports(row.flags...)
			if want := []string{""}; !slices.Equal(got.Args, want) {
				t.Errorf("got the arguments %q, want %q", got.Args, want)
			}
			if changed := changes(before, got.Environment); changed != row.changed {
				t.Errorf("got changes of %q, want %q", changed, row.changed)
			}
			for variable, want := range row.values {
				if value := got.Environment[variable]; !strings.HasPrefix(value, want) {
					t.Errorf("got %s=%q, want %q", variable, value, want)
				}
			}
			for variable, want := range row.files {
				if file := got.Files[variable]; !strings.HasPrefix(file, want) || want == mode && file != want {
					t.Errorf("got %q for the file of %s, want %q", file, variable, want)
				}
			}
		})
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("got %v, %v; want no files after the command", left, err)
	}
}

// changes returns the variables that differ, lost ones with a dash.
func changes(before, after map[string]string) string {
	var names []string
	for name := range before {
		if _, ok := after[name]; !ok && name != "WID_TOKEN" {
			names = append(names, "-"+name)
		}
	}
	for name, value := range after {
		if old, ok := before[name]; name != "WID_TOKEN" && (!ok || old != value) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func TestExecImpersonatesServiceAccountsOfGoogle(t *testing.T) {
	w := newEnvironment(t)
	const email = "app@project.iam.gserviceaccount.com"
	w.app.Annotations[gcp.ServiceAccountAnnotation] = email
	w.cloud.GCP().SetServiceAccount(email, cloudtest.GCPServiceAccount{WorkloadIdentityUsers: []string{principal}})
	w.proxied()
	flags := append(w.annotationFlags(""), w.tokenFile(gcpAudience), "--provider=gcp", "--access-token-lifetime=30m")
	got := w.child("google sdk", flags...)
	if identity, ok := w.cloud.GCP().Identity(got.stdout); !ok || identity.Email != email ||
		time.Until(identity.Expiration) > 30*time.Minute {
		t.Errorf("got %+v, want a token of %s for 30 minutes", got, email)
	}
}

// The child's own flags, empty arguments and words in capitals are its own.
func TestExecLeavesTheCommandAlone(t *testing.T) {
	w := newEnvironment(t)
	t.Setenv(asChild, "report")
	flags := []string{"exec", "--provider=generic", "--audience=vault", w.tokenFile("vault")}
	for name, dashes := range map[string][]string{"after dashes": {"--"}, "without dashes": nil} {
		t.Run(name, func(t *testing.T) {
			args := []string{"--region", "", "-o", "NAME", "--"}
			var got reported
			out := w.must("", slices.Concat(flags, dashes, []string{os.Args[0]}, args)...)
			if err := json.Unmarshal([]byte(out), &got); err != nil || !slices.Equal(got.Args, args) {
				t.Errorf("got the arguments %q, %v; want %q", got.Args, err, args)
			}
		})
	}
	t.Setenv(asChild, "copy")
	if r := w.run("input", slices.Concat(flags, []string{"--", os.Args[0]})...); r.stdout != "input" ||
		r.stderr != "to standard error" {
		t.Errorf("got %+v, want what the command writes", r)
	}
}

func TestExecEndsAsTheCommand(t *testing.T) {
	w := newEnvironment(t)
	flags := []string{"--provider=generic", "--audience=vault", w.tokenFile("vault")}
	for name, code := range map[string]int{"copy": 0, "exit 7": 7, "killed": 137} {
		t.Run(name, func(t *testing.T) {
			if r := w.child(name, flags...); r.code != code {
				t.Errorf("got %+v, want exit code %d", r, code)
			}
		})
	}
}

// onReady calls a function once when something is written.
type onReady struct {
	text bytes.Buffer
	call func()
}

func (o *onReady) Write(p []byte) (int, error) {
	if o.call != nil {
		o.call()
		o.call = nil
	}
	return o.text.Write(p)
}

func TestRunChildPassesSignals(t *testing.T) {
	t.Setenv(asChild, "wait")
	out := &onReady{call: func() { _ = syscall.Kill(os.Getpid(), syscall.SIGUSR1) }}
	child := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // this test
	child.Stdout = out
	if err := runChild(t.Context(), child); err != nil || !strings.Contains(out.text.String(), syscall.SIGUSR1.String()) {
		t.Errorf("got %q, %v; want the signal", out.text.String(), err)
	}
}

// The command does not start if it has no credentials, or mistakes were made.
func TestExecRefuses(t *testing.T) {
	w := newEnvironment(t)
	pipe := filepath.Join(w.dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	forAzure := append(w.annotationFlags(""), w.tokenFile(azure.DefaultAudience), "--provider=azure")
	denied := append(w.inHand(), "--provider=aws", "--annotation="+aws.RoleARNAnnotation+"="+role("b"))
	denied = slices.DeleteFunc(denied, func(flag string) bool { return strings.HasSuffix(flag, role("tenant-a")) })
	inGKE := slices.DeleteFunc(append(w.annotationFlags(""), w.tokenFile(gcpAudience), "--provider=gcp"),
		func(flag string) bool { return strings.Contains(flag, gcp.WorkloadIdentityProviderAnnotation) })
	for name, row := range map[string]struct {
		args []string
		code int
		want string
	}{
		"nobody":                 {[]string{"--provider=aws", "--", os.Args[0]}, cli.ExitUsage, "--service-account"},
		"no command":             {w.inHand(), cli.ExitUsage, "arg"},
		"an unknown command":     {append(w.inHand(), "--", "no-such-command"), cli.ExitUsage, `"no-such-command"`},
		"a token that runs dry":  {[]string{"--token-file=" + pipe, "--", os.Args[0]}, cli.ExitUsage, "pipe"},
		"static keys of Azure":   {append(forAzure, "--static", "--", os.Args[0]), cli.ExitUsage, "--static"},
		"scopes of SDKs":         {append(forAzure, "--scope=x/.default", "--", os.Args[0]), cli.ExitUsage, "--scope"},
		"a role of others":       {append(denied, "--", os.Args[0]), cli.ExitDenied, role("b")},
		"no provider for Google": {append(inGKE, "--", os.Args[0]), cli.ExitMisconfigured, "metadata"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(asChild, "report")
			r := w.run("", append([]string{"exec"}, row.args...)...)
			if r.code != row.code || r.stdout != "" || !strings.Contains(r.err, row.want) {
				t.Errorf("got %+v, want exit code %d and %q", r, row.code, row.want)
			}
		})
	}
}

// The SDKs show why keys are not renewed, and try again after an outage.
func TestExecAnswersTheSDKs(t *testing.T) {
	expires := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	keys := &credential{}
	keys.Keys.AccessKeyID, keys.Keys.SecretAccessKey, keys.Keys.SessionToken, keys.Expires = "ASIA", "s", "t", expires
	answer, err := json.Marshal(map[string]string{"AccessKeyId": "ASIA", "SecretAccessKey": "s", "Token": "t",
		"Expiration": expires.Format(time.RFC3339)})
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		err    error
		secret string
		status int
		want   string
	}{
		"keys":             {nil, "", http.StatusOK, string(answer)},
		"denied":           {&auth.Error{Reason: auth.ErrDenied, Message: "no"}, "", http.StatusForbidden, `"Code":"Denied"`},
		"misconfigured":    {&auth.Error{Reason: auth.ErrMisconfigured}, "", http.StatusForbidden, `"Code":"Misconfigured"`},
		"an outage":        {&auth.Error{Reason: auth.ErrUnavailable}, "", http.StatusServiceUnavailable, `"Unavailable"`},
		"throttled":        {&auth.Error{Reason: auth.ErrThrottled}, "", http.StatusServiceUnavailable, `"Unavailable"`},
		"without a secret": {nil, "another", http.StatusUnauthorized, `"Code":"Unauthorized"`},
	} {
		t.Run(name, func(t *testing.T) {
			e := &execution{id: &Identity{App: &App{Stderr: io.Discard}}, set: map[string]string{}}
			if err := e.serve(func(context.Context) (*credential, error) { return keys, row.err }); err != nil {
				t.Fatal(err)
			}
			ctx, end := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { e.beside[0](ctx) })
			defer running.Wait()
			defer end()
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, e.set["AWS_CONTAINER_CREDENTIALS_FULL_URI"], nil)
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Authorization", cmp.Or(row.secret, e.set["AWS_CONTAINER_AUTHORIZATION_TOKEN"]))
			got, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer got.Body.Close() //nolint:errcheck // read
			body, err := io.ReadAll(got.Body)
			if err != nil || got.StatusCode != row.status || !strings.Contains(string(body), row.want) {
				t.Errorf("got %d with %s, %v; want %d with %s", got.StatusCode, body, err, row.status, row.want)
			}
		})
	}
}

// The file has a new token within a minute. A failure keeps the token, and is
// told once.
func TestExecKeepsTheTokenFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stderr bytes.Buffer
		e := &execution{id: &Identity{App: &App{Stderr: &stderr}, Timeout: time.Minute}, dir: t.TempDir()}
		type answer struct {
			token string
			err   error
		}
		answers := make(chan answer, 1)
		ctx, end := context.WithCancel(t.Context())
		go e.keepFresh(ctx, "first", func(context.Context) (*credential, error) {
			a := <-answers
			return bearer(a.token, time.Time{}), a.err
		})
		outage := &auth.Error{Reason: auth.ErrUnavailable, Message: "an outage"}
		for _, minute := range []struct {
			answer
			want string
			said int
		}{
			{answer{"first", nil}, "", 0}, // nothing to write
			{answer{"second", nil}, "second", 0},
			{answer{"third", outage}, "second", 1},
			{answer{"third", outage}, "second", 1},
			{answer{"third", nil}, "third", 1},
		} {
			answers <- minute.answer
			time.Sleep(time.Minute)
			synctest.Wait()
			content, _ := os.ReadFile(filepath.Join(e.dir, "token")) // there is none at first
			if said := strings.Count(stderr.String(), "\n"); string(content) != minute.want || said != minute.said {
				t.Errorf("got %q and %q, want %q and %d lines", content, stderr.String(), minute.want, minute.said)
			}
		}
		end()
	})
}

// The command goes on for hours. Meanwhile another role, or a new token in the
// file, counts.
func TestExecFollowsTheServiceAccount(t *testing.T) {
	w := newEnvironment(t)
	flags, _ := w.cluster(w, clientcmdapi.AuthInfo{Token: "login"})
	mint := w.minter(t, append(flags, "--provider=aws")...)
	if _, err := mint(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.app.Annotations[aws.RoleARNAnnotation] = role("b")
	if _, err := mint(t.Context()); !errors.Is(err, auth.ErrDenied) {
		t.Errorf("got %v, want the refusal of the new role", err)
	}
}

func TestExecFollowsTheTokenFile(t *testing.T) {
	w := newEnvironment(t)
	synctest.Test(t, func(t *testing.T) {
		mint := w.minter(t, "--provider=generic", "--audience=vault", w.tokenFile("vault"))
		for range 2 {
			w.tokenFile("vault") // writes a new one
			c, err := mint(t.Context())
			if err != nil || time.Until(c.Expires) < 59*time.Minute {
				t.Errorf("got a token until %s, %v; want the new one", c.Expires, err)
			}
			time.Sleep(2 * time.Hour)
		}
	})
}

// minter returns the minter of a command with these flags.
func (w *environment) minter(t *testing.T, flags ...string) minter {
	t.Helper()
	id := parsed(t, flags...)
	id.HTTPClient = w.cloud.Client()
	s, p, err := id.resolveNamed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return newMinter(p, append(slices.Clip(s.opts), s.live))
}
