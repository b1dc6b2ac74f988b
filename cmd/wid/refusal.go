package main

import (
	"errors"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
)

// refusalLife is how long a refusal is kept. Programs that call their plugin in a loop would ask the provider as often as
// they can otherwise; whoever has mended something waits for no longer than this.
const refusalLife = 5 * time.Second

// refusal is what a provider has answered to an exchange, without anything secret.
type refusal struct {
	Reason              auth.Reason
	Provider, Operation string
	ServiceAccount      client.ObjectKey
	Message, Remedy     string
	Code                string
	StatusCode          int
}

// refusedBy returns what is kept of an error in place of a credential: of answers that stay the same until somebody edits
// something. It is nil for all others, and for errors that cost no request.
func refusedBy(err error) *credential {
	var e *auth.Error
	if !errors.As(err, &e) || !e.Permanent() || e.StatusCode == 0 {
		return nil
	}
	r := &refusal{Reason: e.Reason, Provider: e.Provider, Operation: e.Operation, ServiceAccount: e.ServiceAccount,
		Message: e.Message, Remedy: e.Remedy, Code: e.Code, StatusCode: e.StatusCode}
	return &credential{Provider: e.Provider, Expires: time.Now().Add(refusalLife), Refused: r}
}

func (r *refusal) err() error {
	return &auth.Error{Reason: r.Reason, Provider: r.Provider, ServiceAccount: r.ServiceAccount,
		Operation: strings.TrimPrefix(r.Operation+", a few seconds ago", ", "),
		Message:   r.Message, Remedy: r.Remedy, Code: r.Code, StatusCode: r.StatusCode}
}
