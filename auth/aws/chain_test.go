package aws_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

const last = "arn:aws:iam::210987654321:role/last"

// identity returns the session that the cloud knows a token by.
func (w *environment) identity(t *testing.T, token auth.Token) cloudtest.Identity {
	t.Helper()
	own, err := aws.FromToken(token)
	if err != nil {
		t.Fatal(err)
	}
	id, _ := w.Cloud.AWS().Identity(own.AccessKeyID())
	return id
}

// Several WithAssumeRole are assumed in their order, and what is meant to go on
// along the chain arrives at its end.
func TestChainOfSeveralRoles(t *testing.T) {
	w := newEnvironment(t).chain(func(trust *cloudtest.Trust) { trust.TagSession, trust.SetSourceIdentity = true, true })
	w.Cloud.AWS().SetRole(last, cloudtest.Trust{Principals: []string{target}, ExternalID: "ext-1"})
	first := aws.WithAssumeRole(aws.AssumeRole{RoleARN: target, SourceIdentity: "tenant-a",
		Tags: map[string]string{"team": "a", "env": "prod"}, TransitiveTagKeys: []string{"team"}})
	then := aws.WithAssumeRole(aws.AssumeRole{RoleARN: last, ExternalID: "ext-1"})
	opts := w.options("tenant-a", "app", testenv.Cached(t, "tenant-a"),
		aws.WithSessionDuration(20*time.Minute))
	for want, more := range map[string][]auth.Option{target: {first}, last: {first, then}} {
		token, err := auth.GetAccessToken(t.Context(), &aws.Provider{}, append(slices.Clone(opts), more...)...)
		if err != nil {
			t.Fatal(err)
		}
		id := w.identity(t, token)
		if id.RoleARN != want || id.SessionName != "tenant-a.app" || id.SourceIdentity != "tenant-a" ||
			id.Tags["team"] != "a" || token.GetDuration() > 20*time.Minute {
			t.Errorf("the session is %+v for %s", id, token.GetDuration())
		}
	}
	_, err := auth.GetAccessToken(t.Context(), &aws.Provider{}, append(slices.Clone(opts), then, first)...)
	testenv.CheckError(t, err, auth.ErrDenied, "assume a further role", last, "the role before it")
	if n := w.Cloud.Calls("sts", "AssumeRoleWithWebIdentity"); n != 1 {
		t.Errorf("%d AssumeRoleWithWebIdentity", n)
	}
}

// A chain of ten roles passes the checks of its options, one of eleven does
// not.
func TestChainOfTooManyRolesIsRefused(t *testing.T) {
	w := newEnvironment(t)
	var roles []auth.Option
	for i := range 11 {
		roles = append(roles, aws.WithAssumeRole(aws.AssumeRole{RoleARN: fmt.Sprintf("%s-%d", target, i)}))
	}
	_, err := w.get(t, "tenant-a", "app", roles...)
	testenv.CheckError(t, err, auth.ErrMisconfigured, "more than 10 roles")
	testenv.ExpectNone(t, w.Requests())
	_, err = w.get(t, "tenant-a", "app", roles[:10]...)
	testenv.CheckError(t, err, auth.ErrDenied, target+"-0")
}

// Only the first role that the controller's user assumes may live for more than
// an hour.
func TestChainOfSeveralRolesLivesAnHourAtMost(t *testing.T) {
	_, err := auth.GetAccessToken(t.Context(), &aws.Provider{}, auth.WithSTSRegion("eu-central-1"),
		aws.WithSessionDuration(2*time.Hour),
		aws.WithAssumeRole(aws.AssumeRole{RoleARN: target}), aws.WithAssumeRole(aws.AssumeRole{RoleARN: last}))
	testenv.CheckError(t, err, auth.ErrMisconfigured, "an hour at most")
}

// A session name is used as it is, for each role its own.
func TestSessionNameOfTheRole(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	id, secret := w.Cloud.AWS().AddUser(account, "controller")
	w.Cloud.AWS().SetRole(target,
		cloudtest.Trust{Principals: []string{role("tenant-a"), "arn:aws:iam::" + account + ":user/controller"}})
	w.Cloud.AWS().SetRole(last, cloudtest.Trust{Principals: []string{target}})
	t.Setenv("AWS_ACCESS_KEY_ID", id)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	named := func(arn, session string) auth.Option {
		return aws.WithAssumeRole(aws.AssumeRole{RoleARN: arn, SessionName: session})
	}
	longest := strings.Repeat("s", 64)
	for name, chain := range map[string][]auth.Option{
		"pod=a.b_c,d@e+f-g": {named(target, "pod=a.b_c,d@e+f-g")},
		"ab":                {named(target, "x-1"), named(last, "ab")},
		longest:             {named(target, longest)},
	} {
		chain = append(chain, aws.WithSessionNamePrefix("hub"))
		for who, opts := range map[string][]auth.Option{
			"ServiceAccount": w.options("tenant-a", "app", chain...),
			"controller": append([]auth.Option{auth.WithSTSRegion("eu-central-1"), auth.WithHTTPClient(w.Cloud.Client())},
				chain...),
		} {
			token, err := auth.GetAccessToken(t.Context(), &aws.Provider{}, opts...)
			if err != nil {
				t.Fatalf("%s: %v", who, err)
			}
			own, _ := aws.FromToken(token)
			if got := w.identity(t, token); got.SessionName != name || own.SessionName() != name {
				t.Errorf("%s: the session is %q, want %q", who, got.SessionName, name)
			}
		}
	}
	// A name of a role on the way is not that of the next.
	token, err := w.get(t, "tenant-a", "app", named(target, "x-1"), named(last, ""))
	if err != nil || token.SessionName() != "tenant-a.app" {
		t.Errorf("got %v, %v", token, err)
	}
}

func TestErrorsThatRefuseTheCredentialsBefore(t *testing.T) {
	for code, want := range map[string]bool{"InvalidClientTokenId": true, "ExpiredToken": true, "AccessDenied": false,
		"Throttling": false} {
		w := newEnvironment(t).chain(nil)
		w.Cloud.AddFault(cloudtest.Fault{Service: "sts", Action: "AssumeRole", Status: 403, Code: code})
		_, err := w.get(t, "tenant-a", "app", aws.WithAssumeRole(aws.AssumeRole{RoleARN: target}))
		if got := (&aws.Provider{}).RefusesPrevious(err); err == nil || got != want {
			t.Errorf("%s: got %t for %v", code, got, err)
		}
	}
}

func TestAuthorizeSeesRolesOfTheChain(t *testing.T) {
	w := newEnvironment(t)
	var got auth.AuthorizeRequest
	policy := auth.WithPolicy(auth.Policy{Authorize: func(_ context.Context, r auth.AuthorizeRequest) error {
		got = r
		return errors.New("no")
	}})
	_, err := w.get(t, "tenant-a", "app", policy, aws.WithAssumeRole(aws.AssumeRole{RoleARN: target}),
		aws.WithAssumeRole(aws.AssumeRole{RoleARN: last}))
	testenv.CheckError(t, err, auth.ErrDenied, "policy refuses")
	if got.Identity != role("tenant-a") || !slices.Equal(got.Chain, []string{target, last}) || w.Cloud.Calls("", "") != 0 {
		t.Errorf("the hook saw %+v", got)
	}
}

// A chain costs a hit next to nothing, and no annotations cost nothing either.
func TestHitsAllocateLittle(t *testing.T) {
	w := newEnvironment(t).chain(nil)
	w.Cloud.AWS().SetRole(last, cloudtest.Trust{Principals: []string{target}})
	key := client.ObjectKey{Namespace: "tenant-a", Name: "app"}
	one, two := aws.WithAssumeRole(aws.AssumeRole{RoleARN: target}), aws.WithAssumeRole(aws.AssumeRole{RoleARN: last})
	tokens, provider := testenv.Cache(t), &aws.Provider{}
	for name, more := range map[string][]auth.Option{"plain": nil, "one role": {one}, "two roles": {one, two}} {
		sa := testenv.ServiceAccount("tenant-a", "app", aws.RoleARNAnnotation, role("tenant-a"))
		opts := append([]auth.Option{auth.WithServiceAccount(key, inMemory{w.Client, sa}),
			auth.WithHTTPClient(w.Cloud.Client()),
			auth.WithSTSRegion("eu-central-1"), testenv.WithCache(tokens, "tenant-a")}, more...)
		var err error
		get := func() { _, err = auth.GetAccessToken(t.Context(), provider, opts...) }
		get()
		floor := float64(15 + len(more)) // With… options append to a list, which grows
		if n := testing.AllocsPerRun(100, get); err != nil || n > floor {
			t.Errorf("%s: %v allocations, %v", name, n, err)
		}
	}
}
