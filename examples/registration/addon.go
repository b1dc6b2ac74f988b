package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/internal/testing/scenario"
	"github.com/workloadid/workloadid/registration"
	"github.com/workloadid/workloadid/registration/agent"
	"github.com/workloadid/workloadid/registration/ocm"
	"github.com/workloadid/workloadid/registration/ocm/addon"
)

const (
	addOnName = "search"
	// addOnSettings is the ConfigMap that the add-on may read.
	addOnSettings = "search-settings"
	// addOnLifetime is what the agent asks for, in seconds.
	addOnLifetime = 3600
)

// addOnSteps register an add-on by token. The demo plays the add-on's own controller on the hub.
func (d *demo) addOnSteps() []func(context.Context) error {
	return []func(context.Context) error{d.createAddOn, d.declares, d.provides, d.storesToken, d.readsOwn, d.readsOther, d.deleteAddOn}
}

func (d *demo) createAddOn(ctx context.Context) error {
	addOn := &addon.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: addOnName}}
	if err := d.admin.Create(ctx, addOn); err != nil {
		return err
	}
	addOn.Status.Registrations = []addon.RegistrationConfig{{Type: ocm.KubeClient, KubeClient: &addon.KubeClientConfig{}}}
	if err := d.admin.Status().Update(ctx, addOn); err != nil {
		return err
	}
	d.Step("An administrator creates the add-on %q for the cluster. The add-on's own controller on the hub asks for access to the hub's API server.", addOnName)
	d.Detail("add-on", "%s/%s", cluster, addOnName)
	d.Detail("item", "type %s, without driver and subject", ocm.KubeClient)
	return nil
}

// awaitAddOn waits for something in the status of the add-on.
func (d *demo) awaitAddOn(ctx context.Context, what string, done func(addon.Status) bool) (status addon.Status, err error) {
	err = scenario.Wait(ctx, what, func(ctx context.Context) (bool, error) {
		addOn := &addon.ManagedClusterAddOn{}
		err := d.admin.Get(ctx, client.ObjectKey{Namespace: cluster, Name: addOnName}, addOn)
		status = addon.StatusOf(addOn)
		return err == nil && len(status.Items) == 1 && done(status), err
	})
	return status, err
}

func (d *demo) declares(ctx context.Context) error {
	status, err := d.awaitAddOn(ctx, "the agent declares no driver", func(s addon.Status) bool { return s.Items[0].Driver != "" })
	if err != nil {
		return err
	}
	d.Step("The agent declares in that item how it registers the add-on, and as which user.")
	d.Detail("driver", "%s", status.Items[0].Driver)
	d.Detail("user", "%s", status.Items[0].Subject.User)
	return nil
}

// infrastructure returns what the hub has made for the add-on.
func (d *demo) infrastructure(ctx context.Context) (all []string, err error) {
	for kind, list := range map[string]client.ObjectList{"ServiceAccount": &corev1.ServiceAccountList{}, "Role": &rbacv1.RoleList{}, "RoleBinding": &rbacv1.RoleBindingList{}} {
		if err := d.admin.List(ctx, list, client.InNamespace(cluster), client.MatchingLabels{addon.NameLabel: addOnName}); err != nil {
			return nil, err
		}
		objects, err := meta.ExtractList(list)
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			all = append(all, fmt.Sprintf("%s %s", kind, o.(client.Object).GetName())) //nolint:forcetypeassert // listed
		}
	}
	slices.Sort(all)
	return all, nil
}

func (d *demo) provides(ctx context.Context) error {
	status, err := d.awaitAddOn(ctx, "the hub provides no ServiceAccount", func(s addon.Status) bool {
		return meta.IsStatusConditionTrue(s.Conditions, addon.ConditionTokenInfrastructureReady)
	})
	if err != nil {
		return err
	}
	made, err := d.infrastructure(ctx)
	if err != nil {
		return err
	}
	d.Step("The hub makes a ServiceAccount for the add-on, without any rights. It lets the cluster request its tokens, and no others.")
	d.Detail("objects", "%s", strings.Join(made, ", "))
	d.condition(status, addon.ConditionTokenInfrastructureReady)
	return nil
}

func (d *demo) condition(status addon.Status, kind string) {
	c := meta.FindStatusCondition(status.Conditions, kind)
	d.Detail("condition", "%s is %s: %s", c.Type, c.Status, c.Message)
}

func addOnSecret() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agent.DefaultAddOnNamespace, Name: addOnName + "-hub-kubeconfig"}}
}

func (d *demo) storesToken(ctx context.Context) error {
	const condition = "AddonTokenRefreshed"
	status, err := d.awaitAddOn(ctx, "the agent has no token", func(s addon.Status) bool { return meta.IsStatusConditionTrue(s.Conditions, condition) })
	if err != nil {
		return err
	}
	secret := addOnSecret()
	if err := d.local.Get(ctx, client.ObjectKeyFromObject(secret), secret); err != nil {
		return err
	}
	if err := d.mount(secret.Data); err != nil {
		return err
	}
	d.Step("The agent requests a token with the cluster's certificate, and stores it for the add-on on the managed cluster.")
	d.Detail("Secret", "%s/%s", secret.Namespace, secret.Name)
	d.Detail("keys", "%s", strings.Join(slices.Sorted(maps.Keys(secret.Data)), ", "))
	d.Detail("expires", "%s, refreshed at 75 to 80 %% of its lifetime", secret.Data["expiration"])
	d.condition(status, condition)
	return nil
}

// mount gives the add-on the files of its Secret, as a volume does.
func (d *demo) mount(files map[string][]byte) error {
	dir, err := os.MkdirTemp("", "addon-")
	if err != nil {
		return err
	}
	d.Defer(func() error { return os.RemoveAll(dir) })
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), content, 0o600); err != nil {
			return err
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, registration.SecretKeyKubeconfig))
	if err != nil {
		return err
	}
	d.addOn, err = client.New(config, client.Options{})
	return err
}

// settings reads the ConfigMap of the add-on in the namespace of a cluster, as the add-on.
func (d *demo) settings(ctx context.Context, cluster string) error {
	return d.addOn.Get(ctx, client.ObjectKey{Namespace: cluster, Name: addOnSettings}, &corev1.ConfigMap{})
}

func (d *demo) readsOwn(ctx context.Context) error {
	named := metav1.ObjectMeta{Namespace: cluster, Name: addOnSettings}
	for _, object := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: named, Data: map[string]string{"index": "all"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: neighbour, Name: addOnSettings}},
		&rbacv1.Role{ObjectMeta: named, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{addOnSettings}, Verbs: []string{"get"}}}},
		&rbacv1.RoleBinding{ObjectMeta: named, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: addOnSettings},
			// Not the subject in the status: the agent wrote that.
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: cluster, Name: registration.AddOnServiceAccounts(cluster, addOnName)[0]}}},
	} {
		if err := d.admin.Create(ctx, object); err != nil {
			return err
		}
	}
	if err := scenario.Wait(ctx, "the add-on cannot read its ConfigMap", func(ctx context.Context) (bool, error) { return true, d.settings(ctx, cluster) }); err != nil {
		return err
	}
	d.Step("The add-on's controller binds a Role to that ServiceAccount: to get one ConfigMap. With its token the add-on reads it: allowed.")
	d.Detail("ConfigMap", "%s/%s", cluster, addOnSettings)
	return nil
}

func (d *demo) readsOther(ctx context.Context) error {
	err := d.settings(ctx, neighbour)
	secrets := d.addOn.List(ctx, &corev1.SecretList{}, client.InNamespace(cluster))
	if !apierrors.IsForbidden(err) || !apierrors.IsForbidden(secrets) {
		return errors.Join(errors.New("the add-on is not forbidden to read what is not its own"), err, secrets)
	}
	d.Step("The same ConfigMap of its neighbour %q, and Secrets of its own cluster: forbidden.", neighbour)
	d.Detail("answer", "%s", err)
	d.Detail("answer", "%s", secrets)
	return nil
}

func (d *demo) deleteAddOn(ctx context.Context) error {
	start := time.Now()
	if err := d.admin.Delete(ctx, &addon.ManagedClusterAddOn{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: addOnName}}); err != nil {
		return err
	}
	since := func(what string, done func(context.Context) (bool, error)) (string, error) {
		err := scenario.Wait(ctx, what, done)
		return time.Since(start).Round(10 * time.Millisecond).String(), err
	}
	hub, err1 := since("the garbage collector removes nothing", func(ctx context.Context) (bool, error) {
		left, err := d.infrastructure(ctx)
		return len(left) == 0, err
	})
	secret, err2 := since("the agent keeps the Secret", func(ctx context.Context) (bool, error) {
		secret := addOnSecret()
		return apierrors.IsNotFound(d.local.Get(ctx, client.ObjectKeyFromObject(secret), secret)), nil
	})
	token, err3 := since("the token is still accepted", func(ctx context.Context) (bool, error) {
		return apierrors.IsUnauthorized(d.settings(ctx, cluster)), nil
	})
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	d.Step("The administrator deletes the add-on. The garbage collector removes what the hub made for it, and the agent removes its Secret.")
	d.Detail("hub", "nothing is left after %s", hub)
	d.Detail("Secret", "gone after %s", secret)
	d.Detail("token", "refused with 401 after %s; the API server caches tokens for 10 s", token)
	return nil
}
