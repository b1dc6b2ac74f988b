package authtest

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// parameterRules are those of the STS model.
func parameterRules(otherSTS bool) map[string]struct {
	min, max int
	pattern  *regexp.Regexp
} {
	type rule = struct {
		min, max int
		pattern  *regexp.Regexp
	}
	roles := `^arn:[a-z-]+:iam::\d{12}:role/.+$`
	if otherSTS {
		roles = `^arn:[a-z-]+:iam:[a-z0-9-]*:[\w-]*:role/.+$`
	}
	return map[string]rule{
		"RoleArn":          {20, 2048, regexp.MustCompile(roles)},
		"RoleSessionName":  {2, 64, regexp.MustCompile(`^[\w+=,.@-]*$`)},
		"WebIdentityToken": {4, 20000, nil},
	}
}

func (s *stsCall) validate(required ...string) *awsError {
	rules := parameterRules(s.aws.isOtherSTS(s.host))
	for _, name := range required {
		value, rule := s.form.Get(name), rules[name]
		field := strings.ToLower(name[:1]) + name[1:]
		shown := value
		if name == "WebIdentityToken" {
			shown = "***Sensitive***"
		}
		switch {
		case value == "":
			return refuse(http.StatusBadRequest, "ValidationError",
				"1 validation error detected: Value null at '%s' failed to satisfy constraint: Member must not be null", field)
		case len(value) < rule.min:
			return refuse(http.StatusBadRequest, "ValidationError",
				"1 validation error detected: Value '%s' at '%s' failed to satisfy constraint: Member must have length greater than or equal to %d", shown, field, rule.min)
		case len(value) > rule.max:
			return refuse(http.StatusBadRequest, "ValidationError",
				"1 validation error detected: Value '%s' at '%s' failed to satisfy constraint: Member must have length less than or equal to %d", shown, field, rule.max)
		case rule.pattern != nil && !rule.pattern.MatchString(value):
			return refuse(http.StatusBadRequest, "ValidationError",
				"1 validation error detected: Value '%s' at '%s' failed to satisfy constraint: Member must satisfy regular expression pattern: %s", shown, field, strings.Trim(rule.pattern.String(), "^$"))
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

func invalidParameter(value, field, constraint string) *awsError {
	return refuse(http.StatusBadRequest, "ValidationError",
		"1 validation error detected: Value '%s' at '%s' failed to satisfy constraint: %s", value, field, constraint)
}
