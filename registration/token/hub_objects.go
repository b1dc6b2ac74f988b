package token

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/internal/refusal"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// roleName returns the name of the Role and the RoleBinding of an add-on.
func roleName(addOn string) string { return addOn + ocm.TokenRoleSuffix }

func checkNames(cluster, addOn string) error {
	return cmp.Or(registration.CheckClusterName(cluster), registration.CheckAddOnName(addOn))
}

// ocmAccount returns the name that a hub of Open Cluster Management gives the
// ServiceAccount of an add-on.
func ocmAccount(addOn string) string { return addOn + "-agent" }

// accountsOf returns the names of the ServiceAccounts that this hub, or one of
// Open Cluster Management, may have created for an add-on.
func accountsOf(addOn client.Object) []string {
	return []string{registration.AddOnServiceAccounts(addOn.GetNamespace(), addOn.GetName())[0],
		ocmAccount(addOn.GetName())}
}

const addOnKind = "ManagedClusterAddOn"

// addOnOf returns the add-on that an object belongs to. It compares labels,
// name and owners together, because anyone may set the labels. An add-on
// belongs to itself.
func addOnOf(o client.Object) (client.ObjectKey, bool) {
	key := client.ObjectKey{Namespace: o.GetNamespace(), Name: o.GetLabels()[addon.NameLabel]}
	var names []string
	switch o.(type) {
	case *corev1.ServiceAccount:
		names = registration.AddOnServiceAccounts(key.Namespace, key.Name)
	case *rbacv1.Role, *rbacv1.RoleBinding:
		names = []string{roleName(key.Name)}
	default:
		return client.ObjectKeyFromObject(o), true
	}
	hasOther := slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool {
		return r.Kind != addOnKind
	})
	return key, o.GetLabels()[ocm.ClusterNameLabel] == key.Namespace && slices.Contains(names, o.GetName()) && !hasOther &&
		checkNames(key.Namespace, key.Name) == nil
}

// belongs reports whether an object belongs to an add-on, or to a former add-on
// of the same name.
func belongs(o, addOn client.Object) bool {
	key, ok := addOnOf(o)
	return ok && key == client.ObjectKeyFromObject(addOn) || owns(addOn, o)
}

// leftOf returns the add-on of an object that a hub of Open Cluster Management
// left. Such an object has that hub's labels, its name, no owner, and no right
// except to the tokens of its ServiceAccount. The API server does not know the
// verb subscribe.
func leftOf(o client.Object) (client.ObjectKey, bool) {
	labels := o.GetLabels()
	addOn := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(),
		Name: labels[ocm.AddOnLabel]}}
	if role, ok := o.(*rbacv1.Role); ok {
		known := *role
		o, known.Rules = &known, slices.DeleteFunc(slices.Clone(role.Rules), func(r rbacv1.PolicyRule) bool {
			return slices.Equal(r.Verbs, []string{"subscribe"})
		})
	}
	isLike := func(want client.Object) bool {
		return kindOf(o) == kindOf(want) && o.GetName() == want.GetName() && same(o, want)
	}
	return client.ObjectKeyFromObject(addOn), labels[ocm.TokenLabel] == "true" && labels[addon.NameLabel] == "" &&
		len(o.GetOwnerReferences()) == 0 && checkNames(addOn.Namespace, addOn.Name) == nil &&
		slices.ContainsFunc(objects(addOn, ocmAccount(addOn.Name)), isLike)
}

// isOurs reports whether the hub may change or delete an object. The object has
// to belong to the add-on, or to be left by a hub of Open Cluster Management. A
// ServiceAccount with that hub's labels counts only if Role and binding give
// its tokens to the cluster. So these two stay unchanged until the
// ServiceAccount is adopted or deleted. The cluster gains no right. isOurs
// reads past the cache.
func (h *Hub) isOurs(ctx context.Context, addOn, o client.Object) (bool, error) {
	isLeft := func(o client.Object) bool {
		key, ok := leftOf(o)
		return ok && key == client.ObjectKeyFromObject(addOn)
	}
	if !isLeft(o) {
		return belongs(o, addOn), nil
	}
	left := map[string]bool{}
	for _, like := range objects(addOn, ocmAccount(addOn.GetName())) {
		have, err := read(ctx, h.options.Reader, like)
		if left[kindOf(like)] = have != nil && isLeft(have); err != nil || kindOf(like) == kindOf(o) && !left[kindOf(o)] {
			return false, wrap(cmp.Or(err, errStale), "read", like)
		}
	}
	if kindOf(o) == "ServiceAccount" {
		return left["Role"] && left["RoleBinding"], nil
	}
	return !left["ServiceAccount"], nil
}

// owns reports whether an object was created for this add-on, and not for a
// deleted one of the same name.
func owns(addOn, o client.Object) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool {
		return r.UID == addOn.GetUID()
	})
}

// label sets the labels by which the hub finds an object, and the add-on as its
// owner.
func (h *Hub) label(addOn, o client.Object) error {
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[addon.NameLabel], labels[ocm.ClusterNameLabel] = addOn.GetName(), addOn.GetNamespace()
	o.SetLabels(labels)
	return controllerutil.SetOwnerReference(addOn, o, h.options.Client.Scheme())
}

// objects returns the objects of an add-on. Its ServiceAccounts come first: no
// right to one is granted before its owner is known, and to delete it revokes
// its tokens.
func objects(addOn client.Object, accounts ...string) (all []client.Object) {
	named := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: addOn.GetNamespace(), Name: name}
	}
	for _, account := range accounts {
		all = append(all, &corev1.ServiceAccount{ObjectMeta: named(account)})
	}
	var groups []rbacv1.Subject
	for _, group := range registration.ClusterGroups(addOn.GetNamespace()) {
		groups = append(groups, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group})
	}
	role := roleName(addOn.GetName())
	return append(all,
		&rbacv1.Role{ObjectMeta: named(role), Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, ResourceNames: accounts,
			Verbs: []string{"create"}}}},
		&rbacv1.RoleBinding{ObjectMeta: named(role),
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role}, Subjects: groups})
}

// provide creates and repairs the objects of an add-on, and returns the
// condition with the UID of its ServiceAccount.
func (h *Hub) provide(ctx context.Context, addOn client.Object, account string) (*metav1.Condition, error) {
	wanted := objects(addOn, account)
	for _, want := range wanted {
		err := h.ensure(ctx, addOn, want)
		if no := (*refusal.Error)(nil); errors.As(err, &no) { // the cluster keeps no right to a foreign object
			err = cmp.Or(h.remove(ctx, addOn, accountsOf(addOn)...), err)
		}
		if err == nil && want == wanted[0] { // OCM's Role still names OCM's ServiceAccount
			err = h.remove(ctx, addOn, account, roleName(addOn.GetName()))
		}
		if err != nil {
			return nil, err
		}
	}
	return &metav1.Condition{Status: metav1.ConditionTrue, Reason: ocm.ReasonTokensReady,
		Message: readyMessage(client.ObjectKeyFromObject(wanted[0]), wanted[0].GetUID())}, nil
}

// ensure creates or repairs one object, and sets its UID in want. The cache
// holds a part of each object, and lags behind. It only proves that there is
// nothing to do.
func (h *Hub) ensure(ctx context.Context, addOn, want client.Object) error {
	if err := h.label(addOn, want); err != nil {
		return err
	}
	var have client.Object
	for _, from := range []client.Reader{h.options.Client, h.options.Reader} {
		var err error
		if have, err = read(ctx, from, want); err != nil {
			return wrap(err, "read", want)
		}
		if have != nil && h.isComplete(addOn, have, want) {
			want.SetUID(have.GetUID())
			return nil
		}
	}
	if have == nil {
		return wrap(h.options.Client.Create(ctx, want), "create", want)
	}
	ours, err := h.isOurs(ctx, addOn, have)
	if account, ok := have.(*corev1.ServiceAccount); ok && ours {
		ours, err = h.mayGrant(ctx, addOn, account)
	}
	if err != nil {
		return err
	}
	if !ours {
		return refusal.New(reasonTaken, "the %s %q exists and is not of this add-on: have the agent use another name, "+
			"or delete the object, which ends its owner's tokens", kindOf(have),
			client.ObjectKeyFromObject(have)).After(refusedRetry)
	}
	return h.repair(ctx, addOn, have, want)
}

// mayGrant reports whether the cluster may have the tokens of a ServiceAccount
// that the hub may delete. An add-on's controllers also create ServiceAccounts
// owned by the add-on, so an owner alone is not enough. mayGrant requires both
// labels and an owner, or a Role and a binding that already give the cluster
// these tokens, as isOurs does. The cluster then gains no right.
func (h *Hub) mayGrant(ctx context.Context, addOn client.Object, account *corev1.ServiceAccount) (bool, error) {
	_, left := leftOf(account)
	if left || account.Labels[addon.NameLabel] == addOn.GetName() &&
		account.Labels[ocm.ClusterNameLabel] == addOn.GetNamespace() && len(account.OwnerReferences) > 0 {
		return true, nil
	}
	for _, want := range objects(addOn, account.Name)[1:] {
		if have, err := read(ctx, h.options.Reader, want); err != nil || have == nil || !same(have, want) {
			return false, wrap(err, "read", want)
		}
	}
	return true, nil
}

// isComplete reports whether an object has the wanted labels, owner and rights.
func (h *Hub) isComplete(addOn, have, want client.Object) bool {
	labelled := have.DeepCopyObject().(client.Object) //nolint:errcheck,forcetypeassert // a copy
	return h.label(addOn, labelled) == nil && same(have, want) && equality.Semantic.DeepEqual(have, labelled)
}

// repair replaces an object that differs, because an update cannot change the
// role of a binding. It patches a ServiceAccount, because a new one would
// invalidate the tokens. It replaces the ServiceAccount of a deleted add-on of
// the same name, so that its tokens become invalid.
func (h *Hub) repair(ctx context.Context, addOn, have, want client.Object) error {
	_, isAccount := have.(*corev1.ServiceAccount)
	switch isFormer := len(have.GetOwnerReferences()) > 0 && !owns(addOn, have); {
	case isAccount && isFormer:
		if live, err := read(ctx, h.options.Reader, addOn); err != nil || live == nil || live.GetUID() != addOn.GetUID() {
			return wrap(cmp.Or(err, errStale), "read", addOn)
		}
	case isAccount:
		want.SetUID(have.GetUID())
		labelled := have.DeepCopyObject().(client.Object) //nolint:errcheck,forcetypeassert // a copy
		if err := h.label(addOn, labelled); err != nil {
			return err
		}
		return wrap(h.options.Client.Patch(ctx, labelled,
			client.MergeFromWithOptions(have, client.MergeFromWithOptimisticLock{})), "patch", want)
	}
	if err := h.delete(ctx, have); err != nil {
		return err
	}
	return wrap(h.options.Client.Create(ctx, want), "create", want)
}

var errStale = errors.New("the cache lags behind")

// remove deletes the objects of an add-on, except for the names to keep.
func (h *Hub) remove(ctx context.Context, addOn client.Object, keep ...string) (errs error) {
	for _, o := range objects(addOn, accountsOf(addOn)...) {
		if slices.Contains(keep, o.GetName()) {
			continue
		}
		have, err := read(ctx, h.options.Client, o)
		if err == nil && have != nil { // the cache holds only a part
			have, err = read(ctx, h.options.Reader, o)
		}
		ours := false
		if err == nil && have != nil {
			ours, err = h.isOurs(ctx, addOn, have)
		}
		if ours {
			err = h.delete(ctx, have)
		}
		errs = errors.Join(errs, wrap(err, "remove", o))
	}
	return errs
}

// read returns the object with the kind and name of another one, or nil.
func read(ctx context.Context, from client.Reader, like client.Object) (client.Object, error) {
	// A new object, because clients keep fields that an answer lacks.
	//nolint:errcheck,forcetypeassert // like is one
	have := reflect.New(reflect.TypeOf(like).Elem()).Interface().(client.Object)
	if err := from.Get(ctx, client.ObjectKeyFromObject(like), have); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return have, nil
}

func (h *Hub) delete(ctx context.Context, o client.Object) error {
	uid := o.GetUID()
	return wrap(client.IgnoreNotFound(h.options.Client.Delete(ctx, o, client.Preconditions{UID: &uid})), "delete", o)
}

func wrap(err error, what string, o client.Object) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s %q: %w", what, kindOf(o), client.ObjectKeyFromObject(o), err)
}

func kindOf(o client.Object) string { return reflect.TypeOf(o).Elem().Name() }

// same compares only fields that give rights.
func same(have, want client.Object) bool {
	switch have := have.(type) {
	case *rbacv1.Role:
		want, ok := want.(*rbacv1.Role)
		return ok && equality.Semantic.DeepEqual(have.Rules, want.Rules)
	case *rbacv1.RoleBinding:
		want, ok := want.(*rbacv1.RoleBinding)
		return ok && have.RoleRef == want.RoleRef && slices.Equal(have.Subjects, want.Subjects)
	}
	return true
}
