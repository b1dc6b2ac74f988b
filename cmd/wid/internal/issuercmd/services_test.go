package issuercmd

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/storetest"
)

// administrator runs what wid issuer trust prints. The programs of services
// write down their arguments, one in a line, and curl reaches the services'
// APIs.
type administrator struct {
	*environment

	mu    sync.Mutex
	posts []request
}

type request struct {
	address, token string
	body           map[string]any
}

func newAdministrator(t *testing.T) *administrator {
	a := &administrator{environment: newEnvironment(t)}
	for _, program := range []string{"kubectl", "vault", "kcadm.sh", "databricks"} {
		a.program(program, "#!/bin/bash\nprintf '%s\\n' "+program+" \"$@\" '' >> \"$HOME/calls\"\n"+
			"case $1:$2 in get:*) cat \"$HOME/realm\";; read:*) cat \"$HOME/mount\";; "+
			"create:identity*|auth:*) [ ! -e \"$HOME/exists\" ];; esac\n")
	}
	for _, host := range []string{"api.tailscale.com", "api.anthropic.com", "api.openai.com"} {
		a.cloud.Handle(host, a)
	}
	return a
}

// ServeHTTP is the administrators' API of a service, which names what it
// creates by the last part of the path.
func (a *administrator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := request{address: r.Host + r.URL.Path, token: r.Header.Get("Authorization")}
	content, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(content, &p.body) != nil || r.Method != http.MethodPost ||
		r.Header.Get("Content-Type") != "application/json" {
		http.Error(w, `{"message":"not JSON"}`, http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.posts = append(a.posts, p)
	id := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:] + "-1"
	_ = json.NewEncoder(w).Encode(map[string]string{"id": id, "audience": "api.tailscale.com/" + id})
}

// apply runs the printed script, and returns what it called and the annotation
// that it set.
func (a *administrator) apply(env []string, args ...string) (calls [][]string, annotation string) {
	a.t.Helper()
	script := a.must(append([]string{"trust"}, args...)...)
	if out, err := a.bash(env, "-euc", script); err != nil {
		a.t.Fatalf("%s\nends with %v:\n%s", script, err, out)
	}
	content, _ := os.ReadFile(filepath.Join(a.home, "calls")) // missing: nothing was called
	for call := range strings.SplitSeq(string(content), "\n\n") {
		words := strings.Split(call, "\n")
		if words[0] == "kubectl" {
			want := []string{"kubectl", "annotate", "serviceaccount", "-n", "tenant-a", "app", "--overwrite"}
			if i := slices.Index(words, "--kubeconfig"); i > 0 {
				words = slices.Delete(words, i, i+2)
			}
			if !slices.Equal(words[:len(words)-1], want) {
				a.t.Errorf("called %q", words)
			}
			annotation = words[len(words)-1]
		} else if words[0] != "" {
			calls = append(calls, words)
		}
	}
	return calls, annotation
}

func (a *administrator) document(file string) (document map[string]any) {
	a.t.Helper()
	content, err := os.ReadFile(filepath.Join(a.home, file))
	if err == nil {
		err = json.Unmarshal(content, &document)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return document
}

func (a *administrator) check(what string, got, want any) {
	a.t.Helper()
	g, _ := json.Marshal(got) // of strings
	if w, _ := json.Marshal(want); string(g) != string(w) {
		a.t.Errorf("%s:\n got %s\nwant %s", what, g, w)
	}
}

// letsIn gives the service the rule that it was told, and tries the
// ServiceAccount.
func (a *administrator) letsIn(which cloudtest.FederationService, rule cloudtest.FederationRule, flags ...string) {
	a.t.Helper()
	a.check("what is trusted", []string{rule.Issuer, rule.Subject}, []string{a.issuer.URL(), subjectOfApp})
	fake := a.cloud.Federation(which)
	fake.AddIssuer(a.issuer.URL(), a.issuer.HTTPClient())
	fake.AddRule(rule)
	if which == cloudtest.FederationAnthropic { // which has one host for both
		fake.SetAPI(a)
	}
	token := a.token(append(flags, "--service="+string(which)), rule.Audience)
	if id, ok := fake.Identity(token); !ok || id.Subject != subjectOfApp {
		a.t.Errorf("got %+v, want the subject %s", id, subjectOfApp)
	}
}

func TestTrustKeycloak(t *testing.T) {
	a := newAdministrator(t)
	a.write("realm", `{"config":{"issuer":"`+a.issuer.URL()+`"}}`)
	calls, _ := a.apply(nil, "keycloak", "--issuer="+a.issuer.URL(), "--service-account=tenant-a/app",
		"--cluster=cluster-1", "--realm=one")
	a.check("calls", calls,
		[][]string{{"kcadm.sh", "create", "identity-provider/instances", "-r", "one", "-f", "identity-provider.json"},
			{"kcadm.sh", "get", "identity-provider/instances/cluster-1", "-r", "one"},
			{"kcadm.sh", "create", "clients", "-r", "one", "-f", "client.json"}})
	a.check("provider", a.document("identity-provider.json"),
		object{"alias": "cluster-1", "providerId": "kubernetes", "hideOnLogin": true,
			"config": object{"issuer": a.issuer.URL()}})
	a.check("client", a.document("client.json"),
		object{"clientId": "cluster-1.tenant-a.app", "clientAuthenticatorType": "federated-jwt",
			"serviceAccountsEnabled": true, "standardFlowEnabled": false,
			"attributes": object{"jwt.credential.issuer": "cluster-1", "jwt.credential.sub": subjectOfApp}})
}

func TestTrustVault(t *testing.T) {
	a := newAdministrator(t)
	a.write("mount", a.issuer.URL())
	calls, annotation := a.apply(nil, "vault", "--issuer="+a.issuer.URL(), "--service-account=tenant-a/app",
		"--cluster=cluster-1", "--role=app", "--policies=read,write", "--audience=vault.example.com")
	a.check("calls", calls, [][]string{{"vault", "auth", "enable", "-path=cluster-1", "jwt"},
		{"vault", "write", "auth/cluster-1/config", "oidc_discovery_url=" + a.issuer.URL(), "bound_issuer=" + a.issuer.URL()},
		{"vault", "read", "-field=bound_issuer", "auth/cluster-1/config"},
		{"vault", "write", "auth/cluster-1/role/app", "role_type=jwt", "user_claim=sub", "bound_subject=" + subjectOfApp,
			"bound_audiences=vault.example.com", "token_type=batch", "token_ttl=1h", "token_num_uses=0",
			"token_policies=read,write"}})
	a.letsIn(cloudtest.FederationVault,
		cloudtest.FederationRule{Issuer: a.issuer.URL(), Subject: strings.TrimPrefix(calls[3][5], "bound_subject="),
			Audience: strings.TrimPrefix(calls[3][6], "bound_audiences="), Parameters: map[string]string{"role": "app"}},
		"--service-address=https://vault.example", "--service-parameter=mount=cluster-1", "--audience=vault.example.com",
		"--annotation="+annotation)
}

func TestTrustDatabricks(t *testing.T) {
	a := newAdministrator(t)
	calls, annotation := a.apply(nil, "databricks", "--issuer="+a.issuer.URL(), "--service-account=tenant-a/app",
		"--service-principal=123", "--client-id="+azureClient, "--audience=databricks.example.com")
	a.check("calls", calls,
		[][]string{{"databricks", "account", "service-principal-federation-policy", "create", "123", "--json",
			"@policy.json"}})
	a.check("policy", a.document("policy.json"),
		object{"oidc_policy": object{"issuer": a.issuer.URL(), "subject": subjectOfApp,
			"audiences": []string{"databricks.example.com"}}})
	a.letsIn(cloudtest.FederationDatabricks,
		cloudtest.FederationRule{Issuer: a.issuer.URL(), Subject: subjectOfApp, Audience: "databricks.example.com",
			Parameters: map[string]string{"client_id": azureClient}},
		"--service-address=https://dbc-1.cloud.databricks.com", "--audience=databricks.example.com",
		"--annotation="+annotation)
}

func TestTrustTailscale(t *testing.T) {
	a := newAdministrator(t)
	_, annotation := a.apply([]string{"TAILSCALE_API_KEY=tskey-1"}, "tailscale", "--issuer="+a.issuer.URL(),
		"--service-account=tenant-a/app", "--scopes=auth_keys,devices:core", "--tags=tag:app")
	a.check("requests", fmt.Sprint(a.posts[0].address, " ", a.posts[0].token),
		"api.tailscale.com/api/v2/tailnet/-/keys Bearer tskey-1")
	a.check("body", a.posts[0].body, object{"keyType": "federated", "issuer": a.issuer.URL(), "subject": subjectOfApp,
		"scopes": []string{"auth_keys", "devices:core"}, "tags": []string{"tag:app"}})
	a.letsIn(cloudtest.FederationTailscale,
		cloudtest.FederationRule{Issuer: a.issuer.URL(), Subject: subjectOfApp, Audience: "api.tailscale.com/keys-1",
			Parameters: map[string]string{"client_id": "keys-1"}}, "--annotation="+annotation)
}

func TestTrustAnthropic(t *testing.T) {
	a := newAdministrator(t)
	args := []string{"anthropic", "--issuer=" + a.issuer.URL(), "--service-account=tenant-a/app", "--cluster=cluster-1",
		"--target=svac_1", "--workspace=wrkspc_1", "--audience=anthropic.example.com"}
	_, annotation := a.apply([]string{"ANTHROPIC_AUTH_TOKEN=admin"}, args...)
	a.check("requests", []string{a.posts[0].address, a.posts[1].address, a.posts[1].token},
		[]string{"api.anthropic.com/v1/organizations/federation_issuers",
			"api.anthropic.com/v1/organizations/federation_rules", "Bearer admin"})
	a.check("issuer", a.posts[0].body,
		object{"name": "cluster-1", "issuer_url": a.issuer.URL(), "jwks": object{"type": "discovery"}})
	a.check("rule", a.posts[1].body,
		object{"name": "cluster-1-0f15a360820e3f60", "issuer_id": "federation_issuers-1",
			"oauth_scope":  "workspace:inference",
			"match":        object{"subject_prefix": subjectOfApp, "audience": "anthropic.example.com"},
			"target":       object{"type": "service_account", "service_account_id": "svac_1"},
			"workspace_id": "wrkspc_1"})
	a.letsIn(cloudtest.FederationAnthropic,
		cloudtest.FederationRule{Issuer: a.issuer.URL(), Subject: subjectOfApp, Audience: "anthropic.example.com",
			Parameters: map[string]string{"organization_id": "o", "federation_rule_id": "federation_rules-1"}},
		"--service-parameter=organization_id=o", "--audience=anthropic.example.com", "--annotation="+annotation)
	a.apply([]string{"ANTHROPIC_AUTH_TOKEN=admin"}, append(args, a.uploads()...)...)
	a.check("keys", a.posts[2].body["jwks"], object{"type": "inline", "keys": a.keys()["keys"]})
}

func TestTrustOpenAI(t *testing.T) {
	a := newAdministrator(t)
	args := []string{"openai", "--issuer=" + a.issuer.URL(), "--service-account=tenant-a/app", "--cluster=cluster-1",
		"--target=sa-1", "--project=proj_1"}
	_, annotation := a.apply([]string{"OPENAI_ADMIN_KEY=admin"}, args...)
	const api = "api.openai.com/v1/organization/workload_identity_providers"
	a.check("requests", []string{a.posts[0].address, a.posts[1].address},
		[]string{api, api + "/workload_identity_providers-1/federation_rules"})
	a.check("provider", a.posts[0].body,
		object{"name": "cluster-1", "type": "oidc", "issuer": a.issuer.URL(), "audience": "https://api.openai.com/v1",
			"verification": object{"type": "discovery"}})
	a.check("rule", a.posts[1].body,
		object{"name": "tenant-a/app", "attribute_matchers": object{"sub": subjectOfApp}, "project_id": "proj_1",
			"service_account_id": "sa-1"})
	a.letsIn(cloudtest.FederationOpenAI,
		cloudtest.FederationRule{Issuer: a.issuer.URL(), Subject: subjectOfApp, Audience: "https://api.openai.com/v1",
			Parameters: map[string]string{"identity_provider_id": "workload_identity_providers-1",
				"service_account_id": "sa-1"}},
		"--service-parameter=identity_provider_id=workload_identity_providers-1", "--annotation="+annotation)
	a.apply([]string{"OPENAI_ADMIN_KEY=admin"}, append(args, a.uploads()...)...)
	a.check("keys", a.posts[2].body["verification"], object{"type": "uploaded_jwks", "jwks": a.keys()})
}

// uploads are the flags that have the keys of an API server printed.
func (a *administrator) uploads() []string {
	server := httptest.NewTLSServer(a.issuer)
	a.t.Cleanup(server.Close)
	return []string{"--upload-keys", "--kubeconfig=" + a.kubeconfig(server.URL, server.Certificate().Raw)}
}

// keys are those that the issuer shows.
func (a *administrator) keys() (keys object) {
	a.t.Helper()
	content, _ := storetest.Get(a.t, a.issuer.HTTPClient(), a.issuer.URL()+"/openid/v1/jwks")
	if err := json.Unmarshal(content, &keys); err != nil {
		a.t.Fatal(err)
	}
	return keys
}

// What a person pastes goes on after an error, so a mount or a realm of another
// issuer gets no role and no client, and keeps its issuer.
func TestTrustStopsAtAnotherIssuer(t *testing.T) {
	for service, flags := range map[string][]string{"vault": {"--role=app", "--policies=p", "--audience=x"},
		"keycloak": {"--realm=one"}} {
		t.Run(service, func(t *testing.T) {
			a := newAdministrator(t)
			a.write("exists", "")
			a.write("mount", "https://other.example")
			a.write("realm", `{"config":{"issuer":"https://other.example"}}`)
			script := a.must(append([]string{"trust", service, "--issuer=" + a.issuer.URL(),
				"--service-account=tenant-a/app", "--cluster=cluster-1"}, flags...)...)
			for _, shell := range []string{"-uc", "-euc"} {
				if out, err := a.bash(nil, shell, script); err == nil {
					t.Errorf("bash %s: got %s, want a failure", shell, out)
				}
			}
			calls, err := os.ReadFile(filepath.Join(a.home, "calls"))
			if err != nil || strings.Contains(string(calls), "write\n") ||
				strings.Contains(string(calls), "create\nclients\n") || strings.Contains(string(calls), "kubectl") {
				t.Errorf("got %v, want no role, client and annotation; called\n%s", err, calls)
			}
		})
	}
}

// No token is sent where a step has failed.
func TestTrustStopsWithoutAToken(t *testing.T) {
	for name, env := range map[string][]string{"no token": nil, "one that is refused": {"TAILSCALE_API_KEY=x"}} {
		t.Run(name, func(t *testing.T) {
			a := newAdministrator(t)
			a.cloud.AddFault(cloudtest.Fault{Service: "api.tailscale.com", Status: http.StatusForbidden,
				Message: `{"message":"no"}`})
			script := a.must("trust", "tailscale", "--issuer=https://i.example/c'1", "--service-account=a/b", "--scopes=s",
				"--tags=tag:t")
			out, err := a.bash(env, "-ec", script)
			if _, called := os.Stat(filepath.Join(a.home, "calls")); err == nil || called == nil {
				t.Errorf("got %v, want a failure before kubectl is called:\n%s", err, out)
			}
		})
	}
}
