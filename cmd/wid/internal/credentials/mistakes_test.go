package credentials

import (
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/plugin"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
)

// mistake is a call that is refused.
type mistake struct {
	args  string // after the words of the table; $NAME are values of the environment
	stdin string
	code  int
	want  string // in the error
}

// refuse makes calls: the message says what to do, the code says what kind it
// is, and standard output holds nothing that a caller could take for a
// credential.
func (w *environment) refuse(words []string, values map[string]string, mistakes map[string]mistake) {
	w.t.Helper()
	for name, m := range mistakes {
		w.t.Run(name, func(t *testing.T) {
			args := slices.Clone(words)
			for _, word := range strings.Fields(m.args) {
				args = append(args, os.Expand(word, func(name string) string { return values[name] }))
			}
			r := w.run(m.stdin, args...)
			if r.code != m.code || !strings.Contains(r.err, m.want) || r.stdout != "" || strings.Contains(r.err, "eyJ") {
				t.Errorf("wid %q: got %+v, want code %d and %q", args, r, m.code, m.want)
			}
		})
	}
}

const usage, misconfigured = cli.ExitUsage, cli.ExitMisconfigured

// What contradicts itself, or would have no effect, is refused before anything
// is asked.
func TestMistakesInTheIdentity(t *testing.T) {
	w := newEnvironment(t)
	inHand := w.inHand()
	token := []string{"token", inHand[len(inHand)-2]}
	w.refuse([]string{"token"}, nil, map[string]mistake{
		"no provider": {"", "", usage, "--provider, one of: aws, azure, gcp, generic, exchange"},
		"annotations of a cluster": {"--provider=aws --service-account=a/b --annotation=x=y", "", usage,
			"ServiceAccount's own annotations count"},
		"two clusters":  {"--provider=aws --in-cluster --context=x", "", usage, "--in-cluster excludes"},
		"nobody's name": {"--provider=aws --kubeconfig=x", "", usage, "--service-account namespace/name"},
		"a bare name":   {"--provider=aws --service-account=app", "", usage, "namespace/name"},
		"no token file": {"--provider=aws --token-file=/nonexistent", "", misconfigured, "/nonexistent"},
		"not in a pod":  {"--provider=aws --service-account=a/b --in-cluster", "", misconfigured, "run in a pod"},
		"shell for app": {"--provider=aws --service-account=a/b --allow-shell-out", "", usage, "wid's own identity"},
		"no token":      {"--provider=aws --token-file=" + w.write("not-a-token", "hello"), "", misconfigured, "not-a-token"},
	})
	w.refuse(token, nil, map[string]mistake{
		"no cloud": {"--annotation=a=b", "", usage, `"tenant-a/app" has no annotation of a cloud`},
		"flag of another": {"--annotation=" + aws.RoleARNAnnotation + "=" + role("a") + " --delegate=x", "", usage,
			"--delegate is for the provider gcp"},
		"annotation":       {"--provider=aws --annotation=x", "", usage, "key=value"},
		"annotation twice": {"--provider=aws --annotation=x=1 --annotation=x=2", "", usage, "each key once"},
		"no region": {"--provider=aws --annotation=" + aws.RoleARNAnnotation + "=" + role("a"), "", misconfigured,
			"region"},
	})
	w.refuse(append([]string{"token"}, inHand...), nil, map[string]mistake{
		"three clouds": {"", "", usage,
			`ServiceAccount "tenant-a/app" has annotations of aws and azure and gcp: pick one with --provider`},
		"unknown provider": {"--provider=oracle", "", misconfigured,
			`no provider "oracle"; use one of: aws, azure, gcp, generic, exchange`},
		"argument":          {"x", "", usage, "--help"},
		"output":            {"--provider=aws -o=xml", "", usage, "pass table, json, yaml or env"},
		"env not revealed":  {"--provider=aws -o=env", "", usage, "add --reveal"},
		"no time":           {"--provider=aws --timeout=0s", "", usage, "--timeout"},
		"token and cluster": {"--provider=aws --context=x", "", usage, "no cluster is asked"},
		"another name":      {"--provider=aws --service-account=tenant-b/app", "", cli.ExitDenied, `"tenant-b/app"`},
		"a namespace's app": {"--provider=aws --service-account=tenant-b/app", "", cli.ExitDenied, `"tenant-a/app"`},
		"cache is a file":   {"--provider=aws --cache-dir=" + w.dir + "/not-a-token", "", misconfigured, "--no-cache"},
		"audience": {"--provider=aws --annotation=" + aws.AudienceAnnotation + "=vault", "", cli.ExitDenied,
			`The annotation eks.amazonaws.com/audience of the ServiceAccount is "vault". Remove it: ` +
				"kubectl annotate sa -n tenant-a app eks.amazonaws.com/audience-"},
	})
	t.Setenv("WID_TIMEOUT", "soon")
	w.refuse(append([]string{"token"}, inHand...), nil, map[string]mistake{
		"by the environment": {"--provider=aws", "", usage, "WID_TIMEOUT"}})
	if n := w.cloud.Calls("", ""); n != 0 {
		t.Errorf("got %d requests, want none", n)
	}
}

func TestMistakesInAProvidersFlags(t *testing.T) {
	w := newEnvironment(t)
	words := append([]string{"token"}, w.inHand()...)
	w.refuse(words, map[string]string{"ROLE": "--assume-role=" + role("x")}, map[string]mistake{
		"of another provider": {"--provider=azure $ROLE", "", usage, "--assume-role is for the provider aws"},
		"no role":             {"--provider=aws --external-id=x", "", usage, "--external-id goes with --assume-role"},
		"session name":        {"--provider=aws $ROLE --session-name=a/b", "", misconfigured, `"a/b"`},
		"tag":                 {"--provider=aws $ROLE --session-tag=x", "", usage, "key=value"},
		"tag twice":           {"--provider=aws $ROLE --session-tag=x=1,x=2", "", usage, "each key once"},
		"role": {"--provider=aws --assume-role=shared", "", misconfigured,
			"use arn:aws:iam::<account>:role/<name> (--assume-role)"},
		"policy":   {"--provider=aws $ROLE --session-policy={", "", misconfigured, "(--session-policy)"},
		"duration": {"--provider=aws --session-duration=0s", "", misconfigured, "(--session-duration)"},
		"long life": {"--provider=aws --session-duration=13h", "", misconfigured,
			"(--session-duration)"},
		"prefix":      {"--provider=aws --session-name-prefix=", "", usage, "--session-name-prefix: it is set but empty"},
		"life, token": {"--provider=aws --token-lifetime=20m", "", misconfigured, "leave them out"},
		"delegate":    {"--provider=gcp --delegate=jane@example.com", "", misconfigured, "jane@example.com"},
		"life and ID token": {"--provider=gcp --access-token-lifetime=15m --id-token-audience=x", "", misconfigured,
			"leave it out (--access-token-lifetime)"},
		"authority": {"--provider=azure --authority-host=http://x", "", misconfigured, "https://"},
		"universe":  {"--provider=gcp --universe-domain=x/y", "", misconfigured, "--universe-domain"},
		"proxy":     {"--provider=aws --proxy-url=ftp://x", "", misconfigured, "proxy"},
	})
	w.refuse(words, nil, map[string]mistake{
		"nowhere": {"--provider=exchange", "", misconfigured, "--exchange-endpoint"},
		"secret":  {"--provider=exchange --exchange-client-secret-file=x", "", usage, "--exchange-client-id"},
		"two servers": {"--provider=exchange --exchange-endpoint=https://x --exchange-issuer=https://x", "", misconfigured,
			"leave one out (--exchange-endpoint, --exchange-issuer)"},
		"no secret": {"--provider=exchange --exchange-endpoint=https://x/t --exchange-client-id=x " +
			"--exchange-client-secret-file=/nonexistent --audience=sts.amazonaws.com", "", misconfigured,
			"--exchange-client-secret-file cannot be read"},
		"unknown service": {"--service=okta", "", usage, `--service "okta" is unknown: use one of: anthropic, `},
		"service and endpoint": {"--service=vault --service-address=https://x --exchange-endpoint=https://x", "", usage,
			"leave out --exchange-"},
		"unknown parameter": {"--service=openai --service-parameter=identity_provider=x", "", usage,
			`takes no parameter "identity_provider", but: identity_provider_id, service_account_id, client_id`},
		"no service": {"--provider=exchange --service-address=https://x", "", usage, "go with --service"},
		"service of a cloud": {"--provider=aws --service=vault --service-address=https://x", "", usage,
			"--service is for the provider exchange"},
		"no address":         {"--service=vault --service-parameter=role=x --audience=x", "", usage, "--service-address"},
		"address of its own": {"--service=openai --service-address=https://x", "", usage, "leave --service-address out"},
	})
	for variable, row := range map[string]mistake{
		"WID_PROVIDER=aws":      {"--delegate=x", "", usage, "--delegate is for the provider gcp"},
		"WID_SOURCE_IDENTITY=x": {"--provider=aws", "", usage, "--source-identity goes with --assume-role"},
	} {
		t.Run(variable, func(t *testing.T) {
			name, value, _ := strings.Cut(variable, "=")
			t.Setenv(name, value)
			r := w.run("", append(slices.Clone(words), row.args)...)
			if r.code != row.code || !strings.Contains(r.err, row.want) {
				t.Errorf("got %+v, want code %d and %q", r, row.code, row.want)
			}
		})
	}
	if n := w.cloud.Calls("", ""); n != 0 {
		t.Errorf("got %d requests, want none", n)
	}
}

func TestMistakesOfPlugins(t *testing.T) {
	const (
		git     = "protocol=https\nhost=" + gitHost + "\npath=v1/repos/my-repo\n\n"
		kubelet = `{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderRequest"`
		image   = kubelet + `,"image":"` + registryHost + `/app"`
	)
	w := newEnvironment(t)
	inHand := w.inHand()
	w.refuse([]string{"credential-process"}, nil, map[string]mistake{
		"provider": {"--provider=gcp", "", usage, "AWS"}, "nobody": {"", "", usage, "--service-account"}})
	w.refuse(append([]string{"git-credential", "get"}, inHand...), nil, map[string]mistake{
		"http":       {"", strings.Replace(git, "https", "http", 1), misconfigured, "no credential"},
		"not ours":   {"", "protocol=https\nhost=github.com\npath=a/b\n", misconfigured, "github.com"},
		"look-alike": {"", strings.Replace(git, gitHost, gitHost+".evil.example", 1), misconfigured, "evil.example"},
		"not theirs": {"--provider=gcp", git, misconfigured, "Secure Source Manager"},
		"no such path": {"", strings.Replace(git, "my-repo", "my-repo.git", 1), misconfigured,
			"CodeCommit"},
	})
	w.refuse([]string{"kubelet-credential-provider"}, nil, map[string]mistake{
		"nothing":  {"", "", misconfigured, "no request"},
		"not JSON": {"", "{", misconfigured, "in JSON"},
		"kind":     {"", `{"kind":"Pod"}`, misconfigured, `"Pod"`},
		"version":  {"", strings.Replace(image, "/v1", "/v1alpha1", 1) + "}", misconfigured, "CredentialProviderConfig"},
		"no image": {"", kubelet + "}", misconfigured, "no image"},
		"no token": {"", image + "}", misconfigured, "--node-identity"},
		"no JWT":   {"", image + `,"serviceAccountToken":"x"}`, misconfigured, "JWT"},
		"identity": {"--service-account=a/b", image + "}", usage, "kubelet says"},
		"registry": {"", strings.Replace(image, registryHost, "ghcr.io", 1) + "}", misconfigured, "ghcr.io"},
	})
	w.refuse(append([]string{"docker-credential"}, inHand...), nil, map[string]mistake{
		"store":       {"store", "", usage, "no need to log in"},
		"action":      {"login", "", usage, `invalid argument "login"`},
		"no provider": {"get --provider=gcp", registryHost, misconfigured, "registry"},
	})
	w.refuse(append([]string{"exec-credential"}, inHand...), nil, map[string]mistake{
		"no cluster": {"--provider=aws", "", misconfigured, "cluster"},
		"no CA":      {"--provider=aws --cluster-ca-file=/nonexistent", "", misconfigured, "PEM"},
	})
	for info, want := range map[string]string{"{": plugin.ExecInfoVariable, `{"kind":"Pod","apiVersion":"v1"}`: `"Pod"`,
		`{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v9"}`: "v1beta1"} {
		t.Setenv(plugin.ExecInfoVariable, info)
		w.refuse(append([]string{"exec-credential"}, inHand...), nil,
			map[string]mistake{"exec info " + want: {"--provider=aws", "", misconfigured, want}})
	}
	profile{"https://x", "", "", nil}.execInfo(t)
	w.refuse([]string{"exec-credential"}, nil, map[string]mistake{
		"recursion":     {"--provider=generic --service-account=a/b", "", usage, "--in-cluster"},
		"address alone": {"--provider=gcp", "", usage, "pass --cluster or --cluster-address"},
		"another flag":  {"--provider=gcp --cluster-address=https://y", "", cli.ExitDenied, "--cluster-address"},
	})
	if n := w.cloud.Calls("", ""); n != 0 {
		t.Errorf("got %d requests, want none", n)
	}
}

// What is gone when kubectl runs, and passwords, are not in a kubeconfig.
func TestMistakesInKubeconfigs(t *testing.T) {
	w := newEnvironment(t)
	file := w.write("file", "x")
	words := []string{"kubeconfig", "--audience=x", "--cluster-address=https://x.example"}
	w.refuse(words, map[string]string{"PIPE": pipeWith(t, "x"), "FILE": file}, map[string]mistake{
		"kubeconfig": {"--provider=generic --kubeconfig=$PIPE --service-account=a/b", "", usage, "name a file"},
		"token":      {"--provider=generic --token-file=$PIPE", "", usage, "none later; name a file"},
		"stdin":      {"--provider=generic --token-file=/dev/stdin", "", usage, "none later; name a file"},
		"secret": {"--provider=exchange --token-file=$FILE --exchange-endpoint=https://x.example --exchange-client-id=x " +
			"--exchange-client-secret-file=$PIPE", "", usage, "none later; name a file"},
		"password": {"--provider=aws --token-file=$FILE --proxy-url=http://u:hunter2@proxy", "", usage, "HTTPS_PROXY"},
		"no access": {"--provider=exchange --exchange-endpoint=https://x.example " + w.tokenFile("x"), "", misconfigured,
			"clusters"},
	})
	t.Setenv("AZURE_ENVIRONMENT_FILEPATH", "/dev/zero")
	w.refuse(words, map[string]string{"FILE": file}, map[string]mistake{
		"environment": {"--provider=azure --token-file=$FILE", "", usage, "AZURE_ENVIRONMENT_FILEPATH"}})
}

// Whatever goes wrong at the cluster or the cloud, the message ends with what
// to do.
func TestRemedies(t *testing.T) {
	w := newEnvironment(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // does not wait
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close() //nolint:errcheck // nothing is lost
	nobody := []string{"token", "--provider=aws", "--region=eu-central-1", "--service-account=tenant-a/app"}
	for name, tc := range map[string]struct {
		server, timeout string
		login           clientcmdapi.AuthInfo
		want            string
	}{
		"nobody listens": {"https://127.0.0.1:1", "30s", clientcmdapi.AuthInfo{},
			"; check the cluster's address in the kubeconfig"},
		"nobody answers": {"http://" + silent.Addr().String(), "100ms", clientcmdapi.AuthInfo{}, "; raise --timeout"},
		"no plugin": {"https://127.0.0.1:1", "30s", clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
			APIVersion: "client.authentication.k8s.io/v1", Command: "no-such-plugin",
			InteractiveMode: clientcmdapi.NeverExecInteractiveMode}}, "; check the cluster's address in the kubeconfig"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(DepthVariable, "")
			r := w.run("", append(slices.Clone(nobody), "--kubeconfig="+w.kubeconfigOf(tc.server, nil, tc.login),
				"--timeout="+tc.timeout)...)
			if r.code != cli.ExitUnavailable || !strings.Contains(r.err, tc.want) || r.stdout != "" {
				t.Errorf("got %+v, want code %d and %q", r, cli.ExitUnavailable, tc.want)
			}
		})
	}
	unknown := &auth.Error{Reason: auth.ErrDenied, Message: "no", Code: "AADSTS999999"}
	for remedy, want := range map[string]string{"": "https://login.microsoftonline.com/error", "do this": "; do this"} {
		unknown.Remedy = remedy
		if got := parsed(t).InTermsOfFlags(unknown).Error(); !strings.HasSuffix(got, want) {
			t.Errorf("got %q, want %q at its end", got, want)
		}
	}
}

// What kubectl would say about a cluster is the answer, and whoever may not ask
// it is told what is missing.
func TestRefusalsOfTheCluster(t *testing.T) {
	w := newEnvironment(t)
	for name, tc := range map[string]struct {
		status int
		code   int
		want   string
	}{
		"no right":        {http.StatusForbidden, cli.ExitDenied, "verb get on serviceaccounts"},
		"an old login":    {http.StatusUnauthorized, cli.ExitUnavailable, "kubeconfig"},
		"no such account": {http.StatusNotFound, cli.ExitMisconfigured, "create it, or correct the name"},
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			flags, _ := w.cluster(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				answer(rw, tc.status, "no")
			}), clientcmdapi.AuthInfo{})
			r := w.run("", append([]string{"credential-process"}, flags...)...)
			if r.code != tc.code || !strings.Contains(r.err, tc.want) || r.stdout != "" {
				t.Errorf("got %+v, want code %d and %q", r, tc.code, tc.want)
			}
		})
	}
}

// answer refuses as an API server does.
func answer(rw http.ResponseWriter, status int, message string) {
	reason := map[int]string{http.StatusForbidden: "Forbidden", http.StatusUnauthorized: "Unauthorized",
		http.StatusNotFound: "NotFound"}[status]
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	_ = json.NewEncoder(rw).Encode(object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status,
		"reason": reason, "message": message})
}

// A credential of the kubeconfig's that an API server repeats is in no message.
func TestErrorsKeepWhatIsEchoed(t *testing.T) {
	const secret, password = "exec-secret-token-0123456789abcdef", "hunter2-pass1"
	encoded := base64.StdEncoding.EncodeToString
	w := newEnvironment(t)
	echo := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, bare, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		answer(rw, http.StatusForbidden, "sent: "+bare+", "+encoded([]byte(bare))+", "+r.Header.Get("Authorization"))
	})
	for name, login := range map[string]clientcmdapi.AuthInfo{
		"token":    {Token: secret},
		"password": {Username: "joe", Password: password},
		"plugin": {Exec: &clientcmdapi.ExecConfig{APIVersion: "client.authentication.k8s.io/v1", Command: "echo",
			InteractiveMode: clientcmdapi.NeverExecInteractiveMode, Args: []string{
				`{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"` + secret + `"}}`}}},
	} {
		for _, command := range []string{"token --provider=generic --audience=x", "credential-process",
			"exec-credential --provider=generic --audience=x --cluster-address=https://192.0.2.1",
			"kubeconfig --provider=generic --audience=x --cluster-address=https://192.0.2.1", "docker-credential get"} {
			t.Run(name+", "+command, func(t *testing.T) {
				w.t = t
				flags, _ := w.cluster(echo, login)
				r := w.run(registryHost, append(strings.Fields(command), flags...)...)
				if !strings.Contains(r.err, "sent: [redacted]") {
					t.Errorf("got %+v, want the server's words", r)
				}
				for _, part := range []string{secret[:12], password[:8], encoded([]byte(secret))[:12],
					encoded([]byte("joe:" + password))[:12]} {
					if strings.Contains(r.stdout+r.stderr+r.err, part) {
						t.Errorf("got %+v, which holds %s", r, part)
					}
				}
			})
		}
	}
}

// What a kubeconfig says is private, and nothing of a token is in it.
func TestKubeconfigHoldsNoSecret(t *testing.T) {
	w := newEnvironment(t)
	flags, kubeconfig := w.cluster(w, clientcmdapi.AuthInfo{Token: "hunter2hunter2"})
	file := filepath.Join(w.dir, "remote.yaml")
	r := w.run("", append([]string{"kubeconfig", "--provider=generic", "--audience=x",
		"--cluster-address=https://remote.example", "-f", file}, flags[:2]...)...)
	content, err := os.ReadFile(file)
	if r.code != 0 || err != nil || strings.Contains(string(content), "eyJ") ||
		strings.Contains(string(content), "hunter2") {
		t.Errorf("got %+v, %v, want a kubeconfig without secrets:\n%s", r, err, content)
	}
	if args := w.load(file).AuthInfos["wid"].Exec.Args; !slices.Contains(args, "--kubeconfig="+kubeconfig) ||
		!slices.Contains(args, "--context=x") {
		t.Errorf("kubectl runs %q, want the ServiceAccount's cluster in them", args)
	}
}
