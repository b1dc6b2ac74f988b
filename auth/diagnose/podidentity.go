package diagnose

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// EKS Pod Identity gives pods an endpoint for credentials, by the variable below, where IRSA gives them a token. The role comes
// from an association in EKS, so the ServiceAccount needs no annotation.
const (
	endpointVariable = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
	byPodIdentity    = "the pod gets its role from EKS Pod Identity, or another endpoint in " + endpointVariable
)

// readPod reads the pod that was named, for the checks that look at it.
func (e *examination) readPod(ctx context.Context) {
	if e.Pod.Name != "" && e.Client != nil {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		e.pod = &corev1.Pod{}
		e.podErr = e.Client.Get(ctx, e.Pod, e.pod)
	}
	if e.Provider.GetName() != "aws" {
		return
	}
	getenv := func(string) string { return "" }
	switch {
	case e.InPod && e.ServiceAccount.Name == "":
		getenv = e.Getenv
	case e.pod != nil && e.podErr == nil:
		env := environmentOf(e.pod)
		getenv = func(name string) string { return env[name] }
	}
	e.podIdentity = getenv(endpointVariable) != "" && getenv(e.cloud.tokenFile) == ""
}
