package awsirsa

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/internal/advice"
	"github.com/workloadid/workloadid/registration/ocm"
)

// Options configures a Driver.
type Options struct {
	// Hub and Managed are the ARNs of the two clusters. Required.
	Hub, Managed string
	// Connect connects to the hub. Required. The driver calls it with the first
	// request of RESTConfig, and again after a failure. The configuration
	// renews its tokens and outlives ctx. Package auth/aws provides all of it:
	//
	//	func(ctx context.Context, hub awsirsa.HubAccess) (*rest.Config, error) {
	//		return auth.GetClusterConfig(ctx, &aws.Provider{}, auth.WithClusterResource(hub.Cluster),
	//			auth.WithClusterAddress(hub.Server), auth.WithCAData(string(hub.CAData)),
	//			aws.WithAssumeRole(aws.AssumeRole{RoleARN: hub.RoleARN}))
	//	}
	Connect func(ctx context.Context, hub HubAccess) (*rest.Config, error)
	// Refused reports whether an error of Connect, or of its configuration's
	// transport, is a refusal by AWS, such as auth.ErrDenied. The agent then
	// checks with its bootstrap credential whether the hub still accepts it.
	// Nil: no error is a refusal.
	Refused func(error) bool
}

// HubAccess describes an agent's access to its hub.
type HubAccess struct {
	// Cluster is the ARN of the hub.
	Cluster string
	// RoleARN is the ARN of the role that the agent assumes with its own role.
	// The role maps to the cluster's groups on the hub.
	RoleARN string
	// Server is the hub's address, and CAData its CA bundle in PEM, empty for
	// the CAs of the system.
	Server string
	CAData []byte
}

// Driver is the agent's half. It is safe for concurrent use.
type Driver struct {
	options      Options
	hub, managed ClusterARN
	// refused is the reason of AWS's last refusal of the hub's role, or nil.
	refused atomic.Pointer[string]
}

var (
	_ registration.Driver         = (*Driver)(nil)
	_ registration.Annotator      = (*Driver)(nil)
	_ registration.RESTConfigurer = (*Driver)(nil)
)

// New returns the agent's half of the driver.
func New(options Options) (*Driver, error) {
	hub, err := ParseClusterARN(options.Hub)
	if err != nil {
		return nil, fmt.Errorf("awsirsa: Options.Hub: %w", err)
	}
	managed, err := ParseClusterARN(options.Managed)
	if err != nil {
		return nil, fmt.Errorf("awsirsa: Options.Managed: %w", err)
	}
	if err := checkPair(hub, managed); err != nil {
		return nil, fmt.Errorf("awsirsa: %w", err)
	}
	if options.Connect == nil {
		return nil,
			errors.New(
				"awsirsa: Options.Connect is missing: set it to a function that calls auth.GetClusterConfig with auth/aws")
	}
	return &Driver{options: options, hub: hub, managed: managed}, nil
}

// Name returns "aws-irsa".
func (d *Driver) Name() string { return registration.AuthTypeAWS }

// Annotations returns the claim of the ManagedCluster, for hubs of Open Cluster
// Management too.
func (d *Driver) Annotations() map[string]string {
	return map[string]string{ARNAnnotation: d.managed.String(), OCMARNAnnotation: d.managed.String(),
		OCMSuffixAnnotation: RoleSuffix(d.hub, d.managed)}
}

// Next implements [registration.Driver]. It makes no call, because the
// kubeconfig holds no secret and follows from the two ARNs. The agent stores it
// once the hub has accepted the cluster.
func (d *Driver) Next(_ context.Context, in registration.Input) (registration.Step, error) {
	if in.Addon != "" {
		return registration.Step{}, fmt.Errorf("add-ons cannot use the auth type %q: register add-on %q by csr or token",
			d.Name(), in.Addon)
	}
	step := registration.Step{State: maps.Clone(in.State)}
	if !meta.IsStatusConditionTrue(in.Conditions, ocm.ConditionHubAccepted) {
		step.Condition = ready(metav1.ConditionFalse, "WaitingForAcceptance", d.waiting(in))
		return step, nil
	}
	step.Credential = &registration.Credential{User: &clientcmdapi.AuthInfo{Exec: d.exec()}}
	step.Condition = ready(metav1.ConditionTrue, "KubeconfigWritten",
		fmt.Sprintf("The agent uses the role %q on the hub %q.", GrantedRoleARN(d.hub, d.managed), d.hub))
	if why := d.refused.Load(); why != nil {
		step.Condition = ready(metav1.ConditionFalse, "RoleRefused", *why)
	}
	return step, nil
}

// waiting returns the hub's reason for the wait.
func (d *Driver) waiting(in registration.Input) string {
	message := fmt.Sprintf("Cluster %q waits for the hub %q to accept %q: run %s there.", in.Cluster, d.hub, d.managed,
		advice.Accept(in.Cluster))
	if c := meta.FindStatusCondition(in.Conditions, ocm.ConditionHubAccepted); c != nil {
		message += fmt.Sprintf(" The hub says %.100q: %.500q", c.Reason, c.Message)
	}
	return message
}

func ready(status metav1.ConditionStatus, reason, message string) *metav1.Condition {
	return &metav1.Condition{Type: ocm.ConditionIAMRoleReady, Status: status, Reason: reason, Message: message}
}

// exec lets other clients get a token. The agent itself runs no program.
func (d *Driver) exec() *clientcmdapi.ExecConfig {
	return &clientcmdapi.ExecConfig{APIVersion: "client.authentication.k8s.io/v1beta1", Command: "aws",
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		Args: []string{"eks", "get-token", "--region", d.hub.Region, "--cluster-name", d.hub.Name, "--output", "json",
			"--role-arn", GrantedRoleARN(d.hub, d.managed)}}
}

// RESTConfig implements [registration.RESTConfigurer]. It uses only the stored
// address and CA of the hub, which the agent has checked. Each request carries
// a token that is valid at that time. RESTConfig itself does not call AWS; the
// first request does.
func (d *Driver) RESTConfig(_ context.Context, stored map[string][]byte) (*rest.Config, error) {
	kubeconfig, err := clientcmd.Load(stored[registration.SecretKeyKubeconfig])
	if err != nil {
		return nil, errors.New("the stored kubeconfig cannot be parsed: delete the Secret, and the agent writes it again")
	}
	current := kubeconfig.Contexts[kubeconfig.CurrentContext]
	if current == nil || kubeconfig.Clusters[current.Cluster] == nil {
		return nil, errors.New("the stored kubeconfig names no cluster: delete the Secret, and the agent writes it again")
	}
	hub := kubeconfig.Clusters[current.Cluster]
	config := &rest.Config{Host: hub.Server, TLSClientConfig: rest.TLSClientConfig{CAData: hub.CertificateAuthorityData}}
	access := HubAccess{Cluster: d.hub.String(), RoleARN: GrantedRoleARN(d.hub, d.managed), Server: hub.Server,
		CAData: hub.CertificateAuthorityData}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &hubTransport{driver: d, access: access, next: next}
	})
	return config, nil
}

// hubTransport gets its credentials with the first request.
type hubTransport struct {
	driver *Driver
	access HubAccess
	next   http.RoundTripper
	inner  atomic.Pointer[http.RoundTripper]
}

// RoundTrip implements http.RoundTripper. If AWS refuses the role, the error
// counts as a 401 of the hub. The agent then returns to its bootstrap
// credential, with which it checks whether the hub still accepts it.
func (t *hubTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.send(r)
	if err == nil {
		t.driver.refused.Store(nil)
	}
	if err == nil || t.driver.options.Refused == nil || !t.driver.options.Refused(err) {
		return response, err
	}
	why := fmt.Sprintf(
		"AWS refuses the role %q. It exists once the hub has accepted the cluster; the agent needs to run as %q, with the tags of this pair. %s",
		GrantedRoleARN(t.driver.hub, t.driver.managed), AgentRoleARN(t.driver.hub, t.driver.managed),
		strings.TrimSpace(err.Error()))
	t.driver.refused.Store(&why)
	return nil, fmt.Errorf("%w: %w", apierrors.NewUnauthorized(why), err)
}

func (t *hubTransport) send(r *http.Request) (*http.Response, error) {
	inner := t.inner.Load()
	if inner == nil {
		config, err := t.driver.options.Connect(r.Context(), t.access)
		if err != nil {
			closeBody(r)
			return nil, err
		}
		made := config.WrapTransport(t.next)
		inner = &made
		t.inner.CompareAndSwap(nil, inner)
	}
	return (*inner).RoundTrip(r)
}

// closeBody closes the body, as a RoundTripper must if it does not send the
// request.
func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// WrappedRoundTripper lets client-go find the transport underneath.
func (t *hubTransport) WrappedRoundTripper() http.RoundTripper { return t.next }
