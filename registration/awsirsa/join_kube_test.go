package awsirsa_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/awsirsa"
	"github.com/workloadid/workloadid/registration/ocm"
)

func TestJoinAndLeaveOnTwoAPIServers(t *testing.T) {
	k := newKube(t)
	k.step("join, revocation", func(t *testing.T) {
		m := k.join("shop")
		m.until("the cluster shows up", func() bool { return m.failed == nil })
		if role, entry := m.inAWS(); role || entry {
			t.Error("AWS knows the cluster before it is accepted")
		}
		since := time.Now()
		m.accept()
		t.Logf("joined %s after acceptance", time.Since(since).Round(time.Millisecond))
		m.checkIdentity(t)
		m.revoke(t)
	})
	k.step("unjoin", func(t *testing.T) {
		m := k.join("leaver")
		m.accept()
		if err := m.agent.Unjoin(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.checkGone(t)
	})
	k.step("a cluster that claims another's ARN leaves", func(t *testing.T) {
		victim := k.join("victim")
		victim.accept()
		before := k.aws.AWS().EKSAccessEntries(hubARN)[victim.hubRole]
		thief := k.join("thief")
		thief.accept()
		k.patch(thief.own(), "thief", fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, awsirsa.ARNAnnotation, victim.arn))
		eventually(t, "the hub notices", func() bool {
			return strings.HasSuffix(k.reason("thief", ocm.ConditionHubAccepted), "/"+registration.ReasonClaimChanged)
		})
		if err := thief.agent.Unjoin(t.Context()); err != nil {
			t.Fatal(err)
		}
		thief.checkGone(t)
		role, _ := victim.inAWS()
		if after := k.aws.AWS().EKSAccessEntries(hubARN)[victim.hubRole]; !role || !reflect.DeepEqual(after, before) {
			t.Errorf("the victim has a role: %t, and the access entry %+v instead of %+v", role, after, before)
		}
		if bindings, role := k.rbac("victim"); bindings != 3 || !role {
			t.Errorf("the victim has %d bindings, ClusterRole %t", bindings, role)
		}
	})
}

// checkIdentity uses the hub as the agent.
func (m *member) checkIdentity(t *testing.T) {
	t.Helper()
	own := m.own()
	review := &authenticationv1.SelfSubjectReview{}
	if err := own.Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	user, prefix := review.Status.UserInfo, "arn:aws:sts::"+hubAccount+":assumed-role/"+m.hubRole[strings.LastIndexByte(m.hubRole, '/')+1:]+"/"
	groups := []string{registration.ClusterGroups(m.name)[1], "system:authenticated"}
	if !strings.HasPrefix(user.Username, prefix) || !slices.Equal(slices.Sorted(slices.Values(user.Groups)), groups) {
		t.Errorf("authenticated as %+v", user)
	}
	lease := func(namespace string) error {
		return own.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: ocm.LeaseName}, &coordinationv1.Lease{})
	}
	if err := lease(m.name); err != nil {
		t.Error(err)
	}
	if err := lease(m.name + "0"); !apierrors.IsForbidden(err) {
		t.Errorf("the neighbour's Lease: %v", err)
	}
	if err := own.Get(t.Context(), client.ObjectKey{Name: m.name + "0"}, &ocm.ManagedCluster{}); !apierrors.IsForbidden(err) {
		t.Errorf("the neighbour's ManagedCluster: %v", err)
	}
}

// revoke denies the cluster while AWS deletes nothing: the RBAC is what revokes.
func (m *member) revoke(t *testing.T) {
	t.Helper()
	own := m.own()
	end := m.aws.AddFault(authtest.Fault{Service: "eks", Action: "DeleteAccessEntry", Status: 503, Code: "ServiceUnavailableException"})
	defer end()
	before := m.aws.Calls("eks", "DeleteAccessEntry")
	m.patch(m.admin, m.name, `{"spec":{"hubAcceptsClient":false}}`)
	eventually(t, "the hub asks AWS to delete the access entry", func() bool { return m.aws.Calls("eks", "DeleteAccessEntry") > before })
	if bindings, _ := m.rbac(m.name); bindings > 0 {
		t.Fatalf("AWS was asked while the cluster had %d bindings", bindings)
	}
	if role, entry := m.inAWS(); !role || !entry {
		t.Errorf("in AWS: role %t, access entry %t", role, entry)
	}
	eventually(t, "the API server forbids the agent, whose token is still good", func() bool {
		return apierrors.IsForbidden(own.Get(t.Context(), client.ObjectKey{Name: m.name}, &ocm.ManagedCluster{}))
	})
	end()
	m.checkGone(t)
}

func (m *member) checkGone(t *testing.T) {
	t.Helper()
	eventually(t, "the hub has taken back everything", func() bool {
		inIAM, entry := m.inAWS()
		bindings, role := m.rbac(m.name)
		return !inIAM && !entry && bindings == 0 && !role
	})
	eventually(t, "the hub says that the cluster is denied", func() bool {
		return m.reason(m.name, ocm.ConditionHubAccepted) == "False/"+ocm.ReasonHubDenied
	})
}
