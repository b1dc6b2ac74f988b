package podidentity

import (
	"cmp"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/kube"
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
	// Client reads the cluster, reviews a token of the ServiceAccount, and tries a pod in a dry run. It stores nothing. Its scheme has the
	// kinds of client-go, and its rest.Config has Warnings as WarningHandlerWithContext. Required.
	Client client.Client
	// Flags lead kubectl and wid to the cluster. Empty: the current context.
	Flags string
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

	side    kube.Side
	pod     *corev1.Pod          // nil: there is none, or it could not be read
	binding *v1alpha1.IAMBinding // nil: there is none
	token   string
}

// Checks returns the checks of Run in their order.
func Checks() []doctor.Check { return (&examination{}).checks() }

func (e *examination) checks() []doctor.Check {
	after := func(ids ...string) []string { return ids }
	return []doctor.Check{
		{ID: "pod", Title: "the pod", Run: e.checkPod},
		{ID: "binding", Title: "the IAMBinding of the ServiceAccount", Needs: after("pod"), Run: e.checkBinding},
		{ID: "role", Title: "the server's verdict on the binding, and the role in AWS", Needs: after("binding"), Run: e.checkRole},
		{ID: "injection", Title: "the injection, tried with a dry run", Needs: after("binding"), Timeout: dryRunTimeout, Run: e.checkInjection},
		{ID: "token", Title: "a token like the pod's", Needs: after("injection"), Run: e.checkToken},
		{ID: "sidecar", Title: "the sidecar's credentials", Needs: after("role", "token"), Run: e.checkSidecar},
	}
}

// Run examines a pod or a ServiceAccount. It is safe for concurrent use.
func Run(ctx context.Context, config Config) *doctor.Report {
	e := newExamination(config)
	subject := "pod " + e.Namespace + "/" + e.Pod
	if e.Pod == "" {
		e.ServiceAccount = cmp.Or(e.ServiceAccount, "default")
		subject = e.Namespace + "/" + e.ServiceAccount
	}
	return doctor.Run(ctx, doctor.Examination{Subject: subject + " → aws", Cluster: config.Cluster, Checks: e.checks(), Decisive: "role", Skip: config.Skip,
		Timeout: config.Timeout, Progress: config.Progress, ShowPolicy: config.ShowPolicy, Secrets: func() []string { return []string{e.token} }})
}

func newExamination(config Config) *examination {
	return &examination{Config: config, side: kube.Side{Flags: config.Flags, Examined: true}}
}

// in adds the namespace to a kubectl command.
func (e *examination) in(command string) string {
	return command + " -n " + shell.Word(e.Namespace, "NAMESPACE")
}
