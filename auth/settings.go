package auth

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/workloadid/workloadid/cache"
)

const featureObjectLevelWorkloadIdentity = "ObjectLevelWorkloadIdentity"

// Settings apply to a whole controller. With the zero value objects may not name ServiceAccounts, there are no defaults and
// nothing is cached. Pass Settings with WithSettings and do not change them after that.
type Settings struct {
	// ObjectLevelWorkloadIdentity lets objects name a ServiceAccount. If it is off, such a call fails with ErrMisconfigured.
	ObjectLevelWorkloadIdentity bool
	// DefaultServiceAccount is the name of the ServiceAccount, in the namespace of the owner, for access tokens of
	// objects that name none. Empty: the controller's own identity.
	DefaultServiceAccount string
	// DefaultKubeConfigServiceAccount is the same for access to remote clusters.
	DefaultKubeConfigServiceAccount string
	// DefaultDecryptionServiceAccount is the same for decryption.
	DefaultDecryptionServiceAccount string
	// TokenCache sizes the token cache; TokenCache.New builds it.
	TokenCache cache.Flags
}

// BindFlags adds the flags of all settings to fs:
//
//	--feature-gates                        ObjectLevelWorkloadIdentity=true|false
//	--default-service-account              name
//	--default-kubeconfig-service-account   name
//	--default-decryption-service-account   name
//	--token-cache-max-size                 entries, 0 (the default) for no cache
//	--token-cache-max-duration             at most 1h, the default
//
// A controller with feature gates of its own defines --feature-gates first and sets ObjectLevelWorkloadIdentity itself.
func (s *Settings) BindFlags(fs *pflag.FlagSet) {
	if fs.Lookup("feature-gates") == nil {
		fs.Var((*gateFlag)(s), "feature-gates",
			"Comma-separated list of feature gates. Known: "+featureObjectLevelWorkloadIdentity+"=true|false.")
	}
	fs.StringVar(&s.DefaultServiceAccount, "default-service-account", s.DefaultServiceAccount,
		"ServiceAccount for objects that name none, in the namespace of the object.")
	fs.StringVar(&s.DefaultKubeConfigServiceAccount, "default-kubeconfig-service-account", s.DefaultKubeConfigServiceAccount,
		"ServiceAccount for access to remote clusters of objects that name none, in the namespace of the object.")
	fs.StringVar(&s.DefaultDecryptionServiceAccount, "default-decryption-service-account", s.DefaultDecryptionServiceAccount,
		"ServiceAccount for decryption of objects that name none, in the namespace of the object.")
	s.TokenCache.BindFlags(fs)
}

// Validate reports settings that contradict each other or can never work.
func (s *Settings) Validate() error {
	for _, usage := range []Usage{UsageAccess, UsageKubeConfig, UsageDecryption} {
		switch d := s.defaultServiceAccount(usage); {
		case d.name == "":
		case !s.ObjectLevelWorkloadIdentity:
			return misconfigured("enable the feature gate "+featureObjectLevelWorkloadIdentity,
				"the default ServiceAccount for %s is %q, but ServiceAccounts of objects are switched off", d.purpose, d.name).
				About("auth.Settings.ObjectLevelWorkloadIdentity")
		case !validServiceAccountName(d.name):
			return misconfigured("give the name of a ServiceAccount, without a namespace",
				"the default ServiceAccount for %s is not a valid name: %q", d.purpose, d.name).About(d.option)
		}
	}
	return s.TokenCache.Validate()
}

// Usage says what a credential is for.
type Usage int

const (
	// UsageAccess is the default: access tokens, registries, Git.
	UsageAccess Usage = iota
	// UsageKubeConfig is access to remote clusters.
	UsageKubeConfig
	// UsageDecryption is decryption with a key management service.
	UsageDecryption
)

// defaultAccount is one of the default ServiceAccounts.
type defaultAccount struct{ name, option, purpose string }

func (s *Settings) defaultServiceAccount(u Usage) defaultAccount {
	switch {
	case s == nil:
		return defaultAccount{}
	case u == UsageKubeConfig:
		return defaultAccount{s.DefaultKubeConfigServiceAccount, "auth.Settings.DefaultKubeConfigServiceAccount", "remote clusters"}
	case u == UsageDecryption:
		return defaultAccount{s.DefaultDecryptionServiceAccount, "auth.Settings.DefaultDecryptionServiceAccount", "decryption"}
	}
	return defaultAccount{s.DefaultServiceAccount, "auth.Settings.DefaultServiceAccount", "access tokens"}
}

// gateFlag parses the usual syntax of feature gates.
type gateFlag Settings

func (g *gateFlag) Type() string { return "mapStringBool" }

func (g *gateFlag) String() string {
	return fmt.Sprintf("%s=%t", featureObjectLevelWorkloadIdentity, g.ObjectLevelWorkloadIdentity)
}

func (g *gateFlag) Set(value string) error {
	for gate := range strings.SplitSeq(value, ",") {
		name, state, _ := strings.Cut(strings.TrimSpace(gate), "=")
		if name != featureObjectLevelWorkloadIdentity {
			return fmt.Errorf("unknown feature gate %q, known is %s", name, featureObjectLevelWorkloadIdentity)
		}
		on, err := strconv.ParseBool(state)
		if err != nil {
			return fmt.Errorf("feature gate %s is true or false, not %q", name, state)
		}
		g.ObjectLevelWorkloadIdentity = on
	}
	return nil
}
