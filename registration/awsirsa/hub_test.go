package awsirsa_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/ocm"
)

func newHub(t testing.TB, c *cloud, change ...func(*awsirsa.HubDriverOptions)) *awsirsa.HubDriver {
	t.Helper()
	options := awsirsa.HubDriverOptions{Hub: hubARN, IAM: c, EKS: c}
	for _, f := range change {
		f(&options)
	}
	h, err := awsirsa.NewHubDriver(options)
	regtest.Must(t, err)
	return h
}

// shopRole is the name of the hub role of the managed cluster in these tests.
func shopRole(t testing.TB) string { return awsirsa.GrantedRoleName(pair(t)) }

func mustGrant(t testing.TB, c *cloud, cluster, claim string) {
	t.Helper()
	if _, err := newHub(t, c).Grant(t.Context(), cluster, claim); err != nil {
		t.Fatal(err)
	}
}

func mustRevoke(t testing.TB, c *cloud, cluster, claim string) {
	t.Helper()
	regtest.Must(t, newHub(t, c).Revoke(t.Context(), cluster, claim))
}

// checkGranted compares everything with what a grant makes.
func checkGranted(t testing.TB, c *cloud) {
	t.Helper()
	hub, managed := pair(t)
	name := shopRole(t)
	r := c.roles[name]
	if r == nil {
		t.Fatalf("there is no role %q", name)
	}
	want := awsirsa.GrantedRole(hub, managed)
	if r.trust != string(want.Trust) || len(r.policies) != 1 || r.policies[name] != string(want.Access) {
		t.Errorf("trust policy %s, access policies %q", r.trust, r.policies)
	}
	for key, want := range map[string]string{"hub_cluster_account_id": "111111111111", "hub_cluster_name": "hub",
		"managed_cluster_account_id": "222222222222",
		"managed_cluster_name":       "shop", "registration.open-cluster-management.io/hub-cluster-arn": hubARN,
		"registration.open-cluster-management.io/managed-cluster": "shop1"} {
		if r.tags[key] != want {
			t.Errorf("tag %q is %q, want %q", key, r.tags[key], want)
		}
	}
	if got := c.groups(name); !slices.Equal(got, []string{"open-cluster-management:shop1"}) {
		t.Errorf("the role has the groups %q", got)
	}
	if e := c.entries[r.arn]; e == nil || e.user != "arn:aws:sts::111111111111:assumed-role/"+name+"/{{SessionName}}" ||
		e.kind != "STANDARD" {
		t.Errorf("access entry %+v", e)
	}
}

func checkNothingLeft(t testing.TB, c *cloud) {
	t.Helper()
	if len(c.roles)+len(c.entries) > 0 {
		t.Errorf("left behind: roles %v, entries %v", c.roles, c.entries)
	}
}

func TestGrantThenRevoke(t *testing.T) {
	c := newCloud()
	mustGrant(t, c, "shop1", managedARN)
	checkGranted(t, c)
	if want := []string{"GetRole", "CreateRole", "PutRolePolicy", "DescribeAccessEntry",
		"CreateAccessEntry"}; !slices.Equal(c.calls, want) {
		t.Errorf("a grant calls %q", c.calls)
	}
	c.reset()
	mustRevoke(t, c, "shop1", managedARN)
	checkNothingLeft(t, c)
	if want := []string{"DescribeAccessEntry", "DeleteAccessEntry", "GetRole", "DeleteRolePolicy",
		"DeleteRole"}; !slices.Equal(c.calls, want) {
		t.Errorf("a revocation calls %q", c.calls)
	}
}

func TestRestartMakesThreeCallsForEachCluster(t *testing.T) {
	c := newCloud()
	mustGrant(t, c, "shop1", managedARN)
	c.reset()
	again, err := newHub(t, c).Grant(t.Context(), "shop1", managedARN)
	if want := []string{"GetRole", "GetRolePolicy", "DescribeAccessEntry"}; err != nil || !slices.Equal(c.calls, want) {
		t.Errorf("calls %q, %v", c.calls, err)
	}
	if again != 0 {
		t.Errorf("looks again after %s instead of when the hub resyncs", again)
	}
}

func TestGrantRepairsDrift(t *testing.T) {
	name := shopRole(t)
	for _, d := range []struct {
		name   string
		writes []string
		drift  func(c *cloud, r *role, e *entry)
	}{
		{"trust policy", []string{"UpdateAssumeRolePolicy"}, func(_ *cloud, r *role, _ *entry) {
			r.trust = strings.Replace(r.trust, "222222222222", "999999999999", 1)
		}},
		{"trust policy with a further statement", []string{"UpdateAssumeRolePolicy"}, func(_ *cloud, r *role, _ *entry) {
			r.trust = strings.Replace(r.trust, `"Statement":[`,
				`"Statement":[{"Effect":"Allow","Principal":{"AWS":"*"},"Action":"sts:AssumeRole"},`, 1)
		}},
		{"trust policy with NotPrincipal", []string{"UpdateAssumeRolePolicy"}, func(_ *cloud, r *role, _ *entry) {
			r.trust = strings.Replace(r.trust, `"Effect":"Allow"`, `"Effect":"Allow","NotPrincipal":{"AWS":"*"}`, 1)
		}},
		{"managed role re-created, principal shown by its old ID", []string{"UpdateAssumeRolePolicy"},
			func(_ *cloud, r *role, _ *entry) {
				r.trust = strings.Replace(r.trust, "arn:aws:iam::222222222222:role/", "AROAOLD", 1)
			}},
		{"tag changed", []string{"TagRole"}, func(_ *cloud, r *role, _ *entry) { r.tags["hub_cluster_name"] = "other" }},
		{"tag removed", []string{"TagRole"}, func(_ *cloud, r *role, _ *entry) { delete(r.tags, "managed_cluster_name") }},
		{"access policy", []string{"PutRolePolicy"}, func(_ *cloud, r *role, _ *entry) {
			r.policies[name] = strings.Replace(r.policies[name], "eks:ListClusters", "*", 1)
		}},
		{"access policy removed", []string{"PutRolePolicy"}, func(_ *cloud, r *role, _ *entry) { delete(r.policies, name) }},
		{"groups", []string{"UpdateAccessEntry"}, func(_ *cloud, _ *role, e *entry) {
			e.groups = append(e.groups, "open-cluster-management:other")
		}},
		{"user name", []string{"UpdateAccessEntry"}, func(_ *cloud, _ *role, e *entry) { e.user = "admin" }},
		{"entry removed", []string{"CreateAccessEntry"}, func(c *cloud, r *role, _ *entry) { delete(c.entries, r.arn) }},
		{"role re-created with its tags", []string{"DeleteAccessEntry", "CreateAccessEntry"},
			func(c *cloud, r *role, _ *entry) {
				c.newRole(name, r.tags, r.trust).policies = r.policies
			}},
		{"role removed", []string{"CreateRole", "PutRolePolicy", "DeleteAccessEntry", "CreateAccessEntry"},
			func(c *cloud, _ *role, _ *entry) { delete(c.roles, name) }},
	} {
		t.Run(d.name, func(t *testing.T) {
			c := newCloud()
			mustGrant(t, c, "shop1", managedARN)
			r := c.roles[name]
			d.drift(c, r, c.entries[r.arn])
			c.reset()
			mustGrant(t, c, "shop1", managedARN)
			checkGranted(t, c)
			reads := func(call string) bool { return strings.HasPrefix(call, "Get") || strings.HasPrefix(call, "Describe") }
			if got := slices.DeleteFunc(slices.Clone(c.calls), reads); !slices.Equal(got, d.writes) {
				t.Errorf("repaired with %q, want %q", got, d.writes)
			}
			c.reset()
			mustGrant(t, c, "shop1", managedARN)
			if c.writes > 0 {
				t.Errorf("the next look writes: %q", c.calls)
			}
		})
	}
}

func TestRepairSurvivesACrashAfterEachCall(t *testing.T) {
	for n := 1; n <= 7; n++ {
		t.Run(fmt.Sprintf("after call %d", n), func(t *testing.T) {
			c := newCloud()
			mustGrant(t, c, "shop1", managedARN)
			delete(c.roles, shopRole(t)) // six calls: both re-created
			c.reset()
			c.dieAfter = n
			_, err := newHub(t, c).Grant(t.Context(), "shop1", managedARN)
			if (err == nil) != (n == 7) {
				t.Fatalf("got %v", err)
			}
			c.reset()
			mustGrant(t, c, "shop1", managedARN)
			checkGranted(t, c)
		})
	}
}

func TestRevokeSeesARoleThatDoesNotShowYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		c.dieAfter, c.readLag = 2, 2 // dies as soon as the role is made
		if _, err := newHub(t, c).Grant(t.Context(), "shop1", managedARN); err == nil {
			t.Fatal("the hub did not die")
		}
		c.reset()
		mustRevoke(t, c, "shop1", managedARN)
		checkNothingLeft(t, c)
	})
}

func TestGrantWaitsUntilARoleShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		c.dieAfter, c.readLag = 2, 3
		_, _ = newHub(t, c).Grant(t.Context(), "shop1", managedARN)
		c.reset()
		c.eksLag = 4
		mustGrant(t, c, "shop1", managedARN)
		checkGranted(t, c)
	})
}

func TestTransientErrorsAreRetried(t *testing.T) {
	for _, action := range []string{"GetRole", "CreateRole", "PutRolePolicy", "DescribeAccessEntry", "CreateAccessEntry"} {
		for _, code := range []string{"Throttling", "ThrottlingException", "InvalidParameterException",
			"EntityTemporarilyUnmodifiable", "ConcurrentModification"} {
			t.Run(action+" "+code, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newCloud()
					c.failures[action] = apiError(code, "try again")
					mustGrant(t, c, "shop1", managedARN)
					checkGranted(t, c)
				})
			})
		}
	}
	for _, action := range []string{"DescribeAccessEntry", "DeleteAccessEntry", "GetRole", "DeleteRolePolicy",
		"DeleteRole"} {
		t.Run(action, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCloud()
				mustGrant(t, c, "shop1", managedARN)
				c.failures[action] = apiError("Throttling", "Rate exceeded")
				mustRevoke(t, c, "shop1", managedARN)
				checkNothingLeft(t, c)
			})
		})
	}
}

func TestRetriesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		c.eksLag = 1000
		_, err := newHub(t, c).Grant(t.Context(), "shop1", managedARN)
		if err == nil || len(c.calls) > 45 {
			t.Errorf("%d calls, %v", len(c.calls), err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		c.eksLag = 1000
		ctx, cancel := context.WithTimeout(t.Context(), 1)
		defer cancel()
		if _, err := newHub(t, c).Grant(ctx, "shop1", managedARN); err == nil {
			t.Error("a context that has ended grants")
		}
	})
}

func TestErrorsSayWhatToDo(t *testing.T) {
	for _, e := range []struct {
		name, says string
		set        func(*cloud)
	}{
		{"agent's role does not exist", "arn:aws:iam::222222222222:role/ocm-managed-cluster-", func(c *cloud) {
			c.noAgent = true
		}},
		{"quota", "quota", func(c *cloud) {
			c.failures["CreateRole"] = apiError("LimitExceeded", "Cannot exceed quota for RolesPerAccount: 1000")
		}},
		{"no permission", "permissions of its access policy", func(c *cloud) {
			c.failures["CreateRole"] = apiError("AccessDenied", "no")
		}},
		{"no access entries", `cluster/hub" to API_AND_CONFIG_MAP`, func(c *cloud) { c.configMode = true }},
	} {
		t.Run(e.name, func(t *testing.T) {
			c := newCloud()
			e.set(c)
			_, err := newHub(t, c).Grant(t.Context(), "shop1", managedARN)
			if err == nil || !strings.Contains(err.Error(), e.says) ||
				strings.Contains(err.Error(), "aws-auth") || !strings.Contains(err.Error(), `"shop1"`) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestSecondClusterOfOneARNIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		mustGrant(t, c, "shop1", managedARN)
		c.reset()
		_, err := newHub(t, c).Grant(t.Context(), "shop2", managedARN)
		if err == nil || !strings.Contains(err.Error(), `of cluster "shop1" already`) || c.writes > 0 {
			t.Errorf("got %v after %q", err, c.calls)
		}
		mustRevoke(t, c, "shop2", managedARN)
		checkGranted(t, c)
		if c.writes > 0 {
			t.Errorf("the second cluster's departure writes: %q", c.calls)
		}
	})
}

// The hash leaves out the region, so the role of another cluster can have the
// name of this one's.
func TestClusterOfThatNameInAnotherRegionIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		mustGrant(t, c, "shop1", managedARN)
		elsewhere := strings.Replace(managedARN, "eu-west-1", "us-east-1", 1)
		_, err := newHub(t, c).Grant(t.Context(), "shop2", elsewhere)
		if err == nil || !strings.Contains(err.Error(), `of cluster "shop1" already`) ||
			!strings.Contains(err.Error(), "in another region") {
			t.Errorf("got %v", err)
		}
		other := newHub(t, c, func(o *awsirsa.HubDriverOptions) {
			o.Hub = strings.Replace(hubARN, "eu-central-1", "us-east-1", 1)
		})
		if _, err := other.Grant(t.Context(), "shop1", managedARN); err == nil ||
			!strings.Contains(err.Error(), "belongs to the hub") {
			t.Errorf("another hub's role: %v", err)
		}
		if err := other.Revoke(t.Context(), "shop1", managedARN); err != nil {
			t.Error(err)
		}
		checkGranted(t, c)
	})
}

func TestWhatIsNotOursIsNotTouched(t *testing.T) {
	hub, managed := pair(t)
	name := awsirsa.GrantedRoleName(hub, managed)
	ours := map[string]string{"registration.open-cluster-management.io/hub-cluster-arn": hubARN,
		"registration.open-cluster-management.io/managed-cluster": "shop1"}
	for _, f := range []struct {
		name string
		set  func(*cloud)
	}{
		{"role without tags", func(c *cloud) { c.newRole(name, map[string]string{}, "{}") }},
		{"role with the tags of the pair alone", func(c *cloud) { c.newRole(name, awsirsa.Tags(hub, managed), "{}") }},
		{"role of another cluster whose name begins the same", func(c *cloud) {
			c.newRole(name, map[string]string{"registration.open-cluster-management.io/hub-cluster-arn": hubARN,
				"registration.open-cluster-management.io/managed-cluster": "shop10"}, "{}")
		}},
		{"role with a path", func(c *cloud) { c.newRole(name, ours, "{}").arn = "arn:aws:iam::111111111111:role/x/" + name }},
		{"access entry without tags", func(c *cloud) {
			c.entries[awsirsa.GrantedRoleARN(hub, managed)] = &entry{groups: []string{"admins"}}
		}},
	} {
		t.Run(f.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCloud()
				f.set(c)
				before := fmt.Sprint(c.entries, c.roles[name])
				_, err := newHub(t, c).Grant(t.Context(), "shop1", managedARN)
				if err == nil || !strings.Contains(err.Error(), "not of this hub") {
					t.Errorf("got %v", err)
				}
				mustRevoke(t, c, "shop1", managedARN)
				if after := fmt.Sprint(c.entries, c.roles[name]); after != before {
					t.Errorf("changed from %s to %s", before, after)
				}
				if slices.Contains(c.calls, "DeleteAccessEntry") {
					t.Errorf("deletes: %q", c.calls)
				}
			})
		})
	}
}

func claimed(annotations map[string]string) *ocm.ManagedCluster {
	return &ocm.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "shop1", Annotations: annotations}}
}

func TestClaim(t *testing.T) {
	hub, managed := pair(t)
	id := awsirsa.RoleSuffix(hub, managed)
	for _, c := range []struct {
		name        string
		annotations map[string]string
		ok, refused bool
	}{
		{name: "no annotations", annotations: map[string]string{"a": "b"}},
		{name: "proposal", annotations: map[string]string{awsirsa.ARNAnnotation: managedARN}, ok: true},
		{name: "Open Cluster Management",
			annotations: map[string]string{awsirsa.OCMARNAnnotation: managedARN, awsirsa.OCMSuffixAnnotation: id}, ok: true},
		{name: "both", annotations: map[string]string{awsirsa.ARNAnnotation: managedARN,
			awsirsa.OCMARNAnnotation: managedARN}, ok: true},
		{name: "both, of two clusters",
			annotations: map[string]string{awsirsa.ARNAnnotation: managedARN, awsirsa.OCMARNAnnotation: managedARN + "2"},
			refused:     true},
		{name: "suffix of another cluster",
			annotations: map[string]string{awsirsa.OCMARNAnnotation: managedARN,
				awsirsa.OCMSuffixAnnotation: awsirsa.RoleSuffix(hub, hub)}, refused: true},
		{name: "suffix alone", annotations: map[string]string{awsirsa.OCMSuffixAnnotation: id}, refused: true},
		{name: "partition of another hub",
			annotations: map[string]string{awsirsa.ARNAnnotation: "arn:aws-cn:eks:cn-north-1:222222222222:cluster/shop"},
			refused:     true},
	} {
		t.Run(c.name, func(t *testing.T) {
			checkClaim(t, c.annotations, c.ok, c.refused)
		})
	}
	for name, arn := range malformed {
		t.Run(name, func(t *testing.T) {
			checkClaim(t, map[string]string{awsirsa.ARNAnnotation: arn}, false, true)
			checkClaim(t, map[string]string{awsirsa.OCMARNAnnotation: arn}, false, true)
			h := newHub(t, newCloud(), func(o *awsirsa.HubDriverOptions) {
				o.AutoApprove = []string{"*:*:*:*:222222222222:*/*"}
			})
			if ok, err := h.Approves(t.Context(), claimed(nil), arn); ok || err == nil {
				t.Errorf("approved: %t, %v", ok, err)
			}
			if _, err := h.Grant(t.Context(), "shop1", arn); err == nil {
				t.Error("granted")
			}
		})
	}
}

func checkClaim(t *testing.T, annotations map[string]string, ok, refused bool) {
	t.Helper()
	claim, got, err := newHub(t, newCloud()).Claim(claimed(annotations))
	if got != ok || (err != nil) != refused || ok && claim != managedARN {
		t.Errorf("claim %q, %t, %v", claim, got, err)
	}
}

func TestApprovesByWholeARN(t *testing.T) {
	for _, c := range []struct {
		name     string
		patterns []string
		approved bool
	}{
		{"no pattern", nil, false},
		{"the ARN", []string{managedARN}, true},
		{"one of two", []string{hubARN, managedARN}, true},
		{"the beginning", []string{strings.TrimSuffix(managedARN, "p")}, false},
		{"a longer one", []string{managedARN + "s"}, false},
		{"any cluster of an account", []string{"arn:aws:eks:*:222222222222:cluster/*"}, true},
		{"any cluster of another account", []string{"arn:aws:eks:*:333333333333:cluster/*"}, false},
		{"one character", []string{"arn:aws:eks:eu-west-?:222222222222:cluster/sho?"}, true},
		{"one character more", []string{"arn:aws:eks:eu-west-1:222222222222:cluster/shop?"}, false},
		{"stars on both sides", []string{"arn:aws:eks:*-west-*:222222222222:cluster/*ho*"}, true},
		{"star that stands for nothing", []string{"arn:aws:eks:eu-west-1:222222222222:cluster/shop*"}, true},
		{"star in place of the account and more", []string{"arn:aws:eks:*:cluster/shop:*"}, false},
		{"letters of another case", []string{strings.ToUpper(managedARN)}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHub(t, newCloud(), func(o *awsirsa.HubDriverOptions) { o.AutoApprove = c.patterns })
			if got, err := h.Approves(t.Context(), claimed(nil), managedARN); got != c.approved || err != nil {
				t.Errorf("approves: %t, %v", got, err)
			}
		})
	}
}

func TestPatternsAreNoRegularExpressionsAndNameTheAccount(t *testing.T) {
	for name, pattern := range map[string]string{
		"alternative":    "arn:aws:eks:eu-west-1:333333333333:cluster/a|" + managedARN,
		"dot":            "arn:aws:eks:eu.west.1:222222222222:cluster/shop",
		"dot and star":   "arn:aws:eks:.*:222222222222:cluster/shop",
		"anchors":        "^" + managedARN + "$",
		"class":          "arn:aws:eks:eu-west-[0-9]:222222222222:cluster/shop",
		"star alone":     "*",
		"star of fields": "arn:aws:eks:*",
		"empty":          "",
		"any account":    "arn:aws:eks:eu-west-1:*:cluster/shop",
		"ten accounts":   "arn:aws:eks:eu-west-1:22222222222?:cluster/shop",
	} {
		t.Run(name, func(t *testing.T) {
			_,
				err := awsirsa.NewHubDriver(awsirsa.HubDriverOptions{Hub: hubARN, IAM: newCloud(), EKS: newCloud(),
				AutoApprove: []string{pattern}})
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", pattern)) {
				t.Errorf("%q is accepted: %v", pattern, err)
			}
		})
	}
}

func TestEventAndMetricFrom80PercentOn(t *testing.T) {
	c, recorder, metrics := newCloud(), events.NewFakeRecorder(10), prometheus.NewPedanticRegistry()
	h := newHub(t, c, func(o *awsirsa.HubDriverOptions) { o.MaxRoles, o.Events, o.Registerer = 5, recorder, metrics })
	for i := 1; i <= 5; i++ {
		for range 2 {
			if _, err := h.Grant(t.Context(), fmt.Sprint("shop", i), fmt.Sprint(managedARN, i)); err != nil {
				t.Fatal(err)
			}
		}
		if got, want := len(recorder.Events), max(0, i-3); got != want {
			t.Errorf("%d Events with %d of 5 roles, want %d", got, i, want)
		}
	}
	if event := <-recorder.Events; !strings.Contains(event, "4 of at most 5 roles in account 111111111111") {
		t.Errorf("Event %q", event)
	}
	regtest.Must(t, h.Revoke(t.Context(), "shop1", managedARN+"1"))
	if err := testutil.GatherAndCompare(metrics,
		strings.NewReader(`# HELP registration_awsirsa_max_roles Roles in AWS IAM that this hub may have.
# TYPE registration_awsirsa_max_roles gauge
registration_awsirsa_max_roles 5
# HELP registration_awsirsa_roles Roles in AWS IAM of the clusters of this hub.
# TYPE registration_awsirsa_roles gauge
registration_awsirsa_roles 4
`)); err != nil {
		t.Error(err)
	}
}

func TestHubCreatesNoRoleBeyondMaxRoles(t *testing.T) {
	c := newCloud()
	h := newHub(t, c, func(o *awsirsa.HubDriverOptions) { o.MaxRoles = 2 })
	for _, name := range []string{"a", "b"} {
		if _, err := h.Grant(t.Context(), name, managedARN+name); err != nil {
			t.Fatal(err)
		}
	}
	again, err := h.Grant(t.Context(), "shop1", managedARN)
	if err == nil || !strings.Contains(err.Error(), "HubDriverOptions.MaxRoles is 2") ||
		!strings.Contains(err.Error(), "remove clusters") || len(c.roles) != 2 {
		t.Errorf("%d roles, %v", len(c.roles), err)
	}
	if again < 5*time.Minute || again > 10*time.Minute {
		t.Errorf("the hub tries again after %s", again)
	}
	delete(c.roles, awsirsa.GrantedRoleName(mustParse(t, hubARN), mustParse(t, managedARN+"a")))
	if _, err := h.Grant(t.Context(), "a", managedARN+"a"); err != nil {
		t.Errorf("a role that is gone is not made again: %v", err)
	}
	regtest.Must(t, h.Revoke(t.Context(), "b", managedARN+"b"))
	c.noAgent = true
	if _, err := h.Grant(t.Context(), "shop1", managedARN); err == nil || strings.Contains(err.Error(), "MaxRoles") {
		t.Errorf("got %v", err)
	}
	c.noAgent = false
	if _, err := h.Grant(t.Context(), "shop2", managedARN); err != nil {
		t.Errorf("a role that could not be made takes the place of another: %v", err)
	}
}

func TestRoleOfAnAgentThatDoesNotExistIsAwaitedForMinutes(t *testing.T) {
	c := newCloud()
	c.noAgent = true
	if again, err := newHub(t, c).Grant(t.Context(), "shop1", managedARN); err == nil || again < 5*time.Minute ||
		again > 10*time.Minute {
		t.Errorf("the hub tries again after %s, %v", again, err)
	}
	c.failures["GetRole"] = apiError("AccessDenied", "no")
	if again, err := newHub(t, c).Grant(t.Context(), "shop1", managedARN); err == nil || again != 0 {
		t.Errorf("after another error the hub tries again after %s, %v", again, err)
	}
}
