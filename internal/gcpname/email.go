package gcpname

import (
	"errors"
	"fmt"
	"strings"
)

const emailSuffix = ".iam.gserviceaccount.com"

// CheckServiceAccountEmail accepts the e-mail addresses of service accounts:
//
//	<id>@<project>.iam.gserviceaccount.com
//	<id>@<project>.<domain>.iam.gserviceaccount.com
//	<project number>-compute@developer.gserviceaccount.com
//	<project>@appspot.gserviceaccount.com
//
// The error does not repeat the address.
func CheckServiceAccountEmail(s string) error {
	const maxEmail = 254
	at := strings.IndexByte(s, '@')
	switch {
	case len(s) > maxEmail:
		return fmt.Errorf("it has %d characters, at most %d are allowed", len(s), maxEmail)
	case at < 0 || strings.Contains(s, ":") || strings.Contains(s, "/"):
		return notAnEmail(s)
	}
	id, domain := s[:at], s[at+1:]
	switch {
	case domain == "developer.gserviceaccount.com":
		number, ok := strings.CutSuffix(id, "-compute")
		if !ok || !ValidProjectNumber(number) {
			return errors.New("before @developer it has to be <project number>-compute")
		}
		return nil
	case domain == "appspot.gserviceaccount.com":
		if !validLabels(id) {
			return errors.New("before @appspot it has to be the project's ID, in lower case")
		}
		return nil
	case !strings.HasSuffix(domain, emailSuffix):
		return wrongDomain(domain)
	case !validLabel(id):
		return fmt.Errorf("its name may hold lower-case letters, digits and dashes only, but is %.100q", id)
	case !validLabels(strings.TrimSuffix(domain, emailSuffix)):
		return fmt.Errorf("its project may hold lower-case letters, digits and dashes only, but is %.100q",
			strings.TrimSuffix(domain, emailSuffix))
	}
	return nil
}

// notAnEmail names the most frequent mistakes.
func notAnEmail(s string) error {
	switch {
	case s == "":
		return errors.New("it is empty")
	case strings.HasPrefix(s, "serviceAccount:"), strings.HasPrefix(s, "principal:"),
		strings.HasPrefix(s, "principalSet:"):
		return errors.New("it is the member of an IAM policy; give the e-mail address alone")
	case strings.HasPrefix(s, "projects/"), strings.Contains(s, "/serviceAccounts/"):
		return errors.New("it is a resource name; give the e-mail address alone")
	}
	return errors.New("it is not an e-mail address")
}

func wrongDomain(domain string) error {
	switch {
	case strings.ToLower(domain) != domain:
		return errors.New("it has to be in lower case")
	case strings.Contains(domain, "@"):
		return errors.New("it has more than one @")
	case strings.HasSuffix(domain, "gserviceaccount.com"):
		return fmt.Errorf("service accounts at %.100q belong to Google, or the project is missing", domain)
	}
	return fmt.Errorf("it belongs to %.100q, not to a service account", domain)
}
