package issuer

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// ValidateURL returns an error for an issuer of which no cloud can read documents. Its text begins with "the issuer".
func ValidateURL(issuer string) error {
	u, err := url.Parse(issuer)
	problem := ""
	switch {
	case err != nil:
		return errors.New("the issuer is not a URL")
	case u.User != nil:
		return fmt.Errorf("the issuer at host %.300q holds a user name", u.Host)
	case !strings.HasPrefix(issuer, "https://"):
		problem = "does not begin with https://"
	case u.Hostname() == "":
		problem = "has no host"
	case strings.ContainsAny(issuer, "?#"):
		problem = "has a query or a fragment"
	case strings.ContainsFunc(issuer, func(r rune) bool { return r <= ' ' || r > '~' }):
		problem = "holds characters that no URL has"
	default:
		return nil
	}
	return fmt.Errorf("the issuer %.300q %s", issuer, problem)
}

// difference names a difference between issuers that is easy to overlook. It is empty for others.
func difference(a, b string) string {
	switch {
	case a == b:
		return ""
	case strings.TrimSuffix(a, "/") == strings.TrimSuffix(b, "/"):
		return "; they differ only by the / at the end"
	case strings.EqualFold(a, b):
		return "; they differ in upper and lower case"
	}
	return ""
}
