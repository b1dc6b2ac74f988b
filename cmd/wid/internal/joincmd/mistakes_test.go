package joincmd

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/testing/testca"
	"github.com/workloadid/workloadid/registration/ocm"
)

// run runs wid join or wid unjoin, and returns what it prints.
func run(t *testing.T, cmd *cobra.Command, stdin string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cli.Finish(cmd)
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	err := cmd.ExecuteContext(t.Context())
	return strings.TrimSpace(out.String()), err
}

// expectFailure expects a code and a text of an error.
func expectFailure(t *testing.T, err error, code int, want string) {
	t.Helper()
	if err == nil || cli.ExitCode(t.Context(), err) != code || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want code %d and %q", err, code, want)
	}
}

func writeFile(t *testing.T, content string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// accountToken returns what looks like the token of a ServiceAccount.
func accountToken(expires time.Time) string {
	part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	return part(`{"alg":"RS256"}`) + "." +
		part(`{"sub":"system:serviceaccount:a:b","exp":`+strconv.FormatInt(expires.Unix(), 10)+`}`) + "." + part("signature")
}

const bootstrapToken = "abcdef.0123456789abcdef"

// Mistakes are found before any request, apart from those that need one. No
// message holds a token, and nothing is printed that could be taken for
// manifests.
func TestMistakes(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	account, expired := accountToken(time.Now().Add(time.Hour)), accountToken(time.Now().Add(-time.Hour))
	config := clientcmdapi.NewConfig()
	config.Clusters["c"], config.Contexts["c"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"},
		&clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	content, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	const (
		token      = "--hub-token=" + bootstrapToken
		image      = "--image=registry.example/x:v1"
		aws        = "--registration-auth=aws-irsa"
		hubARN     = "--eks-hub-cluster-arn=" + eksHub
		managedARN = "--eks-managed-cluster-arn=" + eksManaged
		chinese    = "--eks-managed-cluster-arn=arn:aws-cn:eks:cn-north-1:222222222222:cluster/shop"
	)
	nobody, notCA := "--kubeconfig="+writeFile(t, string(content)), "--ca-file="+writeFile(t, "hello")
	pin := "--ca-cert-hash=sha256:" + strings.Repeat("ab", 32)
	joining := func(more ...string) []string {
		return append([]string{"--cluster-name=cluster1", "--hub-apiserver=https://127.0.0.1:1", image}, more...)
	}
	for name, row := range map[string]struct {
		command func() *cobra.Command // wid join otherwise
		args    []string
		stdin   string
		code    int // wrong usage otherwise
		want    string
	}{
		"token for clusters": {args: joining("--registration-auth=token"), want: "token registers add-ons only"},
		"add-ons by ldap": {args: joining("--addon-kubeclient-registration-auth=ldap"),
			want: `--addon-kubeclient-registration-auth: unknown auth type "ldap"`},
		"token of 5 s": {args: joining("--addon-kubeclient-registration-auth=token", "--addon-token-expiration-seconds=5"),
			want: "--addon-token-expiration-seconds: token: ExpirationSeconds is 5"},
		"lifetime alone": {args: joining("--addon-token-expiration-seconds=3600"),
			want: "--addon-token-expiration-seconds needs --addon-kubeclient-registration-auth=token"},
		"without a name": {want: "--cluster-name"},
		"bad name": {args: joining("--cluster-name=A_B"),
			want: `--cluster-name: the cluster name "A_B" is not a DNS label`},
		"reserved name": {args: joining("--cluster-name=managed-clusters"), want: "is reserved"},
		"namespace of Kubernetes": {args: joining("--namespace=kube-system"),
			want: `--namespace: "kube-system" cannot be the namespace of an agent`},
		"unjoin, namespace of add-ons": {command: NewUnjoin, args: []string{"--cluster-name=cluster1", "--namespace=a-addon"},
			want: `--namespace: "a-addon" cannot be the namespace of an agent`},
		"unknown auth type": {args: joining("--registration-auth=aws"),
			want: `unknown auth type "aws": use one of aws-irsa, csr`},
		"aws without hub":     {args: joining(aws, managedARN), want: "--eks-hub-cluster-arn is missing"},
		"aws without cluster": {args: joining(aws, hubARN), want: "--eks-managed-cluster-arn is missing"},
		"two partitions":      {args: joining(aws, hubARN, chinese), want: "partition"},
		"ARN without aws":     {args: joining(managedARN), want: "--registration-auth=aws-irsa"},
		"csr on EKS": {args: joining(token, pin, "--hub-apiserver=https://AB.gr7.eu-central-1.eks.amazonaws.com"),
			want: "EKS signs none"},
		"without a hub":   {args: joining("--hub-apiserver="), want: "--hub-apiserver"},
		"without a token": {args: joining(), want: "--hub-token"},
		"http hub": {args: joining(token, pin, "--hub-apiserver=http://hub.example"),
			want: `not "http://hub.example"`},
		"neither pin nor CA":  {args: joining(token), want: "--ca-cert-hash"},
		"pin and CA":          {args: joining(token, pin, "--ca-file=x"), want: "exclude each other"},
		"account without CA":  {args: joining("--hub-token="+account, pin), want: "--ca-file"},
		"expired token":       {args: joining("--hub-token="+expired, notCA), want: "expired at"},
		"no token":            {args: joining("--hub-token=hunter2", pin), want: "neither a bootstrap token"},
		"no token from stdin": {args: joining("--hub-token=-", pin), stdin: "hunter2\n", want: "neither a bootstrap token"},
		"empty stdin":         {args: joining("--hub-token=-", pin), want: "neither a bootstrap token"},
		"malformed pin":       {args: joining(token, "--ca-cert-hash=sha256:12"), want: "--ca-cert-hash"},
		"no such CA file":     {args: joining("--hub-token="+account, "--ca-file=/nonexistent"), want: "/nonexistent"},
		"CA without a CA":     {args: joining("--hub-token="+account, notCA), want: "--ca-file"},
		"without image":       {args: joining(token, pin, "--image="), want: "--image"},
		"waiting for nothing": {args: joining(token, pin, "--wait"), want: "--apply"},
		"hub unreachable": {args: joining(token, pin, "--timeout=200ms"), code: cli.ExitUnavailable,
			want: "127.0.0.1:1"},
		"unjoin without a name": {command: NewUnjoin, want: "--cluster-name"},
		"unjoin, unreachable": {command: NewUnjoin, args: []string{"--cluster-name=cluster1", nobody},
			code: cli.ExitUnavailable, want: "127.0.0.1:1"},
		"unjoin, to keep and to purge": {command: NewUnjoin, want: "--keep-cluster excludes",
			args: []string{"--cluster-name=cluster1", nobody, "--keep-cluster", "--purge"}},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := NewJoin()
			if row.command != nil {
				cmd = row.command()
			}
			out, err := run(t, cmd, row.stdin, row.args...)
			expectFailure(t, err, cmp.Or(row.code, cli.ExitUsage), row.want)
			for _, secret := range []string{bootstrapToken[7:], account, expired, "hunter2", "eyJ", "apiVersion"} {
				if strings.Contains(fmt.Sprint(out, err), secret) {
					t.Errorf("%q shows: %s, %v", secret, out, err)
				}
			}
		})
	}
}

// newHub is a hub that answers a request for the ManagedCluster cluster1 with a
// status.
func newHub(t *testing.T, code int) (hub *httptest.Server, asked *[]string) {
	t.Helper()
	const group = "cluster.open-cluster-management.io"
	asked = &[]string{}
	hub = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/apis/" + group + "/v1/managedclusters/cluster1":
			*asked = append(*asked, r.Header.Get("Authorization"))
			w.WriteHeader(code)
			if code == http.StatusOK {
				_, _ = fmt.Fprint(w, `{"kind":"ManagedCluster","apiVersion":"`+group+`/v1","metadata":{"name":"cluster1"}}`)
				return
			}
			_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d}`, code)
		case "/apis/" + group + "/v1":
			_, _ = fmt.Fprint(w, `{"kind":"APIResourceList","groupVersion":"`+group+`/v1",`+
				`"resources":[{"name":"managedclusters","kind":"ManagedCluster","verbs":["get"]}]}`)
		default:
			_, _ = fmt.Fprint(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"`+group+`",`+
				`"versions":[{"groupVersion":"`+group+`/v1","version":"v1"}]}]}`)
		}
	}))
	hub.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(hub.Close)
	return hub, asked
}

// arriving returns the arguments of a join of cluster1 with a ServiceAccount's
// token.
func arriving(t *testing.T, hub *httptest.Server, more ...string) []string {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hub.Certificate().Raw})
	return append([]string{"--cluster-name=cluster1", "--image=x", "--hub-apiserver=" + hub.URL,
		"--hub-token=" + accountToken(time.Now().Add(time.Hour)), "--ca-file=" + writeFile(t, string(ca))}, more...)
}

// join tries the credential at the hub, whose CA it knows, before it prints
// anything.
func TestJoinTriesTheCredential(t *testing.T) {
	for name, row := range map[string]struct {
		code    int  // of the hub
		another bool // the CA is of another hub
		exits   int
		want    string
	}{
		"the cluster is not there yet": {code: http.StatusNotFound},
		"another user": {code: http.StatusForbidden, exits: cli.ExitDenied,
			want: `bind that user to ClusterRole "` + ocm.BootstrapRole + `"`},
		"an unknown token": {code: http.StatusUnauthorized, exits: cli.ExitUnavailable, want: "renew the token"},
		"another hub":      {code: http.StatusNotFound, another: true, exits: cli.ExitUnavailable, want: "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			hub, asked := newHub(t, row.code)
			args := arriving(t, hub)
			if row.another {
				args = append(args, "--ca-file="+writeFile(t, testca.New(t, "another").PEM()))
			}
			out, err := run(t, NewJoin(), "", args...)
			if row.want != "" {
				expectFailure(t, err, row.exits, row.want)
			} else if err != nil || !strings.Contains(out, "kind: Deployment") {
				t.Errorf("got %v and\n%s", err, out)
			}
			if got := len(*asked) > 0 && strings.HasPrefix((*asked)[0], "Bearer ey"); got == row.another {
				t.Errorf("the hub was asked with %q", *asked)
			}
		})
	}
}

// Manifests with a credential go to a terminal only if that is asked for.
func TestJoinPrintsNoSecretToATerminal(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close() //nolint:errcheck // nothing was written
	cmd := NewJoin()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs([]string{"--cluster-name=cluster1", "--hub-apiserver=https://127.0.0.1:1", "--image=x", "--hub-token=x",
		"--ca-file=x"})
	cmd.SetOut(terminal)
	expectFailure(t, cmd.ExecuteContext(t.Context()), cli.ExitUsage, "--reveal")
}
