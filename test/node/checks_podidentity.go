//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/podidentity"
)

// podIdentityState is what the checks of pod identity hand on.
type podIdentityState struct {
	// steady runs during all checks and must never see an error. short has
	// sessions of two minutes, and so has doomed, whose binding is deleted.
	steady, short, doomed *corev1.Pod
	before                []string // objects before the installation
}

func podIdentityChecks() []check {
	s := &podIdentityState{steady: app(tenant, "steady", "reporting", asks()...),
		short: app(tenant, "short", "short", asks()...), doomed: app(tenant, "doomed", "doomed", asks()...)}
	return slices.Concat([]check{
		{name: "install without cert-manager", run: s.install, needed: true, limit: 3 * time.Minute},
		{name: "a pod under Restricted gets its role", run: s.getsRole, needed: true},
	}, sdkChecks(), []check{
		{name: "long-running pods get their roles", run: s.startAll, needed: true},
		{name: "the sidecar starts before the app", run: s.sidecarFirst},
		{name: "a Job ends", run: jobEnds},
		{name: "a pod calls AWS after SIGTERM", run: afterSIGTERM},
		{name: "no binding, no sidecar", run: noBinding},
		{name: "a role outside the allow-list is refused", run: notAllowed},
		{name: "a role that does not trust the server", run: refusedRole},
		{name: "redirect", run: redirect},
		{name: "a killed sidecar comes back", run: sidecarKilled},
		{name: "a short session is renewed", run: s.renewed, limit: 3 * time.Minute},
		{name: "a deleted binding ends credentials", run: s.unbound, limit: 2 * time.Minute},
		{name: "the CA is replaced under running sidecars", run: s.caReplaced, limit: 6 * time.Minute},
		{name: "the binding is Accepted and Assumable", run: bindingShown, limit: 2 * time.Minute},
		{name: "both servers killed", run: s.serversKilled, limit: 2 * time.Minute},
		{name: "provider and webhook rolled out while 25 pods start", run: s.rollout, limit: 4 * time.Minute},
		{name: "memory after the rollout is what the manifests request", run: memory("iam-system", tenant)},
		{name: "containerd and kubelet restarted", run: s.restarted, limit: 2 * time.Minute},
		{name: "a namespace with a ResourceQuota on limits.cpu", run: quota},
		{name: "a namespace with a LimitRange", run: limitRange, limit: 2 * time.Minute},
		{name: "removal leaves nothing", run: s.removed, limit: 2 * time.Minute},
	})
}

func (s *podIdentityState) getsRole(ctx context.Context, c *cluster) error {
	if err := bind(ctx, c); err != nil {
		return err
	}
	return c.runApp(ctx, app(tenant, "once", "reporting"), "reporting", "prod.team-a.reporting")
}

func (s *podIdentityState) startAll(ctx context.Context, c *cluster) error {
	c.shorten("short")
	c.shorten("doomed")
	var err error
	for _, pod := range []*corev1.Pod{s.steady, s.short, s.doomed} {
		err = errors.Join(err, c.startApp(ctx, pod))
	}
	return err
}

func (s *podIdentityState) sidecarFirst(ctx context.Context, c *cluster) error {
	pod, err := c.fetch(ctx, s.steady)
	if err != nil {
		return err
	}
	sidecar, program := statusOf(pod, podidentity.ProxyContainer), statusOf(pod, "app")
	if sidecar.State.Running == nil || program.State.Running == nil ||
		program.State.Running.StartedAt.Before(&sidecar.State.Running.StartedAt) {
		return fmt.Errorf("sidecar %+v, app %+v", sidecar.State, program.State)
	}
	return s.unaffected(ctx, c)
}

// unaffected checks that the pod that runs all the time has not seen an error,
// and still gets answers.
func (s *podIdentityState) unaffected(ctx context.Context, c *cluster) error {
	o, err := c.answered(ctx, s.steady, 20*time.Second)
	return errors.Join(err, o.failures(), o.isSession("reporting", "prod.team-a.reporting"))
}

func jobEnds(ctx context.Context, c *cluster) error {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "job"},
		Spec: batchv1.JobSpec{BackoffLimit: new(int32(0)),
			Template: corev1.PodTemplateSpec{Spec: app(tenant, "", "reporting").Spec}}}
	if err := c.Create(ctx, job); err != nil {
		return err
	}
	return c.until(ctx, 40*time.Second, "the Job is complete", func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(job), job); err != nil {
			return err
		}
		for _, condition := range job.Status.Conditions {
			if condition.Type == batchv1.JobComplete && condition.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("status: %+v", job.Status)
	})
}

// afterSIGTERM follows the log, because it is gone with the pod.
func afterSIGTERM(ctx context.Context, c *cluster) error {
	pod := app(tenant, "terminated", "reporting", asks()...)
	if err := c.startApp(ctx, pod); err != nil {
		return err
	}
	follow := c.shell(ctx, "kubectl logs -f -n team-a terminated -c app")
	printed := make(chan string, 1)
	go func() {
		out, _ := runCommand(follow) // its output decides
		printed <- out
	}()
	if err := c.Delete(ctx, pod, client.GracePeriodSeconds(20)); err != nil {
		return err
	}
	select {
	case out := <-printed:
		if _, after, ok := strings.Cut(out, "SIGTERM\n"); !ok || !strings.HasPrefix(after, "identity ") {
			return fmt.Errorf("after SIGTERM: %s", last(out, 5))
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the pod does not end: %w", ctx.Err())
	}
}

func noBinding(ctx context.Context, c *cluster) error {
	if err := c.apply(ctx,
		"{apiVersion: v1, kind: ServiceAccount, metadata: {namespace: team-a, name: unbound}}"); err != nil {
		return err
	}
	pod := app(tenant, "unbound", "unbound")
	if err := c.Create(ctx, pod); err != nil {
		return err
	}
	if hasSidecar(pod) {
		return errors.New("the pod has a sidecar")
	}
	return c.until(ctx, 40*time.Second, "the app fails without credentials", func(ctx context.Context) error {
		o, err := c.output(ctx, pod)
		if err == nil && len(o.errors) == 0 {
			err = fmt.Errorf("output: %s", o.text)
		}
		return err
	})
}

func notAllowed(ctx context.Context, c *cluster) error {
	err := c.apply(ctx, binding(tenant, "greedy", "admin"))
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !strings.Contains(err.Error(), "IAMRoleAllowList") {
		return fmt.Errorf("the API server did not refuse it and name the list: %w", err)
	}
	return nil
}

// refusedRole also mends the trust, after which the pod starts by itself.
func refusedRole(ctx context.Context, c *cluster) error {
	if err := c.apply(ctx, binding(tenant, "late", "team-a/late")); err != nil {
		return err
	}
	pod := app(tenant, "late", "late", asks()...)
	if err := c.until(ctx, 20*time.Second, "the webhook injects the sidecar", func(ctx context.Context) error {
		pod = app(tenant, "late", "late", asks()...)
		if err := c.Create(ctx, pod); err != nil || hasSidecar(pod) {
			return err
		}
		return errors.Join(errors.New("no sidecar"), c.Delete(ctx, pod, client.GracePeriodSeconds(0)))
	}); err != nil {
		return err
	}
	if err := c.until(ctx, 30*time.Second, "the binding shows the refusal", func(ctx context.Context) error {
		out,
			err := c.sh(ctx,
			`kubectl -n team-a get iambinding late -o jsonpath='{.status.conditions[?(@.type=="RoleAssumable")].reason}'`)
		if err == nil && out != "AccessDenied" {
			err = fmt.Errorf("reason %q", out)
		}
		return err
	}); err != nil {
		return err
	}
	now, err := c.fetch(ctx, pod)
	if err != nil {
		return err
	}
	if statusOf(now, "app").State.Running != nil {
		return errors.New("the app runs without credentials")
	}
	policy, err := c.sh(ctx, "wid pod-identity trust-policy -n team-a late --cluster prod --server-role "+serverRole)
	if err != nil {
		return err
	}
	if err := c.createRole(ctx, "team-a/late", policy); err != nil {
		return err
	}
	_, err = c.answered(ctx, pod, time.Minute)
	return errors.Join(err, c.stop(ctx, pod))
}

// redirect needs NET_ADMIN, so its namespace is not restricted.
func redirect(ctx context.Context, c *cluster) error {
	if err := c.bindAccount(ctx, "team-b", "legacy"); err != nil {
		return err
	}
	pod := app("team-b", "legacy", "legacy")
	pod.Annotations = map[string]string{"iam.aws.k8s.io/redirect": "true"}
	return c.until(ctx, time.Minute, "the pod gets its role", func(ctx context.Context) error {
		return c.runApp(ctx, pod.DeepCopy(), "legacy", "prod.team-b.legacy")
	})
}

func sidecarKilled(ctx context.Context, c *cluster) error {
	pod := app(tenant, "killed", "reporting", asks()...)
	if err := c.startApp(ctx, pod); err != nil {
		return err
	}
	now, err := c.fetch(ctx, pod)
	if err != nil {
		return err
	}
	if err := c.killContainer(ctx, now, podidentity.ProxyContainer); err != nil {
		return err
	}
	if err := c.until(ctx, 40*time.Second, "the sidecar runs again", func(ctx context.Context) error {
		now, err := c.fetch(ctx, pod)
		if s := statusOf(now, podidentity.ProxyContainer); err == nil && (s.RestartCount != 1 || s.State.Running == nil) {
			err = fmt.Errorf("sidecar: %+v", s)
		}
		return err
	}); err != nil {
		return err
	}
	_, err = c.answered(ctx, pod, 40*time.Second)
	now, getErr := c.fetch(ctx, pod)
	if getErr == nil && statusOf(now, "app").RestartCount > 0 {
		getErr = errors.New("the app was restarted")
	}
	return errors.Join(err, getErr, c.stop(ctx, pod))
}

func (s *podIdentityState) renewed(ctx context.Context, c *cluster) error {
	return c.until(ctx, 2*time.Minute, "the app gets a second session", func(ctx context.Context) error {
		o, err := c.output(ctx, s.short)
		if err == nil && len(o.keys) < 2 {
			err = fmt.Errorf("sessions: %q", o.keys)
		}
		return errors.Join(err, o.failures())
	})
}

func (s *podIdentityState) unbound(ctx context.Context, c *cluster) error {
	if _, err := c.sh(ctx, "kubectl -n team-a delete iambinding doomed"); err != nil {
		return err
	}
	return c.until(ctx, 100*time.Second, "the app has no credentials any more, and an Event says why",
		func(ctx context.Context) error {
			o, err := c.output(ctx, s.doomed)
			if err == nil && len(o.errors) == 0 {
				err = fmt.Errorf("output: %s", last(o.text, 1))
			}
			if err != nil {
				return err
			}
			out,
				err := c.sh(ctx, "kubectl -n team-a get events --field-selector reason=NotBound,involvedObject.name=doomed -o name")
			if err == nil && out == "" {
				err = errors.New("no Event NotBound")
			}
			return err
		})
}

// serversKilled also starts a pod meanwhile, which waits for the servers.
func (s *podIdentityState) serversKilled(ctx context.Context, c *cluster) error {
	servers, err := c.pods(ctx, iamSystem, "app.kubernetes.io/name="+serverName)
	if err != nil {
		return err
	}
	if len(servers) != 2 {
		return fmt.Errorf("%d servers instead of 2", len(servers))
	}
	for _, pod := range servers {
		if err := c.killContainer(ctx, &pod, "server"); err != nil {
			return err
		}
	}
	return errors.Join(c.runApp(ctx, app(tenant, "meanwhile", "reporting"), "reporting", "prod.team-a.reporting"),
		s.unaffected(ctx, c))
}

// rollout expects that no pod is refused, and that none sees an error of AWS.
func (s *podIdentityState) rollout(ctx context.Context, c *cluster) error {
	if _, err := c.sh(ctx, "kubectl -n iam-system rollout restart deployment "+serverName+
		" iam-credentials-webhook"); err != nil {
		return err
	}
	var pods []*corev1.Pod
	for i := range 25 {
		pod := app(tenant, fmt.Sprintf("burst-%02d", i), "reporting")
		if err := c.Create(ctx, pod); err != nil {
			return err
		}
		if !hasSidecar(pod) {
			return fmt.Errorf("pod %q has no sidecar", pod.Name)
		}
		pods = append(pods, pod)
	}
	for _, pod := range pods {
		if err := c.until(ctx, 3*time.Minute, "pod "+pod.Name+" ends", func(ctx context.Context) error {
			return c.succeeded(ctx, client.ObjectKeyFromObject(pod))
		}); err != nil {
			return err
		}
		o, err := c.output(ctx, pod)
		if err := errors.Join(err, o.failures()); err != nil {
			return fmt.Errorf("pod %q: %w", pod.Name, err)
		}
	}
	_, err := c.sh(ctx, "kubectl -n iam-system rollout status deployment "+serverName+
		" --timeout=2m\nkubectl -n iam-system rollout status deployment iam-credentials-webhook --timeout=2m")
	return errors.Join(err, s.unaffected(ctx, c))
}

func (s *podIdentityState) restarted(ctx context.Context, c *cluster) error {
	for _, name := range []string{"containerd", "kubelet"} {
		if err := c.processes[name].kill(); err != nil {
			return err
		}
	}
	if err := c.processes["containerd"].start(); err != nil {
		return err
	}
	if err := c.containerdAnswers(ctx); err != nil {
		return err
	}
	if err := c.processes["kubelet"].start(); err != nil {
		return err
	}
	if err := c.until(ctx, time.Minute, "a new pod runs", func(ctx context.Context) error {
		return c.runApp(ctx, app(tenant, "restarted", "reporting"), "reporting", "prod.team-a.reporting")
	}); err != nil {
		return err
	}
	now, err := c.fetch(ctx, s.steady)
	if err == nil && (statusOf(now, "app").RestartCount > 0 ||
		statusOf(now, podidentity.ProxyContainer).RestartCount > 0) {
		err = errors.New("containers were restarted")
	}
	return errors.Join(err, s.unaffected(ctx, c))
}
