package awsirsa_test

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/ocm"
)

func newDriver(t testing.TB, change ...func(*awsirsa.Options)) *awsirsa.Driver {
	t.Helper()
	options := awsirsa.Options{Hub: hubARN, Managed: managedARN, Connect: connect(), Refused: isDenied}
	for _, f := range change {
		f(&options)
	}
	d, err := awsirsa.New(options)
	regtest.Must(t, err)
	return d
}

func input(accepted metav1.ConditionStatus) registration.Input {
	in := registration.Input{Now: time.Now(), Cluster: "shop1", Agent: "agent1"}
	if accepted != "" {
		in.Conditions = []metav1.Condition{{Type: ocm.ConditionHubAccepted, Status: accepted, Reason: "GrantFailed",
			Message: "the ARN is that of another cluster"}}
	}
	return in
}

func next(t testing.TB, d *awsirsa.Driver, in registration.Input) registration.Step {
	t.Helper()
	step, err := d.Next(t.Context(), in)
	regtest.Must(t, err)
	return step
}

func TestAgentWaitsForAcceptanceByItsStatus(t *testing.T) {
	d := newDriver(t)
	for _, status := range []metav1.ConditionStatus{"", metav1.ConditionFalse, metav1.ConditionUnknown} {
		step := next(t, d, input(status))
		if step.Credential != nil || step.Condition == nil || step.Condition.Status != metav1.ConditionFalse ||
			step.Condition.Reason != "WaitingForAcceptance" {
			t.Errorf("status %q: %+v", status, step)
		}
		if status != "" && !strings.Contains(step.Condition.Message, "that of another cluster") {
			t.Errorf("status %q: the condition does not repeat the hub's: %q", status, step.Condition.Message)
		}
	}
	if step := next(t, d, input(metav1.ConditionTrue)); step.Credential == nil ||
		step.Condition.Status != metav1.ConditionTrue {
		t.Errorf("accepted: %+v", step)
	}
}

func TestKubeconfigRunsThePlugin(t *testing.T) {
	role := awsirsa.GrantedRoleARN(pair(t))
	want :=
		"client.authentication.k8s.io/v1beta1 aws eks get-token --region eu-central-1 --cluster-name hub --output json --role-arn " + role
	step := next(t, newDriver(t), input(metav1.ConditionTrue))
	e := step.Credential.User.Exec
	if got := e.APIVersion + " " + e.Command + " " + strings.Join(e.Args, " "); got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if len(step.Credential.Files) > 0 {
		t.Errorf("stores %q: it needs no secret", slices.Collect(maps.Keys(step.Credential.Files)))
	}
}

func TestAnnotationsAreWhatTheHubClaims(t *testing.T) {
	hub, managed := pair(t)
	want := map[string]string{"eks-managed-cluster-arn": managedARN,
		"agent.open-cluster-management.io/managed-cluster-arn":             managedARN,
		"agent.open-cluster-management.io/managed-cluster-iam-role-suffix": awsirsa.RoleSuffix(hub, managed)}
	d := newDriver(t)
	if got := d.Annotations(); !maps.Equal(got, want) {
		t.Errorf("annotations %q", got)
	}
	checkClaim(t, d.Annotations(), true, false)
}

func TestNewRefuses(t *testing.T) {
	for name, change := range map[string]func(*awsirsa.Options){
		"no hub":          func(o *awsirsa.Options) { o.Hub = "" },
		"no cluster":      func(o *awsirsa.Options) { o.Managed = "foo" },
		"other partition": func(o *awsirsa.Options) { o.Managed = "arn:aws-cn:eks:cn-north-1:222222222222:cluster/shop" },
	} {
		t.Run(name, func(t *testing.T) {
			options := awsirsa.Options{Hub: hubARN, Managed: managedARN, Connect: connect(), Refused: isDenied}
			change(&options)
			if _, err := awsirsa.New(options); err == nil {
				t.Error("accepted")
			}
		})
	}
}

func TestAddonsAreRefused(t *testing.T) {
	in := input(metav1.ConditionTrue)
	in.Addon = "search"
	if _, err := newDriver(t).Next(t.Context(), in); err == nil {
		t.Error("an add-on gets a credential")
	}
}

// hubServer is a hub's API server that answers with the role of the token's
// identity, or 401.
func hubServer(t *testing.T, cloud *cloudtest.Cloud) (server *httptest.Server, roles *[]string) {
	t.Helper()
	roles = &[]string{}
	server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		encoded, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer k8s-aws-v1.")
		signed, err := base64.RawURLEncoding.DecodeString(encoded)
		if err != nil {
			t.Error(err)
		}
		u, err := url.Parse(string(signed))
		if err != nil {
			t.Error(err)
			return
		}
		keyID, _, _ := strings.Cut(u.Query().Get("X-Amz-Credential"), "/")
		id, ok := cloud.AWS().Identity(keyID)
		if !ok || !strings.Contains(u.Query().Get("X-Amz-SignedHeaders"), "x-k8s-aws-id") ||
			!strings.HasPrefix(u.Host, "sts.eu-central-1.") {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		*roles = append(*roles, id.RoleARN)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"major":"1","minor":"36"}`))
	}))
	t.Cleanup(server.Close)
	return server, roles
}

// agentEnvironment is that of a process with credentials of AWS, as a user of
// the managed cluster's account.
func agentEnvironment(t *testing.T, cloud *cloudtest.Cloud) (arn string) {
	t.Helper()
	id, secret := cloud.AWS().AddUser("222222222222", "agent")
	nothing := filepath.Join(t.TempDir(), "nothing")
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": id, "AWS_SECRET_ACCESS_KEY": secret,
		"AWS_CONFIG_FILE":             nothing,
		"AWS_SHARED_CREDENTIALS_FILE": nothing, "AWS_EC2_METADATA_DISABLED": "true", "AWS_REGION": "eu-west-1",
		"AWS_PROFILE": "", "AWS_ROLE_ARN": "",
		"PATH": t.TempDir()} { // no program can be run
		t.Setenv(name, value)
	}
	return "arn:aws:iam::222222222222:user/agent"
}

// restConfig makes the configuration as the agent does, whose server is the hub
// of the test.
func restConfig(t *testing.T, d *awsirsa.Driver, server *httptest.Server) *rest.Config {
	t.Helper()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["hub"] = &clientcmdapi.Cluster{Server: server.URL, CertificateAuthorityData: ca}
	// What a stored user says has no effect.
	kubeconfig.AuthInfos["agent"] = &clientcmdapi.AuthInfo{TokenFile: "/etc/passwd",
		Exec: &clientcmdapi.ExecConfig{APIVersion: "client.authentication.k8s.io/v1",
			Command: "/bin/false", InteractiveMode: clientcmdapi.NeverExecInteractiveMode}}
	kubeconfig.Contexts["hub"] = &clientcmdapi.Context{Cluster: "hub", AuthInfo: "agent"}
	kubeconfig.CurrentContext = "hub"
	content, err := clientcmd.Write(*kubeconfig)
	regtest.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	config, err := d.RESTConfig(ctx, map[string][]byte{"kubeconfig": content})
	cancel() // the configuration outlives it
	regtest.Must(t, err)
	if config.ExecProvider != nil || config.BearerTokenFile != "" || config.AuthProvider != nil {
		t.Errorf("the configuration follows the stored user: %v", config)
	}
	return config
}

func newCloudOfAWS(t *testing.T) *cloudtest.Cloud {
	t.Helper()
	cloud, err := cloudtest.NewCloud()
	regtest.Must(t, err)
	t.Cleanup(cloud.Close)
	return cloud
}

// connect connects as an agent's program does.
func connect(opts ...auth.Option) func(context.Context, awsirsa.HubAccess) (*rest.Config, error) {
	return func(ctx context.Context, hub awsirsa.HubAccess) (*rest.Config, error) {
		return auth.GetClusterConfig(ctx, &aws.Provider{},
			append(opts[:len(opts):len(opts)], auth.WithClusterResource(hub.Cluster), auth.WithClusterAddress(hub.Server),
				auth.WithCAData(string(hub.CAData)), aws.WithAssumeRole(aws.AssumeRole{RoleARN: hub.RoleARN}))...)
	}
}

func isDenied(err error) bool { return errors.Is(err, auth.ErrDenied) }

func TestInProcessClientsUseTheHubRole(t *testing.T) {
	cloud := newCloudOfAWS(t)
	agent, hubRole := agentEnvironment(t, cloud), awsirsa.GrantedRoleARN(pair(t))
	server, roles := hubServer(t, cloud)
	d := newDriver(t, func(o *awsirsa.Options) { o.Connect = connect(auth.WithHTTPClient(cloud.Client())) })
	config := restConfig(t, d, server)
	if calls := len(cloud.Log()); calls > 0 {
		t.Errorf("%d calls of AWS before the first request", calls)
	}
	kube, err := kubernetes.NewForConfig(config)
	regtest.Must(t, err)

	// The hub has not made the role yet, or has revoked the cluster.
	_, err = kube.ServerVersion()
	if !apierrors.IsUnauthorized(err) || len(*roles) > 0 {
		t.Fatalf("without a role: %v, seen by the hub as %q", err, *roles)
	}
	// The agent's own client looks for the kinds of the hub first.
	own, err := client.New(config, client.Options{Scheme: regtest.Scheme(t)})
	regtest.Must(t, err)
	if err := own.Get(t.Context(), client.ObjectKey{Name: "shop1"},
		&ocm.ManagedCluster{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("the agent's client gets %v", err)
	}
	condition := next(t, d, input(metav1.ConditionTrue)).Condition
	if condition.Status != metav1.ConditionFalse || condition.Reason != "RoleRefused" ||
		!strings.Contains(condition.Message, hubRole) {
		t.Errorf("condition %+v", condition)
	}

	cloud.AWS().SetRole(hubRole, cloudtest.Trust{Principals: []string{agent}})
	config = restConfig(t, d, server) // the agent makes clients anew; the failed one waits before it asks AWS again
	if kube, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := kube.ServerVersion(); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{hubRole, hubRole, hubRole}; !slices.Equal(*roles, want) {
		t.Errorf("the hub sees the roles %q", *roles)
	}
	if n := cloud.Calls("eks", "DescribeCluster"); n > 0 {
		t.Errorf("DescribeCluster was called %d times", n)
	}
	if step := next(t, d, input(metav1.ConditionTrue)); step.Condition.Status != metav1.ConditionTrue {
		t.Errorf("condition %+v", step.Condition)
	}
}

func TestStoredKubeconfigThatIsNone(t *testing.T) {
	for name, content := range map[string]string{"empty": "", "text": "::",
		"no cluster": "apiVersion: v1\nkind: Config\n"} {
		t.Run(name, func(t *testing.T) {
			if _, err := newDriver(t).RESTConfig(t.Context(), map[string][]byte{"kubeconfig": []byte(content)}); err == nil {
				t.Error("accepted")
			}
		})
	}
}
