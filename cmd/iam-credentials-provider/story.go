package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	awsauth "github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/auth/podidentity/proxy"
	"github.com/workloadid/workloadid/auth/podidentity/server"
	"github.com/workloadid/workloadid/auth/podidentity/webhook"
	"github.com/workloadid/workloadid/cache"
	manifests "github.com/workloadid/workloadid/config/iam-credentials-provider"
	"github.com/workloadid/workloadid/internal/testing/story"
)

const (
	account    = "123456789012"
	region     = "eu-central-1"
	serverRole = "arn:aws:iam::" + account + ":role/iam-credentials-provider"
	teamRoles  = "arn:aws:iam::" + account + ":role/team-a/"
	tenant     = "team-a"
	// webhookName is the ServiceAccount of the manifests.
	webhookName = "iam-credentials-webhook"
	app         = "reporting"
)

// tenantObjects are the administrator's: what namespace team-a may use, and that its pods are injected.
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

func (d *demo) steps() []func(context.Context) error {
	return []func(context.Context) error{d.install, d.start, d.allow, d.bind, d.inject, d.call, d.refuseRole, d.conflict, d.end}
}

func (d *demo) install(ctx context.Context) error {
	if _, err := story.Apply(ctx, d.admin, v1alpha1.BindingCRD, v1alpha1.AllowListCRD, v1alpha1.Policy, manifests.Namespace, manifests.RBAC); err != nil {
		return err
	}
	d.Step("The manifests are applied: the kinds IAMBinding and IAMRoleAllowList, an admission policy, and the RBAC of server and webhook.")
	return d.awaitKinds(ctx)
}

func (d *demo) awaitKinds(ctx context.Context) error {
	return story.Wait(ctx, "the API server does not serve IAMBindings", func(ctx context.Context) (bool, error) {
		return true, errors.Join(d.admin.List(ctx, &v1alpha1.IAMBindingList{}), d.admin.List(ctx, &v1alpha1.IAMRoleAllowListList{}))
	})
}

// start runs both programs with the rights of their ServiceAccounts.
func (d *demo) start(ctx context.Context) error {
	if err := d.configure(); err != nil {
		return err
	}
	forServer, err := d.configOf(ctx, name)
	if err != nil {
		return err
	}
	forWebhook, err := d.configOf(ctx, webhookName)
	if err != nil {
		return err
	}
	d.run("server", func() error { return runServer(ctx, forServer, d.server) })
	d.run("webhook", func() error { return runWebhook(ctx, forWebhook, d.webhook) })
	if err := d.registerWebhook(ctx); err != nil {
		return err
	}
	d.Step("The server and the webhook start, with the rights of their ServiceAccounts. In AWS the server has a role of its own.")
	d.Detail("server", "%s", d.webhook.server)
	d.Detail("role", "%s", serverRole)
	return nil
}

// configure fills the options. The login of the server is that of IAM roles for service accounts.
func (d *demo) configure() error {
	var addresses [3]string
	for i := range addresses {
		var err error
		if addresses[i], err = freeAddress(); err != nil {
			return err
		}
	}
	_, port, err := net.SplitHostPort(addresses[2])
	if err != nil {
		return err
	}
	fetch, err := rest.HTTPClientFor(rest.AnonymousClientConfig(d.cluster.Config()))
	if err != nil {
		return err
	}
	d.cloud.AWS().AddOIDCProvider(account, d.cluster.IssuerURL(), fetch, awsauth.DefaultAudience)
	d.cloud.AWS().SetRole(serverRole, authtest.Trust{Issuer: d.cluster.IssuerURL(), Subjects: []string{"system:serviceaccount:" + namespace + ":" + name}})
	own := corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{awsauth.RoleARNAnnotation: serverRole}}}
	login := []auth.Option{
		auth.WithSubjectToken(&auth.TokenRequest{Client: d.admin, ServiceAccount: &own}, own), auth.WithHTTPClient(d.cloud.Client()),
		// In a cluster it is the environment of the server's pod. Here it is a ServiceAccount, which serves bindings of other namespaces.
		auth.WithPolicy(auth.Policy{AllowCrossNamespace: func(cache.InvolvedObject, client.ObjectKey) bool { return true }}),
	}
	both := common{audience: name + "." + namespace + ".svc", certs: d.dir, metricsAddress: "0", probeAddress: "0", registerer: prometheus.NewRegistry()}
	d.server = serverOptions{common: both, cluster: "demo", region: region, pods: 100, leaderElect: true, leaderElectNamespace: namespace, auth: login}
	d.webhook = webhookOptions{common: both, image: "registry.example/iam-credentials-pod:v1", serverCA: filepath.Join(d.dir, "ca.crt")}
	d.server.listen, d.webhook.listen, d.webhook.server = addresses[0], addresses[1], "https://"+addresses[0]
	d.webhook.port, err = strconv.Atoi(port)
	return err
}

// registerWebhook applies its manifest, with an address of this machine instead of a Service.
func (d *demo) registerWebhook(ctx context.Context) error {
	registration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := yaml.UnmarshalStrict([]byte(manifests.WebhookConfiguration), registration); err != nil {
		return err
	}
	url := "https://" + d.webhook.listen + webhookPath
	registration.Webhooks[0].ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: d.ca}
	return d.admin.Create(ctx, registration)
}

func (d *demo) allow(ctx context.Context) error {
	if _, err := story.Apply(ctx, d.admin, tenantObjects); err != nil {
		return err
	}
	d.Step("The administrator creates the namespace %q, whose pods are injected, and allows it a family of roles.", tenant)
	d.Detail("Pod Security", "restricted")
	d.Detail("roles", "%s*", teamRoles)
	return nil
}

func binding(name, role string) *v1alpha1.IAMBinding {
	return &v1alpha1.IAMBinding{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name}, Spec: v1alpha1.IAMBindingSpec{
		AWS: v1alpha1.AWSRole{RoleARN: role}, ServiceAccountRef: v1alpha1.ServiceAccountReference{Name: app}}}
}

// bind creates the role with the trust policy that wid pod-identity trust-policy prints.
func (d *demo) bind(ctx context.Context) error {
	b := binding(app, teamRoles+app)
	policy, err := server.TrustPolicy(d.server.cluster, serverRole, b)
	if err != nil {
		return err
	}
	id, secret := d.cloud.AWS().AddUser(account, "team-a")
	roles := iam.New(iam.Options{Region: region, HTTPClient: d.cloud.Client(), Credentials: credentials.NewStaticCredentialsProvider(id, secret, "")})
	if _, err := roles.CreateRole(ctx, &iam.CreateRoleInput{RoleName: aws.String(app), Path: aws.String("/" + tenant + "/"), AssumeRolePolicyDocument: aws.String(string(policy))}); err != nil {
		return err
	}
	if err := story.Wait(ctx, "the API server admits no IAMBinding", func(ctx context.Context) (bool, error) {
		return true, client.IgnoreAlreadyExists(d.admin.Create(ctx, b))
	}); err != nil {
		return err
	}
	assumable, err := d.condition(ctx, v1alpha1.ConditionRoleAssumable, metav1.ConditionTrue)
	if err != nil {
		return err
	}
	d.Step("The team creates a role, with the trust policy that wid pod-identity trust-policy prints, and an IAMBinding. The server tries the role.")
	d.Detail("role", "%s", b.Spec.AWS.RoleARN)
	d.Detail("condition", "%s is %s: %s", assumable.Type, assumable.Status, assumable.Message)
	return nil
}

// condition waits until a condition of the binding has a status.
func (d *demo) condition(ctx context.Context, kind string, status metav1.ConditionStatus) (found *metav1.Condition, err error) {
	err = story.Wait(ctx, fmt.Sprintf("%s does not become %s", kind, status), func(ctx context.Context) (bool, error) {
		b := &v1alpha1.IAMBinding{}
		err := d.admin.Get(ctx, client.ObjectKey{Namespace: tenant, Name: app}, b)
		found = meta.FindStatusCondition(b.Status.Conditions, kind)
		return found != nil && found.Status == status, err
	})
	return found, err
}

func newPod(name string) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := yaml.UnmarshalStrict([]byte(podManifest), pod)
	pod.Name = name
	return pod, err
}

func (d *demo) inject(ctx context.Context) (err error) {
	if d.pod, err = newPod(app + "-0"); err != nil {
		return err
	}
	err = story.Wait(ctx, "the webhook does not inject", func(ctx context.Context) (bool, error) {
		dry := d.pod.DeepCopy()
		err := d.admin.Create(ctx, dry, client.DryRunAll)
		return len(dry.Spec.InitContainers) > 0, err
	})
	if err != nil {
		return err
	}
	if err := d.admin.Create(ctx, d.pod); err != nil {
		return err
	}
	sidecar, container := &d.pod.Spec.InitContainers[0], &d.pod.Spec.Containers[0]
	d.Step("The team creates a pod, which says nothing of AWS. On its way through admission the webhook injects:")
	d.Detail("sidecar", "%s", sidecar.Name)
	d.Detail("runs", "%s %s", sidecar.Command[0], strings.Join(sidecar.Args, " "))
	for _, v := range d.pod.Spec.Volumes {
		if v.Name == webhook.TokenVolume {
			d.Detail("token", "of the audience %s", v.Projected.Sources[0].ServiceAccountToken.Audience)
		}
	}
	for _, v := range container.Env {
		d.Detail("container", "%s has %s", container.Name, v.Name)
	}
	return nil
}

// call plays the kubelet: it writes the pod's token, starts the sidecar and then the application.
func (d *demo) call(ctx context.Context) (err error) {
	d.token, err = d.requestToken(ctx, tenant, app, authenticationv1.TokenRequestSpec{Audiences: []string{d.server.audience},
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: d.pod.Name, UID: d.pod.UID}})
	if err != nil {
		return err
	}
	if err := d.startSidecar(ctx); err != nil {
		return err
	}
	arn, err := d.runApp(ctx, &d.pod.Spec.Containers[0])
	if err != nil {
		return err
	}
	d.Step("The demo plays the pod: the sidecar fetches credentials with the pod's token, and an application with an unmodified AWS SDK asks STS for its identity.")
	d.Detail("answer", "%s", arn)
	return nil
}

func (d *demo) startSidecar(ctx context.Context) error {
	file := filepath.Join(d.dir, "token")
	if err := os.WriteFile(file, []byte(d.token), 0o600); err != nil {
		return err
	}
	sidecar := &d.pod.Spec.InitContainers[0]
	p, err := proxy.New(proxy.Options{Server: argument(sidecar, "--server="), TokenFile: file,
		CA: []byte(variable(sidecar, "WORKLOADID_SERVER_CA")), Secret: variable(sidecar, "AWS_CONTAINER_AUTHORIZATION_TOKEN")})
	if err != nil {
		return err
	}
	listeners, err := proxy.Listen(ctx, argument(sidecar, "--listen="))
	if err != nil {
		return err
	}
	d.run("fetch credentials", func() error { return p.Run(ctx) })
	d.run("sidecar", func() error { return proxy.Serve(ctx, p, listeners) })
	return nil
}

func argument(c *corev1.Container, prefix string) string {
	for _, arg := range c.Args {
		if value, ok := strings.CutPrefix(arg, prefix); ok {
			return value
		}
	}
	return ""
}

func variable(c *corev1.Container, name string) string {
	i := slices.IndexFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == name })
	if i < 0 {
		return ""
	}
	return c.Env[i].Value
}

func (d *demo) refuseRole(ctx context.Context) error {
	var refused error
	err := story.Wait(ctx, "the API server admits every role", func(ctx context.Context) (bool, error) {
		refused = d.admin.Create(ctx, binding("escape", "arn:aws:iam::"+account+":role/admin"), client.DryRunAll)
		return apierrors.IsForbidden(refused), nil
	})
	d.Step("The team tries a role that the administrator has not allowed.")
	d.Detail("answer", "%s", refused)
	return err
}

func (d *demo) conflict(ctx context.Context) error {
	start := time.Now()
	second := binding("second", teamRoles+app)
	if err := d.admin.Create(ctx, second); err != nil {
		return err
	}
	answer, err := d.awaitRefusal(ctx, http.StatusForbidden)
	if err != nil {
		return err
	}
	took := time.Since(start)
	condition, err := d.condition(ctx, v1alpha1.ConditionConflict, metav1.ConditionTrue)
	if err != nil {
		return err
	}
	d.Step("The team creates a second IAMBinding of the same ServiceAccount. Neither of them serves, and the running pod gets no new credentials.")
	d.Detail("condition", "%s is %s", condition.Type, condition.Status)
	d.Detail("answer", "%s", answer)
	d.Detail("after", "%s", took.Round(time.Millisecond))
	if answer, err = d.refusedPod(ctx); err != nil {
		return err
	}
	d.Detail("next pod", "%s", answer)
	return d.admin.Delete(ctx, second)
}

// refusedPod waits until the webhook knows of the conflict too, and returns its answer.
func (d *demo) refusedPod(ctx context.Context) (answer string, err error) {
	pod, err := newPod(app + "-1")
	if err != nil {
		return "", err
	}
	err = story.Wait(ctx, "the webhook admits another pod", func(ctx context.Context) (bool, error) {
		refused := d.admin.Create(ctx, pod.DeepCopy(), client.DryRunAll)
		answer = fmt.Sprint(refused)
		return apierrors.IsForbidden(refused), nil
	})
	return answer, err
}

func (d *demo) end(ctx context.Context) error {
	if err := story.Wait(ctx, "the pod gets no credentials", func(ctx context.Context) (bool, error) {
		status, _, err := d.ask(ctx, d.webhook.server)
		return status == http.StatusOK, err
	}); err != nil {
		return err
	}
	start := time.Now()
	if err := d.admin.Delete(ctx, d.pod, client.GracePeriodSeconds(0)); err != nil {
		return err
	}
	answer, err := d.awaitRefusal(ctx, http.StatusUnauthorized)
	if err != nil {
		return err
	}
	d.Step("The second IAMBinding is gone, and the pod is served again. Then the pod is deleted. Its token has not expired, but the server refuses it.")
	d.Detail("answer", "%s", answer)
	d.Detail("after", "%s, since the API server caches its reviews of tokens for 10 s", time.Since(start).Round(time.Second))
	return nil
}

func (d *demo) awaitRefusal(ctx context.Context, want int) (answer string, err error) {
	err = story.Wait(ctx, fmt.Sprintf("the server does not answer with %d", want), func(ctx context.Context) (bool, error) {
		var status int
		var err error
		status, answer, err = d.ask(ctx, d.webhook.server)
		return status == want, err
	})
	return answer, err
}

// ask asks the server as the sidecar does when it renews.
func (d *demo) ask(ctx context.Context, address string) (status int, answer string, err error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(d.ca)
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address+server.Path, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Authorization", "Bearer "+d.token)
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	var body struct{ Code, Message string }
	err = json.NewDecoder(response.Body).Decode(&body)
	return response.StatusCode, fmt.Sprintf("%d %s: %s", response.StatusCode, body.Code, body.Message), err
}
