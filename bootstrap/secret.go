package bootstrap

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names that Kubernetes gives.
const (
	// SecretNamespace is where the Secrets of tokens are.
	SecretNamespace = "kube-system"
	// SecretType is their type.
	SecretType corev1.SecretType = "bootstrap.kubernetes.io/token"
	// SecretNamePrefix is their name without the token's ID.
	SecretNamePrefix = "bootstrap-token-"
	// UsageSigning lets the token sign cluster-info, for discovery.
	UsageSigning = "signing"
	// UsageAuthentication lets the token authenticate at the API server, for TLS bootstrap.
	UsageAuthentication = "authentication"
	// DefaultGroup is what every token's user is in.
	DefaultGroup = "system:bootstrappers"
	// UserPrefix is the user of a token without the token's ID.
	UserPrefix = "system:bootstrap:"

	keyID          = "token-id"
	keySecret      = "token-secret"
	keyExpiration  = "expiration"
	keyDescription = "description"
	keyGroups      = "auth-extra-groups"
	keyOldGroups   = "auth-groups"
	usagePrefix    = "usage-bootstrap-"
)

// TokenConfig is a token with everything that its Secret says of it.
type TokenConfig struct {
	Token Token
	// Description is for people.
	Description string
	// Expires is when the token ends; the Secret holds it to the second, without what is left of one. Zero: never.
	Expires time.Time
	// Usages are UsageSigning, UsageAuthentication and whatever else "usage-bootstrap-…" keys name.
	Usages []string
	// MalformedExpiration means that the Secret's expiration cannot be parsed. The token counts as expired then.
	MalformedExpiration bool
	// Groups are extra groups of the token's user, each "system:bootstrappers:…". ParseSecret sorts them, as Kubernetes does.
	Groups []string
	// MalformedGroups means that the Secret names a group that a token cannot give. Groups is empty then, and the token must
	// not authenticate anybody; Kubernetes still signs with it and deletes it at its end.
	MalformedGroups bool
	// OldGroups are what the key "auth-groups" of the original proposal names, if all of it could be groups. Kubernetes does not
	// know the key: nobody is in these groups, and Secret does not write them.
	OldGroups []string
}

var groupPattern = regexp.MustCompile(`\Asystem:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]\z`)

// ValidateGroup refuses groups that a token cannot give.
func ValidateGroup(group string) error {
	if !groupPattern.MatchString(group) {
		return fmt.Errorf("a group of a bootstrap token begins with %q and goes on with lower-case letters, digits, - and :, not %.300q",
			DefaultGroup+":", group)
	}
	return nil
}

// User returns the name under which the token authenticates.
func (c *TokenConfig) User() string { return UserPrefix + c.Token.id }

// Allows reports whether the token has a usage.
func (c *TokenConfig) Allows(usage string) bool { return slices.Contains(c.Usages, usage) }

// Expired reports whether the token has ended.
func (c *TokenConfig) Expired(now time.Time) bool {
	return !c.Expires.IsZero() && !now.Before(c.Expires)
}

// Secret returns the Secret of the token. Errors: there is no token, a usage or a group cannot be one, groups come without
// UsageAuthentication, or Expires is no time of RFC 3339.
func (c *TokenConfig) Secret() (*corev1.Secret, error) {
	if c.Token.IsZero() {
		return nil, errors.New("there is no token")
	}
	data := map[string][]byte{keyID: []byte(c.Token.id), keySecret: []byte(c.Token.secret.Reveal())}
	if c.Description != "" {
		data[keyDescription] = []byte(c.Description)
	}
	if err := setExpiration(data, c.Expires); err != nil {
		return nil, err
	}
	for _, usage := range c.Usages {
		if usage == "" || strings.Trim(usage, tokenChars+"-") != "" {
			return nil, fmt.Errorf("a usage is lower-case letters, digits and hyphens, such as %q, not %.100q", UsageSigning, usage)
		}
		data[usagePrefix+usage] = []byte("true")
	}
	if err := c.setGroups(data); err != nil {
		return nil, err
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: SecretNamespace, Name: SecretNamePrefix + c.Token.id},
		Type:       SecretType,
		Data:       data,
	}, nil
}

func (c *TokenConfig) setGroups(data map[string][]byte) error {
	switch {
	case c.MalformedGroups: // a token that authenticates nobody would come to life
		return errors.New("the token's groups are malformed: set Groups anew, and MalformedGroups to false")
	case len(c.Groups) == 0:
		return nil
	case !c.Allows(UsageAuthentication):
		return fmt.Errorf("groups need the usage %q", UsageAuthentication)
	}
	for _, group := range c.Groups {
		if err := ValidateGroup(group); err != nil {
			return err
		}
	}
	data[keyGroups] = []byte(strings.Join(c.Groups, ","))
	return nil
}

// Expiration returns the end of a token from its Secret, zero for none. It needs no other key to be well-formed, so that a
// broken token ends too. Its error means that the end cannot be parsed: Kubernetes treats such a token as expired.
func Expiration(s *corev1.Secret) (time.Time, error) {
	text, ok := s.Data[keyExpiration]
	if !ok || len(text) == 0 {
		return time.Time{}, nil
	}
	expires, err := time.Parse(time.RFC3339, string(text))
	if err != nil {
		return time.Time{}, errors.New("the expiration is not a time of RFC 3339")
	}
	if expires.IsZero() {
		expires = expires.Add(time.Second) // equally past, and not the zero time, which means never
	}
	return expires, nil
}

// SetExpiration changes the end of the token in its Secret, to the second, and nothing else; zero removes it. Its error is a
// time that RFC 3339 cannot express, after the year 9999.
func SetExpiration(s *corev1.Secret, expires time.Time) error {
	if s.Data == nil {
		s.Data = map[string][]byte{}
	}
	return setExpiration(s.Data, expires)
}

func setExpiration(data map[string][]byte, expires time.Time) error {
	if expires.IsZero() {
		delete(data, keyExpiration)
		return nil
	}
	text := expires.UTC().Format(time.RFC3339)
	if _, err := time.Parse(time.RFC3339, text); err != nil {
		return fmt.Errorf("a token ends in the years 0 to 9999, not at %q; the zero time is no end at all", text)
	}
	data[keyExpiration] = []byte(text)
	return nil
}

// ParseSecret reads the Secret of a token. It refuses Secrets that Kubernetes ignores too: of another type or name, with
// a malformed token. An expiration that cannot be parsed counts as past, and groups that no token can give are told in
// MalformedGroups: check that before authenticating somebody. Errors name the Secret and never hold its data.
func ParseSecret(s *corev1.Secret) (*TokenConfig, error) {
	refuse := func(format string, args ...any) (*TokenConfig, error) {
		return nil, fmt.Errorf("secret %q: %s", s.Namespace+"/"+s.Name, fmt.Sprintf(format, args...))
	}
	if s.Type != SecretType {
		return refuse("the type is %q instead of %q", s.Type, SecretType)
	}
	id := string(s.Data[keyID])
	if s.Name != SecretNamePrefix+id {
		return refuse("the name is not %q with the value of its key %q", SecretNamePrefix, keyID)
	}
	token, err := ParseToken(id + "." + string(s.Data[keySecret]))
	if err != nil {
		return refuse("%v", err)
	}
	c := &TokenConfig{Token: token, Description: string(s.Data[keyDescription]), Usages: usages(s.Data)}
	if c.Expires, err = Expiration(s); err != nil {
		c.Expires, c.MalformedExpiration = time.Unix(0, 0).UTC(), true
	}
	if c.Groups, err = groups(s.Data[keyGroups]); err != nil {
		c.MalformedGroups = true
	}
	c.OldGroups, _ = groups(s.Data[keyOldGroups]) // nobody is in them
	return c, nil
}

func usages(data map[string][]byte) []string {
	var found []string
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if usage, ok := strings.CutPrefix(key, usagePrefix); ok && string(data[key]) == "true" {
			found = append(found, usage)
		}
	}
	return found
}

// groups sorts the groups and refuses empty ones, as Kubernetes does.
func groups(text []byte) ([]string, error) {
	if len(text) == 0 {
		return nil, nil
	}
	var found []string
	for group := range strings.SplitSeq(string(text), ",") {
		if err := ValidateGroup(group); err != nil {
			return nil, err
		}
		found = append(found, group)
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}
