package aws

import (
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/awsname"
)

// The keys of this package's options. All options are part of the cache key,
// WithClusterName only for access to a cluster.

type (
	assumeRoleOption      struct{}
	chainLengthOption     struct{} // how many of the roles to assume, for the tokens before the last one
	sessionDurationOption struct{}
	sessionPrefixOption   struct{}
	clusterNameOption     struct{}
)

// AssumeRole is a role to assume with the credentials of the role before it.
// That is the role of the [WithAssumeRole] before, else the ServiceAccount's
// role, else the controller's own identity.
type AssumeRole struct {
	// RoleARN names the role. Its trust policy has to allow sts:AssumeRole to
	// the role before it, which needs that permission too. Required.
	RoleARN string
	// SessionName is the exact name of the session, 2 to 64 letters, digits or
	// +=,.@-_, without the prefix of WithSessionNamePrefix. Two ServiceAccounts
	// can get the same name. Default: the session name of the ServiceAccount;
	// for the controller's own identity the prefix, else "workloadid".
	SessionName string
	// ExternalID is the value for sts:ExternalId in the trust policy, 2 to 1224
	// characters. Optional.
	ExternalID string
	// Tags are session tags, at most 50. The trust policy has to allow
	// sts:TagSession. Optional.
	Tags map[string]string
	// TransitiveTagKeys are the keys of the tags that further roles inherit.
	// Optional.
	TransitiveTagKeys []string
	// SourceIdentity shows in CloudTrail for this role and further ones, 2 to
	// 64 characters. The trust policy has to allow sts:SetSourceIdentity.
	// Optional.
	SourceIdentity string
	// Policy is a session policy in JSON, at most 2048 characters. The session
	// may do what both policy and role allow. Optional.
	Policy string
}

// chainedRole is an AssumeRole that was checked once, when the option was made:
// the Provider checks options on every call.
type chainedRole struct {
	AssumeRole
	key       []string
	tagValues []string // apart from key: tags can name the pod
	err       error
	// errARN is the error at AWS, errOther the one at a service in
	// Provider.AllowedSTSHosts.
	errARN, errOther error
}

// WithAssumeRole assumes a further role (role chaining) and returns that role's
// credentials. Several WithAssumeRole form a chain in the order of the options.
// The cache keeps the credentials of every role on the way, so many chains of
// one ServiceAccount need one AssumeRoleWithWebIdentity. AWS limits the
// sessions of further roles to an hour.
func WithAssumeRole(role AssumeRole) auth.Option {
	role.Tags = maps.Clone(role.Tags)
	role.TransitiveTagKeys = slices.Sorted(slices.Values(role.TransitiveTagKeys))
	c := &chainedRole{AssumeRole: role, err: role.check()}
	_, c.errARN = ParseRoleARN(role.RoleARN)
	_, c.errOther = parseRoleARN(role.RoleARN, true)
	c.key = []string{role.RoleARN, role.SessionName, role.ExternalID, role.SourceIdentity, role.Policy,
		strconv.Itoa(len(role.Tags))}
	for _, k := range slices.Sorted(maps.Keys(role.Tags)) {
		c.key, c.tagValues = append(c.key, k), append(c.tagValues, role.Tags[k])
	}
	c.key = append(c.key, role.TransitiveTagKeys...)
	return auth.WithProviderOption(assumeRoleOption{}, c)
}

// chain yields the roles of WithAssumeRole, in order.
func chain(opts *provider.Options) iter.Seq[*chainedRole] {
	return func(yield func(*chainedRole) bool) {
		left, bounded := opts.Value(chainLengthOption{}).(int)
		for v := range opts.Values(assumeRoleOption{}) {
			role, ok := v.(*chainedRole)
			if bounded && left == 0 || !ok || !yield(role) {
				return
			}
			left--
		}
	}
}

// lastRole returns the last role of the chain, nil if there is none, and the
// number of roles.
func lastRole(opts *provider.Options) (last *chainedRole, length int) {
	for role := range chain(opts) {
		last = role
		length++
	}
	return last, length
}

// Limits of the API reference of AssumeRole.
const (
	minExternalID, maxExternalID = 2, 1224
	minSessionName               = 2
	maxSessionPolicy             = 2048
	maxTags                      = 50
	maxTagKey, maxTagValue       = 128, 256
)

// optionAssumeRole is a value of auth.Error.Option.
const optionAssumeRole = "aws.WithAssumeRole"

// wrongRole takes the option of a field of AssumeRole.
func wrongRole(option, format string, args ...any) error {
	return self.Misconfigured("correct it", format, args...).About(option)
}

func (r *AssumeRole) check() error {
	if s := r.SessionName; s != "" && (len(s) < minSessionName || !validSessionPart(s)) {
		return wrongRole("aws.AssumeRole.SessionName",
			"the session name has to be 2 to 64 letters, digits or +=,.@-_, not %.100q", s)
	}
	if s := r.ExternalID; s != "" && (len(s) < minExternalID || len(s) > maxExternalID || !allOf(s, "+=,.@:/-_")) {
		return wrongRole("aws.AssumeRole.ExternalID",
			"the external ID has to be 2 to 1224 letters, digits or +=,.@:/-_, not %.100q", s)
	}
	if s := r.SourceIdentity; s != "" && (len(s) < minSessionName || !validSessionPart(s) || hasAWSPrefix(s)) {
		return wrongRole("aws.AssumeRole.SourceIdentity",
			"the source identity has to be 2 to 64 letters, digits or +=,.@-_, and not to begin with aws:, not %.100q", s)
	}
	if r.Policy != "" && (len(r.Policy) > maxSessionPolicy || !json.Valid([]byte(r.Policy))) {
		return wrongRole("aws.AssumeRole.Policy", "the session policy has to be a JSON document of at most %d characters",
			maxSessionPolicy)
	}
	return r.checkTags()
}

// checkFor checks the role for the service that these options name.
func (r *chainedRole) checkFor(opts *provider.Options) error {
	err := r.errARN
	if err != nil && isOtherService(opts) {
		err = r.errOther
	}
	if err != nil {
		return self.Misconfigured("use arn:aws:iam::<account>:role/<name>",
			"the role to assume is not the ARN of a role: %v: %.600q", err, r.RoleARN).About(optionAssumeRole)
	}
	return r.err
}

func checkTags(tags map[string]string, option string) error {
	if len(tags) > maxTags {
		return wrongRole(option, "there are %d session tags, at most %d are allowed", len(tags), maxTags)
	}
	seen := map[string]bool{}
	for key, value := range tags {
		folded := strings.ToLower(key)
		switch {
		case !validTag(key, maxTagKey) || key == "" || hasAWSPrefix(key):
			return wrongRole(option, "%.200q cannot be the key of a session tag", key)
		case !validTag(value, maxTagValue):
			return wrongRole(option,
				"the value of the session tag %q has more than 256 characters, or some that tags cannot have", key)
		case seen[folded]:
			return wrongRole(option, "two session tags differ by case only, %q", key)
		}
		seen[folded] = true
	}
	return nil
}

func (r *AssumeRole) checkTags() error {
	if err := checkTags(r.Tags, "aws.AssumeRole.Tags"); err != nil {
		return err
	}
	for i, key := range r.TransitiveTagKeys {
		if _, ok := r.Tags[key]; !ok || i > 0 && key == r.TransitiveTagKeys[i-1] {
			return wrongRole("aws.AssumeRole.TransitiveTagKeys",
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

// allOf reports whether s holds letters, digits and the characters of more
// only, all of them ASCII.
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

// sessionDuration keeps the text too, so that the cache key allocates nothing.
type sessionDuration struct {
	time.Duration
	text string
}

const minSessionDuration, maxSessionDuration, maxChainedDuration = 15 * time.Minute, 12 * time.Hour, time.Hour

// WithSessionDuration sets the lifetime of the credentials, from 15 minutes to
// 12 hours in whole seconds, at most the role's MaxSessionDuration. Roles that
// were assumed with another role's session have an hour at most. The default is
// an hour. With [WithAssumeRole] it applies to the last role. The token cache
// keeps credentials for an hour at most.
//
// It requires a ServiceAccount or [WithAssumeRole].
func WithSessionDuration(d time.Duration) auth.Option {
	return auth.WithProviderOption(sessionDurationOption{}, &sessionDuration{d, d.String()})
}

func durationOf(opts *provider.Options) *sessionDuration {
	d, _ := opts.Value(sessionDurationOption{}).(*sessionDuration)
	return d
}

// durationSeconds is nil for the default of STS.
func durationSeconds(opts *provider.Options) *int32 {
	d := durationOf(opts)
	if d == nil {
		return nil
	}
	seconds := int32(d.Duration / time.Second) //nolint:gosec // 12 hours at most
	return &seconds
}

func (d *sessionDuration) check(opts *provider.Options) error {
	const remedy, option = "correct the session's duration", "aws.WithSessionDuration"
	own := opts.IsOwnIdentity()
	_, length := lastRole(opts)
	switch {
	case d.Duration < minSessionDuration || d.Duration > maxSessionDuration || d.Duration%time.Second != 0:
		return self.Misconfigured(remedy, "a session lives for 15 minutes to 12 hours, in whole seconds, not %s",
			d.Duration).About(option)
	case (!own && length > 0 || length > 1) && d.Duration > maxChainedDuration:
		return self.Misconfigured(remedy,
			"a role that was assumed from another one lives for an hour at most, not %s", d.Duration).About(option)
	case own && length == 0:
		return self.Misconfigured("leave it out, or name a ServiceAccount",
			"the duration of a session does not apply to own credentials").About(option)
	}
	return nil
}

// WithSessionNamePrefix puts "<prefix>=" before the names of sessions, so that
// CloudTrail shows the controller. The prefix has 2 to 24 letters, digits, "-"
// or "_". The ServiceAccount stays part of the name, so no two share a session
// name. [AssumeRole.SessionName] stays as it is.
func WithSessionNamePrefix(prefix string) auth.Option {
	return auth.WithProviderOption(sessionPrefixOption{}, prefix)
}

const (
	maxSessionPrefix = 24
	maxChain         = 10 // the cache keeps a credential for each role
)

func sessionPrefix(opts *provider.Options) string {
	s, _ := opts.Value(sessionPrefixOption{}).(string)
	return s
}

// WithClusterName names the EKS cluster of [auth.WithClusterAddress], in the
// account of the role and the region of [auth.WithSTSRegion]. Without
// [auth.WithCAData], EKS confirms the address. [auth.WithClusterResource] takes
// the bare name too. Beside the ARN of a local cluster on AWS Outposts, the
// name is the cluster's ID. EKS returns that ID when it returns address or CA.
//
// With [auth.WithCAData], any address receives a bearer that the cluster of
// that name accepts for a quarter of an hour. Do not let a tenant choose both
// address and name for the controller's own identity.
func WithClusterName(name string) auth.Option {
	return auth.WithProviderOption(clusterNameOption{}, name)
}

func clusterName(opts *provider.Options) string {
	s, _ := opts.Value(clusterNameOption{}).(string)
	return s
}

// checkOptions checks the options of this package. It runs on every call.
func (p *Provider) checkOptions(opts *provider.Options) error {
	roles := 0
	for role := range chain(opts) {
		if roles++; roles > maxChain {
			return self.Misconfigured("pass fewer", "there are more than %d roles to assume", maxChain).About(optionAssumeRole)
		}
		if err := role.checkFor(opts); err != nil {
			return err
		}
	}
	if d := durationOf(opts); d != nil {
		if err := d.check(opts); err != nil {
			return err
		}
	}
	if v := opts.Value(sessionPrefixOption{}); v != nil {
		if s := sessionPrefix(opts); len(s) < minSessionName || len(s) > maxSessionPrefix || !allOf(s, "-_") {
			return self.Misconfigured("correct the prefix",
				"the prefix of session names has to be 2 to 24 letters, digits, - or _, not %.100q",
				s).About("aws.WithSessionNamePrefix")
		}
	}
	if v := opts.Value(clusterNameOption{}); v != nil && !awsname.ValidClusterName(clusterName(opts)) {
		return self.Misconfigured("correct the name", "%.200q cannot be the name of an EKS cluster",
			clusterName(opts)).About("aws.WithClusterName")
	}
	if opts.OnBehalf && (clusterName(opts) != "" || awsname.ValidClusterName(opts.ClusterResource)) {
		// Policy.AllowCluster sees neither this name nor its region, which
		// decide where the credential is valid.
		return self.Denied("name a ServiceAccount, or the cluster by its ARN",
			"objects may not use the controller's own identity with the bare name of a cluster").About("auth.WithServiceAccount",
			"auth.WithClusterResource")
	}
	return nil
}

func addOptionsToKey(key provider.KeyBuilder, opts *provider.Options) {
	for role := range chain(opts) {
		key.AddList("awsAssumeRole", role.key)
		key.AddVariation("awsSessionTags", role.tagValues)
	}
	if d := durationOf(opts); d != nil {
		key.Add("awsSessionDuration", d.text)
	}
	key.Add("awsSessionNamePrefix", sessionPrefix(opts))
}
