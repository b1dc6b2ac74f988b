package awsirsa_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/internal/controlplane"
	"github.com/workloadid/workloadid/internal/kubetest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/ocm"
)

const (
	hubAccount, managedAccount = "111111111111", "222222222222"
	audience                   = "sts.amazonaws.com"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(kubetest.Main(m).Run())
}

// kube is a hub API server, which verifies tokens of EKS with the fake AWS, and a managed API server. A registration.Hub runs with the
// rights of HubManifest and with the IAM role of HubRole.
type kube struct {
	t            *testing.T // the sub-test that runs
	hub, managed *kubetest.Cluster
	admin, local client.Client // of administrators
	aws          *authtest.Cloud
}

func newKube(t *testing.T) *kube {
	t.Helper()
	k := &kube{t: t, managed: kubetest.Start(t), aws: newCloudOfAWS(t)}
	k.hub = kubetest.StartNew(t, k.webhook()...)
	k.admin, k.local = k.client(k.hub.Config()), k.client(k.managed.Config())
	k.apply(k.admin, ocm.CRD)
	eventually(t, "the hub serves ManagedClusters", func() bool {
		k.admin = k.client(k.hub.Config()) // a client may remember that there are none
		return k.admin.List(t.Context(), &ocm.ManagedClusterList{}) == nil
	})
	k.apply(k.admin, registration.HubManifest)
	k.apply(k.admin, "apiVersion: v1\nkind: Namespace\nmetadata: {name: open-cluster-management}\n")
	k.apply(k.admin, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: agent-registration-bootstrap, namespace: open-cluster-management}\n")
	k.apply(k.admin, registration.BootstrapManifest)
	k.aws.AWS().SetEKSCluster(authtest.EKSCluster{ARN: hubARN, Endpoint: k.hub.Config().Host, CA: k.hub.Config().CAData})
	k.aws.AWS().AddOIDCProvider(hubAccount, k.hub.IssuerURL(), k.hub.IssuerClient(t), audience)
	k.aws.AWS().AddOIDCProvider(managedAccount, k.managed.IssuerURL(), k.managed.IssuerClient(t), audience)
	k.runHub()
	// EKS and STS do not know a new role at once.
	k.aws.AWS().SetConsistencyDelay(0, 1)
	return k
}

// webhook starts an authentication webhook that does what the one of EKS does.
func (k *kube) webhook() []kubetest.Flag {
	k.t.Helper()
	flags, stop, err := controlplane.TokenWebhook(func(token string) (authenticationv1.UserInfo, error) {
		user, err := k.aws.AWS().VerifyEKSToken(hubARN, token)
		return authenticationv1.UserInfo{Username: user.Username, Groups: user.Groups, UID: user.UID}, err
	})
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { _ = stop() }) // its folder is a temporary one
	return flags
}

func (k *kube) write(file string, content []byte) {
	k.t.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		k.t.Fatal(err)
	}
}

func kubeconfig(t *testing.T, server string, ca []byte, token string) []byte {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	content, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// eventually polls a real API server.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !condition(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("within a minute it never happened that %s", what)
		}
	}
}

// step is a sub-test. The helpers fail it rather than its parent.
func (k *kube) step(name string, run func(t *testing.T)) {
	k.t.Helper()
	outer := k.t
	outer.Run(name, func(t *testing.T) {
		k.t = t
		defer func() { k.t = outer }()
		run(t)
	})
}

func (k *kube) client(config *rest.Config) client.Client {
	k.t.Helper()
	c, err := client.New(config, client.Options{Scheme: scheme(k.t)})
	if err != nil {
		k.t.Fatal(err)
	}
	return c
}

func (k *kube) apply(c client.Client, manifest string) {
	k.t.Helper()
	for document := range strings.SplitSeq(strings.TrimPrefix(manifest, "---\n"), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
			k.t.Fatal(err)
		}
		if err := c.Create(k.t.Context(), object); err != nil && !apierrors.IsAlreadyExists(err) {
			k.t.Fatal(err)
		}
	}
}

// token returns the credential of a ServiceAccount.
func (k *kube) token(c client.Client, namespace, name string, audiences ...string) string {
	k.t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := c.SubResource("token").Create(k.t.Context(), account, request); err != nil {
		k.t.Fatal(err)
	}
	return request.Status.Token
}

func withToken(config *rest.Config, token string) *rest.Config {
	config = rest.AnonymousClientConfig(config)
	config.BearerToken, config.QPS = token, -1
	return config
}

// createRole does what an administrator of IAM does with the output of wid hub policies.
func (k *kube) createRole(account string, role awsirsa.Role) {
	k.t.Helper()
	id, secret := k.aws.AWS().AddUser(account, "admin")
	c := iam.New(iam.Options{Region: "eu-central-1", HTTPClient: k.aws.Client(), Credentials: credentials.NewStaticCredentialsProvider(id, secret, "")})
	name, in := role.ARN[strings.LastIndexByte(role.ARN, '/')+1:], &iam.CreateRoleInput{AssumeRolePolicyDocument: aws.String(role.Trust.JSON())}
	for key, value := range role.Tags {
		in.Tags = append(in.Tags, iamtypes.Tag{Key: &key, Value: &value})
	}
	in.RoleName = &name
	_, err := c.CreateRole(k.t.Context(), in)
	if err == nil {
		_, err = c.PutRolePolicy(k.t.Context(), &iam.PutRolePolicyInput{RoleName: &name, PolicyName: &name, PolicyDocument: aws.String(role.Access.JSON())})
	}
	if err == nil {
		err = role.Verify(k.t.Context(), c)
	}
	if err != nil {
		k.t.Fatal(err)
	}
}

// runHub runs the controller until the test ends.
func (k *kube) runHub() {
	k.t.Helper()
	const namespace, name = "open-cluster-management-hub", "registration-controller-sa"
	role, err := awsirsa.HubRole(mustParse(k.t, hubARN), k.hub.IssuerURL(), awsirsa.AccessEntries)
	if err != nil {
		k.t.Fatal(err)
	}
	k.createRole(hubAccount, role)
	file := filepath.Join(k.t.TempDir(), "token")
	k.write(file, []byte(k.token(k.admin, namespace, name, audience)))
	creds := aws.NewCredentialsCache(stscreds.NewWebIdentityRoleProvider(sts.New(sts.Options{Region: "eu-central-1", HTTPClient: k.aws.Client()}),
		role.ARN, stscreds.IdentityTokenFile(file)))
	driver, err := awsirsa.NewHub(awsirsa.HubOptions{Hub: hubARN,
		IAM: iam.New(iam.Options{Region: "eu-central-1", HTTPClient: k.aws.Client(), Credentials: creds}),
		EKS: eks.New(eks.Options{Region: "eu-central-1", HTTPClient: k.aws.Client(), Credentials: creds})})
	if err != nil {
		k.t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(withToken(k.hub.Config(), k.token(k.admin, namespace, name)),
		ctrl.Options{Scheme: scheme(k.t), Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		k.t.Fatal(err)
	}
	hub, err := registration.NewHub(registration.HubOptions{Client: mgr.GetClient(), Drivers: []registration.HubDriver{driver}})
	if err == nil {
		err = hub.SetupWithManager(mgr, 2)
	}
	if err != nil {
		k.t.Fatal(err)
	}
	t := k.t
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
}

// reason returns status and reason of a condition, such as "True/HubClusterAdminAccepted".
func (k *kube) reason(cluster, kind string) string {
	k.t.Helper()
	object := &ocm.ManagedCluster{}
	if err := k.admin.Get(k.t.Context(), client.ObjectKey{Name: cluster}, object); client.IgnoreNotFound(err) != nil {
		k.t.Fatal(err)
	}
	if c := meta.FindStatusCondition(object.Status.Conditions, kind); c != nil {
		return string(c.Status) + "/" + c.Reason
	}
	return ""
}

func (k *kube) patch(c client.Client, cluster, body string) {
	k.t.Helper()
	object := &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: cluster}}
	if err := c.Patch(k.t.Context(), object, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
		k.t.Fatal(err)
	}
}

// rbac returns how many bindings a cluster has, and whether it has a ClusterRole, which records what was granted.
func (k *kube) rbac(cluster string) (bindings int, role bool) {
	k.t.Helper()
	name := registration.ClusterRoleName(cluster)
	exists := func(object client.Object) bool {
		err := k.admin.Get(k.t.Context(), client.ObjectKeyFromObject(object), object)
		if client.IgnoreNotFound(err) != nil {
			k.t.Fatal(err)
		}
		return err == nil
	}
	for _, binding := range []client.Object{
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name + ":registration"}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name + ":work"}},
	} {
		if exists(binding) {
			bindings++
		}
	}
	return bindings, exists(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// member is a managed cluster. Its agent has the rights of AgentManifest in a namespace of its own, and the IAM role of AgentRole.
type member struct {
	*kube
	name, namespace string
	arn             awsirsa.ClusterARN
	hubRole         string // ARN
	agent           *registration.Agent
	failed          error // of the last pass
}

// join makes the agent of a cluster. One agent at a time has credentials of AWS: the process has one environment.
func (k *kube) join(name string) *member {
	k.t.Helper()
	m := &member{kube: k, name: name, namespace: "agent-" + name, arn: mustParse(k.t, "arn:aws:eks:eu-west-1:"+managedAccount+":cluster/"+name)}
	hub := mustParse(k.t, hubARN)
	m.hubRole = awsirsa.HubRoleARN(hub, m.arn)
	const account = "klusterlet-registration-sa"
	k.apply(k.local, strings.NewReplacer(registration.DefaultAgentNamespace, m.namespace, "registration-agent", account).Replace(registration.AgentManifest))
	bootstrap := kubeconfig(k.t, k.hub.Config().Host, k.hub.Config().CAData, k.token(k.admin, "open-cluster-management", "agent-registration-bootstrap"))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: registration.DefaultBootstrapSecret}, Data: map[string][]byte{"kubeconfig": bootstrap}}
	if err := k.local.Create(k.t.Context(), secret); err != nil {
		k.t.Fatal(err)
	}
	role, err := awsirsa.AgentRole(hub, m.arn, k.managed.IssuerURL(), "")
	if err != nil {
		k.t.Fatal(err)
	}
	for _, s := range role.Trust.Statement { // the agents of this test share a cluster
		for key, values := range s.Condition["StringEquals"] {
			s.Condition["StringEquals"][key] = awsirsa.OneOrMany{strings.Replace(values[0], registration.DefaultAgentNamespace, m.namespace, 1)}
		}
	}
	k.createRole(managedAccount, role)
	agentEnvironment(k.t, k.aws)
	file := filepath.Join(k.t.TempDir(), "token")
	k.write(file, []byte(k.token(k.local, m.namespace, account, audience)))
	for variable, value := range map[string]string{"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_ROLE_ARN": role.ARN, "AWS_WEB_IDENTITY_TOKEN_FILE": file} {
		k.t.Setenv(variable, value)
	}
	driver := newDriver(k.t, func(o *awsirsa.Options) {
		o.Managed, o.AuthOptions = m.arn.String(), []auth.Option{auth.WithHTTPClient(k.aws.Client())}
	})
	m.agent, err = registration.NewAgent(registration.AgentOptions{Cluster: name, Driver: driver, Namespace: m.namespace,
		Local: k.client(withToken(k.managed.Config(), k.token(k.local, m.namespace, account)))})
	if err != nil {
		k.t.Fatal(err)
	}
	return m
}

// until makes passes, more often than the agent asks for.
func (m *member) until(what string, done func() bool) {
	m.t.Helper()
	defer func() {
		if m.t.Failed() {
			object := &ocm.ManagedCluster{}
			_ = m.admin.Get(context.Background(), client.ObjectKey{Name: m.name}, object)
			m.t.Logf("the last pass of cluster %q gave %v, its conditions are %+v", m.name, m.failed, object.Status.Conditions)
		}
	}()
	eventually(m.t, what, func() bool {
		_, m.failed = m.agent.Reconcile(m.t.Context(), reconcile.Request{})
		return done()
	})
}

// accept lets a waiting cluster in.
func (m *member) accept() {
	m.t.Helper()
	m.until("the cluster shows up", func() bool { return m.failed == nil })
	m.patch(m.admin, m.name, `{"spec":{"hubAcceptsClient":true}}`)
	m.until("the cluster joins", func() bool {
		return m.reason(m.name, ocm.ConditionJoined) == "True/ManagedClusterJoined" && m.reason(m.name, awsirsa.ConditionReady) == "True/KubeconfigWritten"
	})
}

// own returns a client with the agent's credential.
func (m *member) own() client.Client {
	m.t.Helper()
	config, err := m.agent.HubConfig(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	return m.client(config)
}

// inAWS reports whether the cluster's role and access entry exist.
func (m *member) inAWS() (role, entry bool) {
	for _, arn := range m.aws.AWS().Roles() {
		role = role || arn == m.hubRole
	}
	_, entry = m.aws.AWS().EKSAccessEntries(hubARN)[m.hubRole]
	return role, entry
}
