package token

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/jwt"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/internal/renewal"
)

// Keys of the Secret. The last two are for readers. The driver reads the token
// itself.
const (
	tokenFile      = "token"
	expirationFile = "expiration"
	uidFile        = "uid"
)

// leastInterval separates two refreshes of a token, however short it lives and
// however wrong the agent's clock is.
const leastInterval = 30 * time.Second

// userOf returns the user name in the tokens of a ServiceAccount.
func userOf(account client.ObjectKey) string {
	return "system:serviceaccount:" + account.Namespace + ":" + account.Name
}

// token is a token with its claims.
type token struct {
	raw            string
	uid            types.UID
	issued, expiry time.Time
}

// parseToken refuses a token of another ServiceAccount. Only the API server
// verifies signatures. Of a token, its errors repeat only the subject.
func parseToken(raw string, account client.ObjectKey) (*token, error) {
	claims, err := jwt.Parse(raw)
	if err != nil {
		return nil, err
	}
	t := &token{raw: raw, uid: types.UID(claims.Kubernetes.ServiceAccount.UID), issued: claims.IssuedAt.Time,
		expiry: claims.Expiry.Time}
	switch {
	case claims.Subject != userOf(account):
		return nil, fmt.Errorf("its subject is %.300q instead of %q", claims.Subject, userOf(account))
	case !isUID(t.uid):
		return nil, errors.New("it does not say the UID of its ServiceAccount")
	case t.issued.IsZero() || !t.expiry.After(t.issued):
		return nil, errors.New("it does not say when it was issued and when it expires")
	}
	return t, nil
}

func (t *token) credential() *registration.Credential {
	return &registration.Credential{User: &clientcmdapi.AuthInfo{TokenFile: tokenFile}, Files: map[string][]byte{
		tokenFile: []byte(t.raw), expirationFile: []byte(t.expiry.UTC().Format(time.RFC3339)), uidFile: []byte(t.uid)}}
}

func (t *token) describe(account client.ObjectKey) string {
	return fmt.Sprintf("The token of ServiceAccount %s (UID: %s) expires at %s.", account, t.uid,
		t.expiry.UTC().Format(time.RFC3339))
}

// renewAt counts from the issue. If the agent's clock is behind the hub's, it
// counts from the receipt.
func (t *token) renewAt(received, now time.Time) time.Time {
	start := t.issued
	if !received.IsZero() && received.Before(start) {
		start = received
	}
	return renewal.At([]byte(t.raw), start, t.expiry.Sub(t.issued), received, now, leastInterval)
}

// readyMessage returns the message of TokenInfrastructureReady=True, which
// carries the UID to the agent.
func readyMessage(account client.ObjectKey, uid types.UID) string {
	return fmt.Sprintf("ServiceAccount %s/%s (UID: %s) is ready", account.Namespace, account.Name, uid)
}

// parseReady reverses readyMessage, for one ServiceAccount.
func parseReady(message string, account client.ObjectKey) (types.UID, bool) {
	before, after, _ := strings.Cut(readyMessage(account, "\n"), "\n")
	rest, ok := strings.CutPrefix(message, before)
	uid, found := strings.CutSuffix(rest, after)
	return types.UID(uid), ok && found && isUID(types.UID(uid))
}

// isUID also accepts other texts than UUIDs, because Kubernetes does not
// promise that UIDs are UUIDs.
func isUID(uid types.UID) bool {
	const most = 128
	return uid != "" && len(uid) <= most &&
		strings.Trim(strings.ToLower(string(uid)), "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}

// progress is the driver's state. Times are by the agent's clock.
type progress struct {
	Declared time.Time `json:"declared,omitzero"`
	Received time.Time `json:"received,omitzero"` // when the stored token was received
	Failure  failure   `json:"failure,omitzero"`
}

// failure is the last request, if it failed.
type failure struct {
	Goal    string    `json:"goal"`  // what was requested
	Retry   time.Time `json:"retry"` // not before
	Seconds int64     `json:"seconds"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
}

const progressState = "progress"

// progressOf returns empty progress if the state was lost or edited.
func progressOf(state map[string][]byte) (n progress) {
	if json.Unmarshal(state[progressState], &n) != nil {
		return progress{}
	}
	return n
}

func (n progress) state() map[string][]byte {
	if n == (progress{}) {
		return nil
	}
	n.Declared, n.Received, n.Failure.Retry = n.Declared.UTC(), n.Received.UTC(), n.Failure.Retry.UTC()
	content, err := json.Marshal(n)
	if err != nil { // a year after 9999
		return nil
	}
	return map[string][]byte{progressState: content}
}

func (f failure) wait() time.Duration { return time.Duration(f.Seconds) * time.Second }

// again returns the failure after another one for the same goal.
func (f failure) again(now time.Time, why *problem) failure {
	wait := min(max(2*f.wait(), firstRetry), lastRetry)
	return failure{Goal: f.Goal, Retry: now.Add(wait), Seconds: int64(wait / time.Second), Reason: why.reason,
		Message: why.message}
}
