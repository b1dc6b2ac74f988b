package aws

import (
	"encoding/json"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/awsname"
)

// The keys of this package's options. All options are part of the cache key; WithClusterName of that of access to a cluster.

type (
	assumeRoleOption      struct{}
	chainLengthOption     struct{} // how many of the roles to assume, for the tokens before the last one
	sessionDurationOption struct{}
	sessionPrefixOption   struct{}
	clusterNameOption     struct{}
)

// AssumeRole is a role to assume with the credentials of the role before it: that of the WithAssumeRole before, else the
// ServiceAccount's, else the controller's own.
type AssumeRole struct {
	// RoleARN names the role. Its trust policy has to allow sts:AssumeRole to the role before it, which needs that permission
	// too. Required.
	RoleARN string
	// SessionName is the exact name of the session, 2 to 64 letters, digits or +=,.@-_. The prefix of WithSessionNamePrefix is
	// not put before it, and nothing keeps two ServiceAccounts from getting the same name. Optional: by default the name of the
	// ServiceAccount's session, or the prefix or "workloadid" for the controller's own identity.
	SessionName string
	// ExternalID is what the trust policy may demand (sts:ExternalId), 2 to 1224 characters. Optional.
	ExternalID string
	// Tags are session tags, at most 50. The trust policy has to allow sts:TagSession. Optional.
	Tags map[string]string
	// TransitiveTagKeys are those of the tags that go on to roles assumed from this one. Optional.
	TransitiveTagKeys []string
	// SourceIdentity stays with every role that is assumed from this one, and shows in CloudTrail. The trust policy has to
	// allow sts:SetSourceIdentity. 2 to 64 characters. Optional.
	SourceIdentity string
	// Policy is a session policy in JSON, at most 2048 characters: the session may do what both it and the role allow.
	// Optional.
	Policy string
}

// chainedRole is an AssumeRole that was looked at once, when the option was made: options are checked on every call.
type chainedRole struct {
	AssumeRole
	key       []string
	tagValues []string // apart from key: tags name the pod that a session is for
	err       error
	// errARN is nil for the ARN of a role of AWS, errOther for that of a service in Provider.AllowedSTSHosts.
	errARN, errOther error
}

// WithAssumeRole assumes a further role (role chaining) and returns that role's credentials. Several WithAssumeRole are
// assumed one after the other, in the order of the options. The cache keeps the credentials of every role on the way, so
// many chains of one ServiceAccount need one AssumeRoleWithWebIdentity.
//
// AWS limits a session that was assumed with another role's to an hour.
func WithAssumeRole(role AssumeRole) auth.Option {
	role.Tags = cloneMap(role.Tags)
	role.TransitiveTagKeys = slices.Sorted(slices.Values(role.TransitiveTagKeys))
	c := &chainedRole{AssumeRole: role, err: role.check()}
	_, c.errARN = ParseRoleARN(role.RoleARN)
	_, c.errOther = parseRoleARN(role.RoleARN, true)
	c.key = []string{role.RoleARN, role.SessionName, role.ExternalID, role.SourceIdentity, role.Policy, strconv.Itoa(len(role.Tags))}
	for _, k := range sortedKeys(role.Tags) {
		c.key, c.tagValues = append(c.key, k), append(c.tagValues, role.Tags[k])
	}
	c.key = append(c.key, role.TransitiveTagKeys...)
	return auth.WithProviderOption(assumeRoleOption{}, c)
}

// chain yields the roles of WithAssumeRole, in order.
func chain(opts *auth.Options) iter.Seq[*chainedRole] {
	return func(yield func(*chainedRole) bool) {
		left, bounded := opts.ProviderOption(chainLengthOption{}).(int)
		for v := range opts.ProviderOptions(assumeRoleOption{}) {
			role, ok := v.(*chainedRole)
			if bounded && left == 0 || !ok || !yield(role) {
				return
			}
			left--
		}
	}
}

// lastRole returns the last role of the chain, nil if there is none, and the number of roles.
func lastRole(opts *auth.Options) (last *chainedRole, length int) {
	for role := range chain(opts) {
		last = role
		length++
	}
	return last, length
}

func cloneMap(m map[string]string) map[string]string {
	clone := make(map[string]string, len(m))
	for k, v := range m {
		clone[k] = v
	}
	return clone
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Limits of the API reference of AssumeRole.
const (
	minExternalID, maxExternalID = 2, 1224
	minSessionName               = 2
	maxSessionPolicy             = 2048
	maxTags                      = 50
	maxTagKey, maxTagValue       = 128, 256
)

func (r *AssumeRole) check() error {
	const remedy = "correct WithAssumeRole"
	if s := r.SessionName; s != "" && (len(s) < minSessionName || !validSessionPart(s)) {
		return self.Misconfigured(remedy, "the session name has to be 2 to 64 letters, digits or +=,.@-_, not %.100q", s)
	}
	if s := r.ExternalID; s != "" && (len(s) < minExternalID || len(s) > maxExternalID || !allOf(s, "+=,.@:/-_")) {
		return self.Misconfigured(remedy, "the external ID has to be 2 to 1224 letters, digits or +=,.@:/-_, not %.100q", s)
	}
	if s := r.SourceIdentity; s != "" && (len(s) < minSessionName || !validSessionPart(s) || hasAWSPrefix(s)) {
		return self.Misconfigured(remedy,
			"the source identity has to be 2 to 64 letters, digits or +=,.@-_, and not to begin with aws:, not %.100q", s)
	}
	if r.Policy != "" && (len(r.Policy) > maxSessionPolicy || !json.Valid([]byte(r.Policy))) {
		return self.Misconfigured(remedy, "the session policy has to be a JSON document of at most %d characters", maxSessionPolicy)
	}
	return r.checkTags()
}

// checkFor decides by the service that is asked which names of roles there are.
func (r *chainedRole) checkFor(p *Provider, opts *auth.Options) error {
	err := r.errARN
	if err != nil && p.isOtherService(opts) {
		err = r.errOther
	}
	if err != nil {
		return self.Misconfigured("give WithAssumeRole arn:aws:iam::<account>:role/<name>",
			"the role to assume is not the ARN of a role: %v: %.600q", err, r.RoleARN)
	}
	return r.err
}

func (r *AssumeRole) checkTags() error {
	const remedy = "correct the tags of WithAssumeRole"
	if len(r.Tags) > maxTags {
		return self.Misconfigured(remedy, "there are %d session tags, at most %d are allowed", len(r.Tags), maxTags)
	}
	seen := map[string]bool{}
	for key, value := range r.Tags {
		folded := strings.ToLower(key)
		switch {
		case !validTag(key, maxTagKey) || key == "" || hasAWSPrefix(key):
			return self.Misconfigured(remedy, "%.200q cannot be the key of a session tag", key)
		case !validTag(value, maxTagValue):
			return self.Misconfigured(remedy,
				"the value of the session tag %q has more than 256 characters, or some that tags cannot have", key)
		case seen[folded]:
			return self.Misconfigured(remedy, "two session tags differ by case only, %q", key)
		}
		seen[folded] = true
	}
	for i, key := range r.TransitiveTagKeys {
		if _, ok := r.Tags[key]; !ok || i > 0 && key == r.TransitiveTagKeys[i-1] {
			return self.Misconfigured(remedy,
				"the transitive tag key %.200q is not that of a session tag, or is there twice", key)
		}
	}
	return nil
}

func hasAWSPrefix(s string) bool { return len(s) >= 4 && strings.EqualFold(s[:4], "aws:") }

// validTag is [\p{L}\p{Z}\p{N}_.:/=+\-@]*.
func validTag(s string, longest int) bool {
	if !utf8.ValidString(s) || utf8.RuneCountInString(s) > longest {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return !unicode.In(r, unicode.L, unicode.Z, unicode.N) && !strings.ContainsRune("_.:/=+-@", r)
	})
}

// allOf reports whether s holds letters, digits and the characters of more only, all of them ASCII.
func allOf(s, more string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case strings.IndexByte(more, c) >= 0:
		default:
			return false
		}
	}
	return true
}

// sessionDuration keeps the text too, so that the cache key needs no memory.
type sessionDuration struct {
	time.Duration
	text string
}

const minSessionDuration, maxSessionDuration, maxChainedDuration = 15 * time.Minute, 12 * time.Hour, time.Hour

// WithSessionDuration sets how long the credentials are to live, from 15 minutes to 12 hours in whole seconds, but no longer
// than the role's MaxSessionDuration. A role that was assumed with another role's session has an hour at most. Default: an
// hour. With WithAssumeRole it is the duration of the last role. The token cache keeps none for more than an hour.
//
// It is for sessions that this package makes, so it needs a ServiceAccount or WithAssumeRole.
func WithSessionDuration(d time.Duration) auth.Option {
	return auth.WithProviderOption(sessionDurationOption{}, &sessionDuration{d, d.String()})
}

func durationOf(opts *auth.Options) *sessionDuration {
	d, _ := opts.ProviderOption(sessionDurationOption{}).(*sessionDuration)
	return d
}

// durationSeconds is nil where STS is to choose.
func durationSeconds(opts *auth.Options) *int32 {
	d := durationOf(opts)
	if d == nil {
		return nil
	}
	seconds := int32(d.Duration / time.Second) //nolint:gosec // 12 hours at most
	return &seconds
}

func (d *sessionDuration) check(opts *auth.Options) error {
	const remedy = "correct WithSessionDuration"
	own := opts.ServiceAccount == nil && opts.SubjectServiceAccount == nil
	_, length := lastRole(opts)
	switch {
	case d.Duration < minSessionDuration || d.Duration > maxSessionDuration || d.Duration%time.Second != 0:
		return self.Misconfigured(remedy, "a session lives for 15 minutes to 12 hours, in whole seconds, not %s", d.Duration)
	case (!own && length > 0 || length > 1) && d.Duration > maxChainedDuration:
		return self.Misconfigured(remedy,
			"a role that was assumed from another one lives for an hour at most, not %s", d.Duration)
	case own && length == 0:
		return self.Misconfigured("leave it out, or name a ServiceAccount",
			"WithSessionDuration does not apply to own credentials")
	}
	return nil
}

// WithSessionNamePrefix puts "<prefix>=" before the names of sessions, so that CloudTrail shows which controller acted. The
// prefix has 2 to 24 letters, digits, "-" or "_". The ServiceAccount stays part of the name: no two share a session name. It
// does not change an AssumeRole.SessionName.
func WithSessionNamePrefix(prefix string) auth.Option {
	return auth.WithProviderOption(sessionPrefixOption{}, prefix)
}

const (
	maxSessionPrefix = 24
	maxChain         = 10 // each role is a credential of its own, in memory and in the cache
)

func sessionPrefix(opts *auth.Options) string {
	s, _ := opts.ProviderOption(sessionPrefixOption{}).(string)
	return s
}

// WithClusterName names the EKS cluster whose address and certificate authority are given with auth.WithClusterAddress and
// auth.WithCAData. Its region is that of auth.WithSTSRegion.
//
// The bearer for the cluster is sent to that address, and whoever gets it can use it at the cluster of that name for a quarter
// of an hour. So do not let a tenant choose address and name both for the controller's own identity.
func WithClusterName(name string) auth.Option {
	return auth.WithProviderOption(clusterNameOption{}, name)
}

func clusterName(opts *auth.Options) string {
	s, _ := opts.ProviderOption(clusterNameOption{}).(string)
	return s
}

// checkOptions checks what the options of this package say. It runs on every call.
func (p *Provider) checkOptions(opts *auth.Options) error {
	roles := 0
	for role := range chain(opts) {
		if roles++; roles > maxChain {
			return self.Misconfigured("pass fewer", "there are more than %d WithAssumeRole", maxChain)
		}
		if err := role.checkFor(p, opts); err != nil {
			return err
		}
	}
	if d := durationOf(opts); d != nil {
		if err := d.check(opts); err != nil {
			return err
		}
	}
	if v := opts.ProviderOption(sessionPrefixOption{}); v != nil {
		if s := sessionPrefix(opts); len(s) < minSessionName || len(s) > maxSessionPrefix || !allOf(s, "-_") {
			return self.Misconfigured("correct WithSessionNamePrefix",
				"the prefix of session names has to be 2 to 24 letters, digits, - or _, not %.100q", s)
		}
	}
	if v := opts.ProviderOption(clusterNameOption{}); v != nil && !awsname.ValidClusterName(clusterName(opts)) {
		return self.Misconfigured("correct WithClusterName", "%.200q cannot be the name of an EKS cluster", clusterName(opts))
	}
	if clusterName(opts) != "" && opts.LendsOwnIdentity() {
		// Policy.AllowCluster judges resource and address. It does not see this name, which decides where the credential is valid.
		return &auth.Error{Reason: auth.ErrDenied, Remedy: "name a ServiceAccount, or the cluster by its ARN",
			Message: "objects may not use the controller's own identity with WithClusterName"}
	}
	return nil
}

func addOptionsToCacheKey(key *auth.KeyBuilder, opts *auth.Options) {
	for role := range chain(opts) {
		key.AddList("awsAssumeRole", role.key)
		key.AddVariation("awsSessionTags", role.tagValues)
	}
	if d := durationOf(opts); d != nil {
		key.Add("awsSessionDuration", d.text)
	}
	key.Add("awsSessionNamePrefix", sessionPrefix(opts))
}
