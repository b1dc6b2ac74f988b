package identity

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/cause"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	"github.com/workloadid/workloadid/internal/transport"
)

// examination is the state of one run. Checks run one after the other and leave
// here what later ones need.
type examination struct {
	Config

	cloud   cloud
	pool    transport.Pool
	secrets []string

	token    heldToken
	injected map[string]string // identity and tenant of this pod's environment, as annotations
	pod      *object[corev1.Pod]
	account  *object[corev1.ServiceAccount]
}

// object is an object of the cluster, or the error of reading it.
type object[T any] struct {
	value T
	err   error
}

func newExamination(ctx context.Context, config Config) *examination {
	if config.Getenv == nil {
		config.Getenv = os.Getenv
	}
	e := &examination{Config: config, cloud: cloudOf(config.Provider)}
	if config.RESTConfig != nil {
		e.keepSecret(config.RESTConfig.BearerToken, config.RESTConfig.Password)
	}
	e.adoptEnvironment()
	if e.Token != nil {
		e.token = e.hold(e.Token.Token(ctx, nil))
	}
	return e
}

func (e *examination) keepSecret(secrets ...string) {
	e.secrets = append(e.secrets, slices.DeleteFunc(secrets, func(s string) bool { return s == "" })...)
}

// adoptEnvironment takes over what the webhook has put into the environment of
// this pod.
func (e *examination) adoptEnvironment() {
	if !e.InPod || e.ServiceAccount.Name != "" {
		return
	}
	if path := e.Getenv(e.cloud.tokenFile); path != "" && e.Token == nil {
		e.Token = auth.NewFileTokenSource(path)
	}
	e.injected = map[string]string{}
	for _, s := range e.cloud.settings {
		if value := e.Getenv(s.variable); value != "" {
			e.injected[s.annotation] = value
		}
	}
}

// own reports whether the process's own identity is examined.
func (e *examination) own() bool {
	return e.ServiceAccount.Name == "" && e.Token == nil && (e.Pod.Name == "" || e.InPod)
}

func (e *examination) subject() string {
	switch key := e.key(); {
	case key.Name != "":
		return key.String()
	case e.Pod.Name != "":
		return "pod " + e.Pod.String()
	case e.Token != nil:
		return "token"
	}
	return "own identity"
}

// isMeant asks whether the right cluster is examined.
func (e *examination) isMeant() string {
	if e.ClusterName == "" {
		return "Is this the cluster that you meant?"
	}
	return "Is " + e.ClusterName + " the context that you meant?"
}

const contexts = "kubectl config get-contexts"

// serviceAccount returns what is known of the ServiceAccount without asking the
// cluster again. Annotations of the caller win.
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

// key returns the name of the ServiceAccount, which comes from the caller, the
// token or the pod.
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
		e.pod.err = e.get(ctx, e.Pod, &e.pod.value)
	}
	return e.pod
}

func (e *examination) readAccount(ctx context.Context) *object[corev1.ServiceAccount] {
	e.readPod(ctx)
	if key := e.key(); e.account == nil && e.Client != nil && key.Name != "" {
		e.account = &object[corev1.ServiceAccount]{}
		e.account.err = e.get(ctx, key, &e.account.value)
	}
	return e.account
}

// get asks a cluster that gives no answer, or refuses the login, only once.
func (e *examination) get(ctx context.Context, key client.ObjectKey, into client.Object) error {
	err, answer := e.Client.Get(ctx, key, into), apierrors.APIStatus(nil)
	if err != nil && !errors.As(err, &answer) || apierrors.IsUnauthorized(err) {
		e.Client = nil
	}
	return err
}

// options returns the options of a call for the identity under examination.
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

const noCluster = "There is no access to the cluster."

// refusal is doctor.Refusal with sentences for people. A mistake in a name
// keeps its own message, which has the value.
func (e *examination) refusal(service string, err error) doctor.Finding {
	f, class := doctor.Refusal(service, err), cause.ClassOf(err)
	var known *auth.Error
	if f.Result != doctor.Fail || !errors.As(err, &known) {
		return f
	}
	switch {
	case class.Reason == "" && known.StatusCode == 0 && known.Reason == auth.ErrMisconfigured,
		known.Cause == provider.CauseTargetMalformed, known.Cause == provider.CauseIdentityMalformed:
		f = doctor.Failed(cmp.Or(class.Reason, cause.TargetMalformed), doctor.Do(doctor.Sentence(known.Remedy)), "%s",
			known.Message)
	case class.Reason == "":
		f.Remedy = doctor.Do(doctor.Sentence(known.Remedy))
	default:
		f.Remedy = e.remedyOf(class)
	}
	f.Message = doctor.Sentence(f.Message)
	f.Remedy.Option = known.Option
	return f
}
