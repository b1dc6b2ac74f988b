package issuercmd

import (
	"context"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/issuer"
)

// Mistakes are named before the cluster is asked, also for its issuer.
func TestMistakes(t *testing.T) {
	w := newEnvironment(t)
	nobody := "--kubeconfig=" + w.kubeconfig("https://127.0.0.1:1", nil)
	publish := func(args ...string) []string { return append([]string{"publish", nobody}, args...) }
	check := func(args ...string) []string { return append([]string{"check", nobody}, args...) }
	trust := func(of string, args ...string) []string { return append([]string{"trust", of, nobody}, args...) }
	const named, app, there = "--issuer=https://i.example", "--service-account=a/b", "--provider=" + gcpProvider
	client, arn := "--client-id="+azureClient, "--aws-role="+role("a")
	for name, tt := range map[string]struct {
		args []string
		says string
	}{
		"no store":                 {publish(), "--to is missing"},
		"unknown store":            {publish("--to=ftp://x/y"), "pass file:///DIR, s3://"},
		"store with a password":    {publish("--to=s3://a:b@x/y"), "is malformed"},
		"relative directory":       {publish("--to=file://x/y"), "pass file:///DIR"},
		"whole file system":        {publish("--to=file:///"), "pass file:///DIR"},
		"wrong bucket":             {publish("--to=s3://A_B/y"), "is not the name of a bucket"},
		"wrong container":          {publish("--to=azblob://account/A_B"), "is not the name of a container"},
		"watching a removal":       {publish("--to=file:///x", "--watch", "--remove-key=k"), "exclude each other"},
		"malformed resolve":        {check("--resolve=x:1"), "HOST:PORT:ADDRESS"},
		"address with a port":      {check("--resolve=i.example:443:10.0.0.1:8443"), "HOST:PORT:ADDRESS"},
		"missing CA":               {check("--ca-file=missing"), "--ca-file"},
		"keys of a public store":   {check("--to=s3://bucket/x"), "leave --to out"},
		"malformed ServiceAccount": {check("--service-account=x"), "namespace/name"},
		"no ServiceAccount":        {trust("aws", named, "--role="+role("a")), "namespace/name"},
		"no role":                  {trust("aws", app), "--role"},
		"no application":           {trust("azure", app), "--client-id"},
		"no provider":              {trust("gcp", app), "--provider"},
		"no role of AWS":           {trust("azure", client, named, "--aws-role=x"), "--aws-role"},
		"no issuer of AWS":         {trust("azure", client, arn), "get-outbound-web-identity-federation-info"},
		"keys of AWS":              {trust("gcp", there, named, arn, "--upload-keys"), "--upload-keys"},
		"issuer without TLS":       {trust("gcp", "--issuer=http://i.example", app, there), "has to begin with https://"},
		"issuer that turns text": {trust("azure", "--issuer=https://i.example/\u202eb", app, client),
			"invalid characters"},
		"name that turns text": {trust("azure", named, "--service-account=a/\u202eb", client), "namespace/name"},
		"issuer with a command": {trust("aws", "--issuer=https://i.example?$(x)", app, "--role="+role("a")),
			"holds a query"},
	} {
		t.Run(name, func(t *testing.T) { w.refused(t, tt.says, tt.args...) })
	}
}

// Nothing that a service or a program takes for a pattern, a list or a file is
// printed.
func TestMistakesOfServices(t *testing.T) {
	w := newEnvironment(t)
	const named, app, cluster = "--issuer=https://i.example", "--service-account=a/b", "--cluster=c"
	vault := func(flags ...string) []string {
		return append([]string{"vault", named, app, cluster, "--role=r", "--policies=p", "--audience=x"}, flags...)
	}
	for name, tt := range map[string]struct {
		args []string
		says string
	}{
		"any ServiceAccount": {vault("--service-account=tenant-a/*"), "--service-account"},
		"any namespace":      {vault("--service-account=*/app"), "--service-account"},
		"two audiences":      {vault("--audience=x,y"), "--audience"},
		"file":               {vault("--audience=@/etc/passwd"), "--audience"},
		"file of policies":   {vault("--policies=p,@/etc/passwd"), "--policies"},
		"command":            {vault("--role=$(id)"), "--role"},
		"role of a path":     {vault("--role=a/../../../sys/policy"), "--role"},
		"role in capitals":   {vault("--role=App"), "--role"}, // which Vault takes for app
		"cluster of a path":  {vault("--cluster=../sys"), "--cluster"},
		"no role":            {[]string{"vault", named, app, cluster, "--policies=p", "--audience=x"}, "--role"},
		"no realm":           {[]string{"keycloak", named, app, cluster}, "--realm"},
		"any tag":            {[]string{"tailscale", named, app, "--scopes=auth_keys", "--tags=*"}, "--tags"},
		"no target":          {[]string{"openai", named, app, cluster, "--project=p"}, "--target"},
		"no workspace":       {[]string{"anthropic", named, app, cluster, "--target=t", "--audience=x"}, "--workspace"},
		"no principal":       {[]string{"databricks", named, app, "--audience=x", "--client-id=c"}, "--service-principal"},
	} {
		t.Run(name, func(t *testing.T) { w.refused(t, tt.says, append([]string{"trust"}, tt.args...)...) })
	}
}

// Clouds would trust whatever answers for the API server.
func TestUnverifiedClustersAreRefused(t *testing.T) {
	w := newEnvironment(t)
	store := "--to=file://" + w.home + "/published"
	const named, app = "--issuer=https://i.example", "--service-account=a/b"
	for name, args := range map[string][]string{
		"publish":              {"publish", store},
		"publish, a name":      {"publish", store, named},
		"publish that watches": {"publish", store, named, "--watch"},
		"check":                {"check"},
		"trust":                {"trust", "azure", app, "--client-id=" + azureClient},
		"trust that uploads":   {"trust", "gcp", app, named, "--upload-keys", "--provider=" + gcpProvider},
		"trust with printed key": {"trust", "openai", app, named, "--upload-keys", "--cluster=c", "--project=p",
			"--target=t"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := w.run(append(args, "--kubeconfig="+w.kubeconfig("http://10.0.0.1:8080", nil))...)
			if err == nil || out != "" || !strings.Contains(err.Error(), "another host could answer for it") {
				t.Errorf("got %v and %q, want that another host could answer", err, out)
			}
		})
	}
}

// An address may be a name, or one of IPv6 with and without brackets. The
// client reaches a server before its name is public.
func TestResolve(t *testing.T) {
	if _, err := (&Outside{resolve: []string{"i.example:443:[2001:db8::1]", "i.example:443:2001:db8::1",
		"i.example:443:front.example"}}).Client(); err != nil {
		t.Error(err)
	}
	asked := ""
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked = r.Host }))
	defer server.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(server.URL, "https://"), ":")
	ca := newEnvironment(t).write("ca.crt",
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	c, err := (&Outside{caFile: ca, resolve: []string{"example.com:" + port + ":127.0.0.1"}}).Client()
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Get("https://example.com:" + port + "/c") //nolint:noctx // ends at once
	if err != nil || resp.Body.Close() != nil || asked != "example.com:"+port {
		t.Errorf("got %v, asked for %q, want example.com:%s", err, asked, port)
	}
}

// A failure shows the wrong line, the right one, the remedy and the command. A
// key that is published and that the API server does not have may be a former
// key, whose tokens are valid: no command removes it.
func TestTextOfChecks(t *testing.T) {
	checks := []issuer.Check{{Name: issuer.CheckDiscoveryReachable, OK: true},
		{Name: issuer.CheckKeysOfCluster, Problem: "p", Got: "g", Want: "w", Remedy: "r"},
		{Name: issuer.CheckForeignKeys, Problem: "p", Warning: true, Remedy: "wait"},
		{Name: issuer.CheckSigningKey, Skipped: "no token"}}
	const want = "ok    DiscoveryReachable\nFAIL  KeysOfCluster: p\n      got   g\n      want  w\n      fix   r\n" +
		"      run   wid issuer publish --to STORE\nwarn  ForeignKeys: p\n      fix   wait\nskip  SigningKey: no token\n" +
		"no signature was verified: use a user who may create tokens, or pass --token-file\n"
	if got := textOf(checks); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for name, code := range map[issuer.CheckName]int{issuer.CheckKeysOfCluster: cli.ExitMisconfigured,
		issuer.CheckDiscoveryReachable: cli.ExitUnavailable} {
		err := verdictOf([]issuer.Check{{Name: name, Problem: "p"}})
		if cli.ExitCode(t.Context(), err) != code || !errors.As(err, new(*auth.Error)) {
			t.Errorf("%s: got %v, want exit code %d", name, err, code)
		}
	}
	if err := verdictOf(slices.Delete(checks, 1, 2)); err != nil {
		t.Errorf("got %v, want no error of a warning", err)
	}
}

func TestInterruptedWatch(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := newEnvironment(t)
	cmd := NewIssuer()
	cmd.SetArgs([]string{"publish", "--watch", "--issuer=https://i.example", "--to=file://" + w.home,
		"--kubeconfig=" + w.kubeconfig("https://127.0.0.1:1", nil)})
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	if err := cmd.ExecuteContext(ctx); !errors.Is(err, cli.ErrInterrupted) {
		t.Errorf("got %v, want %v", err, cli.ErrInterrupted)
	}
}
