package v1alpha1_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/podscenario"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m).Run()) }

const account = "arn:aws:iam::123456789012:role/"

// environment is a real API server with the policy.
type environment struct{ *podscenario.Environment }

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	w := &environment{podscenario.New(t, kubetest.Start(t))}
	kubetest.Apply(t, w.Cluster.Client(), v1alpha1.Policy())
	return w
}

func binding(namespace, role string) *v1alpha1.IAMBinding {
	return podscenario.Binding(namespace, "app", role)
}

// allow replaces the allow-list and waits until the policy follows, which a
// namespace of its own shows.
func (w *environment) allow(t *testing.T, rules ...v1alpha1.AllowRule) {
	t.Helper()
	canary := w.Cluster.Namespace(t)
	w.Allow(append(rules, v1alpha1.AllowRule{Namespaces: []string{canary}, Roles: []string{account + "canary"}})...)
	kubetest.Eventually(t, "the policy knows the allow-list", func() bool {
		return w.Create(t.Context(), binding(canary, account+"canary")) == nil
	})
}

func TestPolicyChecksTheAllowList(t *testing.T) {
	w := newEnvironment(t)
	ns, other := w.Namespace, w.Cluster.Namespace(t)
	const path = "arn:aws:iam::123456789012:role/team/"

	kubetest.Eventually(t, "the policy is in force", func() bool {
		return w.Create(t.Context(), binding(ns, path+"x"), client.DryRunAll) != nil // also without a list
	})
	w.allow(t,
		v1alpha1.AllowRule{Namespaces: []string{ns},
			Roles: []string{account + "exact", path + "*", account + "a|b", account + "dot.dot"}},
		v1alpha1.AllowRule{Namespaces: []string{"te*"}, Roles: []string{account + "shared"}})
	for name, test := range map[string]struct {
		namespace, role string
		allowed         bool
	}{
		"whole value":                        {ns, account + "exact", true},
		"longer than the whole value":        {ns, account + "exactly", false},
		"below the prefix":                   {ns, path + "a/b", true},
		"beside the prefix":                  {ns, account + "teams", false},
		"other namespace":                    {other, account + "exact", false},
		"namespace by prefix":                {other, account + "shared", true},
		"role pattern a|b does not mean a":   {ns, account + "a", false},
		"role pattern a|b does not mean b":   {ns, account + "b", false},
		"a dot does not mean any character":  {ns, account + "dot-dot", false},
		"a dot means a dot":                  {ns, account + "dot.dot", true},
		"the prefix without anything behind": {ns, account + "team", false},
	} {
		t.Run(name, func(t *testing.T) {
			err := w.Create(t.Context(), binding(test.namespace, test.role))
			if test.allowed && err != nil {
				t.Error(err)
			}
			if !test.allowed && (!apierrors.IsForbidden(err) ||
				!strings.Contains(err.Error(), `does not allow namespace "`+test.namespace+`" the role "`+test.role+`"; ask`)) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// One such time would fail the list of all bindings in programs written in Go.
func TestPolicyRefusesTimesThatGoCannotRead(t *testing.T) {
	w := newEnvironment(t)
	ns := w.Namespace
	w.allow(t, v1alpha1.AllowRule{Namespaces: []string{ns}, Roles: []string{"*"}})
	b := binding(ns, account+"app")
	if err := w.Create(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	report := func(at string, dryRun ...string) error {
		patch := fmt.Sprintf(
			`{"status": {"conditions": [{"type": "A", "status": "True", "reason": "A", "message": "", "lastTransitionTime": %s}]}}`, at)
		return w.Status().Patch(t.Context(), b.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)),
			&client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: dryRun}})
	}
	refused := func(at string) bool {
		err := report(at, "All")
		return apierrors.IsInvalid(err) && strings.Contains(err.Error(), "is not in RFC 3339")
	}
	const before, other = `"2026-01-01t00:00:00z"`, `"2026-01-02t00:00:00z"`
	kubetest.Eventually(t, "the policy is in force", func() bool { return refused(before) })
	for _, at := range []string{`"2026-01-01T00:00:00+99:99"`, `"2026-01-01T00:00:00+24:30"`, `"2026-01-01T00:00:00x5Z"`,
		`"2026-01-01T00:00:00Ztx"`, `"9999-12-31T23:59:59-01:00"`, `[]`} {
		if !refused(at) {
			t.Errorf("%s: %v", at, report(at))
		}
	}
	if err := report(`"2026-01-01T00:00:00Z"`); err != nil {
		t.Error(err)
	}
	w.without(t, "iambindings-times.iam.aws.k8s.io", func() bool { return report(before) == nil })
	kubetest.Eventually(t, "the policy is in force again", func() bool { return refused(other) })
	if err := report(before); err != nil {
		t.Errorf("what was stored before: %v", err)
	}
	label := client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"labels": {"a": "b"}, "finalizers": []}}`))
	if err := w.Patch(t.Context(), b.DeepCopy(), label); err != nil {
		t.Errorf("a label beside what was stored before: %v", err)
	}
}

// Servers and webhooks read whole bindings before they drop the metadata.
func TestPolicyBoundsMetadata(t *testing.T) {
	w := newEnvironment(t)
	ns := w.Namespace
	w.allow(t, v1alpha1.AllowRule{Namespaces: []string{ns}, Roles: []string{"*"}})
	w.awaitBound(t, ns)
	const mega = 1_200_000
	for name, change := range map[string]func(*v1alpha1.IAMBinding){
		"an annotation": func(b *v1alpha1.IAMBinding) { b.Annotations = map[string]string{"n": strings.Repeat("x", limit)} },
		"20,000 annotations": func(b *v1alpha1.IAMBinding) {
			b.Annotations = map[string]string{}
			for i := range 20000 {
				b.Annotations[fmt.Sprint("k", i)] = ""
			}
		},
		"finalizers":                func(b *v1alpha1.IAMBinding) { b.Finalizers = finalizers(mega) },
		"an owner with a long name": func(b *v1alpha1.IAMBinding) { b.OwnerReferences = owners(1, mega) },
		"an owner with a long kind": func(b *v1alpha1.IAMBinding) {
			b.OwnerReferences = owners(1, 1)
			b.OwnerReferences[0].Kind = strings.Repeat("k", mega)
		},
		"many owners": func(b *v1alpha1.IAMBinding) { b.OwnerReferences = owners(2000, 1) },
		"fields of a manager": func(b *v1alpha1.IAMBinding) {
			b.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m", Operation: metav1.ManagedFieldsOperationApply,
				APIVersion: v1alpha1.GroupVersion.String(),
				FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:` + strings.Repeat("x", mega) + `":{}}}`)}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := binding(ns, account+"app")
			change(b)
			if err := w.Create(t.Context(), b); !tooLarge(err) {
				t.Errorf("a create: %v", err)
			}
			small := binding(ns, account+"app")
			if err := w.Create(t.Context(), small); err != nil {
				t.Fatal(err)
			}
			change(small)
			if err := w.Update(t.Context(), small); !tooLarge(err) {
				t.Errorf("an update: %v", err)
			}
		})
	}
	t.Run("one manager after the other", func(t *testing.T) {
		apply := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(fmt.Appendf(nil, appliedBinding, ns, account), &apply.Object); err != nil {
			t.Fatal(err)
		}
		for n := range 200 {
			err := w.Patch(t.Context(), apply.DeepCopy(), client.Apply, //nolint:staticcheck // as kubectl does
				client.FieldOwner(fmt.Sprintf("%0100d", n)))
			if tooLarge(err) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		t.Error("200 managers are accepted")
	})
}

const appliedBinding = `
apiVersion: iam.aws.k8s.io/v1alpha1
kind: IAMBinding
metadata: {namespace: %s, name: applied}
spec: {aws: {roleArn: "%sapp"}, serviceAccountRef: {name: app}}
`

// What was stored before the policy can lose its finalizers, one by one or all
// at once, and be deleted. It cannot grow.
func TestPolicyLetsLargeMetadataShrink(t *testing.T) {
	w := newEnvironment(t)
	ns := w.Namespace
	w.allow(t, v1alpha1.AllowRule{Namespaces: []string{ns}, Roles: []string{"*"}})
	w.awaitBound(t, ns)
	const mega = 600_000
	one, all := w.createUnbound(t, ns, mega), w.createUnbound(t, ns, mega)
	w.awaitBound(t, ns)
	one.Annotations = map[string]string{"a": "b"}
	if err := w.Update(t.Context(), one.DeepCopy()); !tooLarge(err) {
		t.Errorf("a further annotation: %v", err)
	}
	one.Annotations, one.Finalizers = nil, one.Finalizers[1:]
	if err := w.Update(t.Context(), one); err != nil {
		t.Errorf("one finalizer less: %v", err)
	}
	if err := w.Delete(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	if err := w.Patch(t.Context(), all, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)),
		client.FieldOwner("another")); err != nil {
		t.Fatal(err)
	}
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(all), all); !apierrors.IsNotFound(err) {
		t.Errorf("still there: %v", err)
	}
}

// A binding whose role is no longer allowed can be labelled, so that a
// finalizer can go, but not be edited.
func TestPolicyAfterTheListHasChanged(t *testing.T) {
	w := newEnvironment(t)
	ns := w.Namespace
	w.allow(t, v1alpha1.AllowRule{Namespaces: []string{ns}, Roles: []string{account + "app"}})
	b := binding(ns, account+"app")
	if err := w.Create(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	w.allow(t)
	kubetest.Eventually(t, "the policy refuses the role", func() bool {
		return apierrors.IsForbidden(w.Create(t.Context(), binding(ns, account+"app"), client.DryRunAll))
	})
	b.Labels = map[string]string{"a": "b"}
	if err := w.Update(t.Context(), b); err != nil {
		t.Error(err)
	}
	b.Spec.ServiceAccountRef.Name = "other"
	if err := w.Update(t.Context(), b); !apierrors.IsForbidden(err) {
		t.Errorf("got %v", err)
	}
}

// The longest list, which etcd still holds, stays within the budget of the API
// server's expressions.
func TestPolicyWithTheLongestList(t *testing.T) {
	w := newEnvironment(t)
	ns := w.Namespace
	var namespaces []string
	for i := range 63 {
		namespaces = append(namespaces, fmt.Sprintf("%s-%02d*", ns, i))
	}
	namespaces = append(namespaces, ns)
	rules := make([]v1alpha1.AllowRule, 511)
	for i := range rules {
		rules[i] = v1alpha1.AllowRule{Namespaces: namespaces[:63], Roles: []string{account + fmt.Sprintf("role-%d", i)}}
	}
	rules[510].Namespaces = namespaces
	w.allow(t, rules...)
	if err := w.Create(t.Context(), binding(ns, account+"role-510")); err != nil {
		t.Error(err)
	}
	if err := w.Create(t.Context(), binding(ns, account+"role-509")); !apierrors.IsForbidden(err) {
		t.Errorf("got %v", err)
	}
}

// tag sets a session tag.
func tag(key string, value v1alpha1.TagValue) func(*v1alpha1.IAMBindingSpec) {
	return func(s *v1alpha1.IAMBindingSpec) { s.AWS.SessionTags = map[string]v1alpha1.TagValue{key: value} }
}

// tags sets session tags of a size, with 40 keys of two characters and values
// of two bytes a letter.
func tags(size int) func(*v1alpha1.IAMBindingSpec) {
	return func(s *v1alpha1.IAMBindingSpec) {
		s.AWS.SessionTags = map[string]v1alpha1.TagValue{}
		for left := size; left > 0; {
			n := min(size/40, left) - 2
			s.AWS.SessionTags[fmt.Sprintf("%02d", len(s.AWS.SessionTags))] = v1alpha1.TagValue(strings.Repeat("ß", n/2))
			left -= 2 + n/2*2
		}
	}
}

func TestBindingValidation(t *testing.T) {
	w := newEnvironment(t)
	ns := w.Namespace
	w.allow(t, v1alpha1.AllowRule{Namespaces: []string{ns}, Roles: []string{"*"}})
	longest := "arn:aws-us-gov:iam::123456789012:role/" + strings.Repeat(strings.Repeat("p", 99)+"/", 5) +
		strings.Repeat("p", 10) + "/" + strings.Repeat("n", 64)
	if len(longest) != len("arn:aws-us-gov:iam::123456789012:role")+512+64 {
		t.Fatalf("the role has %d characters", len(longest))
	}
	for name, test := range map[string]struct {
		change func(*v1alpha1.IAMBindingSpec)
		want   string // "" if it is good
	}{
		"plain":            {func(*v1alpha1.IAMBindingSpec) {}, ""},
		"the longest role": {func(s *v1alpha1.IAMBindingSpec) { s.AWS.RoleARN = longest }, ""},
		"a user's ARN": {func(s *v1alpha1.IAMBindingSpec) {
			s.AWS.RoleARN = "arn:aws:iam::123456789012:user/x"
		}, "roleArn has to be"},
		"a session's ARN": {func(s *v1alpha1.IAMBindingSpec) {
			s.AWS.RoleARN = "arn:aws:sts::123456789012:assumed-role/x/y"
		}, "roleArn has to be"},
		"a pattern as role": {func(s *v1alpha1.IAMBindingSpec) { s.AWS.RoleARN = account + "*" }, "roleArn has to be"},
		"no ServiceAccount": {func(s *v1alpha1.IAMBindingSpec) { s.ServiceAccountRef.Name = "" }, "name has to be"},
		"external ID":       {func(s *v1alpha1.IAMBindingSpec) { s.AWS.ExternalID = "a:b/c" }, ""},
		"short external ID": {func(s *v1alpha1.IAMBindingSpec) { s.AWS.ExternalID = "a" }, "externalID has to be"},
		"external ID blank": {func(s *v1alpha1.IAMBindingSpec) { s.AWS.ExternalID = "a b" }, "externalID has to be"},
		"40 minutes":        {func(s *v1alpha1.IAMBindingSpec) { s.AWS.DurationSeconds = 2400 }, ""},
		"39 minutes":        {func(s *v1alpha1.IAMBindingSpec) { s.AWS.DurationSeconds = 2399 }, "durationSeconds"},
		"over an hour":      {func(s *v1alpha1.IAMBindingSpec) { s.AWS.DurationSeconds = 3601 }, "durationSeconds"},
		"a policy": {func(s *v1alpha1.IAMBindingSpec) {
			s.AWS.SessionPolicy = " {\n\"Version\": \"2012-10-17\"}\n"
		}, ""},
		"a policy's ARN": {func(s *v1alpha1.IAMBindingSpec) {
			s.AWS.SessionPolicy = "arn:aws:iam::aws:policy/ReadOnly"
		}, "sessionPolicy has to be"},
		"containers": {func(s *v1alpha1.IAMBindingSpec) { s.Containers = []string{"app", "migrate"} }, ""},
		"container twice": {func(s *v1alpha1.IAMBindingSpec) {
			s.Containers = []string{"app", "app"}
		}, "Duplicate value"},
		"no container's name": {func(s *v1alpha1.IAMBindingSpec) { s.Containers = []string{"App"} }, "containers"},
		"tag":                 {tag("team", "Größe 1/2"), ""},
		"a letter that folds": {tag("cluſter", "x"), "a key of sessionTags has to be"},
		"empty tag key":       {tag("", "x"), "a key of sessionTags has to be"},
		"tag key of 129":      {tag(strings.Repeat("k", 129), "x"), "a key of sessionTags has to be"},
		"tag value with a |":  {tag("team", "a|b"), "sessionTags"},
		"tag value of 257":    {tag("team", v1alpha1.TagValue(strings.Repeat("v", 257))), "sessionTags"},
		"4,096 bytes of tags": {tags(4096), ""},
		"4,098 bytes of tags": {tags(4098), "4096 bytes"},
		"a policy in Latin-1": {func(s *v1alpha1.IAMBindingSpec) {
			s.AWS.SessionPolicy = "{" + strings.Repeat("ß", 2046) + "}"
		}, ""},
		"a policy in Greek": {func(s *v1alpha1.IAMBindingSpec) {
			s.AWS.SessionPolicy = "{" + strings.Repeat("Ω", 2046) + "}"
		}, "sessionPolicy has to be"},
		"our tag":             {tag("kubernetes-pod-uid", "x"), "the server sets these tags itself"},
		"our tag, other case": {tag("Kubernetes-Namespace", "x"), "the server sets these tags itself"},
		"the cluster's tag":   {tag("Cluster", "x"), "the server sets these tags itself"},
		"a tag of AWS":        {tag("aws:x", "x"), "the server sets these tags itself"},
	} {
		t.Run(name, func(t *testing.T) {
			b := binding(ns, account+"app")
			test.change(&b.Spec)
			err := w.Create(t.Context(), b)
			if test.want == "" && err != nil {
				t.Error(err)
			}
			if test.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if err == nil && b.Spec.AWS.Duration() < 40*time.Minute {
				t.Errorf("the duration is %s", b.Spec.AWS.Duration())
			}
		})
	}
}

func TestAllowListValidation(t *testing.T) {
	w := newEnvironment(t)
	if err := w.Delete(t.Context(),
		&v1alpha1.IAMRoleAllowList{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AllowListName}}); client.IgnoreNotFound(
		err) != nil {
		t.Fatal(err) // of another test
	}
	list := func(name, namespace, role string) *v1alpha1.IAMRoleAllowList {
		return &v1alpha1.IAMRoleAllowList{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IAMRoleAllowListSpec{
			Rules: []v1alpha1.AllowRule{{Namespaces: []string{namespace}, Roles: []string{role}}}}}
	}
	for name, bad := range map[string]*v1alpha1.IAMRoleAllowList{
		"another name":            list("other", "a", "*"),
		"asterisk in the middle":  list(v1alpha1.AllowListName, "a*b", "*"),
		"two asterisks":           list(v1alpha1.AllowListName, "a**", "*"),
		"asterisk in the account": list(v1alpha1.AllowListName, "a", "arn:aws:iam::*:role/x"),
	} {
		t.Run(name, func(t *testing.T) {
			if err := w.Create(t.Context(), bad, client.DryRunAll); !apierrors.IsInvalid(err) {
				t.Errorf("got %v", err)
			}
		})
	}
	// A pattern that matches no role, or no namespace, is a mistake.
	for field, patterns := range map[string]map[string]bool{
		"roles[0]": {
			"*": true, "arn:*": true, "arn:aws*": true, "arn:aws-cn:*": true, "arn:aws:iam::*": true, "arn:aws:iam::1234*": true,
			"arn:aws:iam::123456789012:*": true, account + "*": true, account + "x": true, account + "team-a/*": true,
			account + "team-a/x":                      true,
			"arn:aws-us-gov:iam::123456789012:role/x": true,
			"arn:aws:iam::123456789012:rle/team-a/*":  false, "arn:aws:iam::123456789012:user/x": false,
			"arn:aws:sts::123456789012:assumed-role/*": false, "arn:aws:iam:eu-west-1:123456789012:role/*": false,
			"arn:aws:iam::12345678901:role/*": false, "arn:aws:iam::1234567890123*": false,
			"arn:aws:iam::123456789012:role": false,
			account:                          false, account + "team-a/": false, "team-a/*": false, "reporting": false,
			" " + account + "*":                false,
			account + "team a/*":               false,
			"arn:AWS:iam::123456789012:role/*": false, "": false,
		},
		"namespaces[0]": {"*": true, "a": true, "team-*": true, "team-a": true, "1*": true,
			"Team-A": false, "team_a": false, "-a": false, "a-": false, "team-a/*": false, "": false},
	} {
		for pattern, valid := range patterns {
			t.Run(field+" "+pattern, func(t *testing.T) {
				l := list(v1alpha1.AllowListName, "a", pattern)
				if field == "namespaces[0]" {
					l = list(v1alpha1.AllowListName, pattern, "*")
				}
				err := w.Create(t.Context(), l, client.DryRunAll)
				if valid && err != nil {
					t.Error(err)
				}
				if !valid && (!apierrors.IsInvalid(err) ||
					!strings.Contains(err.Error(), fmt.Sprintf("spec.rules[0].%s: Invalid value: %q", field, pattern))) {
					t.Errorf("got %v", err)
				}
			})
		}
	}
}

const limit = 32768

func tooLarge(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "at most 32768 characters")
}

// awaitBound waits until the policy refuses a binding that is too large.
func (w *environment) awaitBound(t *testing.T, ns string) {
	t.Helper()
	b := binding(ns, account+"app")
	b.Annotations = map[string]string{"n": strings.Repeat("x", limit)}
	kubetest.Eventually(t, "the policy bounds the metadata", func() bool {
		return tooLarge(w.Create(t.Context(), b.DeepCopy(), client.DryRunAll))
	})
}

// finalizers returns valid finalizers of a size in all.
func finalizers(size int) []string {
	label := strings.Repeat("a", 60)
	all := make([]string, size/(4*61+62))
	for i := range all {
		all[i] = fmt.Sprintf("%s.%s.%s.%s/%04d%s", label, label, label, label, i, strings.Repeat("x", 58))
	}
	return all
}

func owners(n, size int) []metav1.OwnerReference {
	all := make([]metav1.OwnerReference, n)
	for i := range all {
		all[i] = metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: strings.Repeat("n", size),
			UID: types.UID(fmt.Sprint("u", i))}
	}
	return all
}

// createUnbound creates a binding with finalizers of a size, while the policy
// is not in force.
func (w *environment) createUnbound(t *testing.T, ns string, size int) *v1alpha1.IAMBinding {
	t.Helper()
	b := binding(ns, account+"app")
	b.Finalizers = finalizers(size)
	w.without(t, "iambindings-metadata.iam.aws.k8s.io", func() bool { return w.Create(t.Context(), b) == nil })
	return b
}

// without does something while a policy is not in force.
func (w *environment) without(t *testing.T, policy string, do func() bool) {
	t.Helper()
	bound := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	if err := w.Cluster.Client().Get(t.Context(), client.ObjectKey{Name: policy}, bound); err != nil {
		t.Fatal(err)
	}
	if err := w.Cluster.Client().Delete(t.Context(), bound); err != nil {
		t.Fatal(err)
	}
	kubetest.Eventually(t, "the policy is not in force", do)
	bound.ResourceVersion = ""
	if err := w.Cluster.Client().Create(t.Context(), bound); err != nil {
		t.Fatal(err)
	}
}
