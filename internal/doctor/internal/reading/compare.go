package reading

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/shell"
)

// Documents passes the JSON documents of a file to add, one after the other.
func Documents(content []byte, add func(json.RawMessage) error) error {
	const maxContent = 1 << 20
	if len(content) > maxContent {
		return fmt.Errorf("the trust file is larger than %d bytes", maxContent)
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	for n := 1; ; n++ {
		var document json.RawMessage
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) && n > 1 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("document %d of the trust file is not JSON", n)
		}
		if err := add(document); err != nil {
			return fmt.Errorf("document %d of the trust file: %w", n, err)
		}
	}
}

// Audience compares the token's audience with the trusted ones. It is Unknown for a token with several audiences, which clouds treat
// differently.
func Audience(token, trusted []string) doctor.Result {
	switch {
	case len(token) > 1:
		return doctor.Unknown
	case len(token) == 1 && slices.Contains(trusted, token[0]):
		return doctor.Pass
	}
	return doctor.Fail
}

// SeveralAudiences returns the finding of a token with several audiences.
func SeveralAudiences(token, trusted []string) doctor.Finding {
	return doctor.Unclear(doctor.Do("Request a token with one audience."), "The token has several audiences, which the doctor does not judge.").
		Compare("token", List(token), "trusted", List(trusted))
}

// Slip says how two different texts differ if one is the other, miswritten: "only by the / at the end". Else it is empty. Other
// small differences are no slips: the subject of another tenant and the issuer of another cluster may differ by one letter.
func Slip(a, b string) string {
	switch {
	case strings.TrimSuffix(a, "/") == strings.TrimSuffix(b, "/"):
		return "only by the / at the end"
	case strings.EqualFold(a, b):
		return "only in upper and lower case"
	case strings.TrimSpace(a) == strings.TrimSpace(b):
		return "only by a blank"
	}
	return ""
}

// List joins values for a comparison, bounded.
func List(values []string) string {
	if len(values) == 0 {
		return "none"
	}
	return redact.Text(strings.Join(values, ", "))
}

// Excerpt bounds an expression for a message.
func Excerpt(expression string) string {
	const most = 60
	expression = redact.Text(expression)
	if utf8.RuneCountInString(expression) <= most {
		return expression
	}
	return string([]rune(expression)[:most]) + "…"
}

// Annotate returns the command that changes an annotation of the token's ServiceAccount: "key=value", or "key-" to remove it.
func Annotate(q *doctor.TrustQuery, change string) string {
	return "kubectl annotate sa -n " + shell.Word(q.Claims.Namespace, "NAMESPACE") + " " + shell.Word(q.Claims.ServiceAccount, "SERVICE_ACCOUNT") +
		" --overwrite " + shell.Word(change, "KEY=VALUE")
}

// IfMeant returns the condition under which a cloud should trust the ServiceAccount.
func IfMeant(q *doctor.TrustQuery) string {
	if q.Claims.Namespace == "" {
		return "If this ServiceAccount is meant to have it"
	}
	return "If " + Excerpt(q.Claims.Namespace) + " is meant to have it"
}

// SafeAudience returns the token's audience for a command that makes a cloud trust it, if it is one of the usual ones. Others may be a
// mistake of the person, so they are left for the reader to fill in.
func SafeAudience(token []string, usual ...string) string {
	if len(token) == 1 && slices.Contains(usual, token[0]) {
		return token[0]
	}
	return "AUDIENCE"
}
