package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/plugin"
)

func (a *app) newCredentialProcess() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "credential-process",
		Short: "Be a credential_process of the AWS SDKs and of the aws command",
		Example: "  # ~/.aws/config\n" +
			"  [profile tenant-a]\n" +
			"  region = eu-central-1\n" +
			"  credential_process = wid credential-process --service-account tenant-a/app --region eu-central-1",
		Args: cobra.NoArgs,
	}
	id := a.newIdentity(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return id.run(cmd, func(ctx context.Context) ([]byte, error) { return id.process(ctx, cmd) })
	}
	return cmd
}

func (id *identity) process(ctx context.Context, cmd *cobra.Command) ([]byte, error) {
	switch {
	case id.provider != "" && id.provider != aws.ProviderName:
		return nil, usagef("credential_process is for AWS; leave --provider out")
	case id.serviceAccount == "" && !id.hasToken():
		// The SDK's own chain would find this very setting and call wid again.
		return nil, usagef("pass --service-account namespace/name, or --token-file")
	}
	s, err := id.resolve(ctx, cmd)
	if err != nil {
		return nil, err
	}
	c, err := id.accessToken(ctx, s, id.awsProvider())
	if err != nil {
		return nil, err
	}
	return plugin.EncodeProcessCredentials(plugin.ProcessCredentials{AccessKeyID: c.AccessKeyID, SecretAccessKey: c.SecretKey,
		SessionToken: c.SessionToken, AccountID: c.AccountID, Expires: c.Expires})
}
