package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/smithy-go"
	"github.com/spf13/cobra"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/awsirsa"
)

type hubPolicies struct {
	arns               clusterARNs
	issuer, klusterlet string
	authTypes          []string
	verify             bool
}

func newHubPolicies() *cobra.Command {
	p := &hubPolicies{}
	cmd := &cobra.Command{
		Use:   "policies",
		Short: "Print the IAM role that a hub or an agent needs for auth type " + authTypeAWS + ", or verify it",
		Long: "Print the IAM role that has to exist before auth type " + authTypeAWS + " works, as JSON: name, trust policy, access policy and\n" +
			"tags. Without --" + managedARNFlag + " it is the role of the hub, with it that of the agent of that cluster. The access\n" +
			"policy is an inline policy of the role's own name. --verify compares the role in IAM instead, with your own login at AWS;\n" +
			"it calls iam:GetRole and iam:GetRolePolicy.",
		Example: "  wid hub policies --eks-hub-cluster-arn \"$HUB_ARN\" --oidc-issuer \"$HUB_ISSUER\"\n" +
			"  wid hub policies --eks-hub-cluster-arn \"$HUB_ARN\" --eks-managed-cluster-arn \"$MANAGED_ARN\" --oidc-issuer \"$MANAGED_ISSUER\" --verify",
		RunE: func(cmd *cobra.Command, _ []string) error { return p.run(cmd.Context(), cmd) },
	}
	f := cmd.Flags()
	p.arns.bindHub(f)
	p.arns.bindManaged(f)
	f.StringVar(&p.issuer, "oidc-issuer", "", "https URL of the OIDC issuer of the cluster whose role it is")
	f.StringVar(&p.klusterlet, "klusterlet-name", awsirsa.DefaultKlusterlet, "name of the Klusterlet of the managed cluster, for the ServiceAccounts of its agent")
	f.StringSliceVar(&p.authTypes, "registration-auth", []string{authTypeAWS}, "auth types of the hub; with csr its role has no rights of EKS, since such a hub uses aws-auth")
	f.BoolVar(&p.verify, "verify", false, "compare the role in IAM, instead of printing what it should be")
	cmd.Args = cobra.NoArgs
	return cmd
}

func (p *hubPolicies) run(ctx context.Context, cmd *cobra.Command) error {
	role, of, err := p.role()
	if err != nil {
		return err
	}
	if p.verify {
		return p.compare(ctx, cmd, role, of)
	}
	content, err := json.MarshalIndent(struct {
		Name         string            `json:"name"`
		ARN          string            `json:"arn"`
		TrustPolicy  awsirsa.Policy    `json:"trustPolicy"`
		AccessPolicy awsirsa.Policy    `json:"accessPolicy"`
		Tags         map[string]string `json:"tags,omitempty"`
	}{role.Name(), role.ARN, role.Trust, role.Access, role.Tags}, "", "  ")
	if err != nil {
		return err
	}
	return say(cmd, "%s", content)
}

// role returns the role, and the cluster in whose account it is.
func (p *hubPolicies) role() (role awsirsa.Role, of awsirsa.ClusterARN, err error) {
	for _, authType := range p.authTypes {
		if err := checkAuthType(authType); err != nil {
			return role, of, err
		}
	}
	hub, err := parseARN(hubARNFlag, p.arns.hub)
	switch {
	case err != nil:
		return role, of, err
	case p.issuer == "":
		return role, of, usagef("--oidc-issuer is missing: pass what aws eks describe-cluster shows as identity.oidc.issuer")
	case p.arns.managed == "":
		binding := awsirsa.AccessEntries
		if slices.Contains(p.authTypes, registration.AuthTypeCSR) {
			binding = awsirsa.AWSAuth
		}
		of = hub
		role, err = awsirsa.HubRole(hub, p.issuer, binding)
	default:
		if of, err = parseARN(managedARNFlag, p.arns.managed); err != nil {
			return role, of, err
		}
		role, err = awsirsa.AgentRole(hub, of, p.issuer, p.klusterlet)
	}
	if err != nil {
		err = usagef("%v", err)
	}
	return role, of, err
}

// compare uses the login of the caller. The region only picks the partition: IAM has no others.
func (p *hubPolicies) compare(ctx context.Context, cmd *cobra.Command, role awsirsa.Role, of awsirsa.ClusterARN) error {
	cfg, err := config.LoadDefaultConfig(ctx, config.WithRegion(of.Region))
	if err == nil {
		err = role.Verify(ctx, iam.NewFromConfig(cfg))
	}
	if err == nil {
		return say(cmd, "role %q is as it should be", role.ARN)
	}
	e := &auth.Error{Reason: auth.ErrMisconfigured, Provider: "aws", Operation: "verify a role", Err: err, Message: redact.Line(err.Error()),
		Remedy: fmt.Sprintf("mend that with what wid hub policies prints without --verify, logged in to account %s", of.Account)}
	var api smithy.APIError
	var call *smithy.OperationError
	switch {
	case errors.As(err, &api) && api.ErrorCode() == "AccessDenied":
		e.Reason, e.Code, e.Remedy = auth.ErrDenied, api.ErrorCode(), "use a login that may call iam:GetRole and iam:GetRolePolicy in account "+of.Account
	case errors.As(err, &call) && api == nil:
		e.Reason, e.Remedy = auth.ErrUnavailable, "log in to account "+of.Account+", with AWS_PROFILE for example, and check the network"
	}
	return e
}
