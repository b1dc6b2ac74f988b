package gcpname

import (
	"errors"
	"fmt"
	"strings"
)

// WorkloadIdentityProvider is the name of a provider in a workload identity
// pool:
// projects/<number>/locations/global/workloadIdentityPools/<pool>/providers/<provider>.
type WorkloadIdentityProvider struct {
	// Name is the whole name, without a prefix.
	Name string
	// ProjectNumber, Pool and Provider are parts of it.
	ProjectNumber, Pool, Provider string
}

// ParseWorkloadIdentityProvider parses the name of a provider, with or without
// the prefix of its full resource name: //iam.<universe>/ or
// https://iam.<universe>/. The error does not repeat it.
func ParseWorkloadIdentityProvider(s, universe string) (WorkloadIdentityProvider, error) {
	name, err := trimPrefix(s, universe)
	if err != nil {
		return WorkloadIdentityProvider{}, err
	}
	w := WorkloadIdentityProvider{Name: name}
	rest, location := name, ""
	if w.ProjectNumber, rest, err = part("projects", rest); err != nil {
		return w, err
	}
	if location, rest, err = part("locations", rest); err != nil {
		return w, err
	}
	if w.Pool, rest, err = part("workloadIdentityPools", rest); err != nil {
		return w, err
	}
	if w.Provider, rest, err = part("providers", rest); err != nil {
		return w, err
	}
	switch {
	case rest != "" || strings.HasSuffix(name, "/"):
		return w, errors.New("there is something after the provider's ID")
	case location != "global":
		return w, fmt.Errorf("its location has to be global, not %.100q", location)
	}
	return w, w.check()
}

// part takes <key>/<value> off the front.
func part(key, s string) (value, rest string, err error) {
	got, rest, _ := strings.Cut(s, "/")
	if got != key {
		return "", "", misplaced(key, got)
	}
	value, rest, _ = strings.Cut(rest, "/")
	return value, rest, nil
}

func trimPrefix(s, universe string) (string, error) {
	name := strings.TrimPrefix(s, "https:")
	if strings.HasPrefix(name, "//") {
		host, rest, _ := strings.Cut(name[len("//"):], "/")
		service, domain, _ := strings.Cut(host, ".")
		if service != "iam" || domain != universe {
			return "", fmt.Errorf("its host has to be iam.%s, not %.100q", universe, host)
		}
		return rest, nil
	}
	if strings.Contains(s, "://") {
		return "", errors.New("it has the scheme of something else, a member of an IAM policy perhaps")
	}
	return s, nil
}

func (w WorkloadIdentityProvider) check() error {
	const charset = "4 to 32 lower-case letters, digits and dashes"
	switch {
	case !ValidProjectNumber(w.ProjectNumber) && ValidProject(w.ProjectNumber):
		return fmt.Errorf("%.100q is the project's ID; give its number, which the console shows beside it", w.ProjectNumber)
	case !ValidProjectNumber(w.ProjectNumber):
		return fmt.Errorf("the project has to be a number, not %.100q", w.ProjectNumber)
	case strings.HasSuffix(w.Pool, ".svc.id.goog"):
		return errors.New("the pool of a GKE cluster has no providers; leave the annotation out in GKE")
	case !validPoolPart(w.Pool):
		return fmt.Errorf("the pool's ID has to be %s, not %.100q", charset, w.Pool)
	case !validPoolPart(w.Provider):
		return fmt.Errorf("the provider's ID has to be %s, not %.100q", charset, w.Provider)
	}
	return nil
}

// misplaced names the most frequent mistakes.
func misplaced(want, got string) error {
	switch {
	case want == "projects" && got == "":
		return errors.New("it is empty, or begins with a slash")
	case want == "projects" && strings.HasSuffix(got, ".svc.id.goog"):
		return errors.New("it is the pool of a GKE cluster; leave the annotation out in GKE")
	case want == "projects":
		return fmt.Errorf(`it has to begin with "projects/", not with %.100q`, got)
	case want == "providers" && got == "":
		return errors.New("it names a pool; add /providers/<provider>")
	case want == "providers" && got == "subject":
		return errors.New("it names a subject, not a provider")
	case got == "":
		return fmt.Errorf("%q is missing", want)
	}
	return fmt.Errorf("%q has to follow, not %.100q", want, got)
}
