package agent_test

import (
	"maps"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/ocm"
)

// Nothing listens at the address.
func TestAgentNamesAHubThatIsUnreachable(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	regtest.Must(t, err)
	address := "https://" + l.Addr().String()
	regtest.Must(t, l.Close())
	w := newAgentEnvironment(t)
	w.opts.NewHubClient = nil
	w.writeBootstrap(bootstrapKubeconfig(address))
	w.restart()
	_, err = w.reconcile()
	if err == nil || !strings.Contains(err.Error(), address) ||
		!strings.Contains(err.Error(), agentNamespace+"/bootstrap-hub-kubeconfig") ||
		!strings.Contains(err.Error(), "check that the network") || strings.Contains(err.Error(), bootstrapToken) {
		t.Errorf("got %v", err)
	}
	if len(w.writes) > 0 || w.secret() != nil {
		t.Errorf("half-written: %q", w.writes)
	}
	if got := w.seen(); len(got) != 1 || !strings.Contains(got[0], address) {
		t.Errorf("Events %q", got)
	}
}

func TestAgentExplainsTheHubsRefusal(t *testing.T) {
	for name, row := range map[string]struct {
		err  error
		want string
	}{
		"bootstrap credential expired":  {unauthorized(), "join again with a new one"},
		"bootstrap user without rights": {forbidden(), `ClusterRole "open-cluster-management:hub:bootstrap"`},
		"hub without the CRD": {
			&meta.NoKindMatchError{GroupKind: ocm.GroupVersion.WithKind("ManagedCluster").GroupKind()}, "prepare it as a hub"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newAgentEnvironment(t)
			w.refused[bootstrapToken] = row.err
			if _, err := w.reconcile(); err == nil || !strings.Contains(err.Error(), row.want) || len(w.writes) > 0 {
				t.Errorf("got %v, writes %q", err, w.writes)
			}
		})
	}
}

func TestAgentRefusesABootstrapKubeconfig(t *testing.T) {
	with := func(old, replacement string) string {
		valid := bootstrapKubeconfig("https://hub.example.com")
		if !strings.Contains(valid, old) {
			t.Fatalf("the kubeconfig lacks %q", old)
		}
		return strings.Replace(valid, old, replacement, 1)
	}
	for name, row := range map[string]struct{ kubeconfig, want string }{
		"empty":              {"", "not a kubeconfig"},
		"no YAML":            {"{" + bootstrapToken, "not a kubeconfig"},
		"another kind":       {with("kind: Config", "kind: Secret"), "not a kubeconfig"},
		"unknown field":      {with("server:", "srever: x, server:"), "not a kubeconfig"},
		"key twice":          {with("server:", "server: https://a, server:"), "not a kubeconfig"},
		"no cluster":         {"{apiVersion: v1, kind: Config}", "0 clusters"},
		"two clusters":       {with("clusters: [", "clusters: [{name: x, cluster: {server: 'https://a'}},"), "2 clusters"},
		"two users":          {with("users: [", "users: [{name: x, user: {token: a}},"), "2 users"},
		"context elsewhere":  {with("cluster: h, user", "cluster: x, user"), `"c"`},
		"http":               {with("https:", "http:"), "https"},
		"no address":         {with("https://hub.example.com", ""), "https"},
		"password in URL":    {with("//", "//a:b@"), "without a user name"},
		"no TLS check":       {with("server:", "insecure-skip-tls-verify: true, server:"), "insecure-skip-tls-verify"},
		"CA path":            {with("server:", "certificate-authority: /etc/ca.crt, server:"), `"/etc/ca.crt"`},
		"CA no PEM":          {with("server:", "certificate-authority-data: Zm9v, server:"), "no PEM certificate"},
		"proxy":              {with("server:", "proxy-url: 'http://a:b@proxy', server:"), "HTTPS_PROXY"},
		"token path":         {with("token: "+bootstrapToken, "tokenFile: /etc/token"), `"/etc/token"`},
		"certificate path":   {with("token: "+bootstrapToken, "client-certificate: /a, client-key: /b"), `"/a"`},
		"program":            {with("token: "+bootstrapToken, "exec: {command: /bin/sh, apiVersion: v1}"), `"/bin/sh"`},
		"auth provider":      {with("token: "+bootstrapToken, "auth-provider: {name: oidc}"), `"oidc"`},
		"password":           {with("token: "+bootstrapToken, "username: a, password: b"), "password"},
		"impersonation":      {with("token:", "as: admin, token:"), "impersonates"},
		"certificate alone":  {with("token: "+bootstrapToken, "client-certificate-data: Zm9v"), "with its key"},
		"no credential":      {with("token: "+bootstrapToken, ""), "token"},
		"token and key pair": {with("token:", "client-certificate-data: Zm9v, client-key-data: Zm9v, token:"), "either"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newAgentEnvironment(t)
			w.writeBootstrap(row.kubeconfig)
			_, err := w.reconcile()
			if err == nil || !strings.Contains(err.Error(), row.want) ||
				!strings.Contains(err.Error(), agentNamespace+"/bootstrap-hub-kubeconfig") ||
				strings.Contains(err.Error(), bootstrapToken) {
				t.Errorf("got %v, want %q", err, row.want)
			}
			if len(w.writes) > 0 || len(w.built) > 0 {
				t.Errorf("writes %q, %d clients", w.writes, len(w.built))
			}
		})
	}
	t.Run("Secret missing", func(t *testing.T) {
		w := newAgentEnvironment(t)
		w.opts.BootstrapSecret = "other"
		w.restart()
		if _, err := w.reconcile(); err == nil || !strings.Contains(err.Error(), agentNamespace+"/other") ||
			!strings.Contains(err.Error(), "join again") {
			t.Errorf("got %v", err)
		}
		if got := w.seen(); len(got) != 1 || !strings.HasPrefix(got[0], "Warning "+agent.ReasonCredentialRefused) {
			t.Errorf("Events %q", got)
		}
	})
}

func TestAgentRefusesACredentialThatItCouldNotUse(t *testing.T) {
	token := &clientcmdapi.AuthInfo{Token: "a"}
	for name, row := range map[string]struct {
		step registration.Step
		want string
	}{
		"no user": {registration.Step{Credential: &registration.Credential{}}, "no user"},
		"program": {registration.Step{Credential: &registration.Credential{User: execUser}}, `"aws"`},
		"file elsewhere": {
			registration.Step{Credential: &registration.Credential{User: &clientcmdapi.AuthInfo{TokenFile: "/etc/token"}}},
			`"/etc/token"`},
		"reserved file": {registration.Step{Credential: &registration.Credential{User: token,
			Files: map[string][]byte{"agent-name": nil}}}, `"agent-name"`},
		"file like state": {registration.Step{Credential: &registration.Credential{User: token,
			Files: map[string][]byte{"state.x": nil}}}, `"state.x"`},
		"file no key": {registration.Step{Credential: &registration.Credential{User: token,
			Files: map[string][]byte{"a/b": nil}}}, `"a/b"`},
		"state is no key": {registration.Step{State: map[string][]byte{"a/b": nil}}, `"a/b"`},
		"impersonated user": {
			registration.Step{Credential: &registration.Credential{User: &clientcmdapi.AuthInfo{Token: "a", Impersonate: "b"}}},
			"impersonates"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newAgentEnvironment(t)
			w.opts.Driver = fixedDriver{"fixed", row.step}
			w.restart()
			if _, err := w.reconcile(); err == nil || !strings.Contains(err.Error(), row.want) ||
				!strings.Contains(err.Error(), `driver "fixed"`) {
				t.Errorf("got %v", err)
			}
			if got := slices.Sorted(maps.Keys(w.secret().Data)); !slices.Equal(got, []string{"agent-name", "cluster-name"}) {
				t.Errorf("half-written: %q", got)
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	valid := newAgentEnvironment(t).opts
	for name, row := range map[string]struct {
		change func(*agent.Options)
		want   string
	}{
		"a dot":                                 {func(o *agent.Options) { o.Cluster = "a.b" }, `"a.b"`},
		"upper case":                            {func(o *agent.Options) { o.Cluster = "Cluster" }, "DNS label"},
		`the driver name "" is not a DNS label`: {func(o *agent.Options) { o.Cluster = "" }, "DNS label"},
		"64 letters": {func(o *agent.Options) {
			o.Cluster = strings.Repeat("a", 64)
		}, "DNS label"},
		"kube-system":      {func(o *agent.Options) { o.Cluster = "kube-system" }, "reserved"},
		"managed-clusters": {func(o *agent.Options) { o.Cluster = "managed-clusters" }, "reserved"},
		"no driver":        {func(o *agent.Options) { o.Driver = nil }, "agent.Options.Driver"},
		"no client":        {func(o *agent.Options) { o.Local = nil }, "agent.Options.Local"},
		"driver's name":    {func(o *agent.Options) { o.Driver = fixedDriver{name: "A/b"} }, `"A/b"`},
		"driver without one": {func(o *agent.Options) {
			o.Driver = fixedDriver{}
		}, `the driver name "" is not a DNS label`},
		"one Secret": {func(o *agent.Options) {
			o.BootstrapSecret = ocm.HubKubeconfigSecret
		}, "two names"},
		"metrics twice": {func(o *agent.Options) { registerTwice(t, o) }, "metrics"},
	} {
		t.Run(name, func(t *testing.T) {
			opts := valid
			row.change(&opts)
			if _, err := agent.New(opts); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want %q", err, row.want)
			}
		})
	}
}

func registerTwice(t *testing.T, o *agent.Options) {
	t.Helper()
	o.Registerer = prometheus.NewRegistry()
	if _, err := agent.New(*o); err != nil {
		t.Fatal(err)
	}
}
