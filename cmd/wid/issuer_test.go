package main

import (
	"encoding/json"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/auth/issuer"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/issuercheck"
)

// Mistakes are named before anything is asked.
func TestIssuerMistakes(t *testing.T) {
	w := newWorld(t)
	const gcp, arn = "projects/123456789012/locations/global/workloadIdentityPools/clusters/providers/east", "arn:aws:iam::123456789012:role/a"
	for name, tt := range map[string]struct {
		args []string
		says string
	}{
		"no store":                 {[]string{"publish"}, "--to is missing"},
		"unknown store":            {[]string{"publish", "--to=ftp://x/y"}, "pass file:///DIR, s3://"},
		"store with a password":    {[]string{"publish", "--to=s3://a:b@x/y"}, "is malformed"},
		"relative directory":       {[]string{"publish", "--to=file://x/y"}, "pass file:///DIR"},
		"whole file system":        {[]string{"publish", "--to=file:///"}, "pass file:///DIR"},
		"wrong bucket":             {[]string{"publish", "--to=s3://A_B/y"}, "is not the name of a bucket"},
		"wrong container":          {[]string{"publish", "--to=azblob://account/A_B"}, "is not the name of a container"},
		"watching a removal":       {[]string{"publish", "--to=file:///x", "--watch", "--remove-key=k"}, "exclude each other"},
		"malformed resolve":        {[]string{"check", "--resolve=x:1"}, "HOST:PORT:ADDRESS"},
		"missing CA":               {[]string{"check", "--ca-file=missing"}, "--ca-file"},
		"keys of a public store":   {[]string{"check", "--to=s3://bucket/x"}, "leave --to out"},
		"malformed ServiceAccount": {[]string{"check", "--service-account=x"}, "namespace/name"},
		"no ServiceAccount":        {[]string{"trust", "aws", "--issuer=https://i.example", "--role=" + arn}, "namespace/name"},
		"no role":                  {[]string{"trust", "aws", "--issuer=https://i.example", "--service-account=a/b"}, "--role"},
		"no application":           {[]string{"trust", "azure", "--issuer=https://i.example", "--service-account=a/b"}, "--client-id"},
		"no provider":              {[]string{"trust", "gcp", "--issuer=https://i.example", "--service-account=a/b"}, "--provider"},
		"issuer without TLS":       {[]string{"trust", "gcp", "--issuer=http://i.example", "--service-account=a/b", "--provider=" + gcp}, "is not an https URL"},
		"issuer with a command":    {[]string{"trust", "aws", "--issuer=https://i.example?$(x)", "--service-account=a/b", "--role=" + arn}, "is not an https URL"},
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

// What is printed for Azure and Google has the right audience and subject, and no word that a shell would run.
func TestIssuerTrust(t *testing.T) {
	w := newWorld(t)
	common := []string{"--issuer=https://i.example/c'1", "--service-account=tenant-a/app"}
	azure := w.mustWid(t, "", append([]string{"issuer", "trust", "azure", "--client-id=" + azureClient, "-o=json"}, common...)...)
	var credential struct {
		Name, Issuer, Subject string
		Audiences             []string
	}
	if err := json.Unmarshal([]byte(azure), &credential); err != nil || credential.Issuer != "https://i.example/c'1" || credential.Subject != subjectOfApp ||
		!slices.Equal(credential.Audiences, []string{"api://AzureADTokenExchange"}) {
		t.Errorf("%s, %v", azure, err)
	}
	const provider = "projects/123456789012/locations/global/workloadIdentityPools/clusters/providers/east"
	gcp := w.mustWid(t, "", append([]string{"issuer", "trust", "gcp", "--provider=" + provider, "--google-service-account=a@p.iam.gserviceaccount.com"}, common...)...)
	for _, want := range []string{`--issuer-uri 'https://i.example/c'\''1'`, " --allowed-audiences //iam.googleapis.com/" + provider + " ",
		"--member principal://iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/clusters/subject/" + subjectOfApp,
		"kubectl annotate serviceaccount -n tenant-a app --overwrite gcp.auth.fluxcd.io/workload-identity-provider=" + provider} {
		if !strings.Contains(gcp, want) {
			t.Errorf("%q is missing in\n%s", want, gcp)
		}
	}
}

// A cluster whose API server is its issuer, and grants tokens of any lifetime.
func TestIssuerCheck(t *testing.T) {
	w := newKubeWorld(t)
	ca := filepath.Join(w.home, "ca.crt")
	w.write(t, ca, string(w.cluster.Config().CAData))
	run := func(args ...string) (r result, failed []string) {
		t.Helper()
		r = w.wid(t, "", append([]string{"issuer", "check", "-o=json", "--kubeconfig=" + w.kubeconfig, "--service-account=" + w.namespace + "/app"}, args...)...)
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
	if r.code != cli.ExitMisconfigured || !slices.Equal(failed, []string{issuercheck.TokenLifetime}) || !strings.Contains(r.stdout, "Set --service-account-max-token-expiration of the API server") {
		t.Errorf("%q, %+v", failed, r)
	}
	if r, failed := run(); r.code != cli.ExitUnavailable || !slices.Contains(failed, issuercheck.Reachable) {
		t.Errorf("with an unknown CA: %q, %+v", failed, r)
	}
	if r, failed := run("--ca-file="+ca, "--issuer="+w.cluster.IssuerURL()+"/"); r.code != cli.ExitMisconfigured || !slices.Contains(failed, issuercheck.IssuerOfToken) {
		t.Errorf("with a slash: %q, %+v", failed, r)
	}
	foreign := filepath.Join(w.home, "foreign")
	w.write(t, foreign, w.jwt(t, "x"))
	if r, failed := run("--ca-file="+ca, "--token-file="+foreign, "--issuer="+w.cluster.IssuerURL()); r.code != cli.ExitMisconfigured || !slices.Contains(failed, issuercheck.TokenReview) || !slices.Contains(failed, issuercheck.IssuerOfToken) || !slices.Contains(failed, issuercheck.SigningKey) {
		t.Errorf("with a foreign token: %q, %+v", failed, r)
	}
	r = w.wid(t, "", "issuer", "check", "--kubeconfig="+w.kubeconfig, "--service-account="+w.namespace+"/missing", "--issuer="+w.cluster.IssuerURL(), "--ca-file="+ca)
	if r.code != 0 || !strings.Contains(r.stdout, "skip  SigningKey: no token of ServiceAccount") || !strings.Contains(r.stdout, "ok    KeysOfCluster") {
		t.Errorf("without a token: %+v", r)
	}
}

// --resolve and --ca-file reach a server before its name is public.
func TestIssuerCheckResolves(t *testing.T) {
	w := newKubeWorld(t)
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
	r := w.wid(t, "", "issuer", "check", "--kubeconfig="+w.kubeconfig, "--service-account="+w.namespace+"/app", "--issuer=https://example.com:"+port+"/c",
		"--resolve=example.com:"+port+":"+host, "--ca-file="+ca)
	if r.code != cli.ExitMisconfigured || !strings.Contains(r.stdout, "FAIL  DiscoveryPublic: The issuer answers 404") || !strings.Contains(r.stdout, "run   wid issuer publish --to STORE") ||
		!slices.Equal(asked, []string{"example.com:" + port + "/c/.well-known/openid-configuration"}) {
		t.Errorf("asked %q, %+v", asked, r)
	}
}
