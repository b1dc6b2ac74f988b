package issuercmd

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/credentials"
	"github.com/workloadid/workloadid/internal/gcpname"
	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/issuer"
)

// trust prints what makes a cloud trust the issuer for one ServiceAccount.
type trust struct {
	source
	account types.NamespacedName
	output  *cli.Output
	role    string         // of AWS, which is the subject in the ServiceAccount's place
	uploads bool           // the keys are a part of what is printed
	keys    map[string]any // the key set, once the issuer is known
}

func newTrust() *cobra.Command {
	return cli.Group("trust", "Commands that make a cloud or a service trust the issuer for a ServiceAccount",
		append([]*cobra.Command{newTrustAWS(), newTrustAzure(), newTrustGCP()}, newTrustServices()...)...)
}

// trustOf returns a document for programs, and the script that makes use of it.
type trustOf func(t *trust) (document any, script []string, err error)

func newTrustOf(t *trust, cloud, long, example string, of trustOf) *cobra.Command {
	cmd := &cobra.Command{Use: strings.Fields(example)[3], Short: "Print the commands for " + cloud,
		Long: long + " Nothing is applied.", Example: "  " + example}
	t.output = cli.OutputFlag(cmd, "text", "json", "yaml")
	t.addTo(cmd)
	cmd.Flags().StringVar(&t.serviceAccount, "service-account", "",
		"the ServiceAccount to trust, namespace/name; required")
	return t.Command(cmd, ofCluster, func(ctx context.Context, cmd *cobra.Command) (err error) {
		if err := t.parseSubject(); err != nil {
			return err
		}
		if _, _, err = of(t); err != nil { // a wrong flag needs no answer of the cluster
			return err
		}
		if t.issuer, err = t.findIssuer(ctx); err != nil {
			return err
		}
		if err := issuer.ValidateURL(t.issuer); err != nil {
			return cli.Usagef("%v", err)
		}
		if t.uploads {
			if err := t.readKeys(ctx); err != nil {
				return err
			}
		}
		document, script, err := of(t)
		switch {
		case err != nil:
			return err
		case t.output.Format != "text":
			return t.output.Print(cmd, document, nil)
		}
		return cli.Say(cmd, "%s", strings.Join(script, "\n"))
	})
}

func (t *trust) addRoleTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.role, "aws-role", "",
		"ARN of an AWS role that is the subject instead, with --issuer of its account; then the ServiceAccount is optional")
}

func (t *trust) parseSubject() (err error) {
	if t.role != "" {
		if _, err := aws.ParseRoleARN(t.role); err != nil {
			return cli.Usagef("--aws-role %.640q is not the ARN of a role: %v", t.role, err)
		}
		if t.issuer == "" {
			return cli.Usagef("--aws-role needs --issuer, as aws iam get-outbound-web-identity-federation-info " +
				"prints it in the role's account")
		}
		if t.serviceAccount == "" {
			return nil
		}
	}
	if t.account, err = credentials.ParseKey("service-account", t.serviceAccount); err != nil {
		return err
	}
	// A service may take a name with * for a pattern.
	problems := append(validation.IsDNS1123Label(t.account.Namespace), validation.IsDNS1123Subdomain(t.account.Name)...)
	if len(problems) > 0 {
		return cli.Usagef("--service-account is namespace/name, not %.300q: %s", t.serviceAccount, problems[0])
	}
	return nil
}

// roleScript says what the role needs, and names it in the cluster.
func (t *trust) roleScript() (script []string) {
	if t.role != "" {
		script = []string{"# The role needs the permission sts:GetWebIdentityToken, and its account once: " +
			"aws iam enable-outbound-web-identity-federation"}
	}
	if t.role != "" && t.account.Name != "" {
		script = append(script, t.annotate(aws.RoleARNAnnotation, shell.Word(t.role, "ROLE_ARN")))
	}
	return script
}

func (t *trust) subject() string {
	if t.role != "" {
		return t.role
	}
	return "system:serviceaccount:" + t.account.Namespace + ":" + t.account.Name
}

// annotate returns the command that names the identity in the cluster.
func (t *trust) annotate(key, word string) string {
	if t.account.Name == "" {
		return "# The controller's own role has no ServiceAccount: its program names the identity, " + key + "=" + word
	}
	return t.Kubectl(fmt.Sprintf("kubectl annotate serviceaccount -n %s %s --overwrite %s=%s",
		shell.Word(t.account.Namespace, "NAMESPACE"), shell.Word(t.account.Name, "NAME"), key, word))
}

// written returns the command that writes a document to a file. All of it is
// ASCII: package issuer refuses other URLs and IDs of keys.
func written(file string, document any) (string, error) {
	content, err := json.MarshalIndent(document, "", "  ")
	return "cat > " + file + " <<'EOF'\n" + string(content) + "\nEOF", err
}

// unless returns the command that creates what check, which prints nothing,
// does not find.
func unless(check, create string) string { return "{ " + check + "; } >/dev/null 2>&1 ||\n  " + create }

func newTrustAWS() *cobra.Command {
	role := ""
	cmd := newTrustOf(&trust{}, "AWS",
		"Print the commands that create the IAM OIDC provider, without a thumbprint since AWS trusts public CAs, and a role for the ServiceAccount.",
		"wid issuer trust aws --service-account tenant-a/app --role arn:aws:iam::123456789012:role/tenant-a",
		func(t *trust) (any, []string, error) { return t.aws(role) })
	cmd.Flags().StringVar(&role, "role", "", "ARN of the IAM role to create; required")
	return cmd
}

func (t *trust) aws(role string) (document any, script []string, err error) {
	arn, err := aws.ParseRoleARN(role)
	if err != nil {
		return nil, nil, cli.Usagef("--role %.640q is not the ARN of a role: %v", role, err)
	}
	host := strings.TrimPrefix(t.issuer, "https://")
	provider := "arn:" + arn.Partition + ":iam::" + arn.Account + ":oidc-provider/" + host
	policy := object{"Version": "2012-10-17", "Statement": []object{{
		"Effect": "Allow", "Action": "sts:AssumeRoleWithWebIdentity",
		"Principal": object{"Federated": provider},
		"Condition": object{"StringEquals": object{host + ":aud": aws.DefaultAudience, host + ":sub": t.subject()}},
	}}}
	if u, err := url.Parse(t.issuer); err == nil && u.Port() != "" {
		script = []string{"# AWS demands an issuer without a port."}
	}
	path := ""
	if arn.Path != "/" {
		path = " --path " + shell.Word(arn.Path, "PATH")
	}
	file, err := written("trust-policy.json", policy)
	name := shell.Word(arn.Name, "ROLE")
	return policy, append(script, "# The provider serves each ServiceAccount of the issuer in the account.",
		unless("aws iam get-open-id-connect-provider --open-id-connect-provider-arn "+shell.Word(provider, "PROVIDER_ARN"),
			"aws iam create-open-id-connect-provider --url "+shell.Word(t.issuer, "ISSUER")+" --client-id-list "+
				aws.DefaultAudience), file,
		"# A role that exists with another policy stays as it is, and stops this script.",
		unless("aws iam get-role --role-name "+name+" --query Role.AssumeRolePolicyDocument --output json |\n"+
			"  jq -ne --slurpfile want trust-policy.json '[inputs] == $want'",
			"aws iam create-role --role-name "+name+path+" --assume-role-policy-document file://trust-policy.json"),
		t.annotate(aws.RoleARNAnnotation, shell.Word(role, "ROLE_ARN"))), err
}

func newTrustAzure() *cobra.Command {
	client := ""
	t := &trust{}
	cmd := newTrustOf(t, "Azure",
		"Print the commands that add a federated credential for the ServiceAccount to an application. Entra accepts tokens with RS256 alone.",
		"wid issuer trust azure --service-account tenant-a/app --client-id 11111111-2222-4333-8444-555555555555",
		func(t *trust) (any, []string, error) {
			if client == "" {
				return nil, nil, cli.Usagef("--client-id is missing: pass the client ID of the application")
			}
			word := shell.Word(client, "CLIENT_ID")
			credential := map[string]any{"name": t.credentialName(), "issuer": t.issuer, "subject": t.subject(),
				"audiences": []string{azure.DefaultAudience}}
			file, err := written("credential.json", credential)
			return credential, append(t.roleScript(), file,
				"az ad app federated-credential create --id "+word+" --parameters credential.json",
				t.annotate(azure.ClientIDAnnotation, word)), err
		})
	t.addRoleTo(cmd)
	cmd.Flags().StringVar(&client, "client-id", "", "client ID of the application in Entra; required")
	return cmd
}

// credentialName is a name that Entra accepts: letters, digits, - and _.
func (t *trust) credentialName() string {
	if t.account.Name != "" {
		return t.account.Namespace + "-" + t.account.Name
	}
	arn, _ := aws.ParseRoleARN(t.role) // was checked
	return "aws-" + arn.Account + "-" + regexp.MustCompile(`[^A-Za-z0-9_-]`).ReplaceAllString(arn.Name, "-")
}

func newTrustGCP() *cobra.Command {
	name, email := "", ""
	uploaded := false
	t := &trust{}
	cmd := newTrustOf(t, "Google Cloud",
		"Print the commands that create the provider of a workload identity pool, and let the ServiceAccount act as a Google service account.",
		"wid issuer trust gcp --service-account tenant-a/app --provider projects/123456789012/locations/global/workloadIdentityPools/cluster-1/providers/cluster-1",
		func(t *trust) (any, []string, error) { return t.gcp(name, email, uploaded) })
	t.addRoleTo(cmd)
	cmd.Flags().StringVar(&name, "provider", "",
		"name of the provider to create, in a pool for this cluster alone: projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER; required")
	cmd.Flags().StringVar(&email, "google-service-account", "",
		"Google service account to act as; none if the ServiceAccount itself has roles")
	cmd.Flags().BoolVar(&uploaded, "upload-keys", false,
		"upload the keys, for an issuer without a public address; wid issuer publish --to gcp://… keeps them current")
	return cmd
}

func (t *trust) gcp(name, email string, uploaded bool) (document any, script []string, err error) {
	p, err := gcpname.ParseWorkloadIdentityProvider(name, "googleapis.com")
	if err != nil {
		return nil, nil, cli.Usagef("--provider %.300q: %v", name, err)
	}
	audience := "//iam.googleapis.com/" + p.Name
	member := "principal://iam.googleapis.com/projects/" + p.ProjectNumber + "/locations/global/workloadIdentityPools/" +
		p.Pool + "/subject/" + t.subject()
	where, keys := " --project "+p.ProjectNumber+" --location global", ""
	document = map[string]any{"issuer": t.issuer, "allowedAudiences": []string{audience},
		"attributeMapping": map[string]string{"google.subject": "assertion.sub"}, "member": member}
	if uploaded && t.role != "" {
		return nil, nil, cli.Usagef("--upload-keys is for the keys of a cluster; those of an AWS account are public")
	}
	script = append(t.roleScript(),
		"# Use a pool for each cluster. The member below names the pool, not the provider: to it, clusters that share the pool are one.")
	if uploaded {
		if _, _, err := t.Config(); err != nil {
			return nil, nil, err
		}
		script, keys = append(script, t.Kubectl("kubectl get --raw /openid/v1/jwks")+" > jwks.json"),
			" --jwk-json-path jwks.json"
	}
	of, issuer := p.Provider+where+" --workload-identity-pool "+p.Pool, shell.Word(t.issuer, "ISSUER")
	script = append(script,
		"# If the pool exists without this provider, it may be another cluster's: this script stops. Choose another pool.",
		unless(`test "$(gcloud iam workload-identity-pools providers describe `+of+
			` --format 'value(oidc.issuerUri)')" = `+issuer,
			"(set -e; gcloud iam workload-identity-pools create "+p.Pool+where+"\n"+
				"  gcloud iam workload-identity-pools providers create-oidc "+of+" --issuer-uri "+issuer+
				" --allowed-audiences "+audience+" --attribute-mapping google.subject=assertion.sub"+keys+")"))
	if email != "" {
		word := shell.Word(email, "EMAIL")
		script = append(script, "gcloud iam service-accounts add-iam-policy-binding "+word+
			" --role roles/iam.workloadIdentityUser --member "+shell.Word(member, "MEMBER"),
			t.annotate(gcp.ServiceAccountAnnotation, word))
	}
	script = append(script, t.annotate(gcp.WorkloadIdentityProviderAnnotation, p.Name))
	return document, script, nil
}
