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

// Kubernetes defines these names.
const (
	// SecretNamespace is the namespace of the tokens' Secrets.
	SecretNamespace = "kube-system"
	// SecretType is the type of the tokens' Secrets.
	SecretType corev1.SecretType = "bootstrap.kubernetes.io/token"
	// SecretNamePrefix and the token's ID form the name of a Secret.
	SecretNamePrefix = "bootstrap-token-"
	// UsageSigning lets the token sign cluster-info, for discovery.
	UsageSigning = "signing"
	// UsageAuthentication lets the token authenticate at the API server, for TLS bootstrap.
	UsageAuthentication = "authentication"
	// DefaultGroup is the group of every token's user.
	DefaultGroup = "system:bootstrappers"
	// UserPrefix and the token's ID form the name of a token's user.
	UserPrefix = "system:bootstrap:"

	keyID          = "token-id"
	keySecret      = "token-secret"
	keyExpiration  = "expiration"
	keyDescription = "description"
	keyGroups      = "auth-extra-groups"
	keyOldGroups   = "auth-groups"
	usagePrefix    = "usage-bootstrap-"
)

// TokenConfig is a token with all other data of its Secret.
type TokenConfig struct {
	Token Token
	// Description is a note for people.
	Description string
	// Expires is the expiry. The Secret holds it in whole seconds, rounded down. Zero: never.
	Expires time.Time
	// Usages are UsageSigning, UsageAuthentication and the names of other "usage-bootstrap-…" keys.
	Usages []string
	// MalformedExpiration means that the Secret's expiration cannot be parsed. The token counts as expired.
	MalformedExpiration bool
	// Groups are extra groups of the token's user, each "system:bootstrappers:…". ParseSecret sorts them, as Kubernetes does.
	Groups []string
	// MalformedGroups means that the Secret names a group that a token cannot grant. Groups is empty then, and the token must not
	// authenticate. Kubernetes still signs with it and deletes it when it expires.
	MalformedGroups bool
	// OldGroups are the groups of the key "auth-groups" of the original proposal, if all are well-formed. Kubernetes ignores that key.
	// The token grants none of them, and Secret does not write them.
	OldGroups []string
}

var groupPattern = regexp.MustCompile(`\Asystem:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]\z`)

// ValidateGroup refuses a group that a token cannot grant.
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

// Expired reports whether the token has expired.
func (c *TokenConfig) Expired(now time.Time) bool {
	return !c.Expires.IsZero() && !now.Before(c.Expires)
}

// Secret returns the Secret of the token. It fails without a token, for invalid usages or groups, for groups without
// UsageAuthentication, and if RFC 3339 cannot express Expires.
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
	case c.MalformedGroups: // a token that must not authenticate would become valid
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

// Expiration returns the expiry of the token in a Secret, zero for none. No other key must be well-formed, so a malformed token
// expires too. An error means that the expiry cannot be parsed. Kubernetes treats such a token as expired.
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

// SetExpiration sets the expiry of the token in a Secret, in whole seconds, and changes nothing else. Zero removes it. It fails
// if RFC 3339 cannot express the time, after the year 9999.
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

// ParseSecret reads the Secret of a token. Like Kubernetes, it refuses another type or name and a malformed token. A malformed
// expiry counts as past. Check MalformedGroups before you authenticate a token. Errors name the Secret and never hold its data.
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
	c.OldGroups, _ = groups(s.Data[keyOldGroups]) // the token grants none of them
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
