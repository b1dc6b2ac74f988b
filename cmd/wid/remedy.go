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

// withRemedy returns the text of an error of the library, with the remedy of a person at the command line.
func withRemedy(err error) string {
	text := err.Error()
	var e *auth.Error
	switch {
	case !errors.As(err, &e):
	case e.Remedy == "":
		if remedy := remedyFor(err, e); remedy != "" {
			text += "; " + remedy
		}
	case e.Cause == auth.CauseNoOwnIdentity:
		text = strings.Replace(text, e.Remedy, e.Remedy+" with --service-account", 1)
	case e.Cause == auth.CauseAudienceNotAllowed:
		text = strings.Replace(text, e.Remedy, "pass it with --audience", 1)
	}
	return text
}

// remedyFor returns remedies that only the command knows.
func remedyFor(err error, e *auth.Error) string {
	var cluster *unreached
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "give it more time with --timeout, or look at what does not answer"
	case errors.As(err, &cluster):
		return "check the cluster's address in the kubeconfig, and that its user can log in: try kubectl get serviceaccounts"
	case strings.HasPrefix(e.Code, "AADSTS"):
		return "look the code up at https://login.microsoftonline.com/error"
	}
	return ""
}
