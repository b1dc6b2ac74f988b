package credentials

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/authcause"
)

// FlagsOf returns the flags of the Go options in an auth.Error. It leaves out options without a flag.
func (id *Identity) FlagsOf(options string) string {
	var flags []string
	for option := range strings.SplitSeq(options, ", ") {
		flag := otherFlags[option]
		for _, s := range id.Settings() {
			if flag == "" && slices.Contains(strings.Fields(s.option), option) {
				flag = "--" + s.Name
			}
		}
		if flag != "" && !slices.Contains(flags, flag) {
			flags = append(flags, flag)
		}
	}
	return strings.Join(flags, ", ")
}

// InTermsOfFlags puts flags in place of Go options into the text of an error.
func (id *Identity) InTermsOfFlags(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	var known *auth.Error
	if errors.As(err, &known) {
		own := *known
		own.Remedy, own.Option = remedyFor(err, known), id.FlagsOf(known.Option)
		text = strings.Replace(text, known.Error(), own.Error(), 1) // err may wrap it
	}
	return &reworded{err, id.Sent.Clean(text)}
}

type reworded struct {
	error
	text string
}

func (r *reworded) Error() string { return r.text }
func (r *reworded) Unwrap() error { return r.error }

// remedyFor returns the error's own remedy, or one that only the command knows.
func remedyFor(err error, e *auth.Error) string {
	var cluster *unreached
	switch {
	case e.Cause == authcause.AudienceNotAllowed:
		return "pass it"
	case e.Remedy == "" && errors.Is(err, context.DeadlineExceeded):
		return "raise --timeout, or check what does not answer"
	case e.Remedy == "" && errors.As(err, &cluster):
		return "check the cluster's address in the kubeconfig, and that its user can log in: try kubectl get serviceaccounts"
	case e.Remedy == "" && strings.HasPrefix(e.Code, "AADSTS"):
		return "look the code up at https://login.microsoftonline.com/error"
	}
	return e.Remedy
}
