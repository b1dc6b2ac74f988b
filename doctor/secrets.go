package doctor

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/jwt"
	"github.com/workloadid/workloadid/internal/redact"
)

// known are the secrets that a run has come to hold: those that it was given, those that it has gained, and those that it has
// seen its own requests carry. They are kept for the run, to have no finding repeat them.
type known struct {
	mu sync.Mutex
	// secrets count in parts too, pairs of user and password only as a whole: the user's name is no secret.
	secrets, pairs []string
}

const (
	// maxKnown bounds how many secrets a run holds, of jwt.MaxSize bytes each. A plugin may make a new one for each request.
	maxKnown = 256
	// minSecret is the length in bytes from which something is a secret. What is shorter is found in ordinary text, which would
	// not only become unreadable: the gap would tell the secret. Such a password is kept out of the report in its usual form
	// in a request (Basic, with the user's name) only.
	minSecret = 8
)

type knownKey struct{}

func withKnown(ctx context.Context) (context.Context, *known) {
	k := &known{}
	return context.WithValue(ctx, knownKey{}, k), k
}

// knownTo returns nil for requests of no run.
func knownTo(ctx context.Context) *known {
	k, _ := ctx.Value(knownKey{}).(*known)
	return k
}

func (k *known) add(secrets ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range secrets {
		k.secrets = remember(k.secrets, strings.TrimSpace(s))
	}
}

// remember keeps the newest.
func remember(list []string, s string) []string {
	s = s[:min(len(s), jwt.MaxSize)]
	if len(s) < minSecret || slices.Contains(list, s) {
		return list
	}
	if len(list) >= maxKnown {
		list = slices.Delete(list, 0, 1)
	}
	return append(list, strings.Clone(s))
}

// addLogin is for RFC 7617, whose encoding hides nothing.
func (k *known) addLogin(user, password string) {
	if password == "" {
		return
	}
	pair := user + ":" + password
	k.add(password, base64.StdEncoding.EncodeToString([]byte(pair)), base64.RawURLEncoding.EncodeToString([]byte(pair)))
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pairs = remember(k.pairs, pair)
}

// addHeader takes the value of an Authorization header.
func (k *known) addHeader(value string) {
	scheme, credential, found := strings.Cut(value, " ")
	if !found {
		credential = value
	}
	k.add(credential)
	if pair, err := base64.StdEncoding.DecodeString(strings.TrimSpace(credential)); err == nil && strings.EqualFold(scheme, "Basic") {
		user, password, _ := strings.Cut(string(pair), ":")
		k.addLogin(user, password)
	}
}

// addURL is for the login that an address of a proxy may hold.
func (k *known) addURL(u *url.URL) {
	if u == nil || u.User == nil {
		return
	}
	password, _ := u.User.Password()
	k.addLogin(u.User.Username(), password)
}

// carriers are the headers that credentials travel in.
func carriers() []string { return []string{"Authorization", "Proxy-Authorization", "Cookie"} }

func (k *known) addRequest(r *http.Request) {
	for _, name := range carriers() {
		for _, value := range r.Header.Values(name) {
			k.addHeader(value)
		}
	}
}

// addToken is for the credential of a cloud. What SDKs have types of their own for cannot be had without importing them.
func (k *known) addToken(token auth.Token) {
	if token == nil {
		return
	}
	switch t := token.(type) {
	case interface{ AccessToken() string }:
		k.add(t.AccessToken())
	case interface{ Reveal() string }:
		k.add(t.Reveal())
	}
	for _, made := range []reflect.Value{
		reflect.ValueOf(token).MethodByName("AccessToken"), reflect.ValueOf(token).MethodByName("Credentials"),
	} {
		if !made.IsValid() || made.Type().NumIn() != 0 || made.Type().NumOut() != 1 || made.Type().Out(0).Kind() != reflect.Struct {
			continue
		}
		parts := made.Call(nil)[0]
		for _, name := range []string{"Token", "SecretAccessKey", "SessionToken"} {
			if part := parts.FieldByName(name); part.IsValid() && part.Kind() == reflect.String {
				k.add(part.String())
			}
		}
	}
}

// all are the secrets without the pairs.
func (k *known) all() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.secrets)
}

// scrubber finds them all.
func (k *known) scrubber() *redact.Scrubber {
	k.mu.Lock()
	defer k.mu.Unlock()
	return newScrubber(k.secrets, k.pairs)
}
