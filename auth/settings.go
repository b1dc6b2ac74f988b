package auth

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cache"
)

// FeatureGateObjectLevelWorkloadIdentity is the feature gate of
// [Settings.ObjectLevelWorkloadIdentity].
const FeatureGateObjectLevelWorkloadIdentity = "ObjectLevelWorkloadIdentity"

// Names of flags, for Settings.BindFlags. Package cache declares the names of
// the token cache's flags.
const (
	FlagFeatureGates                    = "feature-gates"
	FlagDefaultServiceAccount           = "default-service-account"
	FlagDefaultKubeConfigServiceAccount = "default-kubeconfig-service-account"
	FlagDefaultDecryptionServiceAccount = "default-decryption-service-account"
	FlagMinimumLifetime                 = "token-minimum-lifetime"
)

// DefaultMinimumLifetime is the default of --token-minimum-lifetime.
const DefaultMinimumLifetime = 10 * time.Minute

// Settings apply to a whole controller. In the zero value, objects must not
// name ServiceAccounts, there are no defaults, and nothing is cached. Pass
// Settings with [WithSettings] and do not change them after that.
type Settings struct {
	// ObjectLevelWorkloadIdentity lets objects name a ServiceAccount. If it is
	// off, such a call fails with ErrMisconfigured.
	ObjectLevelWorkloadIdentity bool
	// DefaultServiceAccount is the name of the ServiceAccount, in the namespace
	// of the owner, for access tokens of objects that name none. Empty: the
	// controller's own identity.
	DefaultServiceAccount string
	// DefaultKubeConfigServiceAccount is the same for access to remote
	// clusters.
	DefaultKubeConfigServiceAccount string
	// DefaultDecryptionServiceAccount is the same for decryption.
	DefaultDecryptionServiceAccount string
	// MinimumLifetime applies to calls of GetAccessToken,
	// GetArtifactRegistryCredentials and GetGitCredentials without
	// WithMinimumLifetime, whose callers often keep the credential for a
	// reconciliation. Access to clusters, the Keychain and adapters of SDKs ask
	// again by themselves. 0 means none.
	MinimumLifetime time.Duration
	// TokenCache sizes the token cache; TokenCache.New builds it.
	TokenCache cache.Flags
}

// BindFlags adds flags of the settings to fs: the named ones, or all if none is
// named. It panics at an unknown name.
//
//	--feature-gates                        ObjectLevelWorkloadIdentity=true|false
//	--default-service-account              name
//	--default-kubeconfig-service-account   name
//	--default-decryption-service-account   name
//	--token-minimum-lifetime               10m by default
//	--token-cache-max-size                 entries, 0 (the default) for no cache
//	--token-cache-max-duration             at most 1h, the default
//
// A controller with feature gates of its own defines --feature-gates first and
// sets ObjectLevelWorkloadIdentity itself.
func (s *Settings) BindFlags(fs *pflag.FlagSet, names ...string) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	s.define(all)
	for _, name := range names {
		if all.Lookup(name) == nil {
			panic(fmt.Sprintf("auth.Settings has no flag %q", name))
		}
	}
	all.VisitAll(func(f *pflag.Flag) {
		if f.Name == FlagFeatureGates && fs.Lookup(f.Name) != nil || len(names) > 0 && !slices.Contains(names, f.Name) {
			return
		}
		fs.AddFlag(f)
	})
}

func (s *Settings) define(fs *pflag.FlagSet) {
	fs.Var((*gateFlag)(s), FlagFeatureGates,
		"Comma-separated list of feature gates. Known: "+FeatureGateObjectLevelWorkloadIdentity+"=true|false.")
	fs.StringVar(&s.DefaultServiceAccount, FlagDefaultServiceAccount, s.DefaultServiceAccount,
		"ServiceAccount for objects that name none, in the namespace of the object.")
	fs.StringVar(&s.DefaultKubeConfigServiceAccount, FlagDefaultKubeConfigServiceAccount,
		s.DefaultKubeConfigServiceAccount,
		"ServiceAccount for access to remote clusters of objects that name none, in the namespace of the object.")
	fs.StringVar(&s.DefaultDecryptionServiceAccount, FlagDefaultDecryptionServiceAccount,
		s.DefaultDecryptionServiceAccount,
		"ServiceAccount for decryption of objects that name none, in the namespace of the object.")
	fs.DurationVar(&s.MinimumLifetime, FlagMinimumLifetime, cmp.Or(s.MinimumLifetime, DefaultMinimumLifetime),
		"Time that a cached credential is still valid when it is used. At most three quarters of its lifetime count.")
	s.TokenCache.BindFlags(fs)
}

// Validate reports settings that contradict each other or can never work.
func (s *Settings) Validate() error {
	for _, usage := range []Usage{UsageAccess, UsageKubeConfig, UsageDecryption} {
		switch d := s.defaultServiceAccount(usage); {
		case d.name == "":
		case !s.ObjectLevelWorkloadIdentity:
			return gateOff(d)
		case !validServiceAccountName(d.name):
			return misconfigured("give the name of a ServiceAccount, without a namespace",
				"the default ServiceAccount for %s is not a valid name: %q", d.purpose, d.name).About(d.option)
		}
	}
	if s.MinimumLifetime < 0 {
		return misconfigured("pass a time that is not negative", "the minimum lifetime of cached credentials is %s",
			s.MinimumLifetime).
			About("auth.Settings.MinimumLifetime")
	}
	return s.TokenCache.Validate()
}

// gateOff blames the setting that names the ServiceAccount, or the object if
// there is none.
func gateOff(d defaultAccount) *Error {
	e := misconfigured("enable the feature gate "+FeatureGateObjectLevelWorkloadIdentity+" in the controller",
		"the controller does not let objects name ServiceAccounts").About("auth.Settings.ObjectLevelWorkloadIdentity")
	if d.name != "" {
		e.Message = fmt.Sprintf("the default ServiceAccount for %s is %q, but the feature gate is off", d.purpose, d.name)
		e.Option = d.option
	}
	e.Cause = provider.CauseFeatureGateOff
	return e
}

// Usage is the purpose of a credential.
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
		return defaultAccount{s.DefaultKubeConfigServiceAccount, "auth.Settings.DefaultKubeConfigServiceAccount",
			"remote clusters"}
	case u == UsageDecryption:
		return defaultAccount{s.DefaultDecryptionServiceAccount, "auth.Settings.DefaultDecryptionServiceAccount",
			"decryption"}
	}
	return defaultAccount{s.DefaultServiceAccount, "auth.Settings.DefaultServiceAccount", "access tokens"}
}

// gateFlag parses the usual syntax of feature gates.
type gateFlag Settings

func (g *gateFlag) Type() string { return "mapStringBool" }

func (g *gateFlag) String() string {
	return fmt.Sprintf("%s=%t", FeatureGateObjectLevelWorkloadIdentity, g.ObjectLevelWorkloadIdentity)
}

func (g *gateFlag) Set(value string) error {
	for gate := range strings.SplitSeq(value, ",") {
		name, state, _ := strings.Cut(strings.TrimSpace(gate), "=")
		if name != FeatureGateObjectLevelWorkloadIdentity {
			return fmt.Errorf("unknown feature gate %q, known is %s", name, FeatureGateObjectLevelWorkloadIdentity)
		}
		on, err := strconv.ParseBool(state)
		if err != nil {
			return fmt.Errorf("feature gate %s is true or false, not %q", name, state)
		}
		g.ObjectLevelWorkloadIdentity = on
	}
	return nil
}
