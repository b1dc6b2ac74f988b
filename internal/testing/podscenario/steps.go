package podscenario

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	manifests "github.com/workloadid/workloadid/config/iam-credentials-provider"
	"github.com/workloadid/workloadid/internal/podidentity"
	"github.com/workloadid/workloadid/internal/testing/scenario"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/podidentity/server"
)

const (
	account    = "123456789012"
	serverRole = "arn:aws:iam::" + account + ":role/iam-credentials-provider"
	teamRoles  = "arn:aws:iam::" + account + ":role/team-a/"
	app        = "reporting"
)

// tenantObjects are the administrator's: what namespace team-a may use, and
// that its pods are injected.
const tenantObjects = `
apiVersion: v1
kind: Namespace
metadata:
  name: team-a
  labels: {iam.aws.k8s.io/injection: enabled, pod-security.kubernetes.io/enforce: restricted}
---
apiVersion: iam.aws.k8s.io/v1alpha1
kind: IAMRoleAllowList
metadata: {name: cluster}
spec:
  rules: [{namespaces: [team-a], roles: ["arn:aws:iam::123456789012:role/team-a/*"]}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {namespace: team-a, name: reporting}
`

const podManifest = `
apiVersion: v1
kind: Pod
metadata: {namespace: team-a, name: reporting-0}
spec:
  serviceAccountName: reporting
  securityContext: {runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: app
    image: registry.example/reporting:v1
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
`

// Install applies the manifests that server and webhook need.
func (s *Scenario) Install(ctx context.Context) error {
	if _, err := scenario.Apply(ctx, s.Admin, v1alpha1.BindingCRD(), v1alpha1.AllowListCRD(), v1alpha1.Policy(),
		manifests.Namespace(), manifests.RBAC()); err != nil {
		return err
	}
	s.Step(
		"The manifests are applied: the kinds IAMBinding and IAMRoleAllowList, an admission policy, and the RBAC of server and webhook.")
	return s.AwaitKinds(ctx)
}

// AwaitKinds waits until the API server serves what the manifests define.
func (s *Scenario) AwaitKinds(ctx context.Context) error {
	return scenario.Wait(ctx, "the API server does not serve IAMBindings", func(ctx context.Context) (bool, error) {
		return true, servesKinds(ctx, s.Admin)
	})
}

// Start runs server and webhook.
func (s *Scenario) Start(ctx context.Context) error {
	forServer, err := s.ConfigOf(ctx, ServerAccount)
	if err != nil {
		return err
	}
	forWebhook, err := s.ConfigOf(ctx, WebhookAccount)
	if err != nil {
		return err
	}
	s.Go("server", func() error { return s.RunServer(ctx, forServer) })
	s.Go("webhook", func() error { return s.RunWebhook(ctx, forWebhook) })
	if err := s.registerWebhook(ctx); err != nil {
		return err
	}
	s.Step(
		"The server and the webhook start, with the rights of their ServiceAccounts. In AWS the server has a role of its own.")
	s.Detail("server", "%s", s.ServerURL())
	s.Detail("role", "%s", serverRole)
	return nil
}

// ServerURL is the address of the server for sidecars.
func (s *Scenario) ServerURL() string { return "https://" + s.Server }

// registerWebhook applies its manifest, with an address of this machine instead
// of a Service.
func (s *Scenario) registerWebhook(ctx context.Context) error {
	registration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := yaml.UnmarshalStrict([]byte(manifests.WebhookConfiguration()), registration); err != nil {
		return err
	}
	for i := range registration.Webhooks {
		hook := &registration.Webhooks[i]
		url := "https://" + s.Webhook + *hook.ClientConfig.Service.Path
		hook.ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: s.ca}
	}
	return s.Admin.Create(ctx, registration)
}

// Allow creates the tenant's namespace and lets it use roles.
func (s *Scenario) Allow(ctx context.Context) error {
	if _, err := scenario.Apply(ctx, s.Admin, tenantObjects); err != nil {
		return err
	}
	s.Step("The administrator creates the namespace %q, whose pods are injected, and allows it a family of roles.", Tenant)
	s.Detail("Pod Security", "restricted")
	s.Detail("roles", "%s*", teamRoles)
	return nil
}

// binding returns an IAMBinding of the application.
func binding(name, role string) *v1alpha1.IAMBinding {
	b := Binding(Tenant, app, role)
	b.Name, b.GenerateName = name, ""
	return b
}

// Bind creates the role with the trust policy that wid pod-identity
// trust-policy prints.
func (s *Scenario) Bind(ctx context.Context) error {
	b := binding(app, teamRoles+app)
	policy, err := server.TrustPolicy(ClusterName, serverRole, b)
	if err != nil {
		return err
	}
	id, secret := s.Cloud.AWS().AddUser(account, "team-a")
	roles := iam.New(iam.Options{Region: Region, HTTPClient: s.Cloud.Client(),
		Credentials: credentials.NewStaticCredentialsProvider(id, secret, "")})
	if _, err := roles.CreateRole(ctx,
		&iam.CreateRoleInput{RoleName: aws.String(app), Path: aws.String("/" + Tenant + "/"),
			AssumeRolePolicyDocument: aws.String(string(policy))}); err != nil {
		return err
	}
	if err := scenario.Wait(ctx, "the API server admits no IAMBinding", func(ctx context.Context) (bool, error) {
		return true, client.IgnoreAlreadyExists(s.Admin.Create(ctx, b))
	}); err != nil {
		return err
	}
	assumable, err := s.condition(ctx, v1alpha1.ConditionRoleAssumable, metav1.ConditionTrue)
	if err != nil {
		return err
	}
	s.Step(
		"The team creates a role, with the trust policy that wid pod-identity trust-policy prints, and an IAMBinding. The server tries the role.")
	s.Detail("role", "%s", b.Spec.AWS.RoleARN)
	s.Detail("condition", "%s is %s: %s", assumable.Type, assumable.Status, assumable.Message)
	return nil
}

// condition waits until a condition of the binding has a status.
func (s *Scenario) condition(ctx context.Context, kind string,
	status metav1.ConditionStatus) (found *metav1.Condition, err error) {
	err = scenario.Wait(ctx, fmt.Sprintf("%s does not become %s", kind, status), func(ctx context.Context) (bool, error) {
		b := &v1alpha1.IAMBinding{}
		err := s.Admin.Get(ctx, client.ObjectKey{Namespace: Tenant, Name: app}, b)
		found = meta.FindStatusCondition(b.Status.Conditions, kind)
		return found != nil && found.Status == status, err
	})
	return found, err
}

// NewPod returns a pod of the tenant.
func NewPod(name string) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := yaml.UnmarshalStrict([]byte(podManifest), pod)
	pod.Name = name
	return pod, err
}

// Inject creates the pod, and requests its token as the kubelet does.
func (s *Scenario) Inject(ctx context.Context) (err error) {
	if s.Pod, err = NewPod(app + "-0"); err != nil {
		return err
	}
	err = scenario.Wait(ctx, "the webhook does not inject", func(ctx context.Context) (bool, error) {
		dry := s.Pod.DeepCopy()
		err := s.Admin.Create(ctx, dry, client.DryRunAll)
		return len(dry.Spec.InitContainers) > 0, err
	})
	if err != nil {
		return err
	}
	if err := s.Admin.Create(ctx, s.Pod); err != nil {
		return err
	}
	sidecar, container := &s.Pod.Spec.InitContainers[0], &s.Pod.Spec.Containers[0]
	for _, v := range sidecar.Env {
		if v.Name == "WORKLOADID_SERVER_CA" {
			s.ca = []byte(v.Value)
		}
	}
	s.Step("The team creates a pod, which says nothing of AWS. On its way through admission the webhook injects:")
	s.Detail("sidecar", "%s", sidecar.Name)
	s.Detail("runs", "%s %s", sidecar.Command[0], strings.Join(sidecar.Args, " "))
	for _, v := range s.Pod.Spec.Volumes {
		if v.Name == podidentity.TokenVolume {
			s.Detail("token", "of the audience %s", v.Projected.Sources[0].ServiceAccountToken.Audience)
		}
	}
	for _, v := range container.Env {
		s.Detail("container", "%s has %s", container.Name, v.Name)
	}
	s.Token, err = RequestToken(ctx, s.Admin, Tenant, app, s.Pod, Audience)
	return err
}

// RefuseRole tries a role that the tenant may not use.
func (s *Scenario) RefuseRole(ctx context.Context) error {
	var refused error
	err := scenario.Wait(ctx, "the API server admits every role", func(ctx context.Context) (bool, error) {
		refused = s.Admin.Create(ctx, binding("escape", "arn:aws:iam::"+account+":role/admin"), client.DryRunAll)
		return apierrors.IsForbidden(refused), nil
	})
	s.Step("The team tries a role that the administrator has not allowed.")
	s.Detail("answer", "%s", refused)
	return err
}

// Conflict creates a second IAMBinding of the ServiceAccount, and deletes it.
func (s *Scenario) Conflict(ctx context.Context) error {
	start := time.Now()
	second := binding("second", teamRoles+app)
	if err := s.Admin.Create(ctx, second); err != nil {
		return err
	}
	answer, err := s.awaitRefusal(ctx, http.StatusForbidden)
	if err != nil {
		return err
	}
	took := time.Since(start)
	condition, err := s.condition(ctx, v1alpha1.ConditionConflict, metav1.ConditionTrue)
	if err != nil {
		return err
	}
	s.Step(
		"The team creates a second IAMBinding of the same ServiceAccount. Neither of them serves, and the running pod gets no new credentials.")
	s.Detail("condition", "%s is %s", condition.Type, condition.Status)
	s.Detail("answer", "%s", answer)
	s.Detail("after", "%s", took.Round(time.Millisecond))
	refusal, err := s.refusedPod(ctx)
	if err != nil {
		return err
	}
	s.Detail("next pod", "%s", refusal)
	return s.Admin.Delete(ctx, second)
}

// refusedPod waits until the webhook knows of the conflict too, and returns its
// answer.
func (s *Scenario) refusedPod(ctx context.Context) (answer string, err error) {
	pod, err := NewPod(app + "-1")
	if err != nil {
		return "", err
	}
	err = scenario.Wait(ctx, "the webhook admits another pod", func(ctx context.Context) (bool, error) {
		refused := s.Admin.Create(ctx, pod.DeepCopy(), client.DryRunAll)
		answer = fmt.Sprint(refused)
		return apierrors.IsForbidden(refused), nil
	})
	return answer, err
}

// AwaitCredentials waits until the server serves the pod.
func (s *Scenario) AwaitCredentials(ctx context.Context) error {
	return scenario.Wait(ctx, "the pod gets no credentials", func(ctx context.Context) (bool, error) {
		answer, err := s.Ask(ctx)
		return answer.Status == http.StatusOK, err
	})
}

// End deletes the pod.
func (s *Scenario) End(ctx context.Context) error {
	if err := s.AwaitCredentials(ctx); err != nil {
		return err
	}
	start := time.Now()
	if err := s.Admin.Delete(ctx, s.Pod, client.GracePeriodSeconds(0)); err != nil {
		return err
	}
	answer, err := s.awaitRefusal(ctx, http.StatusUnauthorized)
	if err != nil {
		return err
	}
	s.Step(
		"The second IAMBinding is gone, and the pod is served again. Then the pod is deleted. Its token has not expired, but the server refuses it.")
	s.Detail("answer", "%s", answer)
	s.Detail("after", "%s, since the API server caches its reviews of tokens for 10 s",
		time.Since(start).Round(time.Second))
	return nil
}

func (s *Scenario) awaitRefusal(ctx context.Context, want int) (answer Answer, err error) {
	err = scenario.Wait(ctx, fmt.Sprintf("the server does not answer with %d", want),
		func(ctx context.Context) (bool, error) {
			var err error
			answer, err = s.Ask(ctx)
			return answer.Status == want, err
		})
	return answer, err
}

// Answer is what the sidecar gets: the CAs with its credentials, or a reason.
type Answer struct {
	Status                  int `json:"-"`
	Code, Message, CABundle string
}

func (a Answer) String() string { return fmt.Sprintf("%d %s: %s", a.Status, a.Code, a.Message) }

// Ask asks the server as the sidecar does when it renews.
func (s *Scenario) Ask(ctx context.Context) (answer Answer, err error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.ca)
	transport := &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.ServerURL()+podidentity.Path, http.NoBody)
	if err != nil {
		return answer, err
	}
	request.Header.Set("Authorization", "Bearer "+s.Token)
	response, err := transport.RoundTrip(request)
	if err != nil {
		return answer, err
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	answer.Status = response.StatusCode
	return answer, json.NewDecoder(response.Body).Decode(&answer)
}
