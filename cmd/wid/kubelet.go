package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/plugin"
)

func (a *app) newKubeletProvider() *cobra.Command {
	var node bool
	cmd := &cobra.Command{
		Use:   "kubelet-credential-provider",
		Short: "Be a credential provider of the kubelet: images are pulled with the identity of the pod's ServiceAccount",
		Long: "Be a credential provider of the kubelet: images are pulled with the identity of the pod's ServiceAccount. The\n" +
			"kubelet sends a token of it and its annotations; the API server is not asked. The\n" +
			"kubelet keeps what it gets in memory, so --no-cache costs nothing and leaves no password on the node. Needs\n" +
			"Kubernetes 1.34, or 1.33 with the feature gate KubeletServiceAccountTokenForCredentialProviders.",
		Example: "  # --image-credential-provider-config\n" +
			"  apiVersion: kubelet.config.k8s.io/v1\n" +
			"  kind: CredentialProviderConfig\n" +
			"  providers:\n" +
			"  - name: wid\n" +
			"    apiVersion: credentialprovider.kubelet.k8s.io/v1\n" +
			"    args: [kubelet-credential-provider, --no-cache]\n" +
			"    matchImages: [\"*.dkr.ecr.*.amazonaws.com\"]\n" +
			"    defaultCacheDuration: 10m\n" +
			"    tokenAttributes:\n" +
			"      serviceAccountTokenAudience: sts.amazonaws.com\n" +
			"      cacheType: ServiceAccount\n" +
			"      requireServiceAccount: true\n" +
			"      requiredServiceAccountAnnotationKeys: [eks.amazonaws.com/role-arn]",
		Args: cobra.NoArgs,
	}
	id := a.newIdentity(cmd)
	cmd.Flags().BoolVar(&node, "node-identity", false,
		"use the node's own identity if the kubelet sends no token of a ServiceAccount")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return id.run(cmd, func(ctx context.Context) ([]byte, error) { return id.kubelet(ctx, cmd, node) })
	}
	return cmd
}

func (id *identity) kubelet(ctx context.Context, cmd *cobra.Command, node bool) ([]byte, error) {
	if id.hasToken() || id.serviceAccount != "" {
		return nil, usagef("the kubelet says whose identity it is: leave --service-account, --token-file and --token-stdin out")
	}
	in, err := inputOf(cmd)
	if err != nil {
		return nil, err
	}
	r, err := plugin.ReadKubeletRequest(ctx, in)
	if err != nil {
		return nil, err
	}
	_, host, err := plugin.KubeletRegistry(r) // credentials are good for the whole registry
	if err != nil {
		return nil, err
	}
	provider, err := id.atRegistry(host)
	if err != nil {
		return nil, err
	}
	s, err := id.ofPod(ctx, r.ServiceAccountToken, r.ServiceAccountAnnotations, node)
	if err != nil {
		return nil, err
	}
	c, err := id.registry(ctx, s, provider, host)
	if err != nil {
		return nil, err
	}
	return plugin.EncodeKubeletResponse(r, c.Username, c.Password, c.Expires)
}

// ofPod never falls back to the node: it may do more than any pod on it.
func (id *identity) ofPod(ctx context.Context, token string, annotations map[string]string, node bool) (s *source, err error) {
	opts, err := id.options()
	if err != nil {
		return nil, err
	}
	switch {
	case token != "":
		s, err = sourceOfToken(ctx, token, annotations)
	case node:
		s = id.own()
	default:
		err = &auth.Error{Reason: auth.ErrMisconfigured, Message: "the kubelet's request holds no token of a ServiceAccount",
			Remedy: "set tokenAttributes in the CredentialProviderConfig, or pass --node-identity to pull as the node"}
	}
	if err != nil {
		return nil, err
	}
	s.opts = append(opts, s.opts...)
	return s, nil
}
