package webhook

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/workloadid/workloadid/internal/podidentity"
)

const (
	// The first three point AWS SDKs at the sidecar.
	envFullURI     = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
	envRelativeURI = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"
	envSecret      = "AWS_CONTAINER_AUTHORIZATION_TOKEN"
	envServerCA    = "WORKLOADID_SERVER_CA"

	tokenDirectory = "/var/run/secrets/iam.aws.k8s.io"
	tokenFile      = "token"
	// tokenLifetime is in seconds. The kubelet renews the token at 80 % of it.
	tokenLifetime = 3600
	// unprivileged is the user of the sidecar, which can always read the token.
	// With an fsGroup the kubelet gives the token to that group, which each
	// container has. Otherwise, if all containers run as one user, the sidecar
	// included, that user owns the token. Otherwise every user can read it.
	unprivileged = 65532
)

func isNameless(c container) bool { return c.Name == "" }
func isReserved(c container) bool {
	return c.Name == podidentity.ProxyContainer || c.Name == podidentity.RedirectContainer
}

// isOurs compares the fields on which credentials depend. The API server and
// other webhooks may change the others.
func isOurs(c container, want corev1.Container) bool {
	secret := findEnv(&c, envSecret)
	return c.Name == want.Name && slices.Equal(c.Command, want.Command) && slices.Equal(c.Args, want.Args) &&
		reflect.DeepEqual(c.RestartPolicy, want.RestartPolicy) && (c.StartupProbe == nil) == (want.StartupProbe == nil) &&
		(want.Env == nil || secret != nil && secretForm.MatchString(secret.Value))
}

// address returns the address on which the sidecar listens.
func (in *injection) address() string {
	if in.redirect() {
		return podidentity.LinkLocal + ":80"
	}
	return "127.0.0.1:" + strconv.Itoa(in.options.Port)
}

// variables returns the variables of the application. An SDK that needs the
// redirect sends no Authorization, so its path contains the secret.
func (in *injection) variables() []variable {
	if in.redirect() {
		return []variable{{Name: envRelativeURI, Value: podidentity.Path + "/" + in.secret}}
	}
	return []variable{{Name: envFullURI, Value: "http://" + in.address() + podidentity.Path},
		{Name: envSecret, Value: in.secret}}
}

// ownContainers returns the init containers of the webhook, in the order in
// which they start.
func (in *injection) ownContainers() []corev1.Container {
	sidecar := in.sidecar()
	if !in.redirect() {
		return []corev1.Container{sidecar}
	}
	// Port 80 needs a capability. Without ambient capabilities only root has
	// it.
	sidecar.SecurityContext = asRoot("NET_BIND_SERVICE")
	return []corev1.Container{{Name: podidentity.RedirectContainer, Image: in.options.Image,
		Command: []string{in.options.Command}, Args: []string{"redirect"},
		SecurityContext: asRoot("NET_ADMIN"), Resources: in.resources()}, sidecar}
}

func (in *injection) sidecar() corev1.Container {
	listen := "--listen=" + in.address()
	return corev1.Container{
		Name: podidentity.ProxyContainer, Image: in.options.Image, Command: []string{in.options.Command},
		Args: []string{"proxy", "--server=" + in.options.Server, "--token-file=" + tokenDirectory + "/" + tokenFile,
			listen},
		Env:           []corev1.EnvVar{{Name: envSecret, Value: in.secret}, {Name: envServerCA, Value: string(in.ca)}},
		RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
		// It lets kubectl describe and wid doctor show why it has terminated.
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		// The probe runs a command, because the kubelet cannot reach the pod's
		// loopback.
		StartupProbe: &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 2, FailureThreshold: 300,
			ProbeHandler: corev1.ProbeHandler{
				Exec: &corev1.ExecAction{Command: []string{in.options.Command, "proxy", "--check", listen}}}},
		VolumeMounts:    []corev1.VolumeMount{{Name: podidentity.TokenVolume, MountPath: tokenDirectory, ReadOnly: true}},
		SecurityContext: restricted(), Resources: in.resources(),
	}
}

// DefaultResources are the resources of the sidecar without
// [Options.Resources].
func DefaultResources() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5m"),
			corev1.ResourceMemory: resource.MustParse("16Mi")},
		Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("48Mi")},
	}
}

// DefaultCPULimit is the CPU limit of the sidecar without [Options.CPULimit].
func DefaultCPULimit() resource.Quantity { return resource.MustParse("100m") }

// checkResources refuses resources that the API server would refuse in each
// pod.
func (o *Options) checkResources() error {
	if o.CPULimit.Sign() < 0 {
		return fmt.Errorf("webhook: CPU limit %q: use a positive quantity, as 100m", o.CPULimit.String())
	}
	for name, request := range o.Resources.Requests {
		limit, limited := o.Resources.Limits[name]
		if !limited && name == corev1.ResourceCPU {
			limit, limited = o.CPULimit, true
		}
		if request.Sign() < 0 || limited && request.Cmp(limit) > 0 {
			return fmt.Errorf("webhook: the request %q of %s for the sidecar exceeds its limit %q, or is negative",
				request.String(), name, limit.String())
		}
	}
	return nil
}

// resources sets a CPU limit in a pod whose containers all have one, because a
// ResourceQuota on limits.cpu refuses a pod with a container without one. In
// a Guaranteed pod the requests equal the limits, because Kubernetes computes
// the QoS class over all containers.
func (in *injection) resources() corev1.ResourceRequirements {
	r := *in.options.Resources.DeepCopy()
	_, limited := r.Limits[corev1.ResourceCPU]
	unlimited := func(c container) bool { return c.Resources.Limits.CPU.Quantity == nil }
	if !limited && !in.pod.hasOwn(unlimited) {
		if r.Limits == nil {
			r.Limits = corev1.ResourceList{}
		}
		r.Limits[corev1.ResourceCPU] = in.options.CPULimit
	}
	if in.pod.isGuaranteed() {
		for name, limit := range r.Limits {
			if r.Requests == nil {
				r.Requests = corev1.ResourceList{}
			}
			r.Requests[name] = limit
		}
	}
	for name, given := range in.pod.Spec.Resources.given() {
		if given {
			delete(r.Requests, name)
			delete(r.Limits, name)
		}
	}
	return r
}

// given reports which resources a pod sets for all its containers together. The
// sidecar shares them, because a request of its own could exceed them.
func (r resources) given() map[corev1.ResourceName]bool {
	return map[corev1.ResourceName]bool{
		corev1.ResourceCPU:    r.Requests.CPU.Quantity != nil || r.Limits.CPU.Quantity != nil,
		corev1.ResourceMemory: r.Requests.Memory.Quantity != nil || r.Limits.Memory.Quantity != nil,
	}
}

// warnOfQoS warns about a pod that loses the QoS class Guaranteed, because the
// operator gives the sidecar no memory limit.
func (in *injection) warnOfQoS() {
	_, limited := in.options.Resources.Limits[corev1.ResourceMemory]
	if given := in.pod.Spec.Resources.given(); !limited && !given[corev1.ResourceCPU] && !given[corev1.ResourceMemory] &&
		in.pod.isGuaranteed() {
		in.warnf(
			"the pod's QoS class becomes Burstable instead of Guaranteed, because its container %q has no memory limit: set one for all sidecars (--sidecar-limits)",
			podidentity.ProxyContainer)
	}
}

// hasOwn reports whether a container that the webhook did not add fulfils a
// condition.
func (p *pod) hasOwn(condition func(container) bool) bool {
	return slices.ContainsFunc(slices.Concat(p.Spec.Containers, p.Spec.InitContainers), func(c container) bool {
		return !isReserved(c) && condition(c)
	})
}

// isGuaranteed reports whether the pod's own containers, without the webhook's,
// have the QoS class Guaranteed.
func (p *pod) isGuaranteed() bool {
	return !p.hasOwn(func(c container) bool { return !c.Resources.isGuaranteed() })
}

// isGuaranteed reports whether requests equal limits. A request defaults to its
// limit.
func (r resources) isGuaranteed() bool {
	equal := func(request, limit quantity) bool {
		return limit.Quantity != nil && !limit.IsZero() && (request.Quantity == nil || request.Cmp(*limit.Quantity) == 0)
	}
	return equal(r.Requests.CPU, r.Limits.CPU) && equal(r.Requests.Memory, r.Limits.Memory)
}

// restricted satisfies the Pod Security level restricted.
func restricted() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), RunAsNonRoot: new(true),
		RunAsUser: new(int64(unprivileged)), RunAsGroup: new(int64(unprivileged)),
		Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

// asRoot runs as root with one capability.
func asRoot(capability corev1.Capability) *corev1.SecurityContext {
	c := restricted()
	c.RunAsNonRoot, c.RunAsUser, c.RunAsGroup = new(false), new(int64(0)), new(int64(0))
	c.Capabilities.Add = []corev1.Capability{capability}
	return c
}

func (in *injection) volume() corev1.Volume {
	return corev1.Volume{Name: podidentity.TokenVolume,
		VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
			ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: in.options.Audience,
				ExpirationSeconds: new(int64(tokenLifetime)), Path: tokenFile}}}}}}
}

// isToken compares audience and path only, because the API server fills in
// defaults.
func (in *injection) isToken(v volume) bool {
	sources := v.Projected.Sources
	return len(sources) == 1 && sources[0].ServiceAccountToken != nil &&
		sources[0].ServiceAccountToken.Audience == in.options.Audience && sources[0].ServiceAccountToken.Path == tokenFile
}
