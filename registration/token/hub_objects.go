package token

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

// accountNames are the names that the ServiceAccount of an add-on may have.
func accountNames(cluster, addOn string) []string {
	return []string{registration.ProposedNames.AddOnServiceAccount(cluster, addOn), registration.OCMNames.AddOnServiceAccount(cluster, addOn)}
}

// roleName returns the name of the Role and the RoleBinding of an add-on.
func roleName(addOn string) string { return addOn + "-token-role" }

// objects returns what an add-on needs, the ServiceAccount last: when its tokens can be requested, the RBAC is in effect.
func (h *Hub) objects(addOn client.Object, account string) ([]client.Object, error) {
	gvk, err := apiutil.GVKForObject(addOn, h.options.Client.Scheme())
	if err != nil {
		return nil, err
	}
	cluster := addOn.GetNamespace()
	named := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: cluster, Name: name,
			Labels: map[string]string{addon.NameLabel: addOn.GetName(), ocm.ClusterNameLabel: cluster},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind,
				Name: addOn.GetName(), UID: addOn.GetUID()}}}
	}
	var groups []rbacv1.Subject
	for _, group := range registration.ClusterGroups(cluster) {
		groups = append(groups, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group})
	}
	role := roleName(addOn.GetName())
	return []client.Object{
		&rbacv1.Role{ObjectMeta: named(role), Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, ResourceNames: []string{account}, Verbs: []string{"create"}}}},
		&rbacv1.RoleBinding{ObjectMeta: named(role), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role}, Subjects: groups},
		&corev1.ServiceAccount{ObjectMeta: named(account)},
	}, nil
}

// provide creates and repairs what an add-on needs, and returns the condition with the UID of its ServiceAccount.
func (h *Hub) provide(ctx context.Context, addOn client.Object, account string) (*metav1.Condition, error) {
	objects, err := h.objects(addOn, account)
	if err != nil {
		return nil, err
	}
	for _, want := range objects {
		if err := h.ensure(ctx, addOn, want); err != nil {
			return nil, err
		}
	}
	if err := h.remove(ctx, addOn, account); err != nil {
		return nil, err
	}
	key := client.ObjectKey{Namespace: addOn.GetNamespace(), Name: account}
	return &metav1.Condition{Status: metav1.ConditionTrue, Reason: ReasonReady,
		Message: readyMessage(key, objects[len(objects)-1].GetUID())}, nil
}

// ensure creates or repairs one object, and reads it into want. One that differs is replaced: no update can change the role of a binding.
func (h *Hub) ensure(ctx context.Context, addOn, want client.Object) error {
	have, err := read(ctx, h.options.Client, want)
	if err == nil && have == nil {
		created := h.options.Client.Create(ctx, want)
		if !apierrors.IsAlreadyExists(created) {
			return wrap(created, "create", want)
		}
		if have, err = read(ctx, h.options.Reader, want); have == nil && err == nil { // the cache lags behind
			err = created
		}
	}
	if err != nil {
		return wrap(err, "read", want)
	}
	if !owns(addOn, have) {
		return &refusal{reasonTaken, fmt.Sprintf("the %s %q exists and belongs to %s: have the agent use another name, or delete the object, which ends its owner's tokens",
			kindOf(have), client.ObjectKeyFromObject(have), ownerOf(have)), refusedRetry}
	}
	if same(have, want) {
		want.SetUID(have.GetUID())
		return nil
	}
	if err := h.delete(ctx, have); err != nil {
		return err
	}
	return wrap(h.options.Client.Create(ctx, want), "create", want)
}

// remove deletes all objects of an add-on or, if keep names its ServiceAccount, another ServiceAccount that it had before. It
// begins with the ServiceAccounts, which revokes the tokens.
func (h *Hub) remove(ctx context.Context, addOn client.Object, keep string) error {
	named := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: addOn.GetNamespace(), Name: name}
	}
	var unwanted []client.Object
	for _, account := range accountNames(addOn.GetNamespace(), addOn.GetName()) {
		if account != keep {
			unwanted = append(unwanted, &corev1.ServiceAccount{ObjectMeta: named(account)})
		}
	}
	if keep == "" {
		role := roleName(addOn.GetName())
		unwanted = append(unwanted, &rbacv1.RoleBinding{ObjectMeta: named(role)}, &rbacv1.Role{ObjectMeta: named(role)})
	}
	for _, o := range unwanted {
		have, err := read(ctx, h.options.Client, o)
		if err == nil && have != nil && owns(addOn, have) {
			err = h.delete(ctx, have)
		}
		if err != nil {
			return wrap(err, "remove", o)
		}
	}
	return nil
}

// read returns the object with the kind and name of another one, nil if there is none.
func read(ctx context.Context, from client.Reader, like client.Object) (client.Object, error) {
	have, ok := like.DeepCopyObject().(client.Object)
	if !ok {
		return nil, fmt.Errorf("%T is no Kubernetes object", like)
	}
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

// ownerOf describes the owner of an object that is not this add-on's.
func ownerOf(o client.Object) string {
	for _, r := range o.GetOwnerReferences() {
		if r.Kind == "ManagedClusterAddOn" {
			return fmt.Sprintf("the add-on %q with the UID %q", r.Name, r.UID)
		}
	}
	return "no add-on"
}

// owns reports whether an object was made for this very add-on. One of a deleted add-on of the same name is not.
func owns(addOn, o client.Object) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == addOn.GetUID() })
}

// same compares what gives rights.
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
