package token

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

const (
	// defaultExpirationSeconds is one year.
	defaultExpirationSeconds = 31_536_000
	// minExpirationSeconds is the API server's limit.
	minExpirationSeconds = 600
	// minProductionSeconds is the shortest lifetime without a warning.
	minProductionSeconds = 3600
	// patience is the time for which the hub may take to keep a declaration and
	// to act on it. Then the condition states the possible mistakes.
	patience = time.Minute
	// The bounds of the back-off for a request that fails.
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
)

// Reasons of the condition of an add-on's token. The reason of a refused
// request is "TokenRequest" with the API server's own reason, such as
// TokenRequestForbidden, or else ReasonRequestFailed.
const (
	reasonRefreshed              = "AddonTokenRefreshed"
	reasonNotDeclared            = "TokenDriverNotDeclared"
	reasonInfrastructureNotReady = "TokenInfrastructureNotReady"
	reasonRequestFailed          = "TokenRequestFailed"
	reasonUnusable               = "TokenUnusable"

	// agentReasons is the prefix of all reasons with the status False.
	agentReasons = "Token"
)

// Options configures a Driver.
type Options struct {
	// ExpirationSeconds is the requested lifetime, at least 600. The hub may
	// grant less, and refuses more than its cap. Use less than 3600 only in
	// tests; the condition warns about it. 0 means one year.
	ExpirationSeconds int64
	// Registerer takes the metrics. Nil drops them.
	Registerer prometheus.Registerer
}

// Driver is the agent's half. It is safe for concurrent use.
type Driver struct {
	seconds int64
	metrics *metrics
}

var _ registration.Driver = (*Driver)(nil)

// New returns the agent's half of the driver.
func New(options Options) (*Driver, error) {
	d := &Driver{seconds: options.ExpirationSeconds}
	if d.seconds == 0 {
		d.seconds = defaultExpirationSeconds
	}
	if d.seconds < minExpirationSeconds {
		return nil, fmt.Errorf("token: ExpirationSeconds is %d: use at least %d, or 0 for one year", d.seconds,
			minExpirationSeconds)
	}
	var err error
	d.metrics, err = newMetrics(options.Registerer)
	return d, err
}

// Name returns "token".
func (d *Driver) Name() string { return registration.AuthTypeToken }

// Next implements [registration.Driver]. It needs the verb create on
// serviceaccounts/token of the add-on's ServiceAccount, which the hub's half
// grants.
func (d *Driver) Next(ctx context.Context, in registration.Input) (registration.Step, error) {
	if in.Addon == "" || in.Item.Type != ocm.KubeClient {
		return registration.Step{},
			fmt.Errorf("the driver %q registers kubeClient items of add-ons only, not the item %.100q of add-on %.100q: use csr",
				d.Name(), in.Item.Type, in.Addon)
	}
	p := &call{Driver: d, in: in, progress: progressOf(in.State), account: accountOf(in)}
	// A token that was edited, or that belongs to another ServiceAccount,
	// counts as absent.
	if have, err := parseToken(string(in.Stored[tokenFile]), p.account); err == nil {
		p.have, p.step.Credential = have, have.credential()
		d.metrics.expiry(in.Addon, have)
	}
	p.declare()
	uid, problem := p.infrastructure()
	switch {
	case p.have != nil && p.isGood(uid, problem) && in.Now.Before(p.have.renewAt(p.progress.Received, in.Now)):
		p.keep()
	case problem != nil:
		p.fail(problem)
	default:
		if err := p.request(ctx, uid); err != nil {
			return registration.Step{}, err
		}
	}
	p.step.State = p.progress.state()
	return p.step, nil
}

// accountOf returns the ServiceAccount that the hub states in its condition,
// else the declared one, else the specification's. A hub of Open Cluster
// Management states another name than ours. Any other name belongs to another
// ServiceAccount.
func accountOf(in registration.Input) client.ObjectKey {
	names := registration.AddOnServiceAccounts(in.Cluster, in.Addon)
	key := func(name string) client.ObjectKey { return client.ObjectKey{Namespace: in.Cluster, Name: name} }
	if ready := meta.FindStatusCondition(in.Conditions, addon.ConditionTokenInfrastructureReady); ready != nil &&
		ready.Status == metav1.ConditionTrue {
		for _, name := range names {
			if _, ok := parseReady(ready.Message, key(name)); ok {
				return key(name)
			}
		}
	}
	for _, name := range names {
		if in.Item.Subject.User == userOf(key(name)) {
			return key(name)
		}
	}
	return key(names[0])
}

// Forget drops the metrics of a deleted add-on.
func (d *Driver) Forget(addOn string) { d.metrics.forget(addOn) }

// call is one call of Next.
type call struct {
	*Driver
	in       registration.Input
	account  client.ObjectKey
	have     *token // the stored one, or nil if it is unusable
	progress progress
	step     registration.Step
}

// problem becomes a condition.
type problem struct {
	reason, message string
	refused         bool // the hub may have revoked the token
}

// isGood reports whether the ServiceAccount of the stored token exists. It is
// true if the hub states nothing about the ServiceAccount.
func (p *call) isGood(uid types.UID, problem *problem) bool {
	return problem != nil && !problem.refused || uid == p.have.uid
}

// declare declares driver and subject to the hub, at most once a minute. A hub
// that does not know the driver drops the value.
func (p *call) declare() {
	if p.declared() {
		return
	}
	if since := p.in.Now.Sub(p.progress.Declared); since < 0 || since >= patience {
		p.progress.Declared = p.in.Now
		p.step.Declare = &ocm.Registration{Type: ocm.KubeClient, Driver: registration.AuthTypeToken,
			Subject: ocm.Subject{User: userOf(p.account)}}
	}
	p.lookAt(p.progress.Declared.Add(patience))
}

func (p *call) declared() bool {
	s := p.in.Item.Subject
	return p.in.Item.Driver == registration.AuthTypeToken && s.User == userOf(p.account) && len(s.Groups)+
		len(s.OrganizationUnits) == 0
}

// lookAt moves the next call of Next to an earlier time.
func (p *call) lookAt(at time.Time) {
	if p.step.At.IsZero() || at.Before(p.step.At) {
		p.step.At = at
	}
}

// infrastructure returns the UID of the ServiceAccount that the hub has
// created, or the reason why none exists.
func (p *call) infrastructure() (types.UID, *problem) {
	ready := meta.FindStatusCondition(p.in.Conditions, addon.ConditionTokenInfrastructureReady)
	if ready != nil && ready.Status == metav1.ConditionTrue {
		uid, ok := parseReady(ready.Message, p.account)
		if !ok {
			return "", &problem{reason: reasonInfrastructureNotReady, message: fmt.Sprintf(
				"The hub's condition %s says %.300q, which is not about ServiceAccount %s.", ready.Type, ready.Message, p.account)}
		}
		return uid, nil
	}
	if p.step.Declare == nil && !p.declared() {
		return "", &problem{reason: reasonNotDeclared, message: fmt.Sprintf(
			"The hub has not kept the declaration of driver %q and subject %q: the item has driver %.50q and subject %.300q. "+
				"If this lasts, the hub's CustomResourceDefinition does not know the driver, or another program resets the item: update the hub, or use csr.",
			registration.AuthTypeToken, userOf(p.account), p.in.Item.Driver, p.in.Item.Subject.User)}
	}
	if ready != nil {
		return "", &problem{reason: reasonInfrastructureNotReady, refused: true, message: fmt.Sprintf(
			"The hub does not provide ServiceAccount %s: %.100s: %.1000s", p.account, ready.Reason, ready.Message)}
	}
	return "", p.waiting()
}

func (p *call) waiting() *problem {
	message := fmt.Sprintf("Waiting for the hub to provide ServiceAccount %s and the condition %s.", p.account,
		addon.ConditionTokenInfrastructureReady)
	if p.progress.Declared.IsZero() || p.progress.Declared.After(p.in.Now) {
		p.progress.Declared = p.in.Now
	}
	if late := p.progress.Declared.Add(patience); p.in.Now.Before(late) {
		p.lookAt(late)
	} else {
		message += " It takes unusually long: check that a controller for add-on tokens runs on the hub and knows the driver token, or use csr."
	}
	return &problem{reason: reasonInfrastructureNotReady, message: message}
}

// keep leaves the token unchanged.
func (p *call) keep() {
	p.lookAt(p.have.renewAt(p.progress.Received, p.in.Now))
	p.step.Condition = p.condition(metav1.ConditionTrue, reasonRefreshed, p.have.describe(p.account)+p.warning())
}

// fail leaves the token unchanged too, because it may still be valid.
func (p *call) fail(why *problem) {
	message := why.message
	if p.have != nil {
		message += fmt.Sprintf(" The stored token expires at %s.", p.have.expiry.UTC().Format(time.RFC3339))
	}
	p.step.Condition = p.condition(metav1.ConditionFalse, why.reason, message)
}

func (p *call) condition(status metav1.ConditionStatus, reason, message string) *metav1.Condition {
	return &metav1.Condition{Type: p.conditionType(), Status: status, Reason: reason, Message: message}
}

// conditionType returns the name that the hub reads. A hub of Open Cluster
// Management knows only its own.
func (p *call) conditionType() string {
	if p.account.Name == registration.AddOnServiceAccounts(p.in.Cluster, p.in.Addon)[0] {
		return ocm.ConditionAddOnTokenRefreshed
	}
	return ocm.ConditionTokenRefreshed
}

func (p *call) warning() string {
	if p.seconds >= minProductionSeconds {
		return ""
	}
	return fmt.Sprintf(" Warning: tokens of %d s are meant for tests, use at least %d s.", p.seconds, minProductionSeconds)
}

// request gets a token, unless the same request has just failed.
func (p *call) request(ctx context.Context, uid types.UID) error {
	goal := fmt.Sprintf("%s/%d", uid, p.seconds)
	last := p.progress.Failure
	if last.Goal != goal {
		last = failure{Goal: goal}
	}
	if left := last.Retry.Sub(p.in.Now); left > 0 && left <= last.wait() {
		p.lookAt(last.Retry)
		p.fail(&problem{reason: last.Reason, message: last.Message})
		return nil
	}
	got, why, err := p.exchange(ctx, uid)
	p.metrics.requested(p.in.Addon, p.have, got)
	if err != nil {
		return err
	}
	if why != nil {
		p.progress.Failure = last.again(p.in.Now, why)
		p.lookAt(p.progress.Failure.Retry)
		p.fail(why)
		return nil
	}
	p.have, p.step.Credential = got, got.credential()
	p.progress.Received, p.progress.Failure = p.in.Now, failure{}
	p.keep()
	return nil
}

// exchange calls the TokenRequest API. It returns a problem if the hub answers,
// and an error if it does not.
func (p *call) exchange(ctx context.Context, uid types.UID) (*token, *problem, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: p.account.Namespace, Name: p.account.Name}}
	// The UID is a precondition. Kubernetes before 1.34 ignores it, so the
	// token's own UID counts.
	request := &authenticationv1.TokenRequest{ObjectMeta: metav1.ObjectMeta{UID: uid},
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &p.seconds}}
	if err := p.in.Hub.SubResource("token").Create(ctx, account, request); err != nil {
		var status apierrors.APIStatus
		if !errors.As(err, &status) || apierrors.IsUnauthorized(err) {
			return nil, nil, fmt.Errorf("request a token of ServiceAccount %q: %w", p.account, err)
		}
		return nil, &problem{reason: reasonOf(err), message: fmt.Sprintf(
				"The hub refuses a token of %d s for ServiceAccount %s: %.500s", p.seconds, p.account, redact.Text(err.Error()))},
			nil
	}
	got, err := parseToken(request.Status.Token, p.account)
	if err == nil && got.uid != uid {
		err = fmt.Errorf("its UID is %q instead of %q", got.uid, uid)
	}
	if err != nil {
		return nil, &problem{reason: reasonUnusable,
			message: fmt.Sprintf("The hub issued an unusable token for ServiceAccount %s: %v.", p.account, err)}, nil
	}
	return got, nil, nil
}

// reasonOf returns the reason of a condition for an answer of the API server.
func reasonOf(err error) string {
	switch reason := apierrors.ReasonForError(err); reason {
	case metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonNotFound,
		metav1.StatusReasonConflict:
		return "TokenRequest" + string(reason)
	default:
		return reasonRequestFailed
	}
}
