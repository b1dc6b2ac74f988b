package main

import (
	"context"
	"errors"
	"strings"

	"github.com/workloadid/workloadid/auth"
)

// unreached is why the API server of the ServiceAccount gave no answer.
type unreached struct{ error }

func (e *unreached) Unwrap() error { return e.error }

// remedyFor is for errors of the library that have none, because only here is known what to do.
func remedyFor(err error) string {
	var e *auth.Error
	var cluster *unreached
	switch {
	case !errors.As(err, &e), e.Remedy != "":
		return ""
	case errors.Is(err, context.DeadlineExceeded):
		return "give it more time with --timeout, or look at what does not answer"
	case errors.As(err, &cluster):
		return "check the cluster's address in the kubeconfig, and that its user can log in: try kubectl get serviceaccounts"
	case strings.HasPrefix(e.Code, "AADSTS"):
		return "look the code up at https://login.microsoftonline.com/error"
	}
	return ""
}
