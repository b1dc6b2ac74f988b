package doctor

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// variable is one of a container, as its specification has it.
type variable struct {
	// set says that there is one, value what it is if known. optional says that what it refers to may be missing.
	set, known, optional bool
	value                string
}

// variableOf finds the last entry of that name, which is the one that counts. An empty value is none, for all SDKs. Values
// from elsewhere, and those that Kubernetes puts together of others, are not known here.
func variableOf(pod *corev1.Pod, c *corev1.Container, name string) (v variable) {
	for i := range c.Env {
		own := &c.Env[i]
		if own.Name != name {
			continue
		}
		v = variable{set: own.Value != "", known: !strings.Contains(own.Value, "$"), value: own.Value}
		if own.ValueFrom != nil {
			v = referred(pod, own.ValueFrom)
		}
	}
	return v
}

func referred(pod *corev1.Pod, from *corev1.EnvVarSource) variable {
	v := variable{set: true}
	switch {
	case from.SecretKeyRef != nil:
		v.optional = from.SecretKeyRef.Optional != nil && *from.SecretKeyRef.Optional
	case from.ConfigMapKeyRef != nil:
		v.optional = from.ConfigMapKeyRef.Optional != nil && *from.ConfigMapKeyRef.Optional
	case from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.name":
		v.known, v.value = true, pod.Name
	case from.FieldRef != nil && from.FieldRef.FieldPath == "metadata.namespace":
		v.known, v.value = true, pod.Namespace
	}
	return v
}

// mayBring says that envFrom, which is not looked into, could set the variable. What env sets takes precedence.
func mayBring(c *corev1.Container, name string) bool {
	if slices.ContainsFunc(c.Env, func(own corev1.EnvVar) bool { return own.Name == name }) {
		return false
	}
	return slices.ContainsFunc(c.EnvFrom, func(from corev1.EnvFromSource) bool { return strings.HasPrefix(name, from.Prefix) })
}

// lasting are the containers that live as long as the pod, passing those that only begin it.
func lasting(pod *corev1.Pod) []corev1.Container {
	return append(slices.Clone(pod.Spec.Containers), slices.DeleteFunc(slices.Clone(pod.Spec.InitContainers),
		func(c corev1.Container) bool { return !isSidecar(&c) })...)
}

func passing(pod *corev1.Pod) []corev1.Container {
	return slices.DeleteFunc(slices.Clone(pod.Spec.InitContainers), func(c corev1.Container) bool { return isSidecar(&c) })
}

// isSidecar says that an init container is always restarted, and does not keep others waiting.
func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// hasAny says that one of the containers, of all kinds, has the variable.
func hasAny(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers), func(c corev1.Container) bool {
		return variableOf(pod, &c, name).set
	})
}

func hasContainer(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers),
		func(c corev1.Container) bool { return c.Name == name })
}
