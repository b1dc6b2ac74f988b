package webhook

import (
	"crypto/rand"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth/podidentity/api/v1alpha1"
)

// Variables by which AWS SDKs find the sidecar.
const (
	envFullURI     = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
	envRelativeURI = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"
	envSecret      = "AWS_CONTAINER_AUTHORIZATION_TOKEN"
)

// stronger are variables that win over those of the sidecar in at least one SDK.
var stronger = []string{"AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"}

// injection is the change of one pod. The patch names single places, so that fields that this build does not know survive.
type injection struct {
	options  Options
	pod      *corev1.Pod
	binding  *v1alpha1.IAMBinding
	secret   string
	patch    []jsonpatch.Operation
	warnings []string
}

func (in *injection) run() error {
	spec := &in.pod.Spec
	switch {
	case spec.HostNetwork:
		return deniedf("the pod has hostNetwork, so every process of the node could get the credentials of IAMBinding %q: remove hostNetwork, or set the annotation %s: \"false\"",
			in.binding.Name, AnnotationInject)
	case spec.OS != nil && spec.OS.Name == corev1.Windows:
		return deniedf("IAMBinding %q does not serve pods of Windows: set the annotation %s: \"false\"", in.binding.Name, AnnotationInject)
	}
	if err := in.findSecret(); err != nil {
		return err
	}
	// The sidecar goes to the front last, since it changes the places of the others.
	in.addVariables("/spec/containers", spec.Containers)
	in.addVariables("/spec/initContainers", spec.InitContainers)
	for _, c := range in.ownContainers() {
		if err := in.addContainer(c); err != nil {
			return err
		}
	}
	return in.addVolume()
}

func (in *injection) redirect() bool { return in.pod.Annotations[AnnotationRedirect] == "true" }

// findSecret takes the secret of a sidecar that is there already.
func (in *injection) findSecret() error {
	if existing := find(in.pod.Spec.InitContainers, ProxyContainer); existing != nil {
		if in.secret = valueOf(existing, envSecret); in.secret == "" {
			return in.taken("init container", ProxyContainer)
		}
		return nil
	}
	in.secret = rand.Text()
	return nil
}

func (in *injection) taken(kind, name string) error {
	return deniedf("the pod has its own %s %q, a name that IAMBinding %q needs: rename it, or set the annotation %s: \"false\"",
		kind, name, in.binding.Name, AnnotationInject)
}

func (in *injection) add(path string, value any) {
	in.patch = append(in.patch, jsonpatch.Operation{Operation: "add", Path: path, Value: value})
}

// addContainer puts one of our containers in front of all init containers, unless it is there.
func (in *injection) addContainer(c corev1.Container) error {
	if existing := find(in.pod.Spec.InitContainers, c.Name); existing != nil {
		// Another webhook may have changed image or resources.
		if !slices.Equal(existing.Args, c.Args) || !reflect.DeepEqual(existing.RestartPolicy, c.RestartPolicy) {
			return in.taken("init container", c.Name)
		}
		return nil
	}
	if find(in.pod.Spec.Containers, c.Name) != nil {
		return in.taken("container", c.Name)
	}
	if len(in.pod.Spec.InitContainers) == 0 {
		in.add("/spec/initContainers", []corev1.Container{c})
		in.pod.Spec.InitContainers = []corev1.Container{c}
		return nil
	}
	in.add("/spec/initContainers/0", c)
	return nil
}

func (in *injection) addVolume() error {
	want := in.volume()
	for _, v := range in.pod.Spec.Volumes {
		if v.Name != want.Name {
			continue
		}
		if !in.isToken(v) {
			return in.taken("volume", v.Name)
		}
		return nil
	}
	if len(in.pod.Spec.Volumes) == 0 {
		in.add("/spec/volumes", []corev1.Volume{want})
	} else {
		in.add("/spec/volumes/-", want)
	}
	return nil
}

// isToken goes by the audience alone, since the API server fills in defaults.
func (in *injection) isToken(v corev1.Volume) bool {
	return v.Projected != nil && len(v.Projected.Sources) == 1 && v.Projected.Sources[0].ServiceAccountToken != nil &&
		v.Projected.Sources[0].ServiceAccountToken.Audience == in.options.Audience
}

// addVariables points containers at the sidecar.
func (in *injection) addVariables(path string, containers []corev1.Container) {
	skipped := strings.Split(strings.ReplaceAll(in.pod.Annotations[AnnotationSkipContainers], " ", ""), ",")
	for i := range containers {
		c := &containers[i]
		only := in.binding.Spec.Containers
		if isOwn(c.Name) || slices.Contains(skipped, c.Name) || len(only) > 0 && !slices.Contains(only, c.Name) {
			continue
		}
		in.addVariablesTo(fmt.Sprintf("%s/%d/env", path, i), c)
	}
}

func (in *injection) addVariablesTo(path string, c *corev1.Container) {
	want := in.variables()
	var missing []corev1.EnvVar
	for _, v := range want {
		switch has := findEnv(c, v.Name); {
		case has == nil:
			missing = append(missing, v)
		case *has != v:
			in.warnf("container %q sets %s itself: it does not get the credentials of IAMBinding %q", c.Name, v.Name, in.binding.Name)
			return
		}
	}
	for _, name := range stronger {
		if findEnv(c, name) != nil {
			in.warnf("container %q sets %s, which AWS SDKs prefer to the credentials of IAMBinding %q: remove it", c.Name, name, in.binding.Name)
		}
	}
	if !in.redirect() && findEnv(c, envRelativeURI) != nil {
		in.warnf("container %q sets %s, which AWS SDKs prefer to the credentials of IAMBinding %q: remove it", c.Name, envRelativeURI, in.binding.Name)
	}
	if len(c.Env) == 0 && len(missing) > 0 {
		in.add(path, missing)
		return
	}
	for _, v := range missing {
		in.add(path+"/-", v)
	}
}

// warnf bounds the number of warnings, which the API server hands to the user.
func (in *injection) warnf(format string, args ...any) {
	const most = 10
	if len(in.warnings) < most {
		in.warnings = append(in.warnings, fmt.Sprintf(format, args...))
	}
}

func find(containers []corev1.Container, name string) *corev1.Container {
	i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &containers[i]
}

func findEnv(c *corev1.Container, name string) *corev1.EnvVar {
	i := slices.IndexFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Env[i]
}

func valueOf(c *corev1.Container, name string) string {
	if v := findEnv(c, name); v != nil {
		return v.Value
	}
	return ""
}
