package token_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/internal/testing/regtest"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
	"github.com/workloadid/workloadid/registration/token"
)

// jwt returns a token as the API server issues it, without a signature that
// anything here would verify.
func jwt(sub, uid string, issued, expires time.Time) string {
	payload := fmt.Sprintf(`{"sub":%q,"iat":%d,"exp":%d,"kubernetes.io":{"serviceaccount":{"uid":%q}}}`, sub,
		issued.Unix(), expires.Unix(), uid)
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".c2ln"
}

func ready(account client.ObjectKey, uid string) metav1.Condition {
	return metav1.Condition{Type: addon.ConditionTokenInfrastructureReady, Status: metav1.ConditionTrue,
		Reason:  "TokenInfrastructureReady",
		Message: fmt.Sprintf("ServiceAccount %s/%s (UID: %s) is ready", account.Namespace, account.Name, uid)}
}

// environment is an agent and a hub in memory.
type environment struct {
	t          *testing.T
	driver     *token.Driver
	now        time.Time     // true time, and the hub's
	ahead      time.Duration // of the agent's clock
	item       ocm.Registration
	stored     map[string][]byte
	state      map[string][]byte
	conditions []metav1.Condition

	forgets  bool                            // the hub drops declarations
	uid      string                          // of the ServiceAccount
	longest  time.Duration                   // that the hub grants
	answer   func() error                    // of the hub, before it issues
	issue    func(seconds int64) string      // nil: a proper token
	requests []authenticationv1.TokenRequest // as they came in
	declared int
	last     registration.Step
}

func newEnvironment(t *testing.T, options token.Options) *environment {
	t.Helper()
	driver, err := token.New(options)
	regtest.Must(t, err)
	return &environment{t: t, driver: driver, now: begin, item: ocm.Registration{Type: ocm.KubeClient}, uid: "uid-1",
		longest: 100 * 365 * 24 * time.Hour}
}

// provided is an environment whose hub has provided the ServiceAccount.
func provided(t *testing.T, options token.Options) *environment {
	w := newEnvironment(t, options)
	w.item = ocm.Registration{Type: ocm.KubeClient, Driver: registration.AuthTypeToken, Subject: ocm.Subject{User: user}}
	w.set(ready(account, w.uid))
	return w
}

func (w *environment) set(c metav1.Condition) { meta.SetStatusCondition(&w.conditions, c) }

func (w *environment) hub() client.Client {
	return interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		SubResourceCreate: func(_ context.Context, _ client.Client, sub string, o, body client.Object,
			_ ...client.SubResourceCreateOption) error {
			request, ok := body.(*authenticationv1.TokenRequest)
			if !ok || sub != "token" {
				w.t.Errorf("request %s %T", sub, body)
				return nil
			}
			w.requests = append(w.requests, *request.DeepCopy())
			if w.answer != nil {
				if err := w.answer(); err != nil {
					return err
				}
			}
			seconds := min(*request.Spec.ExpirationSeconds, int64(w.longest/time.Second))
			if w.issue != nil {
				request.Status.Token = w.issue(seconds)
				return nil
			}
			request.Status.Token = jwt("system:serviceaccount:"+o.GetNamespace()+":"+o.GetName(), w.uid, w.now,
				w.now.Add(time.Duration(seconds)*time.Second))
			return nil
		}})
}

func (w *environment) input() registration.Input {
	return registration.Input{Now: w.now.Add(w.ahead), Cluster: "cluster1", Agent: "agent1", Addon: "addon1", Item: w.item,
		Stored: w.stored, State: w.state, Hub: w.hub(), Conditions: w.conditions}
}

// reconcile does what the reconciler does.
func (w *environment) reconcile() registration.Step {
	w.t.Helper()
	step, err := w.driver.Next(w.t.Context(), w.input())
	regtest.Must(w.t, err)
	w.state = step.State
	if step.Credential != nil {
		w.stored = maps.Clone(step.Credential.Files)
	}
	if step.Condition != nil {
		w.set(*step.Condition)
	}
	if step.Declare != nil {
		if w.declared++; !w.forgets {
			w.item = *step.Declare
		}
	}
	w.last = step
	return step
}

// run reconciles at the exact times for a while.
func (w *environment) run(duration time.Duration, each func()) {
	w.t.Helper()
	for end := w.now.Add(duration); ; {
		at := w.reconcile().At
		if each != nil {
			each()
		}
		if at.IsZero() || at.Add(-w.ahead).After(end) {
			w.now = end
			return
		}
		if w.now = at.Add(-w.ahead); len(w.requests) > 1000 {
			w.t.Fatal("it asks in a loop")
		}
	}
}

func (w *environment) condition(name string) metav1.Condition {
	if c := meta.FindStatusCondition(w.conditions, name); c != nil {
		return *c
	}
	return metav1.Condition{}
}

func (w *environment) expect(status metav1.ConditionStatus, reason string, parts ...string) {
	w.t.Helper()
	c := w.condition("AddonTokenRefreshed")
	if c.Status != status || c.Reason != reason || slices.ContainsFunc(parts, func(p string) bool {
		return !strings.Contains(c.Message, p)
	}) {
		w.t.Errorf("condition %s/%s %q, want %s/%s with %q", c.Status, c.Reason, c.Message, status, reason, parts)
	}
}
