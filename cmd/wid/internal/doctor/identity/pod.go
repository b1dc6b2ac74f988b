package identity

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/workloadid/workloadid/auth/cause"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	"github.com/workloadid/workloadid/internal/shell"
)

// checkPod examines what the webhook has given to this pod, or to the named
// one.
func (e *examination) checkPod(ctx context.Context) doctor.Finding {
	pod, want := e.readPod(ctx), e.key()
	switch {
	case e.InPod:
		return e.examineVariables("this pod")
	case e.Pod.Name == "":
		return doctor.Skipped("No pod was named.")
	case pod == nil:
		return doctor.Skipped(noCluster)
	case pod.err != nil:
		return e.unreadablePod(pod.err)
	case accountOf(&pod.value) != want.Name || e.Pod.Namespace != want.Namespace:
		return doctor.Failed(cause.IdentityNotConfigured, doctor.Do("Set serviceAccountName in the pod's template."),
			"Pod %s runs as another ServiceAccount.", e.Pod).
			Compare("pod", e.Pod.Namespace+"/"+accountOf(&pod.value), "expected", want.String())
	}
	return e.examineVariables("pod " + e.Pod.String())
}

func (e *examination) unreadablePod(err error) doctor.Finding {
	namespace := shell.Word(e.Pod.Namespace, "NAMESPACE")
	if apierrors.IsNotFound(err) {
		return doctor.Failed(cause.IdentityNotConfigured,
			doctor.Do("Correct the name. "+e.isMeant(), "kubectl get pods -n "+namespace), "Pod %s does not exist.", e.Pod)
	}
	return e.unreadable("Pod "+e.Pod.String(), err, "kubectl get pod -n "+namespace+" "+shell.Word(e.Pod.Name, "POD_NAME"))
}

func (e *examination) examineVariables(where string) doctor.Finding {
	class, given, annotations := cause.ClassFor(e.Provider.GetName(), cause.IdentityNotConfigured), e.variables(),
		e.serviceAccount().Annotations
	for _, v := range given {
		if slices.Contains(e.cloud.hiding, v.Name) && (v.Value != "" || v.ValueFrom != nil) {
			f := doctor.Failed(class.Reason, doctor.Do("Remove "+v.Name+" from the pod's template."),
				"%s in %s hides the identity of the ServiceAccount.", v.Name, where)
			if from := v.ValueFrom; from != nil && from.SecretKeyRef != nil && from.SecretKeyRef.Optional != nil &&
				*from.SecretKeyRef.Optional { // it may have no value
				f.Result = doctor.Warn
			}
			return f
		}
	}
	switch {
	case e.cloud.tokenFile == "":
		return doctor.Passed("The variables of %s do not matter to %s.", where, e.cloud.name)
	case e.usesAgent():
		return doctor.Passed(byAgent)
	case !has(given, e.cloud.tokenFile):
		f := doctor.Failed(class.Reason, doctor.Do(doctor.Sentence(class.Remedy)),
			"The webhook has not changed %s: %s is not set.", where, e.cloud.tokenFile)
		f.Causes = class.Causes
		return f
	}
	for _, v := range given {
		for _, s := range e.cloud.settings {
			if want := annotations[s.annotation]; v.Name == s.variable && want != "" && v.Value != "" &&
				!strings.EqualFold(v.Value, want) {
				return doctor.Failed(class.Reason,
					doctor.Do("If its template sets "+v.Name+", remove it. Then let the owner of the pod create it again."),
					"%s of %s is another one than the annotation names.", v.Name, where).Compare("pod", v.Value, "annotation", want)
			}
		}
	}
	return doctor.Passed("The webhook has given the identity to %s.", where)
}

// variables returns the variables of this pod, or of all containers of the
// named one.
func (e *examination) variables() (all []corev1.EnvVar) {
	switch {
	case e.InPod:
		for _, name := range append(slices.Clone(e.cloud.hiding), e.cloud.tokenFile, endpointVariable) {
			if value := e.Getenv(name); value != "" {
				all = append(all, corev1.EnvVar{Name: name, Value: value})
			}
		}
	case e.pod != nil:
		for _, c := range slices.Concat(e.pod.value.Spec.Containers, e.pod.value.Spec.InitContainers) {
			all = append(all, c.Env...)
		}
	}
	return all
}

func has(variables []corev1.EnvVar, name string) bool {
	return slices.ContainsFunc(variables, func(v corev1.EnvVar) bool { return v.Name == name })
}

// usesAgent reports whether the pod gets its credentials from an endpoint, as
// with EKS Pod Identity. Its ServiceAccount then needs no annotation.
func (e *examination) usesAgent() bool {
	given := e.variables()
	return e.Provider.GetName() == "aws" && has(given, endpointVariable) && !has(given, e.cloud.tokenFile)
}

const (
	endpointVariable = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
	byAgent          = "EKS Pod Identity gives the pod its role, without an annotation."
)
