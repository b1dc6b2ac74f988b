package csr

import (
	"context"
	"crypto/ecdsa"
	"fmt"
	"maps"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
)

const (
	minPoll = time.Second
	maxPoll = 30 * time.Second
	// maxFirstPoll is maxPoll for a cluster without access, because a person
	// may have just accepted it and waits.
	maxFirstPoll = 5 * time.Second
	// refusedPoll is the interval at which a refused request is read again. A
	// person may delete it, and the driver then asks again with the same key.
	refusedPoll = 10 * time.Minute
	// slowApproval is the wait after which a pending renewal gets a condition.
	// An approver takes seconds.
	slowApproval = 5 * time.Minute
)

// Options configures a Driver.
type Options struct {
	// Lifetime is the requested lifetime. The signer may choose a shorter one.
	// With zero, the signer chooses. The API server refuses less than 10
	// minutes.
	Lifetime time.Duration
}

// Driver is the agent's half, for clusters and for kubeClient and customSigner
// items of add-ons. It is immutable, and safe for concurrent use.
type Driver struct{ options Options }

var _ registration.Driver = (*Driver)(nil)

// New returns the agent's half of the driver.
func New(options Options) *Driver { return &Driver{options} }

// Name returns "csr".
func (d *Driver) Name() string { return registration.AuthTypeCSR }

// Next implements [registration.Driver]. It needs the verbs get and create on
// CertificateSigningRequests. The key is stored before its request exists, and
// the request's name derives from the key. A restart therefore never creates a
// second request.
func (d *Driver) Next(ctx context.Context, in registration.Input) (registration.Step, error) {
	target, err := targetOf(in)
	if err != nil {
		return registration.Step{}, err
	}
	step := registration.Step{State: map[string][]byte{}, Declare: target.declare}
	maps.Copy(step.State, in.State)
	// A certificate that was edited, or that belongs to another agent, counts
	// as absent.
	stored, unusable := parseCertificate(in.Stored[certFile], in.Stored[keyFile], target.subject)
	if unusable == nil {
		step.Credential = stored.credential()
	}
	if unusable == nil {
		if at := stored.renewAt(receiptOf(in.State), in.Now); in.Now.Before(at) {
			// A pending key remains from a time when the hub refused the
			// certificate. A person may have to decide about its request.
			delete(step.State, keyState)
			step.At, step.Condition = at, stored.condition()
			return step, nil
		}
	}
	if key := parseKey(in.State[keyState]); key != nil {
		return d.pursue(ctx, in, target, key, step)
	}
	if step.State[keyState], err = newKey(); err != nil {
		return registration.Step{}, fmt.Errorf("draw a key: %w", err)
	}
	step.At = in.Now
	return step, nil
}

// pursue follows the request for a key until it is issued or refused. The step
// holds the stored credential, if it is usable.
func (d *Driver) pursue(ctx context.Context, in registration.Input, target target, key *ecdsa.PrivateKey,
	step registration.Step) (registration.Step, error) {
	csr, err := d.ensure(ctx, in.Hub, target, key)
	if err != nil {
		return registration.Step{}, err
	}
	if len(csr.Status.Certificate) > 0 {
		got, err := parseCertificate(csr.Status.Certificate, in.State[keyState], target.subject)
		if err != nil {
			return refused(step, in.Now, "ClientCertificateUnusable", fmt.Sprintf(
				"The certificate in CertificateSigningRequest %q is not the one that was asked for: %v. Check the hub's signer, then delete the request.", csr.Name, err)), nil
		}
		return accept(step, in.Now, csr, got), nil
	}
	if no := decision(csr, certificatesv1.CertificateDenied, certificatesv1.CertificateFailed); no != nil {
		return refused(step, in.Now, "ClientCertificate"+string(no.Type), fmt.Sprintf(
			"CertificateSigningRequest %q is %s, reason %.100q: %.300q. Delete it on the hub to ask again.", csr.Name, no.Type,
			no.Reason, no.Message)), nil
	}
	age := in.Now.Sub(csr.CreationTimestamp.Time)
	longest := maxPoll
	if step.Credential == nil {
		longest = maxFirstPoll
	}
	step.At = in.Now.Add(min(max(age.Abs()/4, minPoll), longest)) // negative if the agent's clock is behind
	if step.Credential == nil || age > slowApproval {
		step.Condition = pending(csr, target)
	}
	return step, nil
}

// ensure returns the request, and creates a missing one.
func (d *Driver) ensure(ctx context.Context, hub client.Client, target target,
	key *ecdsa.PrivateKey) (*certificatesv1.CertificateSigningRequest, error) {
	name, err := target.name(key.Public())
	if err != nil {
		return nil, fmt.Errorf("name the CertificateSigningRequest: %w", err)
	}
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := hub.Get(ctx, client.ObjectKey{Name: name}, csr); err == nil {
		return csr, nil
	} else if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("get CertificateSigningRequest %q: %w", name, err)
	}
	if csr, err = target.request(name, key); err != nil {
		return nil, fmt.Errorf("make CertificateSigningRequest %q: %w", name, err)
	}
	if d.options.Lifetime > 0 {
		seconds := int32(min(d.options.Lifetime/time.Second, 1<<31-1)) //nolint:gosec // fits
		csr.Spec.ExpirationSeconds = &seconds
	}
	err = hub.Create(ctx, csr)
	if apierrors.IsAlreadyExists(err) {
		err = hub.Get(ctx, client.ObjectKey{Name: name}, csr)
	}
	if err != nil {
		return nil, fmt.Errorf("create CertificateSigningRequest %q: %w", name, err)
	}
	return csr, nil
}

// accept replaces the credential and drops the key of the request.
func accept(step registration.Step, now time.Time, csr *certificatesv1.CertificateSigningRequest,
	got *certificate) registration.Step {
	r := receipt{agent: now.Truncate(time.Second)}
	if yes := decision(csr, certificatesv1.CertificateApproved); yes != nil {
		r.hub = yes.LastUpdateTime.Time
	}
	step.Credential, step.State, step.Condition = got.credential(), r.state(), got.condition()
	step.At = got.renewAt(r, now)
	return step
}

// refused keeps key and credential. A new key would cause a request each time.
func refused(step registration.Step, now time.Time, reason, message string) registration.Step {
	step.At, step.Condition = now.Add(refusedPoll), notRotated(reason, message)
	return step
}

func pending(csr *certificatesv1.CertificateSigningRequest, target target) *metav1.Condition {
	if decision(csr, certificatesv1.CertificateApproved) != nil {
		return notRotated("ClientCertificateNotSigned", fmt.Sprintf(
			"CertificateSigningRequest %q is approved but not signed yet. Check that the hub runs the signer %q.", csr.Name,
			target.signer))
	}
	return notRotated("ClientCertificateNotApproved", fmt.Sprintf(
		"CertificateSigningRequest %q waits for approval. %s", csr.Name, target.approval))
}

func notRotated(reason, message string) *metav1.Condition {
	return &metav1.Condition{Type: ocm.ConditionCertificateRotated, Status: metav1.ConditionFalse, Reason: reason,
		Message: message}
}
