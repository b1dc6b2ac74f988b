package identity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/issuer"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/annotation"
	"github.com/workloadid/workloadid/internal/authcause"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/kube"
	"github.com/workloadid/workloadid/internal/doctor/internal/reason"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/shell"
	"github.com/workloadid/workloadid/internal/transport"
)

// examination is the state of one run. Checks run one after the other and leave here what later ones need.
type examination struct {
	Config

	cloud   cloud
	pool    transport.Pool
	secrets []string

	token     heldToken
	injected  map[string]string // identity and tenant of this pod's environment, as annotations
	pod       *object[corev1.Pod]
	account   *object[corev1.ServiceAccount]
	documents []issuer.Check // what issuer.Verify has found
	gained    auth.Token
	stopped   *doctor.Finding // why there is no token to exchange: a right is missing
}

// object is an object of the cluster, or the error of reading it.
type object[T any] struct {
	value T
	err   error
}

func newExamination(ctx context.Context, config Config) *examination {
	config.complete()
	e := &examination{Config: config, cloud: cloudOf(config.Provider.GetName())}
	if config.RESTConfig != nil {
		e.keepSecret(config.RESTConfig.BearerToken, config.RESTConfig.Password)
	}
	e.adoptEnvironment()
	if e.Token != "" || e.TokenFile != "" {
		e.token = e.readToken(ctx)
	}
	return e
}

func (e *examination) keepSecret(secrets ...string) {
	e.secrets = append(e.secrets, slices.DeleteFunc(secrets, func(s string) bool { return s == "" })...)
}

// adoptEnvironment takes over what the webhook has put into the environment of this pod.
func (e *examination) adoptEnvironment() {
	if !e.InPod || e.ServiceAccount.Name != "" || e.Token != "" || e.cloud.tokenFile == "" {
		return
	}
	if e.TokenFile == "" {
		e.TokenFile = e.Getenv(e.cloud.tokenFile)
	}
	e.injected = map[string]string{}
	for key, name := range map[string]string{e.cloud.required: e.cloud.identity, annotation.AzureTenantID: e.cloud.tenant} {
		if name != "" && e.Getenv(name) != "" {
			e.injected[key] = e.Getenv(name)
		}
	}
}

// own reports whether the process's own identity is examined.
func (e *examination) own() bool {
	return e.ServiceAccount.Name == "" && e.Token == "" && e.TokenFile == "" && (e.Pod.Name == "" || e.InPod)
}

func (e *examination) subject() string {
	switch key := e.key(); {
	case key.Name != "":
		return key.String()
	case e.Pod.Name != "":
		return "pod " + e.Pod.String()
	case e.Token != "" || e.TokenFile != "":
		return "token"
	}
	return "own identity"
}

func (e *examination) clusterName() string {
	if e.RESTConfig == nil {
		return ""
	}
	host := redact.URL(strings.TrimSuffix(e.RESTConfig.Host, "/"))
	if e.ClusterName == "" {
		return "cluster " + host
	}
	return "cluster " + e.ClusterName + " (" + host + ")"
}

// isMeant asks whether the right cluster is examined.
func (e *examination) isMeant() string {
	if e.ClusterName == "" {
		return "Is this the cluster that you meant?"
	}
	return "Is " + e.ClusterName + " the context that you meant?"
}

const contexts = "kubectl config get-contexts"

// serviceAccount returns what is known of the ServiceAccount without asking the cluster again. Annotations of the caller win.
func (e *examination) serviceAccount() *corev1.ServiceAccount {
	sa := &corev1.ServiceAccount{}
	if e.account != nil && e.account.err == nil {
		sa = e.account.value.DeepCopy()
	}
	key := e.key()
	sa.Namespace, sa.Name = key.Namespace, key.Name
	if sa.Annotations == nil {
		sa.Annotations = map[string]string{}
	}
	maps.Copy(sa.Annotations, e.Annotations)
	maps.Copy(sa.Annotations, e.injected)
	return sa
}

// key returns the name of the ServiceAccount: that of the caller, of the token, or of the pod.
func (e *examination) key() client.ObjectKey {
	c := e.token.claims
	switch {
	case e.ServiceAccount.Name != "":
		return e.ServiceAccount
	case c != nil && c.ServiceAccount != "":
		return client.ObjectKey{Namespace: c.Namespace, Name: c.ServiceAccount}
	case e.pod != nil && e.pod.err == nil:
		return client.ObjectKey{Namespace: e.Pod.Namespace, Name: accountOf(&e.pod.value)}
	}
	return client.ObjectKey{}
}

func accountOf(pod *corev1.Pod) string {
	if pod.Spec.ServiceAccountName == "" {
		return "default"
	}
	return pod.Spec.ServiceAccountName
}

// readPod and readAccount ask the cluster once.
func (e *examination) readPod(ctx context.Context) *object[corev1.Pod] {
	if e.pod == nil && e.Client != nil && e.Pod.Name != "" {
		e.pod = &object[corev1.Pod]{}
		e.pod.err = e.read(ctx, "Pod", e.Pod, &e.pod.value)
	}
	return e.pod
}

func (e *examination) readAccount(ctx context.Context) *object[corev1.ServiceAccount] {
	e.readPod(ctx)
	if key := e.key(); e.account == nil && e.Client != nil && key.Name != "" {
		account := &object[corev1.ServiceAccount]{}
		account.err = e.read(ctx, "ServiceAccount", key, &account.value)
		e.account = account
	}
	return e.account
}

func (e *examination) read(ctx context.Context, kind string, key client.ObjectKey, into any) error {
	return kube.Get(ctx, e.Client, corev1.SchemeGroupVersion.WithKind(kind), key, into)
}

// options returns those of a call for the identity under examination.
func (e *examination) options() []auth.Option {
	opts := append([]auth.Option(nil), e.Options...)
	sa := e.serviceAccount()
	switch {
	case e.token.raw == "" && sa.Name == "":
		return opts
	case e.token.raw == "":
		return append(opts, auth.WithServiceAccount(client.ObjectKeyFromObject(sa), e.Client))
	}
	sa.UID = "" // token-review compares UIDs
	return append(opts, auth.WithSubjectToken(auth.NewStaticTokenSource(e.token.raw), *sa))
}

// resolved returns the options for the methods of providers.
func (e *examination) resolved() *provider.Options {
	var o auth.Options
	for _, opt := range e.options() {
		if opt != nil {
			opt(&o)
		}
	}
	return &o.Options
}

// usesAgent reports whether the pod gets its credentials from an endpoint, as with EKS Pod Identity. Its ServiceAccount then needs
// no annotation.
func (e *examination) usesAgent() bool {
	if e.Provider.GetName() != "aws" {
		return false
	}
	if e.InPod {
		return e.Getenv(endpointVariable) != "" && e.Getenv(e.cloud.tokenFile) == ""
	}
	return e.pod != nil && e.pod.err == nil && e.has(&e.pod.value, endpointVariable) && !e.has(&e.pod.value, e.cloud.tokenFile)
}

const (
	endpointVariable = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
	byAgent          = "EKS Pod Identity gives the pod its role, without an annotation."
	noCluster        = "There is no access to the cluster."
)

// onToken skips a check without a token.
func (e *examination) onToken(check func(ctx context.Context, c *doctor.Claims) doctor.Finding) func(context.Context) doctor.Finding {
	return func(ctx context.Context) doctor.Finding {
		if e.token.claims == nil {
			return doctor.Skipped("There is no token to examine.")
		}
		return check(ctx, e.token.claims)
	}
}

// onDocuments skips a check of the issuer's documents that no cloud reads.
func (e *examination) onDocuments(check func(ctx context.Context, c *doctor.Claims) doctor.Finding) func(context.Context) doctor.Finding {
	return e.onToken(func(ctx context.Context, c *doctor.Claims) doctor.Finding {
		if !e.cloud.readsIssuer || len(e.JWKS) > 0 {
			return doctor.Skipped("No cloud reads the issuer's documents.")
		}
		return check(ctx, c)
	})
}

// onCredential skips a check without a credential, or without a name to try it on.
func (e *examination) onCredential(check func(ctx context.Context) doctor.Finding, names ...string) func(context.Context) doctor.Finding {
	return func(ctx context.Context) doctor.Finding {
		switch {
		case len(names) > 0 && cmp.Or(names...) == "":
			return doctor.Skipped("None was named.")
		case e.gained == nil:
			return doctor.Skipped("There is no credential.")
		}
		return check(ctx)
	}
}

// annotating returns the command that annotates the ServiceAccount.
func (e *examination) annotating(assignment string) string {
	return fmt.Sprintf("kubectl annotate sa -n %s %s --overwrite %s", e.namespaceWord(), e.nameWord(), assignment)
}

func (e *examination) namespaceWord() string { return shell.Word(e.key().Namespace, "NAMESPACE") }
func (e *examination) nameWord() string      { return shell.Word(e.key().Name, "SERVICE_ACCOUNT") }

// refusal is doctor.Refusal with sentences for people.
func (e *examination) refusal(service string, err error) doctor.Finding {
	var known *auth.Error
	if errors.As(err, &known) && (known.Cause == authcause.TargetMalformed || known.Cause == authcause.IdentityMalformed) {
		return malformedName(err)
	}
	f := doctor.Refusal(service, err)
	f.Message = doctor.Sentence(f.Message)
	if f.Result == doctor.Fail {
		f.Remedy = e.remedyOf(doctor.ClassOf(err))
		var known *auth.Error
		if errors.As(err, &known) {
			f.Remedy.Option = known.Option
		}
	}
	if f.Class == "" && f.StatusCode == 0 && errors.Is(err, auth.ErrMisconfigured) {
		f.Class, f.Remedy = reason.TargetMalformed, doctor.Do("Correct the name.")
	}
	return f
}

// client returns the given client, or else that of the calls to the provider.
func (e *examination) client(given *http.Client) *http.Client {
	opts := e.resolved()
	return e.pool.For(cmp.Or(given, opts.HTTPClient), opts.ProxyURL)
}
