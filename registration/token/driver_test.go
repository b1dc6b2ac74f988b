package token_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/token"
)

var (
	begin   = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	account = client.ObjectKey{Namespace: "cluster1", Name: "cluster1-addon1-agent"}
)

const user = "system:serviceaccount:cluster1:cluster1-addon1-agent"

func TestDeclaresWaitsAndRequests(t *testing.T) {
	w := newEnvironment(t, token.Options{})
	w.reconcile()
	if want := (ocm.Registration{Type: ocm.KubeClient, Driver: "token",
		Subject: ocm.Subject{User: user}}); !reflect.DeepEqual(w.item, want) {
		t.Errorf("declared %+v", w.item)
	}
	w.reconcile()
	w.expect("False", "TokenInfrastructureNotReady", "cluster1/cluster1-addon1-agent")
	if w.stored != nil || len(w.requests) != 0 || w.declared != 1 {
		t.Errorf("%d requests, %d declarations, stored %v", len(w.requests), w.declared, w.stored)
	}
	w.set(ready(account, w.uid))
	step := w.reconcile()
	w.expect("True", "AddonTokenRefreshed", "cluster1/cluster1-addon1-agent", "2027-06-01T12:00:00Z")
	if len(w.requests) != 1 || *w.requests[0].Spec.ExpirationSeconds != 31_536_000 ||
		string(w.requests[0].UID) != "uid-1" || w.requests[0].Spec.Audiences != nil {
		t.Errorf("requests %+v", w.requests)
	}
	if step.Credential.User.TokenFile != "token" || string(w.stored["uid"]) != "uid-1" ||
		string(w.stored["expiration"]) != "2027-06-01T12:00:00Z" || len(w.stored) != 3 {
		t.Errorf("stored %v", w.stored)
	}
}

func TestSteadyStateChangesNothing(t *testing.T) {
	w := provided(t, token.Options{})
	first := w.reconcile()
	for range 3 {
		w.now = w.now.Add(time.Hour)
		if again := w.reconcile(); !reflect.DeepEqual(again, first) {
			t.Errorf("step %+v, before %+v", again, first)
		}
	}
}

// A released hub of Open Cluster Management makes the ServiceAccount
// <add-on>-agent, whatever the agent declares, and says so.
func TestTakesTheServiceAccountThatTheHubStates(t *testing.T) {
	w := newEnvironment(t, token.Options{})
	w.reconcile()
	if w.item.Subject.User != user {
		t.Errorf("declares %+v first", w.item)
	}
	w.set(ready(client.ObjectKey{Namespace: "cluster1", Name: "addon1-agent"}, w.uid))
	w.now = w.now.Add(2 * time.Minute)
	w.reconcile()
	w.reconcile()
	if c := w.condition("TokenRefreshed"); c.Status != "True" || c.Reason != "AddonTokenRefreshed" ||
		w.item.Subject.User != "system:serviceaccount:cluster1:addon1-agent" || len(w.requests) != 1 {
		t.Errorf("condition %+v, item %+v, %d requests", c, w.item, len(w.requests))
	}
	denied := ready(client.ObjectKey{}, "")
	denied.Status, denied.Reason, denied.Message = metav1.ConditionFalse, "Denied", "no"
	w.set(denied)
	w.reconcile()
	if w.item.Subject.User != "system:serviceaccount:cluster1:addon1-agent" || w.stored == nil {
		t.Errorf("after a refusal it declares %+v, and stores %v", w.item, w.stored)
	}
}

// These are the texts of a hub of Open Cluster Management, of commit 00f84c3.
func TestReadsTheConditionOfOpenClusterManagement(t *testing.T) {
	for name, row := range map[string]struct {
		status          metav1.ConditionStatus
		reason, message string
		want            string // the agent's condition
		requests        int
	}{
		"ready": {"True", "TokenInfrastructureReady",
			"ServiceAccount cluster1/addon1-agent (UID: 6f1c8f0e-5a53-4c0b-9a39-0d0f6b6a2f11) is ready",
			"TokenRefreshed=True/AddonTokenRefreshed", 1},
		"ready, without a UID": {"True", "TokenInfrastructureReady", "ServiceAccount cluster1/addon1-agent (UID: ) is ready",
			"AddonTokenRefreshed=False/TokenInfrastructureNotReady", 0},
		"not applied": {"False", "TokenInfrastructureApplyFailed",
			"Failed to apply token infrastructure: \"cluster-manager/hub/addon-manager/token-role.yaml\" (string): forbidden",
			"AddonTokenRefreshed=False/TokenInfrastructureNotReady", 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t, token.Options{})
			w.uid = "6f1c8f0e-5a53-4c0b-9a39-0d0f6b6a2f11"
			w.reconcile()
			w.set(metav1.Condition{Type: "TokenInfrastructureReady", Status: row.status, Reason: row.reason,
				Message: row.message})
			c := w.reconcile().Condition
			if got := fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason); got != row.want || len(w.requests) != row.requests {
				t.Errorf("%s, %d requests", got, len(w.requests))
			}
			if row.requests == 0 && !strings.Contains(c.Message, row.message) &&
				!strings.Contains(c.Message, fmt.Sprintf("%q", row.message)) {
				t.Errorf("message %q", c.Message)
			}
		})
	}
}

// The add-on c1-x of the cluster c1 never takes c1-x-agent, the ServiceAccount
// of the add-on x.
func TestTakesNoOtherServiceAccount(t *testing.T) {
	for name, row := range map[string]struct{ cluster, addOn, states, want string }{
		"another add-on's":           {"c1", "c1-x", "c1-x-agent", "c1-c1-x-agent"},
		"another ServiceAccount's":   {"c1", "x", "default", "c1-x-agent"},
		"one of another namespace":   {"c1", "x", "../kube-system/x-agent", "c1-x-agent"},
		"that of the specification":  {"c1", "x", "c1-x-agent", "c1-x-agent"},
		"that of a released hub":     {"c1", "x", "x-agent", "x-agent"},
		"no hub has stated anything": {"c1", "x", "", "c1-x-agent"},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := token.New(token.Options{})
			regtest.Must(t, err)
			in := registration.Input{Now: time.Now(), Cluster: row.cluster, Addon: row.addOn,
				Item: ocm.Registration{Type: ocm.KubeClient}, Hub: fake.NewClientBuilder().Build()}
			if row.states != "" {
				in.Conditions = []metav1.Condition{ready(client.ObjectKey{Namespace: row.cluster, Name: row.states}, "uid-1")}
			}
			step, err := d.Next(t.Context(), in)
			regtest.Must(t, err)
			if got := step.Declare.Subject.User; got != "system:serviceaccount:c1:"+row.want {
				t.Errorf("takes %q", got)
			}
		})
	}
}

func TestRefusesItemsOfOtherDrivers(t *testing.T) {
	for name, change := range map[string]func(*registration.Input){
		"a cluster":         func(in *registration.Input) { in.Addon = "" },
		"a customSigner":    func(in *registration.Input) { in.Item.Type = ocm.CustomSigner },
		"an item of nobody": func(in *registration.Input) { in.Item = ocm.Registration{} },
	} {
		t.Run(name, func(t *testing.T) {
			w := provided(t, token.Options{})
			in := w.input()
			change(&in)
			if step, err := w.driver.Next(t.Context(), in); err == nil || !reflect.DeepEqual(step, registration.Step{}) ||
				len(w.requests) > 0 {
				t.Errorf("step %+v, %v", step, err)
			}
		})
	}
}

func TestExpirationSeconds(t *testing.T) {
	for _, tc := range []struct {
		seconds, asked int64
		warns          bool
	}{{0, 31_536_000, false}, {600, 600, true}, {3599, 3599, true}, {3600, 3600, false},
		{31_536_000_0, 31_536_000_0, false}} {
		t.Run(fmt.Sprint(tc.seconds), func(t *testing.T) {
			w := provided(t, token.Options{ExpirationSeconds: tc.seconds})
			w.reconcile()
			if got := *w.requests[0].Spec.ExpirationSeconds; got != tc.asked {
				t.Errorf("asked for %d", got)
			}
			if message := w.condition("AddonTokenRefreshed").Message; strings.Contains(message, "Warning") != tc.warns {
				t.Errorf("message %q", message)
			}
		})
	}
	for _, seconds := range []int64{-1, 1, 599} {
		t.Run(fmt.Sprint(seconds), func(t *testing.T) {
			if _, err := token.New(token.Options{ExpirationSeconds: seconds}); err == nil {
				t.Error("accepted")
			}
		})
	}
}

// The timers are exact for the shortest token, and each token's jitter is its
// own.
func TestRefreshesAt80Percent(t *testing.T) {
	w := provided(t, token.Options{ExpirationSeconds: 600})
	seen := map[time.Duration]bool{}
	w.run(3*time.Hour, func() {
		left := w.last.At.Sub(w.now)
		if seen[left] = true; left < 450*time.Second || left > 480*time.Second {
			t.Errorf("it looks again after %s", left)
		}
		w.expect("True", "AddonTokenRefreshed")
	})
	if n := len(w.requests); n < 22 || n > 25 || len(seen) < 10 {
		t.Errorf("%d requests, %d different times", n, len(seen))
	}
}

func TestRefreshesWhenTheTokenIsUnusable(t *testing.T) {
	for name, change := range map[string]func(*environment){
		"the ServiceAccount was recreated": func(w *environment) { w.uid = "uid-2"; w.set(ready(account, "uid-2")) },
		"the Secret was deleted":           func(w *environment) { w.stored, w.state = nil, nil },
		"another driver made the Secret": func(w *environment) {
			w.stored, w.state = map[string][]byte{"cluster-name": []byte("cluster1")}, nil
		},
		"the token was edited": func(w *environment) { w.stored["token"] = []byte("edited") },
		"the token of another add-on": func(w *environment) {
			w.stored["token"] = []byte(jwt("system:serviceaccount:cluster1:cluster1-addon2-agent", "uid-1", begin,
				begin.Add(time.Hour)))
		},
		"the notes were edited, and time passed": func(w *environment) {
			w.state = map[string][]byte{"progress": []byte("edited")}
			w.now = w.now.Add(365 * 24 * time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := provided(t, token.Options{})
			w.reconcile()
			change(w)
			w.reconcile()
			if len(w.requests) != 2 || string(w.stored["uid"]) != w.uid || string(w.requests[1].UID) != w.uid {
				t.Errorf("%d requests, stored %s", len(w.requests), w.stored["uid"])
			}
			w.expect("True", "AddonTokenRefreshed", w.uid)
			if w.reconcile(); len(w.requests) != 2 {
				t.Error("it asks again")
			}
		})
	}
	t.Run("not when only the state beside the token were edited", func(t *testing.T) {
		w := provided(t, token.Options{})
		w.reconcile()
		w.stored["uid"], w.stored["expiration"], w.state = nil, []byte("never"), nil
		if w.reconcile(); len(w.requests) != 1 || string(w.stored["uid"]) != "uid-1" {
			t.Errorf("%d requests, stored %v", len(w.requests), w.stored)
		}
	})
}

// Tokens do not run out while the clock is less wrong than the margin, and
// nothing makes the agent ask in a loop.
func TestWrongClock(t *testing.T) {
	for name, tc := range map[string]struct {
		ahead, later time.Duration // at first, and after half an hour
		most         int           // requests in an hour
	}{
		"right":                   {0, 0, 9},
		"8 minutes ahead":         {8 * time.Minute, 8 * time.Minute, 25},
		"a year ahead":            {365 * 24 * time.Hour, 365 * 24 * time.Hour, 25},
		"8 minutes behind":        {-8 * time.Minute, -8 * time.Minute, 9},
		"a year behind":           {-365 * 24 * time.Hour, -365 * 24 * time.Hour, 9},
		"ahead, then right":       {8 * time.Minute, 0, 18},
		"a year ahead then right": {365 * 24 * time.Hour, 0, 18},
		"behind, then right":      {-8 * time.Minute, 0, 10},
		"right, then ahead":       {0, 8 * time.Minute, 18},
	} {
		t.Run(name, func(t *testing.T) {
			w := provided(t, token.Options{ExpirationSeconds: 600})
			w.ahead = tc.ahead
			alive := func() {
				if len(w.requests) > 1 && !w.now.Before(w.expires()) {
					t.Errorf("at %s the token has expired since %s", w.now, w.expires())
				}
			}
			w.run(30*time.Minute, alive)
			w.ahead = tc.later
			w.run(30*time.Minute, nil)
			if n := len(w.requests); n > tc.most || n < 7 {
				t.Errorf("%d requests", n)
			}
			if !w.now.Before(w.expires()) {
				t.Error("the token has expired")
			}
		})
	}
}

func (w *environment) expires() time.Time {
	w.t.Helper()
	at, err := time.Parse(time.RFC3339, string(w.stored["expiration"]))
	regtest.Must(w.t, err)
	return at
}

func TestHubGrantsLess(t *testing.T) {
	w := provided(t, token.Options{})
	w.longest = time.Hour
	w.reconcile()
	w.expect("True", "AddonTokenRefreshed", "2026-06-01T13:00:00Z")
	if left := w.last.At.Sub(w.now); left < 45*time.Minute || left > 48*time.Minute {
		t.Errorf("it looks again after %s", left)
	}
	t.Run("next to nothing", func(t *testing.T) {
		w := provided(t, token.Options{})
		w.longest = time.Second
		if w.run(time.Hour, nil); len(w.requests) > 122 {
			t.Errorf("%d requests", len(w.requests))
		}
	})
}

func TestFailedRefreshKeepsTheToken(t *testing.T) {
	group := schema.GroupResource{Resource: "serviceaccounts"}
	for reason, answer := range map[string]error{
		"TokenRequestForbidden": apierrors.NewForbidden(group, account.Name, errors.New("no RBAC")),
		"TokenRequestInvalid":   apierrors.NewInvalid(schema.GroupKind{Kind: "TokenRequest"}, account.Name, nil),
		"TokenRequestNotFound":  apierrors.NewNotFound(group, account.Name),
		"TokenRequestConflict":  apierrors.NewConflict(group, account.Name, errors.New("the UID differs")),
		"TokenRequestFailed":    apierrors.NewInternalError(errors.New("boom")),
	} {
		t.Run(reason, func(t *testing.T) {
			w := provided(t, token.Options{ExpirationSeconds: 3600})
			w.run(40*time.Minute, nil)
			before := string(w.stored["token"])
			w.answer = func() error { return answer }
			w.run(time.Hour, nil)
			w.expect("False", reason, "cluster1/cluster1-addon1-agent", "The stored token expires at 2026-06-01T13:00:00Z.")
			if n := len(w.requests) - 1; string(w.stored["token"]) != before || n < 10 || n > 25 {
				t.Errorf("%d failed requests, token kept: %t", n, string(w.stored["token"]) == before)
			}
			n := len(w.requests)
			for range 5 { // something wakes the agent
				w.reconcile()
			}
			if len(w.requests) > n+1 {
				t.Errorf("%d requests without a wait", len(w.requests)-n)
			}
			w.answer = nil
			w.run(6*time.Minute, nil)
			w.expect("True", "AddonTokenRefreshed")
			if string(w.stored["token"]) == before || strings.Contains(string(w.state["progress"]), "failure") {
				t.Errorf("the failure lasts: %s", w.state["progress"])
			}
		})
	}
}

// A failure for one ServiceAccount does not delay a request for its successor.
func TestNewUIDEndsTheBackOff(t *testing.T) {
	w := provided(t, token.Options{})
	w.answer = func() error {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccounts"}, account.Name)
	}
	w.run(time.Hour, nil)
	w.reconcile()
	n := len(w.requests)
	w.uid, w.answer = "uid-2", nil
	w.set(ready(account, "uid-2"))
	if w.reconcile(); len(w.requests) != n+1 {
		t.Errorf("%d requests", len(w.requests)-n)
	}
	w.expect("True", "AddonTokenRefreshed", "uid-2")
}

// A wait that began while the clock was ahead ends when the clock is right.
func TestRightClockEndsTheBackOff(t *testing.T) {
	w := provided(t, token.Options{})
	w.ahead, w.answer = 365*24*time.Hour, func() error { return apierrors.NewInternalError(errors.New("boom")) }
	w.reconcile()
	w.expect("False", "TokenRequestFailed")
	w.ahead, w.answer = 0, nil
	w.reconcile()
	w.expect("True", "AddonTokenRefreshed")
}

func TestUnreachableHubIsAnError(t *testing.T) {
	w := provided(t, token.Options{})
	for name, answer := range map[string]error{"no route": errors.New("no route"),
		"401": apierrors.NewUnauthorized("who")} {
		t.Run(name, func(t *testing.T) {
			w.answer = func() error { return answer }
			if _, err := w.driver.Next(t.Context(), w.input()); !errors.Is(err, answer) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestUnusableAnswerIsNotStored(t *testing.T) {
	for name, issued := range map[string]string{
		"another ServiceAccount": jwt("system:serviceaccount:cluster1:default", "uid-1", begin, begin.Add(time.Hour)),
		"another UID":            jwt(user, "uid-0", begin, begin.Add(time.Hour)),
		"no UID":                 jwt(user, "", begin, begin.Add(time.Hour)),
		"no lifetime":            jwt(user, "uid-1", begin, begin),
		"not a JWT":              "secret",
		"nothing":                "",
	} {
		t.Run(name, func(t *testing.T) {
			w := provided(t, token.Options{})
			w.issue = func(int64) string { return issued }
			w.reconcile()
			w.expect("False", "TokenUnusable")
			if w.stored != nil || strings.Contains(w.condition("AddonTokenRefreshed").Message, "secret") {
				t.Errorf("stored %v, condition %q", w.stored, w.condition("AddonTokenRefreshed").Message)
			}
			if w.run(time.Hour, nil); len(w.requests) > 25 {
				t.Errorf("%d requests", len(w.requests))
			}
		})
	}
}

// A hub that does not know the driver drops the value, and never provides
// anything.
func TestOlderHub(t *testing.T) {
	t.Run("drops the driver", func(t *testing.T) {
		w := newEnvironment(t, token.Options{})
		w.forgets = true
		w.reconcile()
		w.item.Subject.User = user
		w.now = w.now.Add(time.Second)
		w.reconcile()
		w.expect("False", "TokenDriverNotDeclared", "update the hub, or use csr")
		if w.run(10*time.Minute, nil); w.declared > 11 || w.declared < 9 {
			t.Errorf("%d declarations", w.declared)
		}
	})
	t.Run("never provides", func(t *testing.T) {
		w := newEnvironment(t, token.Options{})
		w.reconcile()
		w.run(2*time.Minute, nil)
		w.expect("False", "TokenInfrastructureNotReady", "knows the driver token, or use csr")
		if w.declared != 1 || !w.last.At.IsZero() {
			t.Errorf("%d declarations, looks again at %s", w.declared, w.last.At)
		}
	})
	t.Run("refuses", func(t *testing.T) {
		w := newEnvironment(t, token.Options{})
		w.reconcile()
		w.set(metav1.Condition{Type: addon.ConditionTokenInfrastructureReady, Status: "False", Reason: "InvalidSubject",
			Message: "not yours"})
		w.reconcile()
		w.expect("False", "TokenInfrastructureNotReady", "InvalidSubject", "not yours")
	})
	t.Run("speaks of another ServiceAccount", func(t *testing.T) {
		w := provided(t, token.Options{})
		w.set(ready(client.ObjectKey{Namespace: "cluster1", Name: "addon2-agent"}, "uid-1"))
		w.reconcile()
		if w.expect("False", "TokenInfrastructureNotReady", "addon2-agent"); len(w.requests) > 0 {
			t.Error("it asks")
		}
	})
}

// The hub has revoked the token, as of a denied cluster. Without a word of the
// hub the token counts as good.
func TestRevokedToken(t *testing.T) {
	w := provided(t, token.Options{})
	w.reconcile()
	w.set(metav1.Condition{Type: addon.ConditionTokenInfrastructureReady, Status: "False",
		Reason: ocm.ReasonClusterNotAccepted, Message: "denied"})
	w.reconcile()
	w.expect("False", "TokenInfrastructureNotReady", ocm.ReasonClusterNotAccepted, "The stored token expires at")
	meta.RemoveStatusCondition(&w.conditions, addon.ConditionTokenInfrastructureReady)
	w.reconcile()
	w.expect("True", "AddonTokenRefreshed")
	if len(w.requests) != 1 || w.stored == nil {
		t.Errorf("%d requests, stored %v", len(w.requests), w.stored)
	}
}

// Another controller resets the item while the token is good: the condition
// stays True, which keeps the hub from tearing down.
func TestResetItemIsDeclaredAgain(t *testing.T) {
	w := newEnvironment(t, token.Options{})
	w.reconcile()
	w.set(ready(account, w.uid))
	w.reconcile()
	w.now = w.now.Add(time.Hour)
	w.item = ocm.Registration{Type: ocm.KubeClient, Subject: ocm.Subject{User: user, Groups: []string{"g"}}}
	w.reconcile()
	if w.expect("True", "AddonTokenRefreshed"); w.declared != 2 || w.item.Subject.Groups != nil {
		t.Errorf("%d declarations, item %+v", w.declared, w.item)
	}
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	w := provided(t, token.Options{Registerer: registry})
	w.answer = func() error { return apierrors.NewInternalError(errors.New("boom")) }
	w.reconcile()
	w.answer, w.now = nil, w.now.Add(time.Second)
	w.reconcile()
	w.now = w.last.At
	w.reconcile()
	want := fmt.Sprintf(`
# HELP registration_addon_token_expiry_timestamp_seconds When the stored token of an add-on expires, in seconds since 1970.
# TYPE registration_addon_token_expiry_timestamp_seconds gauge
registration_addon_token_expiry_timestamp_seconds{addon="addon1"} %g
# HELP registration_addon_token_requests_total Requests for tokens of add-ons, by result: issued, refreshed or failed.
# TYPE registration_addon_token_requests_total counter
registration_addon_token_requests_total{addon="addon1",result="failed"} 1
registration_addon_token_requests_total{addon="addon1",result="issued"} 1
registration_addon_token_requests_total{addon="addon1",result="refreshed"} 1
`, float64(w.expires().Unix()))
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	w.driver.Forget("addon1")
	if n, err := testutil.GatherAndCount(registry); n != 0 || err != nil {
		t.Errorf("%d left, %v", n, err)
	}
}
