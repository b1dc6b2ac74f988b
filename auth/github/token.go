package github

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/internal/oauth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/exactjson"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/transport"
)

// maxLifetime is the lifetime of every installation token.
const maxLifetime = time.Hour

// summary makes the type that embeds it print as a redacted summary.
type summary = redact.Summary

// Token is an installation token. It is immutable and prints as a redacted
// summary.
type Token struct {
	summary
	value     redact.Secret
	expiresAt time.Time
}

// Reveal returns the token itself.
func (t *Token) Reveal() string { return t.value.Reveal() }

// ExpiresAt returns the time at which the token expires. It is at most an hour
// after the request.
func (t *Token) ExpiresAt() time.Time { return t.expiresAt }

// GetDuration implements [auth.Token].
func (t *Token) GetDuration() time.Duration { return time.Until(t.expiresAt) }

// FromToken returns the [Token] that [auth.GetAccessToken] returned for a
// [Provider] of this package.
func FromToken(t auth.Token) (*Token, error) { return provider.As[Token](ProviderName, t) }

// read makes a Token of the answer, unless it grants more than was requested.
func (r *request) read(answer transport.Answer) (auth.Token, error) {
	if answer.Status != http.StatusCreated {
		return nil, r.refused(answer)
	}
	o, err := exactjson.ParseObject(answer.Body)
	if err != nil {
		return nil, unusable(answer, err.Error())
	}
	value := o.Text("token")
	expiresAt, badTime := time.Parse(time.RFC3339, o.Text("expires_at"))
	switch err := oauth.CheckToken(value); {
	case err != nil:
		return nil, unusable(answer, err.Error())
	case value == r.jwt:
		return nil, unusable(answer, "its token is what was sent")
	case badTime != nil:
		return nil, unusable(answer,
			fmt.Sprintf("it says %.100q instead of the time at which its token expires", o.Text("expires_at")))
	case !expiresAt.After(time.Now()):
		return nil, unusable(answer, fmt.Sprintf("its token has expired at %s, and the clock here shows %s",
			expiresAt.UTC().Format(time.RFC3339), time.Now().UTC().Format(time.RFC3339)))
	}
	given := Grant{AllRepositories: o.Text("repository_selection") != "selected"}
	var repositories []exactjson.Object
	if json.Unmarshal(o["permissions"], &given.Permissions) != nil || given.Permissions == nil ||
		!r.grant.AllRepositories && (json.Unmarshal(o["repositories"], &repositories) != nil || len(repositories) == 0) {
		return nil, unusable(answer, "it does not tell the permissions or the repositories of its token")
	}
	for _, one := range repositories {
		given.Repositories = append(given.Repositories, one.Text("name"))
	}
	if given.Permissions["metadata"] == "read" { // every token has it
		delete(given.Permissions, "metadata")
	}
	if excess := given.excess(r.grant); excess != "" {
		e := self.Denied("check the URL of the API", "GitHub gives more than was asked for: %s",
			redact.Text(excess, value)).About(optionURL)
		e.Operation, e.RequestID = opExchange, requestID(answer)
		return nil, e
	}
	if latest := r.sentAt.Add(maxLifetime); expiresAt.After(latest) { // GitHub's clock is ahead
		expiresAt = latest
	}
	shown := fmt.Sprintf("installation token of GitHub, redacted, expires %s", expiresAt.UTC().Format(time.RFC3339))
	return &Token{summary(shown), redact.New(value), expiresAt}, nil
}

func unusable(answer transport.Answer, problem string) error {
	e := self.Unusable(opExchange, "GitHub", "%s", problem)
	e.RequestID = requestID(answer)
	return e
}
