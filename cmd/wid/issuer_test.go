package main

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/testing/storetest"
	"github.com/workloadid/workloadid/issuer"
)

// Mistakes are named before the cluster is asked, also for its issuer.
func TestIssuerMistakes(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	const gcp, arn = "projects/123456789012/locations/global/workloadIdentityPools/east/providers/east",
		"arn:aws:iam::123456789012:role/a"
	for name, tt := range map[string]struct {
		args []string
		says string
	}{
		"no store":              {[]string{"publish"}, "--to is missing"},
		"unknown store":         {[]string{"publish", "--to=ftp://x/y"}, "pass file:///DIR, s3://"},
		"store with a password": {[]string{"publish", "--to=s3://a:b@x/y"}, "is malformed"},
		"relative directory":    {[]string{"publish", "--to=file://x/y"}, "pass file:///DIR"},
		"whole file system":     {[]string{"publish", "--to=file:///"}, "pass file:///DIR"},
		"wrong bucket":          {[]string{"publish", "--to=s3://A_B/y"}, "is not the name of a bucket"},
		"wrong container":       {[]string{"publish", "--to=azblob://account/A_B"}, "is not the name of a container"},
		"watching a removal": {[]string{"publish", "--to=file:///x", "--watch", "--remove-key=k"},
			"exclude each other"},
		"malformed resolve":        {[]string{"check", "--resolve=x:1"}, "HOST:PORT:ADDRESS"},
		"address with a port":      {[]string{"check", "--resolve=i.example:443:10.0.0.1:8443"}, "HOST:PORT:ADDRESS"},
		"missing CA":               {[]string{"check", "--ca-file=missing"}, "--ca-file"},
		"keys of a public store":   {[]string{"check", "--to=s3://bucket/x"}, "leave --to out"},
		"malformed ServiceAccount": {[]string{"check", "--service-account=x"}, "namespace/name"},
		"no ServiceAccount": {[]string{"trust", "aws", "--issuer=https://i.example", "--role=" + arn},
			"namespace/name"},
		"no role":        {[]string{"trust", "aws", "--service-account=a/b"}, "--role"},
		"no application": {[]string{"trust", "azure", "--service-account=a/b"}, "--client-id"},
		"no provider":    {[]string{"trust", "gcp", "--service-account=a/b"}, "--provider"},
		"no role of AWS": {[]string{"trust", "azure", "--client-id=" + azureClient, "--issuer=https://i.example",
			"--aws-role=x"}, "--aws-role"},
		"no issuer of AWS": {[]string{"trust", "azure", "--client-id=" + azureClient,
			"--aws-role=" + arn}, "get-outbound-web-identity-federation-info"},
		"keys of AWS": {[]string{"trust", "gcp", "--provider=" + gcp, "--issuer=https://i.example",
			"--aws-role=" + arn, "--upload-keys"}, "--upload-keys"},
		"issuer without TLS": {[]string{"trust", "gcp", "--issuer=http://i.example", "--service-account=a/b",
			"--provider=" + gcp}, "has to begin with https://"},
		"issuer that turns text": {[]string{"trust", "azure", "--issuer=https://i.example/\u202eb", "--service-account=a/b",
			"--client-id=" + azureClient}, "invalid characters"},
		"name that turns text": {[]string{"trust", "azure", "--issuer=https://i.example", "--service-account=a/\u202eb",
			"--client-id=" + azureClient}, "namespace/name"},
		"issuer with a command": {[]string{"trust", "aws", "--issuer=https://i.example?$(x)", "--service-account=a/b",
			"--role=" + arn}, "holds a query"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(w.home, "kubeconfig")
			w.write(t, file, kubeconfigOf(t, "https://127.0.0.1:1", nil, nil, nil, "x"))
			r := w.exec(t, "", []string{"KUBECONFIG=" + file}, "wid", append([]string{"issuer"}, tt.args...)...)
			if r.code != cli.ExitUsage || r.stdout != "" || !strings.Contains(r.stderr, tt.says) {
				t.Errorf("%+v", r)
			}
		})
	}
}

// What is printed for Azure and Google has the right audience and subject, and
// no word that a shell would run.
func TestIssuerTrust(t *testing.T) {
	w := newEnvironment(t)
	common := []string{"--issuer=https://i.example/c'1", "--service-account=tenant-a/app"}
	azure := w.mustWid(t, "",
		append([]string{"issuer", "trust", "azure", "--client-id=" + azureClient, "-o=json"}, common...)...)
	var credential struct {
		Name, Issuer, Subject string
		Audiences             []string
	}
	if err := json.Unmarshal([]byte(azure), &credential); err != nil || credential.Issuer != "https://i.example/c'1" ||
		credential.Subject != subjectOfApp || !slices.Equal(credential.Audiences, []string{"api://AzureADTokenExchange"}) {
		t.Errorf("%s, %v", azure, err)
	}
	const provider = "projects/123456789012/locations/global/workloadIdentityPools/east/providers/east"
	gcp := w.mustWid(t, "",
		append([]string{"issuer", "trust", "gcp", "--provider=" + provider,
			"--google-service-account=a@p.iam.gserviceaccount.com"}, common...)...)
	for _, want := range []string{`--issuer-uri 'https://i.example/c'\''1'`,
		" --allowed-audiences //iam.googleapis.com/" + provider + " ",
		"--member principal://iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/east/subject/" +
			subjectOfApp,
		"kubectl annotate serviceaccount -n tenant-a app --overwrite gcp.auth.fluxcd.io/workload-identity-provider=" +
			provider} {
		if !strings.Contains(gcp, want) {
			t.Errorf("%q is missing in\n%s", want, gcp)
		}
	}
}

// The member names the pool, so each cluster needs one of its own. In a shared
// pool, IAM takes one cluster for another.
func TestIssuerTrustGCPKeepsClustersApart(t *testing.T) {
	w := newEnvironment(t)
	other, err := cloudtest.NewIssuer(cloudtest.IssuerConfig{URL: "https://cluster-2.example"})
	if err != nil {
		t.Fatal(err)
	}
	const email = "app@project.iam.gserviceaccount.com"
	example := regexp.MustCompile(`--provider (projects/\S+)`).FindStringSubmatch(
		strings.Join(strings.Fields(must(t, "issuer", "trust", "gcp", "--help")), " "))[1]
	member := func(issuer, provider string) string {
		t.Helper()
		var printed struct{ Member string }
		out := w.mustWid(t, "", "issuer", "trust", "gcp", "--service-account=tenant-a/app", "--issuer="+issuer,
			"--provider="+provider, "-o=json")
		if err := json.Unmarshal([]byte(out), &printed); err != nil {
			t.Fatal(err)
		}
		return printed.Member
	}
	google := w.cloud.GCP()
	google.SetWorkloadIdentityProvider(example,
		cloudtest.WorkloadIdentityProvider{Issuer: w.issuer.URL(), Fetch: w.issuer.HTTPClient()})
	google.SetServiceAccount(email,
		cloudtest.GCPServiceAccount{WorkloadIdentityUsers: []string{member(w.issuer.URL(), example)}})
	tokenOf := func(issuer *cloudtest.Issuer, provider string) error {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app",
			Annotations: map[string]string{gcp.WorkloadIdentityProviderAnnotation: provider,
				gcp.ServiceAccountAnnotation: email}}}
		_, err := auth.GetAccessToken(t.Context(), &gcp.Provider{},
			auth.WithServiceAccount(client.ObjectKeyFromObject(account), issuer.Client(account)),
			auth.WithOwner(cache.InvolvedObject{Kind: "Bucket", Namespace: "tenant-a", Name: "b"}),
			auth.WithHTTPClient(w.cloud.Client()))
		return err
	}
	if err := tokenOf(w.issuer, example); err != nil {
		t.Fatal(err)
	}
	second := func(provider string) string {
		google.SetWorkloadIdentityProvider(provider,
			cloudtest.WorkloadIdentityProvider{Issuer: other.URL(), Fetch: other.HTTPClient()})
		return provider
	}
	if err := tokenOf(other, second(strings.ReplaceAll(example, "cluster-1", "cluster-2"))); !errors.Is(err,
		auth.ErrDenied) {
		t.Errorf("the second cluster acts as the tenant of the first: %v", err)
	}
	shared := strings.TrimSuffix(example, "cluster-1") + "cluster-2"
	if err := tokenOf(other, second(shared)); err != nil {
		t.Errorf("a shared pool: %v", err)
	}
	script := w.mustWid(t, "", "issuer", "trust", "gcp", "--service-account=tenant-a/app", "--issuer="+other.URL(),
		"--provider="+shared)
	if !strings.HasPrefix(script, "# Use a pool for each cluster") {
		t.Errorf("the script warns of no shared pool:\n%s", script)
	}
}

// Clouds would trust whatever answers for the API server.
func TestIssuerRefusesUnverifiedClusters(t *testing.T) {
	t.Parallel()
	w := newEnvironment(t)
	asked := 0
	answer := http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		asked++
		rw.WriteHeader(http.StatusNotFound)
	})
	server := httptest.NewTLSServer(answer)
	t.Cleanup(server.Close)
	file := filepath.Join(w.home, "kubeconfig")
	insecure := strings.Replace(kubeconfigOf(t, server.URL, nil, nil, nil, "x"), "server:",
		"insecure-skip-tls-verify: true\n    server:", 1)
	const provider = "projects/123456789012/locations/global/workloadIdentityPools/cluster-1/providers/cluster-1"
	for name, args := range map[string][]string{
		"issuer publish": {"issuer", "publish", "--to=file://" + w.home + "/published"},
		"issuer publish with a name": {"issuer", "publish", "--to=file://" + w.home + "/published",
			"--issuer=https://i.example"},
		"issuer publish that watches": {"issuer", "publish", "--to=file://" + w.home + "/published",
			"--issuer=https://i.example", "--watch"},
		"issuer check": {"issuer", "check"},
		"issuer trust": {"issuer", "trust", "azure", "--service-account=a/b", "--client-id=" + azureClient},
		"issuer trust that uploads": {"issuer", "trust", "gcp", "--service-account=a/b", "--issuer=https://i.example",
			"--upload-keys", "--provider=" + provider},
		"issuer trust with keys": {"issuer", "trust", "openai", "--service-account=a/b", "--issuer=https://i.example",
			"--upload-keys", "--cluster=c", "--project=p", "--target=t"},
		"doctor that shows policies": {"doctor", "--provider=aws", "--service-account=a/b", "--show-policy"},
		"bootstrap publish":          {"bootstrap", "publish"},
		"bootstrap join-command":     {"bootstrap", "join-command", "abcdef.0123456789abcdef"},
		"hub token":                  {"hub", "token", "--agent-image=x"},
	} {
		for form, content := range map[string]string{"insecure-skip-tls-verify": insecure,
			"http": kubeconfigOf(t, "http://10.0.0.1:8080", nil, nil, nil, "x")} {
			t.Run(name+", "+form, func(t *testing.T) {
				w.write(t, file, content)
				asked = 0
				r := w.wid(t, "", append(args, "--kubeconfig="+file)...)
				if r.code == 0 || r.stdout != "" || asked != 0 || !strings.Contains(r.stderr, "another host could answer for it") {
					t.Errorf("%d requests, %+v", asked, r)
				}
			})
		}
	}
}

// A cluster whose API server is its issuer, and grants tokens of any lifetime.
func TestIssuerCheck(t *testing.T) {
	t.Parallel()
	w := newKubeEnvironment(t)
	ca := filepath.Join(w.home, "ca.crt")
	w.write(t, ca, string(w.cluster.Config().CAData))
	run := func(args ...string) (r result, failed []issuer.CheckName) {
		t.Helper()
		r = w.wid(t, "",
			append([]string{"issuer", "check", "-o=json", "--kubeconfig=" + w.kubeconfig,
				"--service-account=" + w.namespace + "/app"}, args...)...)
		var checks []issuer.Check
		if err := json.Unmarshal([]byte(r.stdout), &checks); err != nil {
			t.Fatalf("%+v, %v", r, err)
		}
		for _, c := range issuer.Failed(checks) {
			failed = append(failed, c.Name)
		}
		return r, failed
	}
	r, failed := run("--ca-file=" + ca)
	if r.code != cli.ExitMisconfigured || !slices.Equal(failed, []issuer.CheckName{issuer.CheckTokenLifetime}) ||
		!strings.Contains(r.stdout, "Set --service-account-max-token-expiration of the API server") {
		t.Errorf("%q, %+v", failed, r)
	}
	if r, failed := run(); r.code != cli.ExitUnavailable || !slices.Contains(failed, issuer.CheckDiscoveryReachable) {
		t.Errorf("with an unknown CA: %q, %+v", failed, r)
	}
	if r, failed := run("--ca-file="+ca, "--issuer="+w.cluster.IssuerURL()+"/"); r.code != cli.ExitMisconfigured ||
		!slices.Contains(failed, issuer.CheckIssuerOfToken) {
		t.Errorf("with a slash: %q, %+v", failed, r)
	}
	foreign := filepath.Join(w.home, "foreign")
	w.write(t, foreign, w.jwt(t, "x"))
	if r, failed := run("--ca-file="+ca, "--token-file="+foreign,
		"--issuer="+w.cluster.IssuerURL()); r.code != cli.ExitMisconfigured ||
		!slices.Contains(failed, issuer.CheckTokenReview) || !slices.Contains(failed, issuer.CheckIssuerOfToken) ||
		!slices.Contains(failed, issuer.CheckSigningKey) {
		t.Errorf("with a foreign token: %q, %+v", failed, r)
	}
	r = w.wid(t, "", "issuer", "check", "--kubeconfig="+w.kubeconfig, "--service-account="+w.namespace+"/missing",
		"--issuer="+w.cluster.IssuerURL(), "--ca-file="+ca)
	if r.code != 0 || !strings.Contains(r.stdout, "skip  SigningKey: no token of ServiceAccount") ||
		!strings.Contains(r.stdout, "ok    KeysOfCluster") {
		t.Errorf("without a token: %+v", r)
	}
	// Google finds the provider by its issuer, not by its keys.
	keys, _ := storetest.Get(t, w.cluster.IssuerClient(t), w.cluster.IssuerURL()+"/openid/v1/jwks")
	w.write(t, filepath.Join(w.home, ".config", "gcloud", "application_default_credentials.json"),
		string(w.cloud.GCP().AddUser("admin@example.com")))
	for issuerURL, differs := range map[string]bool{w.cluster.IssuerURL(): false, w.cluster.IssuerURL() + "/": true} {
		w.cloud.GCP().SetWorkloadIdentityProvider(gcpProvider,
			cloudtest.WorkloadIdentityProvider{Issuer: issuerURL, JWKS: keys,
				Admins: []string{"user:admin@example.com"}})
		r := w.wid(t, "", "issuer", "check", "--kubeconfig="+w.kubeconfig, "--service-account="+w.namespace+"/app",
			"--to=gcp://"+gcpProvider)
		if !strings.Contains(r.stdout, "ok    Signature") || strings.Contains(r.stdout, "FAIL  KeysIssuer") != differs {
			t.Errorf("with the provider of %s: %+v", issuerURL, r)
		}
	}
	// A key that is published and that the API server does not have may be a
	// former key, whose tokens are valid.
	var published, others struct {
		Keys []json.RawMessage `json:"keys"`
	}
	other, _ := storetest.Get(t, w.issuer.HTTPClient(), w.issuer.URL()+"/openid/v1/jwks")
	if err := errors.Join(json.Unmarshal(keys, &published), json.Unmarshal(other, &others)); err != nil ||
		len(others.Keys) == 0 {
		t.Fatal(err)
	}
	published.Keys = append(published.Keys, others.Keys...)
	both, err := json.Marshal(published)
	if err != nil {
		t.Fatal(err)
	}
	w.cloud.GCP().SetWorkloadIdentityProvider(gcpProvider,
		cloudtest.WorkloadIdentityProvider{Issuer: w.cluster.IssuerURL(), JWKS: both,
			Admins: []string{"user:admin@example.com"}})
	r = w.wid(t, "", "issuer", "check", "--kubeconfig="+w.kubeconfig, "--service-account="+w.namespace+"/app",
		"--to=gcp://"+gcpProvider)
	_, warning, _ := strings.Cut(r.stdout, "warn  ForeignKeys")
	warning, _, _ = strings.Cut(warning, "\nok ")
	if !strings.Contains(warning, "fix   Wait if these are former keys") || strings.Contains(warning, "run ") ||
		strings.Contains(r.stdout, "remove-key") {
		t.Errorf("with a former key: %+v", r)
	}
}

// --resolve and --ca-file reach a server before its name is public.
func TestIssuerCheckResolves(t *testing.T) {
	t.Parallel()
	w := newKubeEnvironment(t)
	asked := []string{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Host+r.URL.Path)
		http.NotFound(rw, r)
	}))
	t.Cleanup(server.Close)
	ca := filepath.Join(w.home, "ca.crt")
	w.write(t, ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	r := w.wid(t, "", "issuer", "check", "--kubeconfig="+w.kubeconfig, "--service-account="+w.namespace+"/app",
		"--issuer=https://example.com:"+port+"/c",
		"--resolve=example.com:"+port+":"+host, "--ca-file="+ca)
	if r.code != cli.ExitMisconfigured || !strings.Contains(r.stdout, "FAIL  DiscoveryPublic: The issuer answers 404") ||
		!strings.Contains(r.stdout, "run   wid issuer publish --to STORE") ||
		!slices.Equal(asked, []string{"example.com:" + port + "/c/.well-known/openid-configuration"}) {
		t.Errorf("asked %q, %+v", asked, r)
	}
}

// With --aws-role, the role is the subject. It needs no ServiceAccount, which
// would only be annotated.
func TestIssuerTrustOfAnAWSRole(t *testing.T) {
	w := newEnvironment(t)
	const role, provider = "arn:aws:iam::123456789012:role/team/a+b",
		"projects/1/locations/global/workloadIdentityPools/amazon/providers/roles"
	azure := []string{"issuer", "trust", "azure", "--client-id=" + azureClient, "--aws-role=" + role,
		"--issuer=https://i.tokens.sts.global.api.aws"}
	gcp := []string{"issuer", "trust", "gcp", "--provider=" + provider, "--aws-role=" + role,
		"--issuer=https://i.tokens.sts.global.api.aws"}
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{azure, []string{`"subject": "` + role + `"`, `"issuer": "https://i.tokens.sts.global.api.aws"`,
			`"name": "aws-123456789012-a-b"`,
			"sts:GetWebIdentityToken", "# The controller's own role", azureClient}},
		{append(azure, "--service-account=tenant-a/app"), []string{`"name": "tenant-a-app"`,
			"kubectl annotate serviceaccount -n tenant-a app --overwrite eks.amazonaws.com/role-arn=" + role,
			"kubectl annotate serviceaccount -n tenant-a app --overwrite azure.workload.identity/client-id=" + azureClient}},
		{append(gcp, "--google-service-account=a@p.iam.gserviceaccount.com"),
			[]string{"--issuer-uri https://i.tokens.sts.global.api.aws ",
				"/workloadIdentityPools/amazon/subject/" + role}},
	} {
		script := w.mustWid(t, "", tt.args...)
		for _, want := range tt.want {
			if !strings.Contains(script, want) {
				t.Errorf("%q is missing in\n%s", want, script)
			}
		}
	}
}
