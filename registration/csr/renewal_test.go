package csr_test

import (
	"maps"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// At 75 to 80 % of what the certificate says, which is backdated: 6:15 to 7 of
// the 10 minutes of a short one.
func TestRenewalAt80PercentWithOneJitter(t *testing.T) {
	for name, c := range map[string]struct{ lifetime, least, most time.Duration }{
		"600 s":  {600 * time.Second, 375 * time.Second, 420 * time.Second},
		"24 h":   {24 * time.Hour, 18*time.Hour - 5*time.Minute, 24 * time.Hour * 4 / 5},
		"1 year": {8760 * time.Hour, 8760*time.Hour*3/4 - 5*time.Minute, 8760 * time.Hour * 4 / 5},
	} {
		t.Run(name, func(t *testing.T) {
			drawn := map[time.Duration]bool{}
			for range 8 {
				w := newEnvironment(t)
				w.sign, w.lifetime = true, c.lifetime
				w.step()
				w.step()
				at := w.step().At
				wait := at.Sub(w.now)
				if wait < c.least || wait > c.most {
					t.Errorf("renews after %s", wait)
				}
				w.now = at.Add(-time.Second)
				if again := w.step().At; !again.Equal(at) {
					t.Errorf("renews at %s, a second later at %s", at, again)
				}
				w.expectRequests(1)
				w.now = at
				w.step()
				w.step()
				w.expectRequests(2)
				drawn[wait] = true
			}
			if len(drawn) < 4 {
				t.Errorf("no jitter: %v", drawn)
			}
		})
	}
}

func TestExpiredCertificateIsReplacedByOneRequest(t *testing.T) {
	w := newEnvironment(t)
	w.sign = true
	w.step()
	w.step()
	w.step()
	w.now, w.sign = w.now.Add(48*time.Hour), false
	w.run(time.Hour, func() {})
	w.expectRequests(2)
	expect(t, w.step(), metav1.ConditionFalse, "ClientCertificateNotApproved")
}

// Without a bound each certificate would be due at once: 8 of its 10 minutes
// seem to be over.
func TestClockAheadDoesNotAskInALoop(t *testing.T) {
	w := newEnvironment(t)
	w.sign, w.lifetime, w.ahead = true, 600*time.Second, 8*time.Minute
	w.run(2*time.Minute, func() {})
	w.expectRequests(1)
	w.run(time.Hour, func() {
		if w.secret != nil && w.now.After(w.leaf().NotAfter) {
			t.Errorf("expired at %s", w.now)
		}
	})
	for i := range w.creates[1:] {
		if gap := w.creates[i+1].Sub(w.creates[i]); gap < 3*time.Minute {
			t.Errorf("requests %s apart", gap)
		}
	}
}

func TestClockThatIsDaysAheadAsksEvery10Minutes(t *testing.T) {
	w := newEnvironment(t)
	w.sign, w.ahead = true, 100*24*time.Hour
	w.run(55*time.Minute, func() {})
	if n := len(w.creates); n < 2 || n > 6 {
		t.Errorf("%d requests", n)
	}
}

// The certificate has to be renewed before it expires by the hub's clock:
// afterwards a person is needed.
func TestClockBehindRenewsInTime(t *testing.T) {
	w := newEnvironment(t)
	w.sign, w.lifetime, w.ahead = true, 600*time.Second, -8*time.Minute
	w.run(time.Hour, func() {
		if w.secret != nil && w.now.After(w.leaf().NotAfter) {
			t.Errorf("expired at %s", w.now)
		}
	})
	if n := len(w.creates); n > 12 {
		t.Errorf("%d requests", n)
	}
}

func TestClockThatWasSetBackRenewsByTheCertificate(t *testing.T) {
	w := newEnvironment(t)
	w.sign, w.lifetime, w.ahead = true, 600*time.Second, 8*time.Minute
	w.step()
	w.step()
	w.step()
	w.ahead = 0
	if wait := w.step().At.Sub(w.now); wait < 6*time.Minute || wait > 7*time.Minute {
		t.Errorf("renews after %s", wait)
	}
}

func TestEditedSecretHealsWithOneRequest(t *testing.T) {
	other := newCA(t)
	for name, c := range map[string]struct {
		edit     func(*environment)
		requests int
	}{
		"nothing":             {func(*environment) {}, 1},
		"Secret deleted":      {func(w *environment) { w.secret, w.state = nil, nil }, 2},
		"no certificate":      {func(w *environment) { delete(w.secret, "tls.crt") }, 2},
		"no key":              {func(w *environment) { delete(w.secret, "tls.key") }, 2},
		"garbage certificate": {func(w *environment) { w.secret["tls.crt"] = []byte("x") }, 2},
		"certificate of another key": {func(w *environment) {
			w.secret["tls.crt"] = other.sign(t, w.leaf().Subject, ecKey(t).Public(), w.now, time.Hour)
		}, 2},
		"another agent's name": {func(w *environment) { w.agent = "agent2" }, 2},
		"no state":             {func(w *environment) { w.state = nil }, 1},
		"garbage state": {func(w *environment) {
			w.state = map[string][]byte{"received": []byte("x"), "approved": []byte("y"), "key": []byte("z")}
		}, 1},
		"received in the future":  {func(w *environment) { w.state["received"] = []byte("2999-01-01T00:00:00Z") }, 1},
		"approved without a date": {func(w *environment) { delete(w.state, "received") }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnvironment(t)
			w.sign = true
			w.step()
			w.step()
			w.step()
			w.secret, w.state = maps.Clone(w.secret), maps.Clone(w.state)
			c.edit(w)
			w.run(time.Hour, func() {})
			w.expectRequests(c.requests)
			expect(t, w.step(), metav1.ConditionTrue, "ClientCertificateUpdated", w.agent)
		})
	}
}
