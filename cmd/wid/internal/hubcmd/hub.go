// Package hubcmd is wid hub.
package hubcmd

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
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/cmd/wid/internal/install"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/awsirsa"
)

// NewHub returns wid hub.
func NewHub() *cobra.Command {
	return cli.Group("hub", "Set up a hub, and decide which clusters join it (Open Cluster Management)",
		NewHubInit(), newHubToken(), newHubAccept(), newHubDeny(), newHubStatus(), newHubPolicies(), NewHubCleanup())
}

func checkClusters(names []string) error {
	if len(names) == 0 {
		return cli.Usagef("name the clusters with --clusters, as a,b")
	}
	for _, name := range names {
		if err := registration.CheckClusterName(name); err != nil {
			return cli.Usagef("--clusters: %v", err)
		}
	}
	return nil
}

type hubPolicies struct {
	arns                          install.ClusterARNs
	issuer, namespace, klusterlet string
	authTypes                     []string
	verify                        bool
	output                        *cli.Output
}

func newHubPolicies() *cobra.Command {
	p := &hubPolicies{}
	cmd := &cobra.Command{
		Use:   "policies",
		Short: "Print the IAM role that a hub or an agent needs for auth type " + registration.AuthTypeAWS + ", or verify it",
		Long: "Print an IAM role as JSON: name, trust policy, access policy and tags. Without --" + install.ManagedARNFlag +
			" it is the hub's\n" +
			"role, with it the role of that cluster's agent. --verify calls iam:GetRole and iam:GetRolePolicy with your own login at AWS.",
		Example: "  wid hub policies --eks-hub-cluster-arn \"$HUB_ARN\" --oidc-issuer \"$HUB_ISSUER\"",
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.run(cmd.Context(), cmd) },
	}
	f := cmd.Flags()
	p.output = cli.OutputFlag(cmd, "json", "yaml")
	p.arns.BindHub(f)
	p.arns.BindManaged(f)
	f.StringVar(&p.issuer, "oidc-issuer", "", "https URL of the OIDC issuer of the cluster whose role it is")
	install.BindNamespace(f, &p.namespace)
	f.StringVar(&p.klusterlet, "klusterlet-name", awsirsa.DefaultKlusterlet,
		"name of the Klusterlet of the managed cluster, for the ServiceAccounts of its agent")
	f.StringSliceVar(&p.authTypes, "registration-auth", []string{registration.AuthTypeAWS},
		"auth types of the hub; with csr its role has no rights of EKS, since such a hub uses aws-auth")
	cli.Offer(cmd, "registration-auth", registration.AuthTypeCSR, registration.AuthTypeAWS)
	f.BoolVar(&p.verify, "verify", false, "compare the role in IAM, instead of printing it")
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
	return p.output.Print(cmd, struct {
		Name         string            `json:"name"`
		ARN          string            `json:"arn"`
		TrustPolicy  json.RawMessage   `json:"trustPolicy"`
		AccessPolicy json.RawMessage   `json:"accessPolicy"`
		Tags         map[string]string `json:"tags,omitempty"`
	}{role.Name(), role.ARN, role.Trust, role.Access, role.Tags}, nil)
}

// role returns the role, and the cluster in whose account it is.
func (p *hubPolicies) role() (role awsirsa.Role, of awsirsa.ClusterARN, err error) {
	if err := install.CheckAuthTypes(p.authTypes...); err != nil {
		return role, of, err
	}
	hub, err := install.ParseARN(install.HubARNFlag, p.arns.Hub)
	switch {
	case err != nil:
		return role, of, err
	case p.issuer == "":
		return role, of,
			cli.Usagef("--oidc-issuer is missing: pass what aws eks describe-cluster shows as identity.oidc.issuer")
	case p.arns.Managed == "":
		binding := awsirsa.AccessEntries
		if slices.Contains(p.authTypes, registration.AuthTypeCSR) {
			binding = awsirsa.AWSAuth
		}
		of = hub
		role, err = awsirsa.HubRole(hub, p.issuer, binding)
	default:
		if of, err = install.ParseARN(install.ManagedARNFlag, p.arns.Managed); err != nil {
			return role, of, err
		}
		role, err = awsirsa.AgentRole(hub, of, p.issuer, p.namespace, p.klusterlet)
	}
	if err != nil {
		err = cli.Usagef("%v", err)
	}
	return role, of, err
}

// compare uses the login of the caller. The region only picks the partition:
// IAM has no others.
func (p *hubPolicies) compare(ctx context.Context, cmd *cobra.Command, role awsirsa.Role, of awsirsa.ClusterARN) error {
	cfg, err := config.LoadDefaultConfig(ctx, config.WithRegion(of.Region))
	if err == nil {
		err = role.Verify(ctx, iam.NewFromConfig(cfg))
	}
	if err == nil {
		return cli.Say(cmd, "role %q is as it should be", role.ARN)
	}
	e := &auth.Error{Reason: auth.ErrMisconfigured, Provider: "aws", Operation: "verify a role", Err: err,
		Message: redact.Line(err.Error()),
		Remedy:  fmt.Sprintf("correct the role in account %s by the output of wid hub policies without --verify", of.Account)}
	var api smithy.APIError
	var call *smithy.OperationError
	switch {
	case errors.As(err, &api) && api.ErrorCode() == "AccessDenied":
		e.Reason, e.Code, e.Remedy = auth.ErrDenied, api.ErrorCode(),
			"use a login that may call iam:GetRole and iam:GetRolePolicy in account "+of.Account
	case errors.As(err, &call) && api == nil:
		e.Reason, e.Remedy = auth.ErrUnavailable, "log in to account "+of.Account+
			", with AWS_PROFILE for example, and check the network"
	}
	return e
}
