package main

import (
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/ocm"
)

var authTypeAWS = registration.ProposedNames.AuthTypeAWS()

const (
	hubARNFlag     = "eks-hub-cluster-arn"
	managedARNFlag = "eks-managed-cluster-arn"
)

// clusterARNs are the flags of the auth type aws-irsa.
type clusterARNs struct{ hub, managed string }

func (a *clusterARNs) bindHub(f *pflag.FlagSet) {
	f.StringVar(&a.hub, hubARNFlag, "", "ARN of the hub, for auth type "+authTypeAWS)
}

func (a *clusterARNs) bindManaged(f *pflag.FlagSet) {
	f.StringVar(&a.managed, managedARNFlag, "", "ARN of the managed cluster, for auth type "+authTypeAWS)
}

// check judges the ARN of the hub. Both ARNs are refused without the auth type that needs them.
func (a *clusterARNs) check(authTypes ...string) error {
	if slices.Contains(authTypes, authTypeAWS) {
		_, err := parseARN(hubARNFlag, a.hub)
		return err
	}
	if a.hub != "" || a.managed != "" {
		return usagef("the ARNs of clusters are for --registration-auth=%s: pass that, or leave them out", authTypeAWS)
	}
	return nil
}

// args are the flags for the programs of examples.
func (a *clusterARNs) args() (args []string) {
	for _, f := range []struct{ name, value string }{{hubARNFlag, a.hub}, {managedARNFlag, a.managed}} {
		if f.value != "" {
			args = append(args, "--"+f.name+"="+f.value)
		}
	}
	return args
}

func parseARN(flag, value string) (awsirsa.ClusterARN, error) {
	if value == "" {
		return awsirsa.ClusterARN{}, usagef("--%s is missing: pass the ARN of that cluster, as arn:aws:eks:eu-central-1:123456789012:cluster/name", flag)
	}
	arn, err := awsirsa.ParseClusterARN(value)
	if err != nil {
		return arn, usagef("--%s: %v", flag, err)
	}
	return arn, nil
}

// pair parses both ARNs.
func (a *clusterARNs) pair() (hub, managed awsirsa.ClusterARN, err error) {
	if hub, err = parseARN(hubARNFlag, a.hub); err == nil {
		managed, err = parseARN(managedARNFlag, a.managed)
	}
	return hub, managed, err
}

func (a *clusterARNs) driver() (registration.Driver, error) {
	if _, _, err := a.pair(); err != nil {
		return nil, err
	}
	driver, err := awsirsa.New(awsirsa.Options{Hub: a.hub, Managed: a.managed})
	if err != nil {
		return nil, usagef("--%s and --%s: %v", hubARNFlag, managedARNFlag, err)
	}
	return driver, nil
}

// awsClaims reads the claims of auth type aws-irsa, without a login at AWS.
type awsClaims struct{}

func (awsClaims) Name() string { return authTypeAWS }

func (awsClaims) Claim(cluster *ocm.ManagedCluster) (string, bool, error) {
	return awsirsa.Claim(cluster)
}

// isEKS reports whether an API server has an address of Amazon EKS. One with another address may still be behind a proxy.
func isEKS(server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	host := strings.TrimSuffix(strings.TrimSuffix(u.Hostname(), "."), ".cn")
	return strings.HasSuffix(host, ".eks.amazonaws.com") || strings.Contains(host, ".eks-cluster.") && strings.HasSuffix(host, ".api.aws")
}

// checkHub applies the support matrix. Only the address of EKS is proof; what another address contradicts is a warning.
func checkHub(cmd *cobra.Command, authTypes []string, server string) error {
	binding := awsirsa.AccessEntries
	if slices.Contains(authTypes, registration.AuthTypeCSR) {
		binding = awsirsa.AWSAuth
	}
	onEKS := isEKS(server)
	if binding == awsirsa.AWSAuth && slices.Contains(authTypes, authTypeAWS) && !onEKS {
		cmd.PrintErrln("wid: warning: the API server of this hub needs an authentication webhook for tokens of AWS that reads aws-auth, such as aws-iam-authenticator: wid cannot see whether it has one")
	}
	err := awsirsa.CheckHub(awsirsa.Hub{AuthTypes: authTypes, OnEKS: onEKS, TokenWebhook: true, Binding: binding})
	return judge(cmd, onEKS, "the hub", server, err)
}

// checkManaged is checkHub for the cluster that joins.
func checkManaged(cmd *cobra.Command, authType, server string) error {
	return judge(cmd, isEKS(server), "the managed cluster", server, awsirsa.CheckManaged(authType, isEKS(server)))
}

func judge(cmd *cobra.Command, onEKS bool, which, server string, err error) error {
	switch {
	case err == nil:
	case onEKS:
		return usagef("--registration-auth: %s %q is on EKS: %v", which, server, err)
	default:
		cmd.PrintErrf("wid: warning: %s %q has no address of EKS: %v\n", which, server, err)
	}
	return nil
}

// withoutCSR leaves out the right to approve certificates, which a hub without the auth type csr does not need.
func withoutCSR(manifests string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(manifests, separator), func(document string) bool {
		return strings.Contains(document, "\n  name: open-cluster-management:hub:csr") // and hub:csr-addons
	}), separator)
}

// withRole annotates the ServiceAccount of manifests with its role in IAM, and gives it the name that the role trusts.
func withRole(manifests, account, trusted, roleARN string) string {
	return strings.NewReplacer(
		"kind: ServiceAccount\nmetadata:\n  name: "+account+"\n", "kind: ServiceAccount\nmetadata:\n  annotations: {"+aws.RoleARNAnnotation+": \""+roleARN+"\"}\n  name: "+trusted+"\n",
		"{kind: ServiceAccount, name: "+account+",", "{kind: ServiceAccount, name: "+trusted+",").Replace(manifests)
}
