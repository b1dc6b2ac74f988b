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
)

// known are the secrets of one run: given to it, gained by it, or seen in its own requests. No finding repeats them.
type known struct {
	mu      sync.Mutex
	secrets []string
}

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
		if s = strings.TrimSpace(s); s != "" && !slices.Contains(k.secrets, s) {
			k.secrets = append(k.secrets, strings.Clone(s))
		}
	}
}

// addLogin adds the password, and the pair that Basic authentication encodes (RFC 7617).
func (k *known) addLogin(user, password string) {
	if password != "" {
		k.add(password, user+":"+password)
	}
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

func (k *known) all() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.secrets)
}
