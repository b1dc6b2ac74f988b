package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/internal/refusal"
	"github.com/workloadid/workloadid/registration/kubeconfig"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// Reasons of ocm.ConditionRegistrationAccepted. An add-on without refusals does
// not have this condition. Its name differs from RegistrationApplied of Open
// Cluster Management.
const (
	reasonInvalidName          = "InvalidName"
	reasonUnknownDriver        = "UnknownDriver"
	reasonRegistrationAccepted = "RegistrationAccepted"
	reasonDuplicateItem        = "DuplicateItem"
	reasonUnknownType          = "UnknownType"
	reasonNoSigner             = "NoSigner"
	// reasonNamespaceRefused refuses a namespace in which no add-on may keep
	// its Secrets.
	reasonNamespaceRefused = "NamespaceRefused"
	// reasonNamespaceUnusable reports a namespace that does not exist on the
	// managed cluster, or in which the agent has no rights.
	reasonNamespaceUnusable = "NamespaceUnusable"
	reasonSecretTaken       = "SecretTaken"
	reasonTooManyItems      = "TooManyItems"
)

// maxItems bounds the items of one add-on that the agent registers. Each item
// costs a worker several requests, and all other add-ons wait for the worker.
const maxItems = 32

// hostingClusterAnnotation names the cluster in which the agent of the add-on
// runs in hosted mode.
const hostingClusterAnnotation = "addon.open-cluster-management.io/hosting-cluster-name"

// addOnReconcile is one reconciliation of one add-on.
type addOnReconcile struct {
	*AddOns
	hub    *addOnHub
	addOn  client.Object
	status addon.Status

	secrets    map[string]*addOnSecret // by name, also of refused items
	declared   []ocm.Registration
	conditions []metav1.Condition
	refusals   []*refusal.Error
	tokenKept  bool // a token may be in use
}

// addOnSecret is the Secret of an item, which may not exist yet.
type addOnSecret struct {
	namespace string
	usable    bool // holds a credential
}

// run registers each item. A failing item does not delay the others.
func (p *addOnReconcile) run(ctx context.Context) (due time.Time, err error) {
	items := p.status.Items
	if len(items) > maxItems {
		p.refusals = append(p.refusals,
			refusal.New(reasonTooManyItems, "the add-on has %d items, and the agent registers the first %d: remove the others",
				len(items), maxItems))
		items = items[:maxItems]
	}
	for _, item := range items {
		at, itemErr := p.register(ctx, item)
		var refused *refusal.Error
		if errors.As(itemErr, &refused) {
			p.refusals = append(p.refusals, refused)
			itemErr = nil
		}
		err = errors.Join(err, itemErr)
		due = earliest(due, at)
	}
	return due, errors.Join(err, p.checkHealth(ctx), p.report(ctx), p.removeUnused(ctx, p.addOn.GetName(), p.secrets))
}

// earliest returns the earlier time. The zero time means none.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// register calls the driver of an item until its Secret stops changing, or
// until the driver declares something new. In the second case, the watch calls
// the driver again once the hub has the declaration. The agent does not repeat
// a declaration at once if the hub drops it. Only the last Step's declaration
// and condition count.
func (p *addOnReconcile) register(ctx context.Context, item ocm.Registration) (time.Time, error) {
	secret, err := p.secretOf(item)
	if err != nil {
		return time.Time{}, err
	}
	if err := p.readSecret(ctx, secret); err != nil {
		return p.agent.opts.Now().Add(maxWait), err
	}
	for range maxSteps {
		changed, step, err := p.step(ctx, item, secret)
		if err != nil {
			return p.agent.opts.Now().Add(maxWait), err
		}
		if declared := declaredItem(item, step.Declare); !changed || !equality.Semantic.DeepEqual(declared, item) {
			p.note(declared, secret, step)
			return step.At, nil
		}
	}
	return time.Time{}, fmt.Errorf("driver %q stores something else at every call: the agent stopped after %d",
		secret.driver.Name(), maxSteps)
}

// declaredItem returns an item as the hub should show it.
func declaredItem(item ocm.Registration, d *ocm.Registration) ocm.Registration {
	if d != nil {
		item.Subject = d.Subject
		if item.Type == ocm.KubeClient {
			item.Driver = d.Driver
		}
	}
	return item
}

// note keeps the result of a settled step.
func (p *addOnReconcile) note(item ocm.Registration, secret *credentialSecret, step registration.Step) {
	_, usable := secret.Data[ocm.SecretKeyAuthType]
	p.secrets[secret.Name].usable = usable
	if item.Type == ocm.KubeClient {
		p.tokenKept = registration.AuthTypeToken == secret.driver.Name() ||
			registration.AuthTypeToken == string(secret.Data[ocm.SecretKeyAuthType])
	}
	if step.Declare != nil {
		p.declared = append(p.declared, item)
	}
	if step.Condition != nil {
		p.conditions = append(p.conditions, *step.Condition)
	}
}

// secretOf returns the Secret of an item without reading it, or a refusal.
func (p *addOnReconcile) secretOf(item ocm.Registration) (*credentialSecret, error) {
	name, driver := p.addOn.GetName()+"-hub-kubeconfig", p.opts.KubeClient
	switch item.Type {
	case ocm.KubeClient:
	case ocm.CustomSigner:
		name, driver = p.addOn.GetName()+"-"+strings.ReplaceAll(item.SignerName, "/", "-")+"-client-cert", p.opts.CustomSigner
		if item.SignerName == "" {
			return nil, refusal.New(reasonNoSigner,
				"a customSigner item names no signer: set customSigner.signerName in its registration")
		}
	default:
		return nil, refusal.New(reasonUnknownType,
			"the agent knows no registration of type %.100q: use %q or %q, or a newer agent", item.Type, ocm.KubeClient,
			ocm.CustomSigner)
	}
	if p.secrets[name] != nil {
		return nil, refusal.New(reasonDuplicateItem,
			"two items have the Secret %.300q: leave one kubeClient item, and one item for each signer", name)
	}
	namespace := cmp.Or(p.status.Namespace, p.opts.Namespace)
	p.secrets[name] = &addOnSecret{namespace: namespace}
	p.tokenKept = p.tokenKept || item.Type == ocm.KubeClient // until the item's driver has settled
	if driver == nil {
		return nil, refusal.New(reasonUnknownDriver,
			"the agent does not register customSigner items, such as that of signer %.100q: run it with a driver for them",
			item.SignerName)
	}
	if err := p.agent.checkAddOnNamespace(namespace); err != nil {
		return nil, refusal.New(reasonNamespaceRefused, "%s", err.Error())
	}
	if registration.CheckAddOnName(p.addOn.GetName()) != nil || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return nil, refusal.New(reasonInvalidName,
			"the add-on %.100q cannot have a Secret %.300q: use a DNS label for the add-on, "+
				"a signer in lower case, and no more than 253 characters for the Secret", p.addOn.GetName(), name)
	}
	return &credentialSecret{Secret: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}},
		local:  p.agent.opts.Local,
		driver: driver, cluster: p.agent.opts.Cluster, agent: p.hub.session.agent, bare: item.Type == ocm.CustomSigner}, nil
}

// checkAddOnNamespace refuses namespaces that hold other credentials. RBAC
// decides about all others.
func (a *Agent) checkAddOnNamespace(namespace string) error {
	switch {
	case len(validation.IsDNS1123Label(namespace)) > 0:
		return fmt.Errorf(
			"the namespace %.100q for Secrets of add-ons is not a DNS label: use at most 63 lower-case letters, digits and hyphens", namespace)
	case namespace == a.opts.Namespace, strings.HasPrefix(namespace, "kube-"):
		return fmt.Errorf("the namespace %q holds no Secrets of add-ons: use another one, such as %q", namespace,
			DefaultAddOnNamespace)
	}
	return nil
}

// labels returns the labels of an add-on's Secrets. The agent changes and
// deletes no others.
func (a *AddOns) labels(addOn string) map[string]string {
	return map[string]string{addon.NameLabel: addOn, ocm.AddOnClusterLabel: a.agent.opts.Cluster}
}

func (p *addOnReconcile) readSecret(ctx context.Context, secret *credentialSecret) error {
	if err := secret.read(ctx); err != nil {
		return asUnusable(secret.Namespace, err)
	}
	labels := p.labels(p.addOn.GetName())
	switch {
	case secret.ResourceVersion == "":
		secret.Labels = labels
	case p.isOCMs(secret):
		secret.Labels = labels
		if err := secret.write(ctx); err != nil {
			return err
		}
	default:
		p.remember(p.addOn.GetName(), secret.Namespace)
	}
	for key, value := range labels {
		if secret.Labels[key] != value {
			return refusal.New(reasonSecretTaken,
				"the Secret %q on the managed cluster is not one of this add-on and this agent: delete it, or rename the add-on",
				client.ObjectKeyFromObject(secret.Secret))
		}
	}
	return nil
}

// isOCMs reports whether Open Cluster Management's agent, which sets no labels,
// wrote a Secret for this cluster and this hub.
func (p *addOnReconcile) isOCMs(secret *credentialSecret) bool {
	k, err := kubeconfig.Parse(secret.Data[registration.SecretKeyKubeconfig])
	if err != nil || len(secret.Labels) > 0 || string(secret.Data[ocm.SecretKeyClusterName]) != p.agent.opts.Cluster {
		return false
	}
	said, hub := k.Clusters[0].Cluster, p.hub.session.hub.Cluster
	return said.Server == hub.Server ||
		len(hub.CertificateAuthorityData) > 0 && bytes.Equal(said.CertificateAuthorityData, hub.CertificateAuthorityData)
}

// asUnusable refuses a namespace that does not exist, or in which the agent has
// no rights.
func asUnusable(namespace string, err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return refusal.New(reasonNamespaceUnusable,
			"the agent cannot keep Secrets in the namespace %q of the managed cluster: "+
				"create the namespace, and in it the Role and the RoleBinding of the agent", namespace)
	}
	return err
}

// step calls the driver and stores its Step. It creates the Secret once the
// Secret has content.
func (p *addOnReconcile) step(ctx context.Context, item ocm.Registration,
	secret *credentialSecret) (changed bool, step registration.Step, err error) {
	next, cancel := context.WithTimeout(ctx, hubTimeout)
	defer cancel()
	_, stored, _ := secret.open(next, p.hub.session.hub) //nolint:errcheck // the stored data tells the driver
	step, err = p.agent.next(next, secret.driver,
		registration.Input{Now: p.agent.opts.Now(), Cluster: p.agent.opts.Cluster, Agent: p.hub.session.agent,
			Addon: p.addOn.GetName(),
			Item:  item, Stored: stored, State: secret.state(), Hub: p.hub, Conditions: p.status.Conditions,
			Annotations: maps.Clone(p.addOn.GetAnnotations())})
	if err != nil {
		p.credentials.WithLabelValues(secret.driver.Name(), "failed").Inc()
		return false, step, fmt.Errorf("driver %q: %w", secret.driver.Name(), err)
	}
	changed, err = secret.store(p.hub.session.hub, step)
	if err != nil || !changed {
		return false, step, err
	}
	if err = secret.write(ctx); err != nil {
		return false, step, asUnusable(secret.Namespace, err)
	}
	p.remember(p.addOn.GetName(), secret.Namespace)
	p.count(secret.driver, stored, step.Credential)
	return true, step, nil
}

// count counts a credential that replaces another one, or is the first.
func (a *AddOns) count(driver registration.Driver, stored map[string][]byte, c *registration.Credential) {
	if c == nil {
		return
	}
	result := ""
	for file, content := range c.Files {
		if old, ok := stored[file]; !ok {
			result = "issued"
		} else if result == "" && !bytes.Equal(old, content) {
			result = "refreshed"
		}
	}
	if result != "" {
		a.credentials.WithLabelValues(driver.Name(), result).Inc()
	}
}

// report writes declarations and conditions in one patch, if they differ.
func (p *addOnReconcile) report(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, hubTimeout)
	defer cancel()
	err := addon.PatchStatus(ctx, p.hub, p.addOn, func(s *addon.Status) bool {
		declared := p.declare(s)
		return p.setConditions(s) || declared
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("report on the hub: %w", err)
	}
	return nil
}

// declare sets driver and subject of items. All kubeClient items get the same
// driver, because v1alpha1 has only one field for it.
func (p *addOnReconcile) declare(s *addon.Status) (changed bool) {
	for _, d := range p.declared {
		first := slices.IndexFunc(s.Items, func(item ocm.Registration) bool {
			return item.Type == d.Type && item.SignerName == d.SignerName
		})
		for i := range s.Items {
			item := s.Items[i]
			if d.Type == ocm.KubeClient && item.Type == d.Type {
				item.Driver = d.Driver
			}
			if i == first {
				item.Subject = d.Subject
			}
			if !equality.Semantic.DeepEqual(item, s.Items[i]) {
				s.Items[i], changed = item, true
			}
		}
	}
	return changed
}

// setConditions sets the conditions. Items share one condition type: the first
// condition that is False counts, else the first one.
func (p *addOnReconcile) setConditions(s *addon.Status) (changed bool) {
	var said []metav1.Condition
	for _, c := range append(p.conditions, p.accepted(s)...) {
		i := slices.IndexFunc(said, func(other metav1.Condition) bool { return other.Type == c.Type })
		switch {
		case i < 0:
			said = append(said, c)
		case c.Status == metav1.ConditionFalse && said[i].Status != metav1.ConditionFalse:
			said[i] = c
		}
	}
	for _, c := range said {
		c.ObservedGeneration = p.addOn.GetGeneration()
		changed = ocm.SetCondition(&s.Conditions, c) || changed
	}
	if !p.tokenKept { // without the conditions, the hub removes the ServiceAccount
		for _, condition := range []string{ocm.ConditionAddOnTokenRefreshed, ocm.ConditionTokenRefreshed} {
			changed = meta.RemoveStatusCondition(&s.Conditions, condition) || changed
		}
	}
	return changed
}

// accepted returns the agent's own condition, or none.
func (p *addOnReconcile) accepted(s *addon.Status) []metav1.Condition {
	c := metav1.Condition{Type: ocm.ConditionRegistrationAccepted, Status: metav1.ConditionTrue,
		Reason: reasonRegistrationAccepted, Message: "the agent registers all items"}
	if len(p.refusals) == 0 {
		if meta.FindStatusCondition(s.Conditions, c.Type) == nil {
			return nil
		}
		return []metav1.Condition{c}
	}
	var messages []string
	for _, r := range p.refusals {
		if !slices.Contains(messages, r.Message) {
			messages = append(messages, r.Message)
		}
	}
	c.Status, c.Reason, c.Message = metav1.ConditionFalse, p.refusals[0].Reason, strings.Join(messages, "; ")
	return []metav1.Condition{c}
}
