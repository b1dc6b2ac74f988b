package aws_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

const target = "arn:aws:iam::210987654321:role/target"

// chain adds a role that tenant A's may assume.
func (w *environment) chain(more func(*cloudtest.Trust)) *environment {
	trust := cloudtest.Trust{Principals: []string{role("tenant-a")}}
	if more != nil {
		more(&trust)
	}
	w.Cloud.AWS().SetRole(target, trust)
	return w
}

func TestRoleChaining(t *testing.T) {
	w := newEnvironment(t).chain(func(trust *cloudtest.Trust) {
		trust.ExternalID, trust.TagSession, trust.SetSourceIdentity = "ext-1", true, true
	})
	tags := map[string]string{"team": "a", "env": "prod ü"}
	token, err := w.get(t, "tenant-a", "app", aws.WithSessionDuration(20*time.Minute), aws.WithSessionNamePrefix("hub"),
		aws.WithAssumeRole(aws.AssumeRole{
			RoleARN: target, ExternalID: "ext-1", Tags: tags, TransitiveTagKeys: []string{"team"}, SourceIdentity: "tenant-a",
			Policy: `{"Version":"2012-10-17","Statement":[]}`}))
	if err != nil {
		t.Fatal(err)
	}
	id, _ := w.Cloud.AWS().Identity(token.AccessKeyID())
	if id.RoleARN != target || id.SessionName != "hub=tenant-a.app" || id.SourceIdentity != "tenant-a" ||
		!maps.Equal(id.Tags, tags) || !slices.Equal(id.TransitiveTagKeys, []string{"team"}) {
		t.Errorf("the session is %+v", id)
	}
	if token.AccountID() != "210987654321" || token.SessionName() != "hub=tenant-a.app" ||
		token.GetDuration() > 20*time.Minute {
		t.Errorf("%v of account %q, session %q", token, token.AccountID(), token.SessionName())
	}
	if w.Cloud.Calls("sts", "AssumeRoleWithWebIdentity") != 1 || w.Cloud.Calls("sts", "AssumeRole") != 1 {
		t.Errorf("calls: %+v", w.Cloud.Log())
	}
}

// The endpoint that was given wants signatures for its own region.
func TestRoleChainingAtAnEndpoint(t *testing.T) {
	w := newEnvironment(t).chain(nil)
	if _, err := w.get(t, "tenant-a", "app", auth.WithSTSEndpoint("https://sts.amazonaws.com"),
		aws.WithAssumeRole(aws.AssumeRole{RoleARN: target})); err != nil {
		t.Error(err)
	}
}

func TestRoleChainingFromTheController(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	id, secret := w.Cloud.AWS().AddUser(account, "controller")
	w.Cloud.AWS().SetRole(target,
		cloudtest.Trust{Principals: []string{"arn:aws:iam::" + account + ":user/controller"}, MaxSession: 12 * time.Hour})
	t.Setenv("AWS_ACCESS_KEY_ID", id)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	for want, more := range map[string][]auth.Option{"workloadid": nil,
		"hub": {aws.WithSessionNamePrefix("hub"), aws.WithSessionDuration(2 * time.Hour)}} {
		opts := append([]auth.Option{auth.WithSTSRegion("eu-central-1"), auth.WithHTTPClient(w.Cloud.Client()),
			aws.WithAssumeRole(aws.AssumeRole{RoleARN: target})}, more...)
		token, err := get(t, &aws.Provider{}, opts...)
		if err != nil {
			t.Fatal(err)
		}
		if id, _ := w.Cloud.AWS().Identity(token.AccessKeyID()); id.RoleARN != target || id.SessionName != want {
			t.Errorf("the session is %+v", id)
		}
		if longer := token.GetDuration() > time.Hour; longer != (more != nil) {
			t.Errorf("it lives for %s", token.GetDuration())
		}
	}
}

func TestRoleChainingDenied(t *testing.T) {
	for name, tc := range map[string]struct {
		trust func(*cloudtest.Trust)
		role  aws.AssumeRole
		want  string
	}{
		"not trusted": {func(t *cloudtest.Trust) {
			t.Principals = []string{role("tenant-b")}
		}, aws.AssumeRole{}, "sts:AssumeRole"},
		"no external ID": {func(t *cloudtest.Trust) { t.ExternalID = "ext-1" }, aws.AssumeRole{}, "sts:AssumeRole"},
		"another external ID": {func(t *cloudtest.Trust) {
			t.ExternalID = "ext-1"
		}, aws.AssumeRole{ExternalID: "ext-2"}, "sts:AssumeRole"},
		"tags":                  {nil, aws.AssumeRole{Tags: map[string]string{"team": "a"}}, "sts:TagSession"},
		"source identity":       {nil, aws.AssumeRole{SourceIdentity: "tenant-a"}, "sts:SetSourceIdentity"},
		"a role that is no one": {nil, aws.AssumeRole{RoleARN: target + "-2"}, "sts:AssumeRole"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t).chain(tc.trust)
			if tc.role.RoleARN == "" {
				tc.role.RoleARN = target
			}
			token, err := w.get(t, "tenant-a", "app", aws.WithAssumeRole(tc.role))
			testenv.CheckError(t, err, auth.ErrDenied, "assume a further role", tc.role.RoleARN,
				"assumed-role/tenant-a/tenant-a.app", tc.want, "trust policy")
			if token != nil {
				t.Errorf("got %v", token)
			}
		})
	}
}

func TestAnswersToAssumeRole(t *testing.T) {
	second := func(f cloudtest.Fault) cloudtest.Fault { f.Service, f.Action = "sts", "AssumeRole"; return f }
	for name, tc := range map[string]struct {
		fault  cloudtest.Fault
		reason provider.Reason
		want   string
	}{
		"throttled": {cloudtest.Fault{Status: 400, Code: "Throttling", Message: "Rate exceeded"}, auth.ErrThrottled,
			"Rate exceeded"},
		"packed policy": {cloudtest.Fault{Status: 400, Code: "PackedPolicyTooLarge", Message: "too large"},
			auth.ErrMisconfigured, "use fewer or shorter session tags, or a shorter session policy"},
		"clock": {cloudtest.Fault{Status: 403, Code: "SignatureDoesNotMatch",
			Message: "Signature expired: 20260803T101500Z is now earlier than 20260803T104500Z (20260803T105000Z - 5 min.)"},
			auth.ErrUnavailable, "clock of this machine"},
		"expired": {cloudtest.Fault{Status: 403, Code: "ExpiredToken", Message: "expired"}, auth.ErrUnavailable,
			"clocks agree"},
		"HTML":      {cloudtest.Fault{Body: "<html>"}, auth.ErrUnavailable, "cannot be"},
		"no secret": {rewrite("SecretAccessKey", ""), auth.ErrUnavailable, "SecretAccessKey is missing"},
		"no expiry": {rewrite("Expiration", ""), auth.ErrUnavailable, "expiry is missing"},
		"in 9999": {rewrite("Expiration", "<Expiration>9999-01-01T00:00:00Z</Expiration>"), auth.ErrUnavailable,
			"later than any"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEnvironment(t).chain(nil)
			w.Cloud.AddFault(second(tc.fault))
			token, err := w.get(t, "tenant-a", "app", aws.WithAssumeRole(aws.AssumeRole{RoleARN: target}))
			testenv.CheckError(t, err, tc.reason, "assume a further role", tc.want)
			if token != nil {
				t.Errorf("got %v", token)
			}
		})
	}
}

func TestAWSOptionsThatAreRefused(t *testing.T) {
	many := map[string]string{}
	for i := range 51 {
		many[strings.Repeat("k", i+1)] = "v"
	}
	assume := func(change func(*aws.AssumeRole)) auth.Option {
		r := aws.AssumeRole{RoleARN: target}
		change(&r)
		return aws.WithAssumeRole(r)
	}
	tag := func(key, value string) auth.Option {
		return assume(func(r *aws.AssumeRole) { r.Tags = map[string]string{key: value} })
	}
	w := newEnvironment(t).chain(nil)
	for name, tc := range map[string]struct {
		opt  auth.Option
		want string
	}{
		"no role": {aws.WithAssumeRole(aws.AssumeRole{}), "not the ARN of a role"},
		"a user": {aws.WithAssumeRole(aws.AssumeRole{RoleARN: "arn:aws:iam::123456789012:user/me"}),
			"names a user"},
		"session name, short": {assume(func(r *aws.AssumeRole) { r.SessionName = "s" }), `"s"`},
		"session name, long":  {assume(func(r *aws.AssumeRole) { r.SessionName = strings.Repeat("s", 65) }), "2 to 64"},
		"session name, blank": {assume(func(r *aws.AssumeRole) { r.SessionName = "a b" }), `"a b"`},
		"session name, slash": {assume(func(r *aws.AssumeRole) { r.SessionName = "a/b" }), `"a/b"`},
		"first of two roles": {func(o *auth.Options) {
			tag("", "x")(o)
			assume(func(*aws.AssumeRole) {})(o)
		}, "key of a session tag"},
		"short external ID":    {assume(func(r *aws.AssumeRole) { r.ExternalID = "x" }), "external ID"},
		"long external ID":     {assume(func(r *aws.AssumeRole) { r.ExternalID = strings.Repeat("x", 1225) }), "external ID"},
		"external ID, blank":   {assume(func(r *aws.AssumeRole) { r.ExternalID = "a b" }), `"a b"`},
		"source identity":      {assume(func(r *aws.AssumeRole) { r.SourceIdentity = "a/b" }), `"a/b"`},
		"source identity, aws": {assume(func(r *aws.AssumeRole) { r.SourceIdentity = "aws:x" }), "aws:"},
		"policy, no JSON":      {assume(func(r *aws.AssumeRole) { r.Policy = "{" }), "session policy"},
		"policy, too long": {assume(func(r *aws.AssumeRole) {
			r.Policy = `"` + strings.Repeat("x", 2048) + `"`
		}), "2048"},
		"too many tags":        {assume(func(r *aws.AssumeRole) { r.Tags = many }), "51 session tags"},
		"empty tag key":        {tag("", "x"), "key of a session tag"},
		"tag key aws:":         {tag("AWS:x", "x"), "AWS:x"},
		"tag key, long":        {tag(strings.Repeat("ü", 129), "x"), "key of a session tag"},
		"tag key, line break":  {tag("a\nb", "x"), `"a\nb"`},
		"tag value, long":      {tag("a", strings.Repeat("v", 257)), "256"},
		"tag value, not UTF-8": {tag("a", "\xff"), `"a"`},
		"tags by case":         {assume(func(r *aws.AssumeRole) { r.Tags = map[string]string{"a": "1", "A": "2"} }), "case"},
		"transitive, no tag":   {assume(func(r *aws.AssumeRole) { r.TransitiveTagKeys = []string{"a"} }), "transitive"},
		"transitive, twice": {assume(func(r *aws.AssumeRole) {
			r.Tags, r.TransitiveTagKeys = map[string]string{"a": "1"}, []string{"a", "a"}
		}), "transitive"},
		"a minute":      {aws.WithSessionDuration(time.Minute), "15 minutes"},
		"a day":         {aws.WithSessionDuration(24 * time.Hour), "12 hours"},
		"a split tick":  {aws.WithSessionDuration(time.Hour + time.Millisecond), "whole seconds"},
		"no time":       {aws.WithSessionDuration(0), "15 minutes"},
		"short prefix":  {aws.WithSessionNamePrefix("a"), `"a"`},
		"empty prefix":  {aws.WithSessionNamePrefix(""), "prefix"},
		"prefix with =": {aws.WithSessionNamePrefix("a=b"), `"a=b"`},
		"prefix with .": {aws.WithSessionNamePrefix("a.b"), `"a.b"`},
		"long prefix":   {aws.WithSessionNamePrefix(strings.Repeat("a", 25)), "prefix"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.get(t, "tenant-a", "app", tc.opt)
			testenv.CheckError(t, err, auth.ErrMisconfigured, tc.want)
			if len(err.Error()) > 1500 {
				t.Errorf("the message has %d bytes", len(err.Error()))
			}
		})
	}
	_, err := w.get(t, "tenant-a", "app", aws.WithSessionDuration(2*time.Hour),
		aws.WithAssumeRole(aws.AssumeRole{RoleARN: target}))
	testenv.CheckError(t, err, auth.ErrMisconfigured, "an hour at most")
	_, err = auth.GetAccessToken(t.Context(), &aws.Provider{}, auth.WithSTSRegion("eu-central-1"),
		aws.WithSessionDuration(time.Hour))
	testenv.CheckError(t, err, auth.ErrMisconfigured, "own credentials")
	testenv.ExpectNone(t, w.Cloud.Calls("", ""))
}

func TestRoleChainingStaysInThePartition(t *testing.T) {
	w := newEnvironment(t)
	_, err := w.get(t, "tenant-a", "app",
		aws.WithAssumeRole(aws.AssumeRole{RoleARN: "arn:aws-cn:iam::210987654321:role/target"}))
	testenv.CheckError(t, err, auth.ErrMisconfigured, "aws-cn", `partition "aws"`)
}

// Whatever shapes the session keeps cached credentials apart, and what was
// given to an option may change afterwards.
func TestAWSOptionsInTheCacheKey(t *testing.T) {
	w := newEnvironment(t).chain(func(trust *cloudtest.Trust) { trust.TagSession, trust.SetSourceIdentity = true, true })
	w.Cloud.AWS().SetRole(target+"-2", cloudtest.Trust{Principals: []string{role("tenant-a"), target}})
	tokens := testenv.Cache(t)
	tags := map[string]string{"team": "a"}
	assume := func(change func(*aws.AssumeRole)) []auth.Option {
		r := aws.AssumeRole{RoleARN: target, Tags: tags}
		change(&r)
		return []auth.Option{aws.WithAssumeRole(r)}
	}
	variants := [][]auth.Option{
		nil,
		{aws.WithSessionDuration(20 * time.Minute)},
		{aws.WithSessionDuration(30 * time.Minute)},
		{aws.WithSessionNamePrefix("hub")},
		{aws.WithAssumeRole(aws.AssumeRole{RoleARN: target})},
		{aws.WithAssumeRole(aws.AssumeRole{RoleARN: target}), aws.WithSessionDuration(20 * time.Minute)},
		{aws.WithAssumeRole(aws.AssumeRole{RoleARN: target + "-2"})},
		assume(func(*aws.AssumeRole) {}),
		assume(func(r *aws.AssumeRole) { r.Tags = map[string]string{"team": "b"} }),
		assume(func(r *aws.AssumeRole) { r.TransitiveTagKeys = []string{"team"} }),
		assume(func(r *aws.AssumeRole) { r.ExternalID = "ext-1" }),
		assume(func(r *aws.AssumeRole) { r.SourceIdentity = "ext-1" }),
		assume(func(r *aws.AssumeRole) { r.SessionName = "ext-1" }),
		{aws.WithAssumeRole(aws.AssumeRole{RoleARN: target}), aws.WithAssumeRole(aws.AssumeRole{RoleARN: target + "-2"})},
		assume(func(r *aws.AssumeRole) { r.Policy = "{}" }),
	}
	tags["team"] = "poisoned"
	seen := map[string]int{}
	for range 2 {
		for n, variant := range variants {
			token, err := w.get(t, "tenant-a", "app",
				append([]auth.Option{testenv.WithCache(tokens, "tenant-a")}, variant...)...)
			if err != nil {
				t.Fatalf("variant %d: %v", n, err)
			}
			if other, ok := seen[token.AccessKeyID()]; ok && other != n {
				t.Errorf("%d and %d share credentials", n, other)
			}
			seen[token.AccessKeyID()] = n
			if id, _ := w.Cloud.AWS().Identity(token.AccessKeyID()); id.Tags["team"] == "poisoned" {
				t.Errorf("%d: the tags changed", n)
			}
		}
	}
	if len(seen) != len(variants) {
		t.Errorf("%d credentials for %d variants", len(seen), len(variants))
	}
}
