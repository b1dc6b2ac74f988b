package aws_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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
	id, _ := w.cloud.AWS().Identity(own.AccessKeyID())
	return id
}

// twentyRoles are roles that a principal may assume.
func (w *environment) twentyRoles(principal string) (arns []string) {
	for i := range 20 {
		arn := fmt.Sprintf("%s-%d", target, i)
		w.cloud.AWS().SetRole(arn, cloudtest.Trust{Principals: []string{principal}})
		arns = append(arns, arn)
	}
	return arns
}

// getAll gets the credentials of all roles at once and checks them.
func (w *environment) getAll(t *testing.T, arns []string, opts ...auth.Option) {
	t.Helper()
	provider := &aws.Provider{}
	var wg sync.WaitGroup
	for _, arn := range arns {
		wg.Go(func() {
			all := append(slices.Clone(opts), aws.WithAssumeRole(aws.AssumeRole{RoleARN: arn}))
			token, err := auth.GetAccessToken(t.Context(), provider, all...)
			if err != nil {
				t.Error(err)
			} else if id := w.identity(t, token); id.RoleARN != arn {
				t.Errorf("got %+v, want the role %s", id, arn)
			}
		})
	}
	wg.Wait()
	if one, many := w.cloud.Calls("sts", "AssumeRoleWithWebIdentity"), w.cloud.Calls("sts", "AssumeRole"); one != 1 ||
		many != len(arns) {
		t.Errorf("%d AssumeRoleWithWebIdentity and %d AssumeRole for %d roles", one, many, len(arns))
	}
}

func TestTwentyRolesOfAServiceAccountMakeOneWebIdentityExchange(t *testing.T) {
	w := newEnvironment(t)
	opts := w.options("tenant-a", "app", auth.WithCache(testenv.Cache(t), object("tenant-a")))
	w.getAll(t, w.twentyRoles(role("tenant-a")), opts...)
	// The ServiceAccount's own role shares the exchange too.
	token, err := auth.GetAccessToken(t.Context(), &aws.Provider{}, opts...)
	if err != nil || w.identity(t, token).RoleARN != role("tenant-a") ||
		w.cloud.Calls("sts", "AssumeRoleWithWebIdentity") != 1 {
		t.Errorf("got %v, %v, after %d exchanges", token, err, w.cloud.Calls("sts", "AssumeRoleWithWebIdentity"))
	}
}

func TestTwentyRolesOfTheControllerMakeOneWebIdentityExchange(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	w.setWebIdentity(t)
	w.getAll(t, w.twentyRoles(role("tenant-a")), auth.WithSTSRegion("eu-central-1"), auth.WithHTTPClient(w.cloud.Client()),
		auth.WithCache(testenv.Cache(t), object("tenant-a")))
}

// Several WithAssumeRole are assumed in their order, and what is meant to go on
// along the chain arrives at its end.
func TestChainOfSeveralRoles(t *testing.T) {
	w := newEnvironment(t).chain(func(trust *cloudtest.Trust) { trust.TagSession, trust.SetSourceIdentity = true, true })
	w.cloud.AWS().SetRole(last, cloudtest.Trust{Principals: []string{target}, ExternalID: "ext-1"})
	first := aws.WithAssumeRole(aws.AssumeRole{RoleARN: target, SourceIdentity: "tenant-a",
		Tags: map[string]string{"team": "a", "env": "prod"}, TransitiveTagKeys: []string{"team"}})
	then := aws.WithAssumeRole(aws.AssumeRole{RoleARN: last, ExternalID: "ext-1"})
	opts := w.options("tenant-a", "app", auth.WithCache(testenv.Cache(t), object("tenant-a")),
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
	if n := w.cloud.Calls("sts", "AssumeRoleWithWebIdentity"); n != 1 {
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
	expectNone(t, w.cloud.Calls("", "")+w.issuer.TokenRequests())
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
	id, secret := w.cloud.AWS().AddUser(account, "controller")
	w.cloud.AWS().SetRole(target,
		cloudtest.Trust{Principals: []string{role("tenant-a"), "arn:aws:iam::" + account + ":user/controller"}})
	w.cloud.AWS().SetRole(last, cloudtest.Trust{Principals: []string{target}})
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
			"controller": append([]auth.Option{auth.WithSTSRegion("eu-central-1"), auth.WithHTTPClient(w.cloud.Client())},
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
		w.cloud.AddFault(cloudtest.Fault{Service: "sts", Action: "AssumeRole", Status: 403, Code: code})
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
	if got.Identity != role("tenant-a") || !slices.Equal(got.Chain, []string{target, last}) || w.cloud.Calls("", "") != 0 {
		t.Errorf("the hook saw %+v", got)
	}
}

// A role of the caller is refused and denied like that of an annotation, and
// the error names the caller.
func TestRoleOfTheCaller(t *testing.T) {
	w := newEnvironment(t, testenv.ServiceAccount("tenant-a", "bare"))
	callers := func(key, value string) auth.Option { return auth.WithAnnotations(map[string]string{key: value}) }
	w.cloud.AWS().SetRole(role("spec"),
		cloudtest.Trust{Issuer: w.issuer.URL(), Subjects: []string{"system:serviceaccount:tenant-a:bare"}})
	token, err := w.get(t, "tenant-a", "bare", callers(aws.RoleARNAnnotation, role("spec")))
	if err != nil || w.identity(t, token).RoleARN != role("spec") {
		t.Errorf("got %v, %v", token, err)
	}
	_, err = w.get(t, "tenant-a", "app", callers(aws.RoleARNAnnotation, "spec"))
	testenv.CheckError(t, err, auth.ErrMisconfigured, aws.RoleARNAnnotation, "the caller, not the ServiceAccount, set",
		`"spec"`)
	_, err = w.get(t, "tenant-a", "app", callers(aws.TokenExpirationAnnotation, "soon"))
	testenv.CheckError(t, err, auth.ErrMisconfigured, aws.TokenExpirationAnnotation,
		"the caller, not the ServiceAccount, set", `"soon"`)
	_, err = w.get(t, "tenant-a", "app", callers(aws.RoleARNAnnotation, role("tenant-b")))
	testenv.CheckError(t, err, auth.ErrDenied, role("tenant-b"), "the caller, not the ServiceAccount, set", "trust policy")
	_, err = w.get(t, "tenant-a", "app", callers(aws.AudienceAnnotation, "vault"))
	testenv.CheckError(t, err, auth.ErrDenied, `"vault"`, "Policy.Audiences")
}

// A chain costs a hit next to nothing, and no annotations cost nothing either.
func TestHitsAllocateLittle(t *testing.T) {
	w := newEnvironment(t).chain(nil)
	w.cloud.AWS().SetRole(last, cloudtest.Trust{Principals: []string{target}})
	key := client.ObjectKey{Namespace: "tenant-a", Name: "app"}
	one, two := aws.WithAssumeRole(aws.AssumeRole{RoleARN: target}), aws.WithAssumeRole(aws.AssumeRole{RoleARN: last})
	tokens, provider := testenv.Cache(t), &aws.Provider{}
	for name, more := range map[string][]auth.Option{"plain": nil, "one role": {one}, "two roles": {one, two}} {
		sa := testenv.ServiceAccount("tenant-a", "app", aws.RoleARNAnnotation, role("tenant-a"))
		opts := append([]auth.Option{auth.WithServiceAccount(key, inMemory{w.client, sa}),
			auth.WithHTTPClient(w.cloud.Client()),
			auth.WithSTSRegion("eu-central-1"), auth.WithCache(tokens, object("tenant-a"))}, more...)
		var err error
		get := func() { _, err = auth.GetAccessToken(t.Context(), provider, opts...) }
		get()
		floor := float64(15 + len(more)) // With… options append to a list, which grows
		if n := testing.AllocsPerRun(100, get); err != nil || n > floor {
			t.Errorf("%s: %v allocations, %v", name, n, err)
		}
	}
}
