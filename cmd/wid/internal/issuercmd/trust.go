package issuercmd

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/internal/gcpname"
	"github.com/workloadid/workloadid/internal/shell"
)

// trust prints what makes a cloud trust the issuer for one ServiceAccount.
type trust struct {
	source
	account types.NamespacedName
	output  *cli.Output
}

// setup is a document, the commands that use it as the file of that name, and those before it.
type setup struct {
	before   []string
	file     string
	document any
	after    []string
}

func newTrust() *cobra.Command {
	return cli.Group("trust", "Commands that make a cloud trust the issuer for a ServiceAccount", newTrustAWS(), newTrustAzure(), newTrustGCP())
}

func newTrustOf(cloud, long, example string, add func(cmd *cobra.Command), of func(t *trust) (*setup, error)) *cobra.Command {
	t := &trust{}
	cmd := &cobra.Command{Use: strings.Fields(example)[3], Short: "Print the commands for " + cloud, Long: long + " Nothing is applied.", Example: "  " + example}
	t.output = cli.OutputFlag(cmd, "text", "json", "yaml")
	add(cmd)
	t.addTo(cmd)
	cmd.Flags().StringVar(&t.serviceAccount, "service-account", "", "the ServiceAccount to trust, namespace/name; required")
	return t.Command(cmd, ofCluster, func(ctx context.Context, cmd *cobra.Command) (err error) {
		if t.account, err = parseAccount(t.serviceAccount); err != nil {
			return err
		}
		if t.issuer, err = t.findIssuer(ctx); err != nil {
			return err
		}
		if u, err := url.Parse(t.issuer); err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || strings.ContainsAny(t.issuer, "?#") {
			return cli.Usagef("the issuer %.300q is not an https URL without query and fragment", t.issuer)
		}
		s, err := of(t)
		if err != nil {
			return err
		}
		return t.print(cmd, s)
	})
}

func (t *trust) subject() string {
	return "system:serviceaccount:" + t.account.Namespace + ":" + t.account.Name
}

// annotate returns the command that names the identity in the cluster.
func (t *trust) annotate(key, word string) string {
	return t.Kubectl(fmt.Sprintf("kubectl annotate serviceaccount -n %s %s --overwrite %s=%s", shell.Word(t.account.Namespace, "NAMESPACE"), shell.Word(t.account.Name, "NAME"), key, word))
}

// print writes the document alone, or a script that writes and uses it.
func (t *trust) print(cmd *cobra.Command, s *setup) error {
	if t.output.Format != "text" {
		return t.output.Print(cmd, s.document, nil)
	}
	document, err := json.MarshalIndent(s.document, "", "  ")
	if err != nil {
		return err
	}
	lines := s.before
	if s.file != "" {
		lines = append(lines, "cat > "+s.file+" <<'EOF'", string(document), "EOF")
	}
	return cli.Say(cmd, "%s", strings.Join(append(lines, s.after...), "\n"))
}

func newTrustAWS() *cobra.Command {
	role := ""
	add := func(cmd *cobra.Command) {
		cmd.Flags().StringVar(&role, "role", "", "ARN of the IAM role to create; required")
	}
	return newTrustOf("AWS", "Print the commands that create the IAM OIDC provider, without a thumbprint since AWS trusts public CAs, and a role for the ServiceAccount.",
		"wid issuer trust aws --service-account tenant-a/app --role arn:aws:iam::123456789012:role/tenant-a", add,
		func(t *trust) (*setup, error) { return t.aws(role) })
}

func (t *trust) aws(role string) (*setup, error) {
	arn, err := aws.ParseRoleARN(role)
	if err != nil {
		return nil, cli.Usagef("--role %.640q is not the ARN of a role: %v", role, err)
	}
	host := strings.TrimPrefix(t.issuer, "https://")
	type object = map[string]any
	policy := object{"Version": "2012-10-17", "Statement": []object{{
		"Effect": "Allow", "Action": "sts:AssumeRoleWithWebIdentity",
		"Principal": object{"Federated": "arn:" + arn.Partition + ":iam::" + arn.Account + ":oidc-provider/" + host},
		"Condition": object{"StringEquals": object{host + ":aud": aws.DefaultAudience, host + ":sub": t.subject()}},
	}}}
	path := ""
	if arn.Path != "/" {
		path = " --path " + shell.Word(arn.Path, "PATH")
	}
	return &setup{
		before: []string{"# Once for each issuer and account: leave it out if the provider exists.",
			"aws iam create-open-id-connect-provider --url " + shell.Word(t.issuer, "ISSUER") + " --client-id-list " + aws.DefaultAudience},
		file:     "trust-policy.json",
		document: policy,
		after: []string{"aws iam create-role --role-name " + shell.Word(arn.Name, "ROLE") + path + " --assume-role-policy-document file://trust-policy.json",
			t.annotate(aws.RoleARNAnnotation, shell.Word(role, "ROLE_ARN"))},
	}, nil
}

func newTrustAzure() *cobra.Command {
	client := ""
	add := func(cmd *cobra.Command) {
		cmd.Flags().StringVar(&client, "client-id", "", "client ID of the application in Entra; required")
	}
	return newTrustOf("Azure", "Print the commands that add a federated credential for the ServiceAccount to an application. Entra accepts tokens with RS256 alone.",
		"wid issuer trust azure --service-account tenant-a/app --client-id 11111111-2222-4333-8444-555555555555", add,
		func(t *trust) (*setup, error) {
			if client == "" {
				return nil, cli.Usagef("--client-id is missing: pass the client ID of the application")
			}
			word := shell.Word(client, "CLIENT_ID")
			return &setup{
				file: "credential.json",
				document: map[string]any{"name": t.account.Namespace + "-" + t.account.Name, "issuer": t.issuer, "subject": t.subject(),
					"audiences": []string{azure.DefaultAudience}},
				after: []string{"az ad app federated-credential create --id " + word + " --parameters credential.json", t.annotate(azure.ClientIDAnnotation, word)},
			}, nil
		})
}

func newTrustGCP() *cobra.Command {
	name, email := "", ""
	uploaded := false
	add := func(cmd *cobra.Command) {
		cmd.Flags().StringVar(&name, "provider", "", "name of the pool provider to create: projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER; required")
		cmd.Flags().StringVar(&email, "google-service-account", "", "Google service account to act as; none if the ServiceAccount itself has roles")
		cmd.Flags().BoolVar(&uploaded, "upload-keys", false, "upload the keys, for an issuer without a public address; wid issuer publish --to gcp://… keeps them current")
	}
	return newTrustOf("Google Cloud", "Print the commands that create the provider of a workload identity pool, and let the ServiceAccount act as a Google service account.",
		"wid issuer trust gcp --service-account tenant-a/app --provider projects/123456789012/locations/global/workloadIdentityPools/clusters/providers/cluster-1", add,
		func(t *trust) (*setup, error) { return t.gcp(name, email, uploaded) })
}

func (t *trust) gcp(name, email string, uploaded bool) (*setup, error) {
	p, err := gcpname.ParseWorkloadIdentityProvider(name, "googleapis.com")
	if err != nil {
		return nil, cli.Usagef("--provider %.300q: %v", name, err)
	}
	audience := "//iam.googleapis.com/" + p.Name
	member := "principal://iam.googleapis.com/projects/" + p.ProjectNumber + "/locations/global/workloadIdentityPools/" + p.Pool + "/subject/" + t.subject()
	where, keys := " --project "+p.ProjectNumber+" --location global", ""
	s := &setup{document: map[string]any{"issuer": t.issuer, "allowedAudiences": []string{audience}, "attributeMapping": map[string]string{"google.subject": "assertion.sub"}, "member": member}}
	if uploaded {
		s.before, keys = []string{t.Kubectl("kubectl get --raw /openid/v1/jwks") + " > jwks.json"}, " --jwk-json-path jwks.json"
	}
	s.after = []string{
		"gcloud iam workload-identity-pools create " + p.Pool + where,
		"gcloud iam workload-identity-pools providers create-oidc " + p.Provider + where + " --workload-identity-pool " + p.Pool + " --issuer-uri " + shell.Word(t.issuer, "ISSUER") +
			" --allowed-audiences " + audience + " --attribute-mapping google.subject=assertion.sub" + keys,
	}
	if email != "" {
		word := shell.Word(email, "EMAIL")
		s.after = append(s.after, "gcloud iam service-accounts add-iam-policy-binding "+word+" --role roles/iam.workloadIdentityUser --member "+shell.Word(member, "MEMBER"),
			t.annotate(gcp.ServiceAccountAnnotation, word))
	}
	s.after = append(s.after, t.annotate(gcp.WorkloadIdentityProviderAnnotation, p.Name))
	return s, nil
}
