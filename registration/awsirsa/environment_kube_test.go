package awsirsa_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/controlplane"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/csr"
	"github.com/workloadid/workloadid/registration/hub"
	"github.com/workloadid/workloadid/registration/ocm"
)

const (
	hubAccount, managedAccount = "111111111111", "222222222222"
	audience                   = "sts.amazonaws.com"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(run(m))
}

// run starts the authentication webhook of the hub's API server.
func run(m *testing.M) int {
	flags, stop, err := controlplane.TokenWebhook(tokens.verify)
	if err != nil {
		panic(err)
	}
	defer func() { _ = stop() }() // its folder is a temporary one
	return kubetest.Main(m, flags...).Run()
}

// tokens answers for the test that runs.
var tokens webhook

// webhook does what the authentication webhook of EKS, or
// aws-iam-authenticator, does.
type webhook struct {
	mu   sync.Mutex
	aws  *cloudtest.AWS
	seen []string // tokens that it has accepted
}

func (h *webhook) verify(token string) (authenticationv1.UserInfo, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	user, _, err := h.aws.VerifyEKSToken(hubARN, token)
	if err == nil {
		h.seen = append(h.seen, token)
	}
	return user, err
}

// serve starts anew with another AWS.
func (h *webhook) serve(aws *cloudtest.AWS) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.aws, h.seen = aws, nil
}

// accepted returns the tokens that it has accepted.
func (h *webhook) accepted() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(h.seen)))
}

// kube is an environment with an AWS of its own. The hub's controller runs with
// exactly the rights of the shipped manifests and the IAM role of HubRole. With
// AccessEntries the hub is on EKS and runs this driver alone. With AWSAuth it
// is not on EKS and also runs csr.
type kube struct {
	*regtest.Environment
	aws     *cloudtest.Cloud
	binding awsirsa.Binding
	said    *regtest.Recorder // by the hub
	dir     string
}

func newKube(t *testing.T, binding awsirsa.Binding) *kube {
	t.Helper()
	k := &kube{Environment: regtest.New(t), aws: newCloudOfAWS(t), binding: binding, said: &regtest.Recorder{},
		dir: t.TempDir()}
	agentEnvironment(t, k.aws)
	tokens.serve(k.aws.AWS())
	k.aws.AWS().AddOIDCProvider(hubAccount, k.Hub.IssuerURL(), k.Hub.IssuerClient(t), audience)
	k.aws.AWS().AddOIDCProvider(managedAccount, k.Managed.IssuerURL(), k.Managed.IssuerClient(t), audience)
	if binding == awsirsa.AWSAuth {
		k.aws.AWS().SetEKSAuthMap(hubARN, func() (string, error) { return k.authMap().Data["mapRoles"], nil })
		k.Apply(k.Admin, awsirsa.AWSAuthRBAC())
		k.Hub.ControllerManager(t, "csrsigning")
	} else {
		k.aws.AWS().SetEKSCluster(cloudtest.EKSCluster{ARN: hubARN, Endpoint: k.Hub.Config().Host, CA: k.Hub.Config().CAData})
	}
	createRole(t, k.aws, hubAccount, k.hubRole())
	k.RunHub(k.configure)
	// EKS and STS do not know a new role at once.
	k.aws.AWS().SetConsistencyDelay(0, 1)
	return k
}

func (k *kube) hubRole() awsirsa.Role {
	k.T.Helper()
	role, err := awsirsa.HubRole(awsirsa.ClusterARN(mustParse(k.T, hubARN)), k.Hub.IssuerURL(), k.binding)
	regtest.Must(k.T, err)
	return role
}

// tokenFile writes what the kubelet mounts on EKS.
func (k *kube) tokenFile(c client.Client, namespace, account string) (file string) {
	k.T.Helper()
	file = filepath.Join(k.dir, namespace)
	regtest.Must(k.T, os.WriteFile(file, []byte(k.Token(c, namespace, account, audience)), 0o600))
	return file
}

func (k *kube) configure(mgr ctrl.Manager) (hub.Options, error) {
	creds := aws.NewCredentialsCache(
		stscreds.NewWebIdentityRoleProvider(sts.New(sts.Options{Region: "eu-central-1", HTTPClient: k.aws.Client()}),
			k.hubRole().ARN, stscreds.IdentityTokenFile(k.tokenFile(k.Admin, regtest.HubNamespace, regtest.HubAccount))))
	driver, err := awsirsa.NewHubDriver(awsirsa.HubDriverOptions{Hub: hubARN, Binding: k.binding,
		Client: regtest.NewClient(k.T, mgr.GetConfig()), // without a cache
		IAM:    iam.New(iam.Options{Region: "eu-central-1", HTTPClient: k.aws.Client(), Credentials: creds}),
		EKS:    eks.New(eks.Options{Region: "eu-central-1", HTTPClient: k.aws.Client(), Credentials: creds})})
	if err != nil || k.binding == awsirsa.AccessEntries {
		return hub.Options{Drivers: []registration.HubDriver{driver}, Recorder: k.said}, err
	}
	certificates,
		err := csr.NewHubDriver(csr.HubDriverOptions{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(),
		BootstrapUsers: []string{regtest.BootstrapUser}})
	return hub.Options{Drivers: []registration.HubDriver{certificates, driver}, Default: registration.AuthTypeCSR,
		Recorder: k.said}, err
}

// authMap returns the ConfigMap aws-auth, an empty one if there is none.
func (k *kube) authMap() *corev1.ConfigMap {
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "aws-auth"}}
	if err := k.Admin.Get(k.T.Context(), client.ObjectKeyFromObject(configMap),
		configMap); client.IgnoreNotFound(err) != nil {
		k.T.Error(err)
	}
	return configMap
}

// setAuthMap writes what another writes into aws-auth.
func (k *kube) setAuthMap(mapRoles string) {
	k.T.Helper()
	configMap := k.authMap()
	configMap.Data = map[string]string{"mapRoles": mapRoles, "mapUsers": "[]"}
	write := func() error { return k.Admin.Update(k.T.Context(), configMap) }
	if configMap.ResourceVersion == "" {
		write = func() error { return k.Admin.Create(k.T.Context(), configMap) }
	}
	regtest.Must(k.T, write())
}

// finish deletes all clusters of the test, and expects that the hub leaves
// nothing in AWS and none of their RBAC.
func (k *kube) finish() {
	k.T.Helper()
	all := &ocm.ManagedClusterList{}
	regtest.Must(k.T, k.Admin.List(k.T.Context(), all))
	for _, cluster := range all.Items {
		regtest.Must(k.T, client.IgnoreNotFound(k.Admin.Delete(k.T.Context(), &cluster)))
		kubetest.Eventually(k.T, "the hub lets cluster "+cluster.Name+" go", func() bool {
			return k.Cluster(cluster.Name).Name == ""
		})
		if there := k.RBAC(cluster.Name); len(there) > 0 {
			k.T.Errorf("left of cluster %q: %q", cluster.Name, there)
		}
	}
	roles := slices.DeleteFunc(k.aws.AWS().Roles(), func(arn string) bool {
		return !strings.Contains(arn, ":role/ocm-hub-")
	})
	if entries := k.aws.AWS().EKSAccessEntries(hubARN); len(roles)+len(entries) > 0 ||
		strings.Contains(k.authMap().Data["mapRoles"], ":role/ocm-hub-") {
		k.T.Errorf("left in AWS: roles %q, access entries %v, and in aws-auth %q", roles, entries, k.authMap().Data)
	}
	if err := k.Admin.Delete(k.T.Context(), k.authMap()); client.IgnoreNotFound(err) != nil {
		k.T.Error(err)
	}
}

// member is a managed cluster on EKS. Its agent has the IAM role of AgentRole.
type member struct {
	*regtest.Member
	kube      *kube
	arn       awsirsa.ClusterARN
	role      string // ARN of the agent's role
	hubRole   string // ARN of its role on the hub
	tokenFile string
	options   awsirsa.Options
}

func (k *kube) join(name string) *member {
	k.T.Helper()
	hub, arn := mustParse(k.T, hubARN), mustParse(k.T, "arn:aws:eks:eu-west-1:"+managedAccount+":cluster/"+name)
	m := &member{Member: k.NewMember(name, "klusterlet-registration-sa"), kube: k, arn: arn,
		role: awsirsa.AgentRoleARN(hub, arn), hubRole: awsirsa.GrantedRoleARN(hub, arn),
		options: awsirsa.Options{Hub: hubARN, Managed: arn.String(), Connect: connect(auth.WithHTTPClient(k.aws.Client())),
			Refused: isDenied}}
	role, err := awsirsa.AgentRole(hub, arn, k.Managed.IssuerURL(), "", "")
	regtest.Must(k.T, err)
	// the agents of this test share a cluster
	role.Trust = bytes.ReplaceAll(role.Trust, []byte(agent.DefaultNamespace), []byte(m.Namespace))
	createRole(k.T, k.aws, managedAccount, role)
	m.tokenFile = k.tokenFile(k.Local, m.Namespace, m.Account)
	m.restart()
	return m
}

// restart is a new process of the agent.
func (m *member) restart() {
	m.T.Helper()
	driver, err := awsirsa.New(m.options)
	regtest.Must(m.T, err)
	m.Start(agent.Options{Driver: driver})
}

// login gives the process the environment of the agent's pod. There is one at a
// time.
func (m *member) login() {
	m.T.Helper()
	for variable, value := range map[string]string{"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "",
		"AWS_ROLE_ARN": m.role, "AWS_WEB_IDENTITY_TOKEN_FILE": m.tokenFile} {
		m.T.Setenv(variable, value)
	}
}

func (m *member) until(what string, done func() bool) {
	m.T.Helper()
	m.login()
	m.Until(what, done)
}

func (m *member) own() client.Client {
	m.T.Helper()
	m.login()
	return m.Own()
}

// pending reconciles until the cluster waits for acceptance.
func (m *member) pending() {
	m.T.Helper()
	m.until("the cluster shows up", func() bool { return m.Failed == nil && m.Cluster(m.Name).Name != "" })
}

// ready reports whether the agent uses its role on the hub.
func (m *member) ready() bool {
	return m.Joined() && m.Reason(m.Name, ocm.ConditionIAMRoleReady) == "True/KubeconfigWritten"
}

// accept lets a waiting cluster in.
func (m *member) accept() {
	m.T.Helper()
	m.pending()
	m.SetAccepted(m.Name, true)
	m.until("the cluster joins", m.ready)
}

// expectBack waits until a cluster that is accepted again has its access. Its
// conditions do not say so: they are those of before.
func (m *member) expectBack() {
	m.T.Helper()
	m.until("the cluster is back", func() bool {
		config, err := m.Agent.HubConfig(m.T.Context())
		regtest.Must(m.T, err)
		own, err := client.New(config, client.Options{Scheme: regtest.Scheme(m.T)})
		return err == nil && m.Failed == nil &&
			own.Get(m.T.Context(), client.ObjectKey{Name: m.Name}, &ocm.ManagedCluster{}) == nil
	})
}

// inAWS reports whether the cluster's role and its mapping to groups of the hub
// exist.
func (m *member) inAWS() (role, mapping bool) {
	role = slices.Contains(m.kube.aws.AWS().Roles(), m.hubRole)
	if m.kube.binding == awsirsa.AWSAuth {
		return role, strings.Contains(m.kube.authMap().Data["mapRoles"], m.hubRole)
	}
	_, mapping = m.kube.aws.AWS().EKSAccessEntries(hubARN)[m.hubRole]
	return role, mapping
}

// expectGone waits until the hub has taken back everything.
func (m *member) expectGone() {
	m.T.Helper()
	kubetest.Eventually(m.T, "the hub has taken back everything", func() bool {
		role, mapping := m.inAWS()
		return !role && !mapping && len(m.RBAC(m.Name)) == 0
	})
}

// expectDenied is expectGone for a cluster that still exists.
func (m *member) expectDenied() {
	m.T.Helper()
	m.expectGone()
	kubetest.Eventually(m.T, "the hub says that the cluster is denied", func() bool {
		return m.Reason(m.Name, ocm.ConditionHubAccepted) == "False/"+ocm.ReasonHubDenied
	})
}
