package install

import (
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
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/token"
)

// AgentDriver and hubDrivers know the auth types of this program.
func AgentDriver(authType string, arns *ClusterARNs) (registration.Driver, error) {
	if err := CheckAuthType(authType); err != nil {
		return nil, err
	}
	if err := arns.Check(authType); err != nil {
		return nil, err
	}
	if authType == registration.AuthTypeAWS {
		return arns.Driver()
	}
	return csr.New(csr.Options{}), nil
}

// CheckAuthType checks --registration-auth.
func CheckAuthType(authType string) error {
	if authType == registration.AuthTypeToken {
		return cli.Usagef("--registration-auth: token registers add-ons only: use --addon-registration-auth=token in wid hub init, --%s=token in wid join", AddOnAuthFlag)
	}
	if _, err := registration.Pick([]NamedDriver{csr.New(csr.Options{}), AWSClaims{}}, authType); err != nil {
		return cli.Usagef("--registration-auth: %v", err)
	}
	return nil
}

// Flags of the agent for add-ons.
const (
	AddOnAuthFlag    = "addon-kubeclient-registration-auth"
	AddOnSecondsFlag = "addon-token-expiration-seconds"
)

// CheckAddOns judges auth types of add-ons that a flag names, and the lifetime of tokens.
func CheckAddOns(flag string, seconds int64, authTypes ...string) error {
	tokens, err := token.New(token.Options{ExpirationSeconds: seconds})
	if err != nil {
		return cli.Usagef("--%s: %v", AddOnSecondsFlag, err)
	}
	for _, authType := range authTypes {
		if _, err := registration.Pick([]NamedDriver{csr.New(csr.Options{}), tokens}, authType); err != nil {
			return cli.Usagef("--%s: %v", flag, err)
		}
	}
	return nil
}

// NamedDriver has the name of an auth type.
type NamedDriver interface{ Name() string }

const (
	// HubARNFlag is the flag of auth type aws-irsa for the hub.
	HubARNFlag = "eks-hub-cluster-arn"
	// ManagedARNFlag is that of the managed cluster.
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

// Check judges the ARN of the hub. Both ARNs are refused without the auth type that needs them.
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

// Args are the flags for wid-hub and wid-agent.
func (a *ClusterARNs) Args() (args []string) {
	for _, f := range []struct{ name, value string }{{HubARNFlag, a.Hub}, {ManagedARNFlag, a.Managed}} {
		if f.value != "" {
			args = append(args, "--"+f.name+"="+f.value)
		}
	}
	return args
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

// Pair parses both ARNs.
func (a *ClusterARNs) Pair() (hub, managed awsirsa.ClusterARN, err error) {
	if hub, err = ParseARN(HubARNFlag, a.Hub); err == nil {
		managed, err = ParseARN(ManagedARNFlag, a.Managed)
	}
	return hub, managed, err
}

// Driver returns the driver of the agent for auth type aws-irsa.
func (a *ClusterARNs) Driver() (registration.Driver, error) {
	if _, _, err := a.Pair(); err != nil {
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

// WithRole annotates the ServiceAccount of manifests with its role in IAM, and gives it the name that the role trusts.
func WithRole(manifests, account, trusted, roleARN string) string {
	return strings.NewReplacer(
		"kind: ServiceAccount\nmetadata:\n  name: "+account+"\n", "kind: ServiceAccount\nmetadata:\n  annotations: {"+aws.RoleARNAnnotation+": \""+roleARN+"\"}\n  name: "+trusted+"\n",
		"{kind: ServiceAccount, name: "+account+",", "{kind: ServiceAccount, name: "+trusted+",").Replace(manifests)
}

// AWSClaims reads the claims of auth type aws-irsa, without a login at AWS.
type AWSClaims struct{}

// Name returns the auth type.
func (AWSClaims) Name() string { return registration.AuthTypeAWS }

// Claim implements registration.HubDriver.
func (AWSClaims) Claim(cluster *ocm.ManagedCluster) (string, bool, error) {
	return awsirsa.Claim(cluster)
}
