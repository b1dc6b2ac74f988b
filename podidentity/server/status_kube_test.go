package server_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/podidentity"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
)

func (w *environment) awaitCondition(b *v1alpha1.IAMBinding, conditionType string, status metav1.ConditionStatus,
	reason string) metav1.Condition {
	w.T.Helper()
	now := &v1alpha1.IAMBinding{}
	w.Eventually(conditionType+" is "+string(status)+", "+reason, func() bool {
		w.Must(w.Get(w.T.Context(), client.ObjectKeyFromObject(b), now))
		c := meta.FindStatusCondition(now.Status.Conditions, conditionType)
		return c != nil && c.Status == status && c.Reason == reason && c.ObservedGeneration == now.Generation
	})
	return *meta.FindStatusCondition(now.Status.Conditions, conditionType)
}

func TestStatus(t *testing.T) {
	w := newEnvironment(t)
	good := w.bind("app", w.role("app"))
	if c := w.awaitCondition(good, v1alpha1.ConditionAccepted, metav1.ConditionTrue,
		podidentity.ReasonAccepted); c.Message != "pods of the ServiceAccount are served" {
		t.Errorf("the message is %q", c.Message)
	}
	w.awaitCondition(good, v1alpha1.ConditionConflict, metav1.ConditionFalse, podidentity.ReasonNoConflict)
	c := w.awaitCondition(good, v1alpha1.ConditionRoleAssumable, metav1.ConditionTrue, podidentity.ReasonAssumed)
	if want := "prod." + w.Namespace + ".app"; !strings.Contains(c.Message, want) {
		t.Errorf("the message is %q", c.Message)
	}

	second := w.bind("app", w.role("other"))
	for _, b := range []*v1alpha1.IAMBinding{good, second} {
		w.awaitCondition(b, v1alpha1.ConditionAccepted, metav1.ConditionFalse, podidentity.ReasonConflict)
		c = w.awaitCondition(b, v1alpha1.ConditionConflict, metav1.ConditionTrue, podidentity.ReasonConflict)
		if !strings.Contains(c.Message, good.Name) || !strings.Contains(c.Message, second.Name) {
			t.Errorf("the message is %q", c.Message)
		}
		w.awaitCondition(b, v1alpha1.ConditionRoleAssumable, metav1.ConditionUnknown, podidentity.ReasonNotAccepted)
	}
	second.Spec.ServiceAccountRef.Name = "another"
	w.update(second)
	for _, b := range []*v1alpha1.IAMBinding{good, second} {
		w.awaitCondition(b, v1alpha1.ConditionAccepted, metav1.ConditionTrue, podidentity.ReasonAccepted)
	}
	w.awaitCondition(second, v1alpha1.ConditionRoleAssumable, metav1.ConditionTrue, podidentity.ReasonAssumed)

	w.Allow(v1alpha1.AllowRule{Namespaces: []string{"*"}, Roles: []string{roles + "app"}})
	w.awaitCondition(second, v1alpha1.ConditionAccepted, metav1.ConditionFalse, podidentity.ReasonRoleNotAllowed)
	w.awaitCondition(good, v1alpha1.ConditionAccepted, metav1.ConditionTrue, podidentity.ReasonAccepted)
	w.Eventually("there is an Event", func() bool { return w.events.find("IAMBinding "+second.Name, "RoleNotAllowed") })
}

func TestStatusWarnsOfShortSessions(t *testing.T) {
	w := newEnvironment(t)
	b := w.bind("app", w.role("app"), func(b *v1alpha1.IAMBinding) { b.Spec.AWS.DurationSeconds = 2400 })
	c := w.awaitCondition(b, v1alpha1.ConditionAccepted, metav1.ConditionTrue, podidentity.ReasonAccepted)
	if !strings.Contains(c.Message, "durationSeconds 2400") || !strings.Contains(c.Message, "19 minutes") {
		t.Errorf("the message is %q", c.Message)
	}
	b.Spec.AWS.DurationSeconds = 3600
	w.update(b)
	if c := w.awaitCondition(b, v1alpha1.ConditionAccepted, metav1.ConditionTrue,
		podidentity.ReasonAccepted); strings.Contains(c.Message, "minutes") {
		t.Errorf("the message of an hour is %q", c.Message)
	}
}

// series records which series were deleted.
type series struct{ deleted sync.Map }

func (s *series) DeleteEventsForObject(kind, name, namespace, operation string) {
	s.deleted.Store(kind+" "+namespace+"/"+name+" "+operation, true)
}

// A replica that is not the leader serves pods, and writes no status. Tenants
// choose the names of bindings, so the series of deleted ones would fill its
// memory.
func TestReplicaThatIsNotTheLeader(t *testing.T) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "podidentity"}}
	w := newEnvironment(t, func(w *environment) {
		w.series, w.elects = &series{}, true
		now := metav1.NowMicro()
		lease.Namespace, lease.Spec.HolderIdentity = w.Namespace, new("other")
		lease.Spec.LeaseDurationSeconds, lease.Spec.AcquireTime, lease.Spec.RenewTime = new(int32(3600)), &now, &now
		w.Must(w.Create(t.Context(), lease))
	})
	deleted, b := w.bind("deleted", w.role("app")), w.bind("app", w.role("app"))
	w.identity(w.ask(w.workerToken("app")))
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(b), b); err != nil || len(b.Status.Conditions) > 0 {
		t.Errorf("the conditions are %v, %v", b.Status.Conditions, err)
	}
	w.Eventually("the replica knows the binding", func() bool {
		return w.manager.GetClient().Get(t.Context(), client.ObjectKeyFromObject(deleted), &v1alpha1.IAMBinding{}) == nil
	})
	w.Must(w.Delete(t.Context(), deleted))
	w.Eventually("its series are deleted", func() bool {
		_, ok := w.series.deleted.Load("IAMBinding " + deleted.Namespace + "/" + deleted.Name + " credentials")
		return ok
	})
	w.Must(w.Delete(t.Context(), lease))
	w.awaitCondition(b, v1alpha1.ConditionRoleAssumable, metav1.ConditionTrue, podidentity.ReasonAssumed)
}

// Only an edit or a change at AWS makes a write: probes that see the same again
// leave the status alone.
func TestStatusIsWrittenOnce(t *testing.T) {
	w := newEnvironment(t)
	b := w.bind("app", w.role("app"))
	w.awaitCondition(b, v1alpha1.ConditionRoleAssumable, metav1.ConditionTrue, podidentity.ReasonAssumed)
	before := &v1alpha1.IAMBinding{}
	w.Must(w.Get(t.Context(), client.ObjectKeyFromObject(b), before))
	// A change of the list has every binding reconciled.
	other := w.bind("other", w.role("other"))
	w.awaitCondition(other, v1alpha1.ConditionAccepted, metav1.ConditionTrue, podidentity.ReasonAccepted)
	w.Allow(v1alpha1.AllowRule{Namespaces: []string{w.Namespace}, Roles: []string{roles + "app"}})
	w.awaitCondition(other, v1alpha1.ConditionAccepted, metav1.ConditionFalse, podidentity.ReasonRoleNotAllowed)
	after := &v1alpha1.IAMBinding{}
	w.Must(w.Get(t.Context(), client.ObjectKeyFromObject(b), after))
	if before.ResourceVersion != after.ResourceVersion {
		t.Errorf("the status was written again: %v", after.Status)
	}
}

// The texts of the ten bindings of a ServiceAccount stay the same when one more
// comes.
func TestOneMoreConflictingBindingRewritesNoOther(t *testing.T) {
	w := newEnvironment(t)
	before := map[string]string{}
	var all []*v1alpha1.IAMBinding
	for range 10 {
		all = append(all, w.bind("app", w.role("app")))
	}
	settled := func(b *v1alpha1.IAMBinding) {
		w.Eventually("the status says that more than two conflict", func() bool {
			w.Must(w.Get(t.Context(), client.ObjectKeyFromObject(b), b))
			c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionConflict)
			return c != nil && strings.HasPrefix(c.Message, "more than two IAMBindings")
		})
	}
	for _, b := range all {
		settled(b)
		before[b.Name] = b.ResourceVersion
	}
	settled(w.bind("app", w.role("app")))
	behind := w.bind("other", w.role("other")) // is reconciled after those that the one more has queued
	w.awaitCondition(behind, v1alpha1.ConditionAccepted, metav1.ConditionTrue, podidentity.ReasonAccepted)
	for _, b := range all {
		w.Must(w.Get(t.Context(), client.ObjectKeyFromObject(b), b))
		if b.ResourceVersion != before[b.Name] {
			t.Errorf("the status of %s was written again: %v", b.Name, b.Status)
		}
	}
}

// Tenants read neither places of the server nor remedies for its code.
func TestStatusWhileTheServerHasNoIdentity(t *testing.T) {
	w := newEnvironment(t, func(*environment) { t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/nowhere/token") })
	b := w.bind("app", w.role("app"))
	c := w.awaitCondition(b, v1alpha1.ConditionRoleAssumable, metav1.ConditionUnknown, "Unavailable")
	a := w.ask(w.workerToken("app"))
	if want := "the server has no identity that AWS accepts: ask the administrator of the cluster"; c.Message != want ||
		a.body["Message"] != want {
		t.Errorf("the condition says %q, the answer %v", c.Message, a.body)
	}
	if !slices.ContainsFunc(w.audit.all(), func(line string) bool { return strings.Contains(line, "no AWS identity") }) {
		t.Errorf("the log has %q", w.audit.all())
	}
}

func TestStatusOfRolesThatCannotBeAssumed(t *testing.T) {
	w := newEnvironment(t)
	missing := w.bind("missing", roles+"missing")
	c := w.awaitCondition(missing, v1alpha1.ConditionRoleAssumable, metav1.ConditionFalse, "AccessDenied")
	if !strings.Contains(c.Message, "is not authorized to perform: sts:AssumeRole on resource: "+roles+"missing") {
		t.Errorf("the message is %q", c.Message)
	}
	for _, want := range []string{"let the trust policy of role \"" + roles +
		"missing\" allow sts:AssumeRole and sts:TagSession",
		`the session name "prod.` + w.Namespace + `.missing"`, `the tag cluster "prod"`} {
		if !strings.Contains(c.Message, want) {
			t.Errorf("the message lacks %q: %s", want, c.Message)
		}
	}
	w.awaitCondition(missing, v1alpha1.ConditionAccepted, metav1.ConditionTrue, podidentity.ReasonAccepted)
	w.Eventually("there is an Event", func() bool {
		return w.events.find("IAMBinding "+missing.Name, "AccessDenied", "sts:AssumeRole", "session name")
	})

	untagged := w.bind("untagged", w.role("untagged", func(trust *cloudtest.Trust) { trust.TagSession = false }))
	c = w.awaitCondition(untagged, v1alpha1.ConditionRoleAssumable, metav1.ConditionFalse, "AccessDenied")
	if !strings.Contains(c.Message, "sts:TagSession") {
		t.Errorf("the message is %q", c.Message)
	}
	policy := w.bind("policy", w.role("policy"), func(b *v1alpha1.IAMBinding) { b.Spec.AWS.SessionPolicy = "{not JSON}" })
	c = w.awaitCondition(policy, v1alpha1.ConditionRoleAssumable, metav1.ConditionFalse, "Misconfigured")
	if !strings.Contains(c.Message, "session policy") {
		t.Errorf("the message is %q", c.Message)
	}
}
