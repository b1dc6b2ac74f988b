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
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
)

// Usages of a token.
const (
	// UsageSigning lets the token sign cluster-info, for discovery.
	UsageSigning = "signing"
	// UsageAuthentication lets the token authenticate at the API server, for
	// TLS bootstrap.
	UsageAuthentication = "authentication"
)

// TokenConfig is a token with all other data of its Secret.
type TokenConfig struct {
	Token Token
	// Description is a note for people.
	Description string
	// Expires is the expiry. The Secret holds it in whole seconds, rounded
	// down. Zero: never.
	Expires time.Time
	// Usages are UsageSigning, UsageAuthentication and the names of other
	// "usage-bootstrap-…" keys.
	Usages []string
	// MalformedExpiration means that the Secret's expiration cannot be parsed.
	// The token counts as expired.
	MalformedExpiration bool
	// Groups are extra groups of the token's user, each
	// "system:bootstrappers:…". ParseSecret sorts them, as Kubernetes does.
	Groups []string
	// MalformedGroups means that the Secret names a group that a token cannot
	// grant. Groups is empty then, and the token must not authenticate.
	// Kubernetes still signs with it and deletes it when it expires.
	MalformedGroups bool
}

var groupPattern = regexp.MustCompile(bootstrapapi.BootstrapGroupPattern)

// validateGroup refuses a group that a token cannot grant.
func validateGroup(group string) error {
	if !groupPattern.MatchString(group) {
		return fmt.Errorf(
			"a group of a bootstrap token begins with %q and goes on with lower-case letters, digits, - and :, not %.300q",
			bootstrapapi.BootstrapDefaultGroup+":", group)
	}
	return nil
}

// User returns the name under which the token authenticates.
func (c *TokenConfig) User() string { return bootstrapapi.BootstrapUserPrefix + c.Token.id }

// Allows reports whether the token has a usage.
func (c *TokenConfig) Allows(usage string) bool { return slices.Contains(c.Usages, usage) }

// Expired reports whether the token has expired.
func (c *TokenConfig) Expired(now time.Time) bool {
	return !c.Expires.IsZero() && !now.Before(c.Expires)
}

// Secret returns the Secret of the token. It fails without a token, for invalid
// usages or groups, for groups without [UsageAuthentication], and if RFC 3339
// cannot express Expires.
func (c *TokenConfig) Secret() (*corev1.Secret, error) {
	if c.Token.IsZero() {
		return nil, errors.New("there is no token")
	}
	data := map[string][]byte{bootstrapapi.BootstrapTokenIDKey: []byte(c.Token.id),
		bootstrapapi.BootstrapTokenSecretKey: []byte(c.Token.secret.Reveal())}
	if c.Description != "" {
		data[bootstrapapi.BootstrapTokenDescriptionKey] = []byte(c.Description)
	}
	if err := setExpiry(data, c.Expires); err != nil {
		return nil, err
	}
	for _, usage := range c.Usages {
		if usage == "" || strings.Trim(usage, tokenChars+"-") != "" {
			return nil, fmt.Errorf("a usage is lower-case letters, digits and hyphens, such as %q, not %.100q",
				UsageSigning, usage)
		}
		data[bootstrapapi.BootstrapTokenUsagePrefix+usage] = []byte("true")
	}
	if err := c.setGroups(data); err != nil {
		return nil, err
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem,
			Name: bootstrapapi.BootstrapTokenSecretPrefix + c.Token.id},
		Type: bootstrapapi.SecretTypeBootstrapToken,
		Data: data,
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
		if err := validateGroup(group); err != nil {
			return err
		}
	}
	data[bootstrapapi.BootstrapTokenExtraGroupsKey] = []byte(strings.Join(c.Groups, ","))
	return nil
}

// ParseSecret reads the Secret of a token. Like Kubernetes' authenticator, it
// refuses another type or name, and a malformed token. Kubernetes' signer also
// signs for a malformed secret half, with which no machine can join. A
// malformed expiry counts as past. Check MalformedGroups before you
// authenticate a token. Errors name the Secret and never hold its data.
func ParseSecret(s *corev1.Secret) (*TokenConfig, error) {
	refuse := func(format string, args ...any) (*TokenConfig, error) {
		return nil, fmt.Errorf("secret %q: %s", s.Namespace+"/"+s.Name, fmt.Sprintf(format, args...))
	}
	if s.Type != bootstrapapi.SecretTypeBootstrapToken {
		return refuse("the type is %q instead of %q", s.Type, bootstrapapi.SecretTypeBootstrapToken)
	}
	id := string(s.Data[bootstrapapi.BootstrapTokenIDKey])
	if s.Name != bootstrapapi.BootstrapTokenSecretPrefix+id {
		return refuse("the name is not %q with the value of its key %q", bootstrapapi.BootstrapTokenSecretPrefix,
			bootstrapapi.BootstrapTokenIDKey)
	}
	token, err := ParseToken(id + "." + string(s.Data[bootstrapapi.BootstrapTokenSecretKey]))
	if err != nil {
		return refuse("%v", err)
	}
	c := &TokenConfig{Token: token, Description: string(s.Data[bootstrapapi.BootstrapTokenDescriptionKey]),
		Usages: usages(s.Data)}
	if c.Expires, err = ExpiryOf(s.Data); err != nil {
		c.Expires, c.MalformedExpiration = time.Unix(0, 0).UTC(), true
	}
	if c.Groups, err = groups(s.Data[bootstrapapi.BootstrapTokenExtraGroupsKey]); err != nil {
		c.MalformedGroups = true
	}
	return c, nil
}

func usages(data map[string][]byte) []string {
	var found []string
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if usage, ok := strings.CutPrefix(key, bootstrapapi.BootstrapTokenUsagePrefix); ok && string(data[key]) == "true" {
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
		if err := validateGroup(group); err != nil {
			return nil, err
		}
		found = append(found, group)
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}
