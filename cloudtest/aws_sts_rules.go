package cloudtest

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// validate checks the parameters that an action requires, and its duration, by
// the rules of the STS model.
func (s *stsCall) validate(required ...string) *awsError {
	roles := `arn:[a-z-]+:iam::\d{12}:role/.+`
	if s.aws.isOtherSTS(s.host) {
		roles = `arn:[a-z-]+:iam:[a-z0-9-]*:[\w-]*:role/.+`
	}
	rules := map[string]struct {
		pattern  string
		min, max int
	}{
		"RoleArn":          {roles, 20, 2048},
		"RoleSessionName":  {`[\w+=,.@-]*`, 2, 64},
		"WebIdentityToken": {`[\s\S]*`, 4, 20000},
	}
	for _, name := range required {
		if s.form.Get(name) == "" {
			return refuse(http.StatusBadRequest, "ValidationError",
				"1 validation error detected: Value null at '%s' failed to satisfy constraint: Member must not be null",
				strings.ToLower(name[:1])+name[1:])
		}
		if err := s.checkLength(name, rules[name].pattern, rules[name].min, rules[name].max); err != nil {
			return err
		}
	}
	if text := s.form.Get("DurationSeconds"); text != "" {
		switch n, err := strconv.Atoi(text); {
		case err != nil || n < 900:
			return invalidParameter(text, "durationSeconds", "Member must have value greater than or equal to 900")
		case n > 43200:
			return invalidParameter(text, "durationSeconds", "Member must have value less than or equal to 43200")
		}
	}
	return nil
}

// checkLength checks an optional parameter by its length and pattern.
func (s *stsCall) checkLength(name, pattern string, shortest, longest int) *awsError {
	value, field := s.form.Get(name), strings.ToLower(name[:1])+name[1:]
	shown := value
	if name == "WebIdentityToken" {
		shown = "***Sensitive***"
	}
	switch {
	case !s.form.Has(name):
		return nil
	case len(value) < shortest:
		return invalidParameter(shown, field, fmt.Sprintf("Member must have length greater than or equal to %d", shortest))
	case len(value) > longest:
		return invalidParameter(shown, field, fmt.Sprintf("Member must have length less than or equal to %d", longest))
	case !regexp.MustCompile("^(?:" + pattern + ")$").MatchString(value):
		return invalidParameter(shown, field, "Member must satisfy regular expression pattern: "+pattern)
	}
	return nil
}

func invalidParameter(value, field, constraint string) *awsError {
	return refuse(http.StatusBadRequest, "ValidationError",
		"1 validation error detected: Value '%s' at '%s' failed to satisfy constraint: %s", value, field, constraint)
}
