package install

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cmd/wid/internal/cli"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/token"
)

// CheckAuthTypes checks --registration-auth.
func CheckAuthTypes(authTypes ...string) error {
	if slices.Contains(authTypes, registration.AuthTypeToken) {
		return cli.Usagef("--registration-auth: token registers add-ons only: use --addon-registration-auth=token in wid hub init, --%s=token in wid join", AddOnAuthFlag)
	}
	return checkKnown("registration-auth", authTypes, registration.AuthTypeAWS, registration.AuthTypeCSR)
}

// Flags of the agent for add-ons.
const (
	AddOnAuthFlag    = "addon-kubeclient-registration-auth"
	AddOnSecondsFlag = "addon-token-expiration-seconds"
)

// CheckAddOns checks auth types of add-ons that a flag names, and the lifetime of tokens.
func CheckAddOns(flag string, seconds int64, authTypes ...string) error {
	if _, err := token.New(token.Options{ExpirationSeconds: seconds}); err != nil {
		return cli.Usagef("--%s: %v", AddOnSecondsFlag, err)
	}
	return checkKnown(flag, authTypes, registration.AuthTypeCSR, registration.AuthTypeToken)
}

func checkKnown(flag string, authTypes []string, known ...string) error {
	for _, authType := range authTypes {
		if !slices.Contains(known, authType) {
			return cli.Usagef("--%s: unknown auth type %.100q: use one of %s", flag, authType, strings.Join(known, ", "))
		}
	}
	return nil
}

// Flags of the auth type aws-irsa, for the hub and the managed cluster.
const (
	HubARNFlag     = "eks-hub-cluster-arn"
	ManagedARNFlag = "eks-managed-cluster-arn"
)

// ClusterARNs are the flags of the auth type aws-irsa.
type ClusterARNs struct{ Hub, Managed string }

// BindHub adds the flag of the hub.
func (a *ClusterARNs) BindHub(f *pflag.FlagSet) {
	f.StringVar(&a.Hub, HubARNFlag, "", "ARN of the hub, for auth type "+registration.AuthTypeAWS)
}

// BindManaged adds the flag of the managed cluster.
func (a *ClusterARNs) BindManaged(f *pflag.FlagSet) {
	f.StringVar(&a.Managed, ManagedARNFlag, "", "ARN of the managed cluster, for auth type "+registration.AuthTypeAWS)
}

// Check checks the ARN of the hub. Both ARNs are refused without the auth type that needs them.
func (a *ClusterARNs) Check(authTypes ...string) error {
	if slices.Contains(authTypes, registration.AuthTypeAWS) {
		_, err := ParseARN(HubARNFlag, a.Hub)
		return err
	}
	if a.Hub != "" || a.Managed != "" {
		return cli.Usagef("the ARNs of clusters are for --registration-auth=%s: pass that, or leave them out", registration.AuthTypeAWS)
	}
	return nil
}

// ParseARN parses the value of a flag.
func ParseARN(flag, value string) (awsirsa.ClusterARN, error) {
	if value == "" {
		return awsirsa.ClusterARN{}, cli.Usagef("--%s is missing: pass the ARN of that cluster, as arn:aws:eks:eu-central-1:123456789012:cluster/name", flag)
	}
	arn, err := awsirsa.ParseClusterARN(value)
	if err != nil {
		return arn, cli.Usagef("--%s: %v", flag, err)
	}
	return arn, nil
}

// Driver returns the driver of the agent for auth type aws-irsa.
func (a *ClusterARNs) Driver() (registration.Driver, error) {
	_, hubErr := ParseARN(HubARNFlag, a.Hub)
	_, managedErr := ParseARN(ManagedARNFlag, a.Managed)
	if err := cmp.Or(hubErr, managedErr); err != nil {
		return nil, err
	}
	driver, err := awsirsa.New(awsirsa.Options{Hub: a.Hub, Managed: a.Managed, Connect: connectToEKS,
		Refused: func(err error) bool { return errors.Is(err, auth.ErrDenied) }})
	if err != nil {
		return nil, cli.Usagef("--%s and --%s: %v", HubARNFlag, ManagedARNFlag, err)
	}
	return driver, nil
}

// connectToEKS reaches the hub as its role for this cluster, by the login that AWS SDKs find.
func connectToEKS(ctx context.Context, hub awsirsa.HubAccess) (*rest.Config, error) {
	return auth.GetClusterConfig(ctx, &aws.Provider{}, auth.WithClusterResource(hub.Cluster), auth.WithClusterAddress(hub.Server),
		auth.WithCAData(string(hub.CAData)), aws.WithAssumeRole(aws.AssumeRole{RoleARN: hub.RoleARN}))
}

// IsEKS reports whether an API server has an address of Amazon EKS. One with another address may still be behind a proxy.
func IsEKS(server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	host := strings.TrimSuffix(strings.TrimSuffix(u.Hostname(), "."), ".cn")
	return strings.HasSuffix(host, ".eks.amazonaws.com") || strings.Contains(host, ".eks-cluster.") && strings.HasSuffix(host, ".api.aws")
}

// CheckHub refuses auth types that the hub cannot serve. Only the address of EKS is proof; what another address contradicts is a warning.
func CheckHub(cmd *cobra.Command, authTypes []string, server string) error {
	csr, aws := slices.Contains(authTypes, registration.AuthTypeCSR), slices.Contains(authTypes, registration.AuthTypeAWS)
	switch {
	case csr && IsEKS(server):
		return cli.Usagef("--registration-auth: the hub %q is on EKS: the auth type %q needs a hub that signs client certificates, and EKS signs none: use %q alone, or another hub",
			server, registration.AuthTypeCSR, registration.AuthTypeAWS)
	case csr && aws:
		cmd.PrintErrln("wid: warning: the API server of this hub needs an authentication webhook for tokens of AWS that reads aws-auth, such as aws-iam-authenticator: wid cannot see whether it has one")
	case aws && !IsEKS(server):
		cmd.PrintErrf("wid: warning: the hub %q has no address of EKS: the auth type %q alone needs a hub on EKS, which checks tokens of AWS itself: on other hubs use it together with %q\n",
			server, registration.AuthTypeAWS, registration.AuthTypeCSR)
	}
	return nil
}

// CheckManaged warns of a cluster that cannot join with the auth type.
func CheckManaged(cmd *cobra.Command, authType, server string) {
	if authType == registration.AuthTypeAWS && !IsEKS(server) {
		cmd.PrintErrf("wid: warning: the managed cluster %q has no address of EKS: the auth type %q needs a managed cluster on EKS, since its ARN names it and IAM trusts its ServiceAccounts: use %q here\n",
			server, registration.AuthTypeAWS, registration.AuthTypeCSR)
	}
}
