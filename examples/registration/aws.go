package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	awsauth "github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/internal/testing/controlplane"
	"github.com/workloadid/workloadid/internal/testing/scenario"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/ocm"
)

const (
	demoHubARN     = "arn:aws:eks:eu-central-1:111111111111:cluster/hub"
	demoManagedARN = "arn:aws:eks:eu-west-1:222222222222:cluster/shop"
	// klusterletAccount is the ServiceAccount that awsirsa.AgentRole trusts.
	klusterletAccount = "klusterlet-registration-sa"
)

// awsDemo plays a join by AWS IAM. AWS is the fake of authtest. Every client of AWS here reaches the fake alone, and has a login of its own.
type awsDemo struct {
	*demo
	cloud              *authtest.Cloud
	hubARN, managedARN awsirsa.ClusterARN
}

func (d *awsDemo) steps() []func(context.Context) error {
	d.account = klusterletAccount
	return []func(context.Context) error{d.startControlPlanes, d.setUpHub, d.createRoles, d.startHub, d.setUpCluster, d.startAgent, d.appears,
		d.claims, d.accept, d.granted, d.stores, d.joins, d.ownNamespace, d.authenticates, d.steals, d.revoke, d.cleansUp}
}

func (d *awsDemo) startControlPlanes(ctx context.Context) (err error) {
	d.Say("A cluster joins a hub by AWS IAM. Both clusters are embedded, with real API servers and etcd. AWS is simulated: nothing leaves this machine.")
	if d.cloud, err = authtest.NewCloud(); err != nil {
		return err
	}
	d.Defer(func() error { d.cloud.Close(); return nil })
	flags, stop, err := controlplane.TokenWebhook(func(token string) (authenticationv1.UserInfo, error) {
		user, _, err := d.cloud.AWS().VerifyEKSToken(demoHubARN, token)
		return user, err
	})
	if err != nil {
		return err
	}
	d.Defer(stop)
	if err := d.start(ctx, flags...); err != nil {
		return err
	}
	d.cloud.AWS().SetEKSCluster(authtest.EKSCluster{ARN: demoHubARN, Endpoint: d.hub.Config().Host, CA: d.hub.Config().CAData})
	if d.hubARN, err = d.register(demoHubARN, d.hub); err != nil {
		return err
	}
	if d.managedARN, err = d.register(demoManagedARN, d.managed); err != nil {
		return err
	}
	if err := d.setDrivers(); err != nil {
		return err
	}
	d.Step("Two control planes run. As on EKS, the hub's API server checks tokens of AWS by a webhook, which asks AWS STS for the identity.")
	d.Detail("hub", "%s", d.hubARN)
	d.Detail("cluster", "%s", d.managedARN)
	return nil
}

// register lets the account of a cluster trust its ServiceAccounts.
func (d *awsDemo) register(arn string, c *controlplane.Cluster) (awsirsa.ClusterARN, error) {
	fetch, err := rest.HTTPClientFor(rest.AnonymousClientConfig(c.Config()))
	if err != nil {
		return awsirsa.ClusterARN{}, err
	}
	parsed, err := awsirsa.ParseClusterARN(arn)
	d.cloud.AWS().AddOIDCProvider(parsed.Account, c.IssuerURL(), fetch, awsauth.DefaultAudience)
	return parsed, err
}

// login returns what AWS SDKs find in a pod on EKS: a token of the ServiceAccount, and the role that it may assume.
func (d *awsDemo) login(c *controlplane.Cluster, region, namespace, account, roleARN string) []auth.Option {
	sa := corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account, Annotations: map[string]string{awsauth.RoleARNAnnotation: roleARN}}}
	return []auth.Option{auth.WithSubjectToken(&auth.TokenRequest{Client: c.Client(), ServiceAccount: &sa}, sa), auth.WithSTSRegion(region), auth.WithHTTPClient(d.cloud.Client())}
}

// setDrivers gives hub and agent the drivers that they have on EKS. Only the login differs.
func (d *awsDemo) setDrivers() error {
	hubRole, agentRole, err := d.roles()
	if err != nil {
		return err
	}
	login := awsauth.NewCredentialsProvider(d.login(d.hub, d.hubARN.Region, namespace, hubAccount, hubRole.ARN)...)
	config := aws.Config{Region: d.hubARN.Region, HTTPClient: d.cloud.Client(), Credentials: aws.NewCredentialsCache(login)}
	d.hubDriver = func(mgr ctrl.Manager) (registration.HubDriver, error) {
		return awsirsa.NewHubDriver(awsirsa.HubDriverOptions{Hub: demoHubARN, IAM: iam.NewFromConfig(config), EKS: eks.NewFromConfig(config),
			Client: mgr.GetClient(), Binding: awsirsa.AccessEntries, Events: mgr.GetEventRecorder(hubName)})
	}
	own := d.login(d.managed, d.managedARN.Region, agent.DefaultNamespace, d.account, agentRole.ARN)
	d.driver, err = awsirsa.New(awsirsa.Options{Hub: demoHubARN, Managed: demoManagedARN,
		Refused: func(err error) bool { return errors.Is(err, auth.ErrDenied) },
		Connect: func(ctx context.Context, hub awsirsa.HubAccess) (*rest.Config, error) {
			return auth.GetClusterConfig(ctx, &awsauth.Provider{}, append(own[:len(own):len(own)], auth.WithClusterResource(hub.Cluster), auth.WithClusterAddress(hub.Server),
				auth.WithCAData(string(hub.CAData)), awsauth.WithAssumeRole(awsauth.AssumeRole{RoleARN: hub.RoleARN}))...)
		}})
	return err
}

// iam returns the client of an administrator of an account.
func (d *awsDemo) iam(account string) *iam.Client {
	id, secret := d.cloud.AWS().AddUser(account, "platform-team")
	return iam.New(iam.Options{Region: d.hubARN.Region, HTTPClient: d.cloud.Client(), Credentials: credentials.NewStaticCredentialsProvider(id, secret, "")})
}

func (d *awsDemo) createRoles(ctx context.Context) error {
	hub, agent, err := d.roles()
	if err != nil {
		return err
	}
	if err := errors.Join(createRole(ctx, d.iam(d.hubARN.Account), hub), createRole(ctx, d.iam(d.managedARN.Account), agent)); err != nil {
		return err
	}
	d.Step("The platform team creates the two roles that wid hub policies prints, one in the account of each cluster.")
	d.Detail("hub", "%s", hub.Name())
	d.Detail("may", "make roles ocm-hub-*, and access entries for them")
	d.Detail("agent", "%s", agent.Name())
	d.Detail("may", "assume %s", awsirsa.GrantedRole(d.hubARN, d.managedARN).Name())
	return nil
}

// roles returns the roles that wid hub policies prints.
func (d *awsDemo) roles() (hub, agent awsirsa.Role, err error) {
	if hub, err = awsirsa.HubRole(d.hubARN, d.hub.IssuerURL(), awsirsa.AccessEntries); err != nil {
		return hub, agent, err
	}
	agent, err = awsirsa.AgentRole(d.hubARN, d.managedARN, d.managed.IssuerURL(), "")
	return hub, agent, err
}

func createRole(ctx context.Context, c *iam.Client, role awsirsa.Role) error {
	name, in := role.Name(), &iam.CreateRoleInput{AssumeRolePolicyDocument: aws.String(string(role.Trust))}
	for key, value := range role.Tags {
		in.Tags = append(in.Tags, iamtypes.Tag{Key: &key, Value: &value})
	}
	in.RoleName = &name
	if _, err := c.CreateRole(ctx, in); err != nil {
		return err
	}
	if _, err := c.PutRolePolicy(ctx, &iam.PutRolePolicyInput{RoleName: &name, PolicyName: &name, PolicyDocument: aws.String(string(role.Access))}); err != nil {
		return err
	}
	return role.Verify(ctx, c)
}

func (d *awsDemo) claims(ctx context.Context) error {
	found := &ocm.ManagedCluster{}
	if err := d.admin.Get(ctx, client.ObjectKey{Name: cluster}, found); err != nil {
		return err
	}
	if role, entry := d.inAWS(); role || entry != nil {
		return errors.New("AWS knows the cluster before it is accepted")
	}
	d.Step("In an annotation the cluster claims its ARN. The hub does nothing in AWS while the cluster is pending.")
	d.Detail("annotation", "%s: %s", awsirsa.ARNAnnotation, found.Annotations[awsirsa.ARNAnnotation])
	d.Detail("in AWS", "no role, no access entry")
	return nil
}

// inAWS returns what the hub has made for the cluster.
func (d *awsDemo) inAWS() (role bool, entry *authtest.EKSAccessEntry) {
	arn := awsirsa.GrantedRole(d.hubARN, d.managedARN).ARN
	if found, ok := d.cloud.AWS().EKSAccessEntries(demoHubARN)[arn]; ok {
		entry = &found
	}
	return slices.Contains(d.cloud.AWS().Roles(), arn), entry
}

func (d *awsDemo) granted(ctx context.Context) error {
	role := awsirsa.GrantedRole(d.hubARN, d.managedARN)
	_, agent, err := d.roles()
	if err != nil {
		return err
	}
	if err := role.Verify(ctx, d.iam(d.hubARN.Account)); err != nil {
		return err
	}
	_, entry := d.inAWS()
	if entry == nil {
		return errors.New("the hub made no access entry")
	}
	d.Step("The hub computes the names from both ARNs, and makes a role and an access entry for the cluster.")
	d.Detail("role", "%s", role.Name())
	d.Detail("trusts", "%s", agent.ARN)
	for _, key := range slices.Sorted(maps.Keys(role.Tags)) {
		d.Detail("  if tagged", "%s=%s", key, role.Tags[key])
	}
	d.Detail("may", "%s on the hub", "eks:DescribeCluster, eks:ListClusters")
	d.Detail("access entry", "group %s", strings.Join(entry.Groups, " "))
	return nil
}

func (d *awsDemo) stores(ctx context.Context) error {
	secret := &corev1.Secret{}
	err := scenario.Wait(ctx, "the agent stores no kubeconfig", func(ctx context.Context) (bool, error) {
		err := d.local.Get(ctx, client.ObjectKey{Namespace: agent.DefaultNamespace, Name: ocm.HubKubeconfigSecret}, secret)
		return len(secret.Data["kubeconfig"]) > 0, err
	})
	if err != nil {
		return err
	}
	kubeconfig, err := clientcmd.Load(secret.Data["kubeconfig"])
	if err != nil {
		return err
	}
	d.Step("The agent stores a kubeconfig without any secret. Other clients run the command in it; the agent gets its tokens itself.")
	d.Detail("Secret", "%s", secret.Name)
	for _, user := range kubeconfig.AuthInfos {
		d.Detail("command", "%s %s", user.Exec.Command, strings.Join(user.Exec.Args, " "))
	}
	return nil
}

func (d *awsDemo) authenticates(ctx context.Context) error {
	review := &authenticationv1.SelfSubjectReview{}
	if err := d.own.Create(ctx, review); err != nil {
		return err
	}
	d.Step("With its ServiceAccount's token the agent assumes its own role, and with that the role on the hub. It presigns a request to AWS STS, and sends that as its token. The hub authenticates the agent as:")
	d.Detail("user", "%s", review.Status.UserInfo.Username)
	for _, group := range review.Status.UserInfo.Groups {
		d.Detail("group", "%s", group)
	}
	return nil
}

// steals is refused although the administrator is careless. Denying the thief afterwards touches nothing of the first cluster's.
func (d *awsDemo) steals(ctx context.Context) error {
	_, before := d.inAWS()
	config := rest.AnonymousClientConfig(d.hub.Config())
	config.BearerToken = d.token.Reveal()
	thief, err := client.New(config, client.Options{Scheme: d.admin.Scheme()})
	if err != nil {
		return err
	}
	claim := metav1.ObjectMeta{Name: neighbour, Annotations: map[string]string{awsirsa.ARNAnnotation: demoManagedARN}}
	if err := thief.Create(ctx, &ocm.ManagedCluster{ObjectMeta: claim}); err != nil {
		return err
	}
	if err := d.setAccepted(ctx, neighbour, true); err != nil {
		return err
	}
	refused, err := d.refusal(ctx, neighbour, "GrantFailed")
	if err != nil {
		return err
	}
	if err := d.setAccepted(ctx, neighbour, false); err != nil {
		return err
	}
	if err := d.awaitForgotten(ctx, neighbour); err != nil {
		return err
	}
	if role, after := d.inAWS(); !role || !reflect.DeepEqual(before, after) {
		return fmt.Errorf("the access entry of %q was %+v and is %+v, its role exists: %t", cluster, before, after, role)
	}
	d.Step("A thief %q claims the same ARN, and a careless administrator accepts it. The hub refuses; denying the thief changes nothing of %q.", neighbour, cluster)
	d.Detail("condition", "%s is %s: %s", refused.Type, refused.Status, refused.Reason)
	d.Detail("message", "%s", refused.Message)
	return nil
}

// awaitForgotten waits until the hub has no record of a cluster, which it drops when everything is revoked.
func (d *awsDemo) awaitForgotten(ctx context.Context, cluster string) error {
	return scenario.Wait(ctx, fmt.Sprintf("the hub keeps the ClusterRole of %q", cluster), func(ctx context.Context) (bool, error) {
		err := d.admin.Get(ctx, client.ObjectKey{Name: registration.ClusterRoleName(cluster)}, &rbacv1.ClusterRole{})
		return err != nil, client.IgnoreNotFound(err)
	})
}

// revoke makes EKS unavailable, which shows that the RBAC goes first.
func (d *awsDemo) revoke(ctx context.Context) error {
	const action = "DeleteAccessEntry"
	end := d.cloud.AddFault(authtest.Fault{Service: "eks", Action: action, Status: 503, Code: "ServiceUnavailableException"})
	defer end()
	if err := d.deny(ctx, "EKS is unavailable meanwhile: role and access entry still exist, and the agent's token still authenticates, but allows nothing."); err != nil {
		return err
	}
	if role, entry := d.inAWS(); !role || entry == nil {
		return errors.New("role and access entry went before the RBAC")
	}
	return scenario.Wait(ctx, "the hub does not ask AWS to delete the access entry", func(context.Context) (bool, error) {
		return d.cloud.Calls("eks", action) > 0, nil
	})
}

func (d *awsDemo) cleansUp(ctx context.Context) error {
	if err := d.awaitForgotten(ctx, cluster); err != nil {
		return err
	}
	if role, entry := d.inAWS(); role || entry != nil {
		return errors.New("the hub left something in AWS")
	}
	d.Step("EKS is available again. The hub deletes the access entry, then the role.")
	d.Detail("in AWS", "no role, no access entry")
	return nil
}
