package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/podidentity"
	"github.com/workloadid/workloadid/internal/testing/testenv"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
)

func TestIssue(t *testing.T) {
	w := newEnvironment(t)
	b := w.bind("app", w.role("app"), func(b *v1alpha1.IAMBinding) {
		b.Spec.AWS.SessionTags = map[string]v1alpha1.TagValue{"team": "a"}
		b.Spec.AWS.DurationSeconds = 2400
	})
	p := w.worker("app")
	got := w.ask(w.Token("app", p, audience))
	id := w.identity(got)

	if keys := slices.Sorted(maps.Keys(got.body)); !slices.Equal(keys,
		[]string{"AccessKeyId", "Expiration", "SecretAccessKey", "Token"}) {
		t.Errorf("the answer has %v", keys)
	}
	expiry, err := time.Parse("2006-01-02T15:04:05Z", got.body["Expiration"])
	if err != nil || time.Until(expiry) > 40*time.Minute || time.Until(expiry) < 39*time.Minute {
		t.Errorf("the expiration is %q", got.body["Expiration"])
	}
	if want := "prod." + w.Namespace + ".app"; id.RoleARN != roles+"app" || id.SessionName != want {
		t.Errorf("got %s as %q, want %q", id.RoleARN, id.SessionName, want)
	}
	want := map[string]string{"team": "a", "kubernetes-namespace": w.Namespace, "kubernetes-service-account": "app",
		"kubernetes-pod-name": p.Name, "kubernetes-pod-uid": string(p.UID), "cluster": "prod"}
	if !maps.Equal(id.Tags, want) {
		t.Errorf("the tags are %v, want %v", id.Tags, want)
	}
	if all := w.audit.all(); len(all) != 1 {
		t.Errorf("the log has %q", all)
	} else {
		for _, part := range []string{string(p.UID), b.Spec.AWS.RoleARN, id.SessionName, got.body["AccessKeyId"], b.Name,
			got.body["Expiration"]} {
			if !strings.Contains(all[0], part) {
				t.Errorf("the audit line lacks %q: %s", part, all[0])
			}
		}
		if strings.Contains(all[0], got.body["SecretAccessKey"]) || strings.Contains(all[0], got.body["Token"]) {
			t.Error("the audit line holds a secret")
		}
	}
	w.events.expectNone(t)
}

func (w *environment) update(b *v1alpha1.IAMBinding) {
	w.T.Helper()
	w.Eventually("the binding is updated", func() bool {
		now := b.DeepCopy()
		w.Must(w.Get(w.T.Context(), client.ObjectKeyFromObject(b), now))
		now.Spec = b.Spec
		return w.Update(w.T.Context(), now) == nil
	})
}

// The API server caches a TokenReview of a token for ten seconds, so each step
// has a token of its own. The server caches none, see
// TestEachRequestIsReviewed.
func TestRefusedAfterThePodIsGone(t *testing.T) {
	w := newEnvironment(t)
	w.bind("app", w.role("app"))
	terminating, gone := w.worker("app"), w.worker("app")
	terminating.Finalizers = []string{"example.com/keep"}
	w.Must(w.Update(t.Context(), terminating))
	tokens := map[*corev1.Pod][]string{}
	for _, p := range []*corev1.Pod{terminating, gone} {
		for range 30 {
			tokens[p] = append(tokens[p], w.Token("app", p, audience))
		}
		w.identity(w.ask(tokens[p][0]))
		w.Must(w.Delete(t.Context(), p, client.GracePeriodSeconds(0)))
	}
	refused := func(p *corev1.Pod) func() bool { // the informer of the API server may lag
		return func() bool {
			if tokens[p] = tokens[p][1:]; len(tokens[p]) == 0 {
				t.Fatal("all tokens of the pod are accepted")
			}
			return w.ask(tokens[p][0]).status == http.StatusUnauthorized
		}
	}
	w.Eventually("the pod that is gone is refused", refused(gone))
	if refused(terminating)() {
		t.Error("a terminating pod is refused within its minute")
	}
	w.terminatedAt(terminating, time.Now().Add(-61*time.Second))
	w.Eventually("the terminating pod is refused after its minute", refused(terminating))
	w.events.expectNone(t)
	if err := w.Patch(t.Context(), terminating,
		client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Error(err)
	}
}

// terminatedAt writes the deletionTimestamp of a pod into etcd, since no client
// can set it.
func (w *environment) terminatedAt(p *corev1.Pod, at time.Time) {
	w.T.Helper()
	w.Must(w.Get(w.T.Context(), client.ObjectKeyFromObject(p), p))
	stored := p.DeepCopy()
	stored.APIVersion, stored.Kind, stored.ResourceVersion = "v1", "Pod", ""
	stored.DeletionTimestamp = &metav1.Time{Time: at}
	value, err := json.Marshal(stored)
	if err != nil {
		w.T.Fatal(err)
	}
	body,
		err := json.Marshal(map[string][]byte{"key": []byte("/registry/pods/" + p.Namespace + "/" + p.Name), "value": value})
	if err != nil {
		w.T.Fatal(err)
	}
	r, err := http.NewRequestWithContext(w.T.Context(), http.MethodPost,
		w.Cluster.APIServer().EtcdURL.JoinPath("v3/kv/put").String(), bytes.NewReader(body))
	if err != nil {
		w.T.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		w.T.Fatal(err)
	}
	_ = response.Body.Close()
	w.Eventually("the API server reads the time", func() bool {
		return w.Get(w.T.Context(), client.ObjectKeyFromObject(p), p) == nil && p.DeletionTimestamp.Unix() == at.Unix()
	})
}

// TestUnfitTokensAreNotReviewed has the tokens that the server refuses by
// itself.
func TestUnattestedTokens(t *testing.T) {
	w := newEnvironment(t)
	w.bind("app", w.role("app"))
	p := w.worker("app")
	good := w.Token("app", p, audience)
	issuer := testenv.Issuer(t)
	foreign,
		err := issuer.Sign(
		issuer.Claims(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "app"}},
			[]string{audience}, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for name, token := range map[string]string{
		"the API server's":  w.Token("app", p, w.Cluster.IssuerURL()),
		"without a pod":     w.Token("app", nil, audience),
		"forged":            good[:strings.LastIndexByte(good, '.')] + "." + strings.Repeat("A", 86),
		"of another issuer": foreign,
	} {
		t.Run(name, func(t *testing.T) {
			if a := w.ask(token); a.status != http.StatusUnauthorized || a.body["Code"] != "NotAttested" ||
				a.header.Get("Www-Authenticate") != "Bearer" {
				t.Errorf("got %v %v", a, a.body)
			}
		})
	}
	w.identity(w.ask(good))
	w.events.expectNone(t)
}

// An Event that repeats is counted by the API server's own rules, so that pods
// that keep asking write few.
func TestEventsAtTheAPIServer(t *testing.T) {
	w := newEnvironment(t, func(w *environment) { w.records = true })
	b := w.bind("app", roles+"missing")
	p := w.worker("app")
	token := w.Token("app", p, audience)
	for range 20 {
		if a := w.ask(token); a.status != http.StatusForbidden {
			t.Fatalf("got %v", a)
		}
	}
	all := &eventsv1.EventList{}
	count := func(kind, name string) (n int) {
		for _, e := range all.Items {
			if e.Regarding.Kind == kind && e.Regarding.Name == name && e.Reason == "AccessDenied" &&
				e.Type == corev1.EventTypeWarning && strings.Contains(e.Note, "sts:AssumeRole") {
				n++
			}
		}
		return n
	}
	w.Eventually("there are Events on the pod and the binding", func() bool {
		w.Must(w.List(t.Context(), all, client.InNamespace(w.Namespace)))
		return count("Pod", p.Name) > 0 && count("IAMBinding", b.Name) > 0
	})
	if pods, bindings := count("Pod", p.Name), count("IAMBinding", b.Name); pods != 1 || bindings != 1 {
		t.Errorf("%d Events on the pod, %d on the binding", pods, bindings)
	}
}

func TestTwoBindingsServeNobody(t *testing.T) {
	w := newEnvironment(t)
	first := w.bind("app", w.role("app"))
	token := w.workerToken("app")
	w.identity(w.ask(token))
	second := w.bind("app", w.role("other"))
	if a := w.ask(token); a.status != http.StatusForbidden || a.body["Code"] != podidentity.ReasonConflict ||
		!strings.Contains(a.body["Message"], first.Name) {
		t.Errorf("got %v %v", a, a.body)
	}
	w.Must(w.Delete(t.Context(), second))
	w.Eventually("the other binding serves again", func() bool { return w.ask(token).status == http.StatusOK })
}

// A binding that is being deleted counts as gone, for pods and for conflicts,
// and its status is left alone.
func TestBindingThatIsBeingDeleted(t *testing.T) {
	w := newEnvironment(t)
	b := w.bind("app", w.role("app"), func(b *v1alpha1.IAMBinding) { b.Finalizers = []string{"example.com/keep"} })
	token := w.workerToken("app")
	w.identity(w.ask(token))
	w.awaitCondition(b, v1alpha1.ConditionAccepted, metav1.ConditionTrue, podidentity.ReasonAccepted)
	w.Must(w.Delete(t.Context(), b))
	w.Eventually("the pod is not bound", func() bool { return w.ask(token).body["Code"] == podidentity.ReasonNotBound })
	next := w.bind("app", w.role("next"))
	if id := w.identity(w.ask(token)); id.RoleARN != roles+"next" {
		t.Errorf("got %s", id.RoleARN)
	}
	w.awaitCondition(next, v1alpha1.ConditionAccepted, metav1.ConditionTrue, podidentity.ReasonAccepted)
	w.Must(w.Get(t.Context(), client.ObjectKeyFromObject(b), b))
	if c := meta.FindStatusCondition(b.Status.Conditions,
		v1alpha1.ConditionAccepted); c.Reason != podidentity.ReasonAccepted || c.ObservedGeneration == b.Generation {
		t.Errorf("the condition is %v", c)
	}
	if err := w.Patch(t.Context(), b,
		client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Error(err)
	}
}

// A server without an identity at AWS answers 503, since no pod can mend that.
func TestServerWithoutIdentity(t *testing.T) {
	w := newEnvironment(t, func(w *environment) { w.cloud.AWS().RemoveRole(serverRole) })
	w.bind("app", w.role("app"))
	a := w.ask(w.workerToken("app"))
	if a.status != http.StatusServiceUnavailable || a.body["Code"] != "Unavailable" || a.header.Get("Retry-After") == "" {
		t.Errorf("got %v %v", a, a.body)
	}
	w.trustServer()
	tokens := []string{w.workerToken("app"), w.workerToken("app")}
	for _, token := range tokens {
		w.Eventually("the server has an identity", func() bool {
			a := w.ask(token)
			if a.status != http.StatusServiceUnavailable && a.status != http.StatusOK {
				t.Fatalf("got %v %v", a, a.body)
			}
			return a.status == http.StatusOK
		})
	}
	w.events.expectNone(t)
}

// A server whose own credentials AWS refuses gets new ones, and no pod is
// blamed.
func TestRefusedCredentialsOfTheServerAreReplaced(t *testing.T) {
	w := newEnvironment(t)
	b := w.bind("app", w.role("app"))
	w.awaitCondition(b, v1alpha1.ConditionRoleAssumable, metav1.ConditionTrue, podidentity.ReasonAssumed)
	w.cloud.AddFault(cloudtest.Fault{Service: "sts", Action: "AssumeRole", Times: 1, Status: http.StatusForbidden,
		Code: "InvalidClientTokenId", Message: "no"})
	token := w.workerToken("app")
	if a := w.ask(token); a.status != http.StatusServiceUnavailable {
		t.Errorf("got %v %v", a, a.body)
	}
	w.Eventually("the pod has credentials", func() bool { return w.ask(token).status == http.StatusOK })
	w.events.expectNone(t)
}

func TestReady(t *testing.T) {
	w := newEnvironment(t)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", http.NoBody)
	if err := w.server.Ready(r); err != nil {
		t.Error(err)
	}
	_, unstarted := w.replica()
	if err := unstarted.Ready(r); err == nil {
		t.Error("a server is ready before its informers")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.server.Ready(r.WithContext(ctx)); err == nil {
		t.Error("a server is ready without an API server")
	}
}

// The API server accepts times that Go cannot read. The policy refuses them,
// but one may have been stored before.
func TestBindingWithATimeThatGoCannotRead(t *testing.T) {
	var bad *v1alpha1.IAMBinding
	w := newEnvironment(t, func(w *environment) {
		bad = &v1alpha1.IAMBinding{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "bad"},
			Spec: v1alpha1.IAMBindingSpec{AWS: v1alpha1.AWSRole{RoleARN: w.role("bad")},
				ServiceAccountRef: v1alpha1.ServiceAccountReference{Name: "bad"}}}
		w.Must(w.Create(t.Context(), bad))
		patch :=
			`{"status": {"conditions": [{"type": "A", "status": "True", "reason": "A", "message": "", "lastTransitionTime": "2026-01-01t00:00:00z"}]}}`
		w.Must(w.Status().Patch(t.Context(), bad, client.RawPatch(types.MergePatchType, []byte(patch))))
	})
	if err := w.server.Ready(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz",
		http.NoBody)); err != nil {
		t.Error(err)
	}
	w.bind("app", w.role("app"))
	for _, account := range []string{"app", "bad"} {
		token := w.workerToken(account)
		w.Eventually("pods of "+account+" have credentials", func() bool { return w.ask(token).status == http.StatusOK })
	}
	w.awaitCondition(bad, v1alpha1.ConditionAccepted, metav1.ConditionTrue, podidentity.ReasonAccepted)
}
