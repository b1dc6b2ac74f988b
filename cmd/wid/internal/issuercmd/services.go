package issuercmd

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/workloadid/workloadid/auth/exchange"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/issuer"
	"github.com/workloadid/workloadid/issuer/directory"
)

type object = map[string]any

// plainValue excludes what services take for a pattern or a list, and what
// vault write takes for a file.
var plainValue = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/+-]{0,255}$`)

// Usages of flags, as newTrustIn takes them.
const (
	clusterFlag  = "cluster=name of this cluster at the service: each cluster needs its own"
	audienceFlag = "audience=audience of the ServiceAccount's token, yours to choose, for this service alone"
)

func newTrustServices() []*cobra.Command {
	return []*cobra.Command{
		newTrustIn("Keycloak",
			"Print the commands that create a Kubernetes identity provider in a realm, and a client for the ServiceAccount.",
			"--cluster cluster-1 --realm example", (*script).keycloak, clusterFlag, "realm=name of the realm"),
		newTrustIn("Vault",
			"Print the commands that mount JWT authentication for the issuer, and create a role for the ServiceAccount. They serve OpenBao too.",
			"--cluster cluster-1 --role app --policies app --audience vault.example.com", (*script).vault,
			clusterFlag, audienceFlag, "role=name of the role to create",
			"policies=policies of the issued tokens, separated by commas"),
		newTrustIn("Databricks",
			"Print the command that adds a federation policy for the ServiceAccount to a service principal.",
			"--service-principal 1234567890 --client-id 11111111-2222-4333-8444-555555555555 --audience databricks.example.com",
			(*script).databricks,
			audienceFlag, "service-principal=number of the service principal", "client-id=its application ID"),
		newTrustIn("Tailscale", "Print the command that creates a federated identity for the ServiceAccount.",
			"--scopes auth_keys --tags tag:app", (*script).tailscale,
			"scopes=scopes of the issued tokens, separated by commas", "tags=tags that they may use, separated by commas"),
		newTrustIn("Anthropic",
			"Print the commands that create a federation issuer, and a rule that lets the ServiceAccount act as a service account.",
			"--cluster cluster-1 --target svac_1 --workspace wrkspc_1 --audience anthropic.example.com", (*script).anthropic,
			clusterFlag, audienceFlag, "target=ID of the service account at Anthropic", "workspace=ID of the workspace"),
		newTrustIn("OpenAI",
			"Print the commands that create a workload identity provider, and a rule that lets the ServiceAccount act as a service account.",
			"--cluster cluster-1 --project proj_1 --target svc_acct_1", (*script).openai,
			clusterFlag, "project=ID of the project", "target=ID of the service account in the project"),
	}
}

// script holds the commands that a person runs, and the document for programs.
type script struct {
	*trust
	given    map[string]*string
	lines    []string
	document object
	err      error
}

// get returns a flag as a word of the shell.
func (s *script) get(flag string) string { return shell.Word(*s.given[flag], strings.ToUpper(flag)) }

func (s *script) add(lines ...string) { s.lines = append(s.lines, lines...) }

// chain adds commands of which none runs after one that failed, also where a
// person pastes them into a shell.
func (s *script) chain(commands ...string) { s.add(strings.Join(commands, " &&\n  ")) }

// file adds the command that writes a part of the document.
func (s *script) file(name string, content object) {
	line, err := written(name+".json", content)
	s.document[name], s.err = content, errors.Join(s.err, err)
	s.add(line)
}

// newTrustIn is newTrustOf with required flags, NAME=USAGE. Those whose names
// end in s hold a list.
func newTrustIn(service, long, example string, write func(*script), flags ...string) *cobra.Command {
	t, given, name := &trust{}, map[string]*string{}, strings.ToLower(service)
	cmd := newTrustOf(t, service, long, "wid issuer trust "+name+" --service-account tenant-a/app "+example,
		func(t *trust) (any, []string, error) {
			for _, flag := range slices.Sorted(maps.Keys(given)) {
				if err := checkValue(flag, *given[flag]); err != nil {
					return nil, nil, err
				}
			}
			s := &script{trust: t, given: given, document: object{}}
			write(s)
			return s.document, s.lines, s.err
		})
	for _, flag := range flags {
		name, usage, _ := strings.Cut(flag, "=")
		given[name] = cmd.Flags().String(name, "", usage+"; required")
	}
	if service == "Anthropic" || service == "OpenAI" {
		cmd.Flags().BoolVar(&t.uploads, "upload-keys", false,
			"give the service the keys, for an issuer without a public address; repeat it in each rotation")
	}
	return cmd
}

func checkValue(flag, value string) error {
	list := []string{value}
	if strings.HasSuffix(flag, "s") {
		list = strings.Split(value, ",")
	}
	switch {
	case slices.ContainsFunc(list, func(one string) bool { return !plainValue.MatchString(one) }):
		return cli.Usagef("--%s is required and has to match %s, not %.300q", flag, plainValue, value)
	case flag == "role" && (value != strings.ToLower(value) || strings.Contains(value, "/")): // Vault ignores the case
		return cli.Usagef("--role has lower-case letters and no /, unlike %.300q", value)
	case flag == "cluster" && len(validation.IsDNS1123Label(value)) > 0: // every service accepts such a name
		return cli.Usagef("--cluster has lower-case letters, digits and hyphens, unlike %.300q", value)
	}
	return nil
}

// readKeys reads the keys of the API server, as wid issuer publish does.
func (t *trust) readKeys(ctx context.Context) error {
	config, _, err := t.Config()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "wid-keys-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	store, err := directory.Open(dir)
	if err == nil {
		_, err = (&issuer.Publisher{Cluster: config, Issuer: t.issuer, Store: store}).Publish(ctx)
	}
	if err != nil {
		return answerOf(err, "read the keys")
	}
	content, _, err := store.Read(ctx, issuer.KeysFile)
	if err == nil {
		err = json.Unmarshal(content, &t.keys)
	}
	return err
}

const once = "# Once for each cluster, which fails where it is there already. "

func (s *script) keycloak() {
	const create = "kcadm.sh create "
	s.add(once + "The last command needs that issuer.")
	s.file("identity-provider",
		object{"alias": *s.given["cluster"], "providerId": "kubernetes", "hideOnLogin": true,
			"config": object{"issuer": s.issuer}})
	s.add(create + "identity-provider/instances -r " + s.get("realm") + " -f identity-provider.json || true")
	s.file("client", object{"clientId": *s.given["cluster"] + "." + s.account.Namespace + "." + s.account.Name,
		"serviceAccountsEnabled": true,
		"standardFlowEnabled":    false, "clientAuthenticatorType": "federated-jwt",
		"attributes": object{"jwt.credential.issuer": *s.given["cluster"], "jwt.credential.sub": s.subject()}})
	s.chain("kcadm.sh get identity-provider/instances/"+s.get("cluster")+" -r "+s.get("realm")+
		" | jq -e --arg issuer "+shell.Word(s.issuer, "ISSUER")+" '.config.issuer == $issuer'",
		create+"clients -r "+s.get("realm")+" -f client.json")
}

// vault binds issuer, subject and audience. A token that all reconciles share
// may have no limit of uses.
func (s *script) vault() {
	issuer, role, mount := shell.Word(s.issuer, "ISSUER"), s.get("role"), s.get("cluster")
	s.document = object{"mount": *s.given["cluster"],
		"config": object{"oidc_discovery_url": s.issuer, "bound_issuer": s.issuer},
		"role": object{"role_type": "jwt", "user_claim": "sub", "bound_subject": s.subject(),
			"bound_audiences": *s.given["audience"],
			"token_type":      "batch", "token_ttl": "1h", "token_num_uses": "0", "token_policies": *s.given["policies"]}}
	s.add(once + "The role needs a mount with this issuer.")
	s.chain("vault auth enable -path="+mount+" jwt",
		"vault write auth/"+mount+"/config oidc_discovery_url="+issuer+" bound_issuer="+issuer)
	s.chain(`test "$(vault read -field=bound_issuer auth/`+mount+`/config)" = `+issuer,
		"vault write auth/"+mount+"/role/"+role+" role_type=jwt user_claim=sub bound_subject="+
			shell.Word(s.subject(), "SUBJECT")+
			" bound_audiences="+s.get("audience")+" token_type=batch token_ttl=1h token_num_uses=0 token_policies="+
			s.get("policies"),
		s.annotate(exchange.VaultRoleAnnotation, role))
}

func (s *script) databricks() {
	s.file("policy",
		object{"oidc_policy": object{"issuer": s.issuer, "subject": s.subject(),
			"audiences": []string{*s.given["audience"]}}})
	s.chain("databricks account service-principal-federation-policy create "+s.get("service-principal")+
		" --json @policy.json", s.annotate(exchange.DatabricksClientIDAnnotation, s.get("client-id")))
}

// post returns the pipeline that prints a member of an API's answer. The token
// stays out of the arguments, which others on the machine see.
func post(address, token, data, member string, headers ...string) string {
	curl := "curl --fail-with-body -sS --header @<(printf 'Authorization: Bearer %s' \"$" + token +
		"\") --header 'Content-Type: application/json'"
	for _, header := range headers {
		curl += " --header '" + header + "'"
	}
	return curl + " --data @" + data + ` "` + address + `" | jq -er '` + member + "'"
}

// needs stops a script whose token is missing.
func (s *script) needs(token, what string) {
	s.add(`: "${` + token + `:?set it to ` + what + `}"`)
}

func (s *script) tailscale() {
	const token = "TAILSCALE_API_KEY"
	s.needs(token, "an access token of the tailnet")
	s.file("credential", object{"keyType": "federated", "issuer": s.issuer, "subject": s.subject(),
		"scopes": strings.Split(*s.given["scopes"], ","), "tags": strings.Split(*s.given["tags"], ",")})
	s.add("CLIENT_ID=$("+post("https://api.tailscale.com/api/v2/tailnet/-/keys", token, "credential.json",
		`.audience // empty | ltrimstr("api.tailscale.com/")`)+")",
		s.annotate(exchange.TailscaleClientIDAnnotation, `"${CLIENT_ID:?}"`))
}

func (s *script) anthropic() {
	const token, version = "ANTHROPIC_AUTH_TOKEN", "anthropic-version: 2023-06-01"
	const api = "https://api.anthropic.com/v1/organizations/federation_"
	s.needs(token, "an OAuth token with the scope org:admin")
	s.add(once + "If the organization has this issuer, set ISSUER_ID to its ID instead of the next two commands.")
	keys := object{"type": "discovery"}
	if s.uploads {
		keys = object{"type": "inline", "keys": s.keys["keys"]}
	}
	s.file("issuer", object{"name": *s.given["cluster"], "issuer_url": s.issuer, "jwks": keys})
	s.add("ISSUER_ID=$(" + post(api+"issuers", token, "issuer.json", ".id // empty", version) + ")")
	// a name has no dots
	s.file("rule", object{"name": fmt.Sprintf("%s-%.8x", *s.given["cluster"], sha256.Sum256([]byte(s.subject()))),
		"match":       object{"subject_prefix": s.subject(), "audience": *s.given["audience"]}, // whole, without * at its end
		"target":      object{"type": "service_account", "service_account_id": *s.given["target"]},
		"oauth_scope": "workspace:inference", "workspace_id": *s.given["workspace"]})
	s.add(`RULE_ID=$(jq --arg id "${ISSUER_ID:?}" '.issuer_id = $id' rule.json | `+
		post(api+"rules", token, "-", ".id // empty", version)+")",
		s.annotate(exchange.AnthropicFederationRuleAnnotation, `"${RULE_ID:?}"`))
}

func (s *script) openai() {
	const token, api = "OPENAI_ADMIN_KEY", "https://api.openai.com/v1/organization/workload_identity_providers"
	s.needs(token, "an admin key of the organization")
	s.add(once + "If the organization has this issuer, set PROVIDER_ID to its provider instead of the next two commands.")
	keys := object{"type": "discovery"}
	if s.uploads {
		keys = object{"type": "uploaded_jwks", "jwks": s.keys}
	}
	s.file("provider", object{"name": *s.given["cluster"], "type": "oidc", "issuer": s.issuer,
		"audience": "https://api.openai.com/v1", "verification": keys})
	s.add("PROVIDER_ID=$(" + post(api, token, "provider.json", ".id // empty") + ")")
	s.file("rule", object{"name": s.account.Namespace + "/" + s.account.Name,
		"attribute_matchers": object{"sub": s.subject()},
		"project_id":         *s.given["project"], "service_account_id": *s.given["target"]})
	s.chain(post(api+"/${PROVIDER_ID:?}/federation_rules", token, "rule.json", `.id // empty | "rule " + .`),
		s.annotate(exchange.OpenAIServiceAccountAnnotation, s.get("target")), `echo "identity_provider_id ${PROVIDER_ID:?}"`)
}
