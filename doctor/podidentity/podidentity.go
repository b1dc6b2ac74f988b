package podidentity

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/kube"
	"github.com/workloadid/workloadid/internal/shell"
)

// Config says which pod or ServiceAccount to examine.
type Config struct {
	// Namespace is that of pod, ServiceAccount and IAMBinding. Required.
	Namespace string
	// ServiceAccount is its name. Empty: that of Pod, else "default".
	ServiceAccount string
	// Pod is the name of a pod. Empty: none is examined.
	Pod string
	// Audience is the server's. Empty: the one in the pod.
	Audience string
	// Reader reads the cluster. Its scheme needs no kinds. Required.
	Reader client.Reader
	// Tokens creates a token of the pod and reviews it, which stores nothing. Its scheme has the kinds of client-go. Nil: not tried.
	Tokens client.Client
	// Cluster, Skip, Timeout, Progress and ShowPolicy are those of doctor.Examination.
	Cluster    string
	Skip       []string
	Timeout    time.Duration
	Progress   func(doctor.Check)
	ShowPolicy bool
}

// examination is one run. Checks leave here what later ones need.
type examination struct {
	Config

	pod     *corev1.Pod // nil: there is none, or it could not be read
	podErr  error
	binding *v1alpha1.IAMBinding // nil: there is none, or there are several
	token   string
}

// Checks returns the checks of Run in their order.
func Checks() []doctor.Check { return (&examination{}).checks() }

func (e *examination) checks() []doctor.Check {
	after := func(ids ...string) []string { return ids }
	return []doctor.Check{
		{ID: "pod", Title: "the pod", Run: e.checkPod},
		{ID: "binding", Title: "the IAMBinding of the ServiceAccount", Needs: after("pod"), Run: e.checkBinding},
		{ID: "allow-list", Title: "the allow-list of roles", Needs: after("binding"), Run: e.checkAllowList},
		{ID: "server", Title: "the server's verdict on the binding", Needs: after("allow-list"), Run: e.checkServer},
		{ID: "role", Title: "the role in AWS", Needs: after("server"), Run: e.checkRole},
		{ID: "namespace", Title: "the namespace's label for injection", Needs: after("binding"), Run: e.checkNamespace},
		{ID: "webhook", Title: "the webhook", Needs: after("namespace"), Run: e.checkWebhook},
		{ID: "injection", Title: "the sidecar in the pod", Needs: after("webhook"), Run: e.checkInjection},
		{ID: "variables", Title: "the variables of the containers", Needs: after("injection"), Run: e.checkVariables},
		{ID: "token", Title: "the pod's token", Needs: after("injection"), Run: e.checkToken},
		{ID: "sidecar", Title: "the sidecar's credentials", Needs: after("role", "token"), Run: e.checkSidecar},
	}
}

// Run examines a pod or a ServiceAccount. It is safe for concurrent use.
func Run(ctx context.Context, config Config) *doctor.Report {
	e := &examination{Config: config}
	e.readPod(ctx)
	subject := e.Namespace + "/" + e.ServiceAccount
	if config.Pod != "" {
		subject = fmt.Sprintf("pod %s/%s", e.Namespace, e.Pod)
	}
	return doctor.Run(ctx, doctor.Examination{Subject: subject + " → aws", Cluster: config.Cluster, Checks: e.checks(), Decisive: "role", Skip: config.Skip,
		Timeout: config.Timeout, Progress: config.Progress, ShowPolicy: config.ShowPolicy, Secrets: func() []string { return []string{e.token} }})
}

// readPod also learns the ServiceAccount.
func (e *examination) readPod(ctx context.Context) {
	if e.Pod != "" {
		ctx, cancel := context.WithTimeout(ctx, doctor.DefaultTimeout)
		defer cancel()
		pod := &corev1.Pod{}
		if e.podErr = kube.Get(ctx, e.Reader, corev1.SchemeGroupVersion.WithKind("Pod"), client.ObjectKey{Namespace: e.Namespace, Name: e.Pod}, pod); e.podErr == nil {
			e.pod = pod
			e.ServiceAccount = cmp.Or(e.ServiceAccount, pod.Spec.ServiceAccountName)
		}
	}
	if e.podErr == nil {
		e.ServiceAccount = cmp.Or(e.ServiceAccount, "default")
	}
}

func (e *examination) namespace() string { return shell.Word(e.Namespace, "NAMESPACE") }

// in returns a kubectl command in the namespace.
func (e *examination) in(format string, args ...any) string {
	return fmt.Sprintf(format, args...) + " -n " + e.namespace()
}

// logs returns the command that shows the log of a Deployment of the manifests.
func logs(deployment string) string { return "kubectl logs -n iam-system deploy/" + deployment }
