package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/util/secrets"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func tokenSecret(id string, change func(*corev1.Secret)) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem,
		Name: bootstrapapi.BootstrapTokenSecretPrefix + id, UID: "u"}, Type: bootstrapapi.SecretTypeBootstrapToken,
		Data: map[string][]byte{"token-id": []byte(id), "token-secret": []byte("0123456789abcdef"),
			"usage-bootstrap-signing": []byte("true")}}
	if change != nil {
		change(s)
	}
	return s
}

func set(key, value string) func(*corev1.Secret) {
	return func(s *corev1.Secret) { s.Data[key] = []byte(value) }
}

func info(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: clusterInfoKey.Namespace, Name: clusterInfoKey.Name},
		Data: data}
}

func reconcileInfo(t *testing.T, s *Signer) (map[string]string, ctrl.Result) {
	t.Helper()
	result, err := s.Reconcile(t.Context(), ctrl.Request{NamespacedName: clusterInfoKey})
	if err != nil {
		t.Fatal(err)
	}
	var configMap corev1.ConfigMap
	if err := s.Client.Get(t.Context(), clusterInfoKey, &configMap); err != nil {
		t.Fatal(err)
	}
	return configMap.Data, result
}

// Only valid tokens sign, stale signatures go, and keys of others stay.
func TestSignerSignsForValidTokensOnly(t *testing.T) {
	synctest.Test(t, testSignerSignsForValidTokensOnly)
}

// The fake clock starts at 2000-01-01.
func testSignerSignsForValidTokensOnly(t *testing.T) {
	c := fake.NewClientBuilder().WithObjects(
		info(map[string]string{"kubeconfig": "k", "jws-kubeconfig-gone00": "stale", "other": "stays"}),
		tokenSecret("good00", set("expiration", "2000-01-01T00:00:10Z")), tokenSecret("ever00", nil),
		tokenSecret("dead00", set("expiration", "2000-01-01T00:00:00Z")), tokenSecret("odd000", set("expiration", "soon")),
		tokenSecret("late00", set("expiration", "2000-01-01T00:00:20Z")),
		tokenSecret("zero00", set("expiration", "0001-01-01T00:00:00Z")),
		tokenSecret("off000", set("usage-bootstrap-signing", "yes")), tokenSecret("type00", func(s *corev1.Secret) {
			s.Type = "Opaque"
		}),
		tokenSecret("group0", set("auth-extra-groups", "x")),
		tokenSecret("name00", set("token-id", "other0")), tokenSecret("bad000", set("token-secret", "short")),
		tokenSecret("going0", func(s *corev1.Secret) {
			s.DeletionTimestamp, s.Finalizers = &metav1.Time{Time: time.Now()}, []string{"example.com/x"}
		}),
	).Build()
	data, result := reconcileInfo(t, &Signer{Client: c})
	if len(data) != 6 || data["jws-kubeconfig-good00"] == "" || data["jws-kubeconfig-group0"] == "" ||
		data["jws-kubeconfig-ever00"] == "" || data["jws-kubeconfig-late00"] == "" || data["other"] != "stays" {
		t.Errorf("cluster-info: %v", data)
	}
	if result.RequeueAfter != 10*time.Second {
		t.Errorf("reconciles again after %s, want 10s, when the first token expires", result.RequeueAfter)
	}
	if err := c.Update(t.Context(), info(map[string]string{"jws-kubeconfig-good00": "x"})); err != nil {
		t.Fatal(err)
	}
	if data, _ := reconcileInfo(t, &Signer{Client: c}); len(data) != 0 {
		t.Errorf("without a kubeconfig: %v", data)
	}
}

func TestSignerWritesNothingTwice(t *testing.T) {
	writes := 0
	c := fake.NewClientBuilder().WithObjects(info(map[string]string{"kubeconfig": "k"}), tokenSecret("good00", nil)).
		WithInterceptorFuncs(interceptor.Funcs{Update: func(ctx context.Context, c client.WithWatch, obj client.Object,
			opts ...client.UpdateOption) error {
			writes++
			return c.Update(ctx, obj, opts...)
		}}).Build()
	first, _ := reconcileInfo(t, &Signer{Client: c})
	second, _ := reconcileInfo(t, &Signer{Client: c})
	if writes != 1 || !maps.Equal(first, second) {
		t.Errorf("%d writes", writes)
	}
}

// A conflicting write returns an error, so the manager retries with the current
// object.
func TestSignerConflicts(t *testing.T) {
	conflicts := 5
	c := fake.NewClientBuilder().WithObjects(info(map[string]string{"kubeconfig": "k"}),
		tokenSecret("good00", set("expiration", "2100-01-01T00:00:00Z"))).
		WithInterceptorFuncs(interceptor.Funcs{Update: func(ctx context.Context, c client.WithWatch, obj client.Object,
			opts ...client.UpdateOption) error {
			if obj.GetResourceVersion() == "" {
				t.Error("written without a resource version")
			}
			if conflicts--; conflicts >= 0 {
				return apierrors.NewConflict(corev1.Resource("configmaps"), obj.GetName(), errors.New("modified"))
			}
			return c.Update(ctx, obj, opts...)
		}}).Build()
	s := &Signer{Client: c}
	for range 5 {
		result, err := s.Reconcile(t.Context(), ctrl.Request{NamespacedName: clusterInfoKey})
		if !apierrors.IsConflict(err) || !result.IsZero() { // controller-runtime complains of an error with a result
			t.Fatalf("got %+v, %v", result, err)
		}
	}
	if data, _ := reconcileInfo(t, s); data["jws-kubeconfig-good00"] == "" {
		t.Error("never signed")
	}
}

// Other data takes the room of signatures. Signatures that do not fit are
// dropped, as are the signatures of deleted tokens.
func TestSignerCountsBinaryData(t *testing.T) {
	configMap := info(map[string]string{"kubeconfig": "k", "jws-kubeconfig-gone00": "stale"})
	configMap.BinaryData = map[string][]byte{"x": make([]byte, maxConfigMap-100)}
	data, _ := reconcileInfo(t,
		&Signer{Client: fake.NewClientBuilder().WithObjects(configMap, tokenSecret("good00", nil)).Build()})
	if len(data) != 1 {
		t.Errorf("cluster-info: %v", data)
	}
}

// More tokens than fit: those that live longest are signed, and the operator is
// told.
func TestSignerWhenFull(t *testing.T) {
	now := time.Now().Add(time.Hour)
	objects := []client.Object{info(map[string]string{"kubeconfig": strings.Repeat("k", 1000)})}
	const count = 10_000
	for i := range count {
		objects = append(objects,
			tokenSecret(fmt.Sprintf("t%05d", i),
				set("expiration", now.Add(time.Duration(i+1)*time.Second).Format(time.RFC3339))))
	}
	recorder := events.NewFakeRecorder(10)
	s := &Signer{Client: fake.NewClientBuilder().WithObjects(objects...).Build(), Events: recorder}
	data, _ := reconcileInfo(t, s)
	size := 0
	for key, value := range data {
		size += len(key) + len(value)
	}
	if size > maxConfigMap || len(data) < 8000 || data["jws-kubeconfig-t09999"] == "" ||
		data["jws-kubeconfig-t00000"] != "" {
		t.Errorf("%d entries of %d bytes for %d tokens", len(data), size, count)
	}
	select {
	case event := <-recorder.Events:
		if !strings.Contains(event,
			fmt.Sprintf("TooManyTokens cluster-info is full: %d of %d tokens", count-(len(data)-1), count)) {
			t.Error(event)
		}
	default:
		t.Error("no Event was recorded")
	}
}

func TestCleaner(t *testing.T) {
	for name, tc := range map[string]struct {
		secret *corev1.Secret
		gone   bool
		after  time.Duration
		event  string
	}{
		"past":      {tokenSecret("abc123", set("expiration", "1999-12-31T23:59:59Z")), true, 0, ""},
		"now":       {tokenSecret("abc123", set("expiration", "2000-01-01T00:00:00Z")), true, 0, ""},
		"later":     {tokenSecret("abc123", set("expiration", "2000-01-01T01:00:00Z")), false, time.Hour, ""},
		"never":     {tokenSecret("abc123", nil), false, 0, ""},
		"malformed": {tokenSecret("abc123", set("expiration", "soon")), false, 0, "MalformedExpiration"},
		"past, with groups that are none": {tokenSecret("abc123", func(s *corev1.Secret) {
			s.Data["auth-extra-groups"], s.Data["expiration"] = []byte("hunter2"), []byte("1999-12-31T23:59:59Z")
		}), true, 0, "MalformedGroups"},
		"no token": {tokenSecret("abc123", set("token-secret", "")), false, 0, "MalformedToken"},
		"another type": {tokenSecret("abc123", func(s *corev1.Secret) {
			s.Type, s.Data["expiration"] = "Opaque", []byte("1999-01-01T00:00:00Z")
		}), false, 0, ""},
		"the zero time":           {tokenSecret("abc123", set("expiration", "0001-01-01T00:00:00Z")), true, 0, ""},
		"the zero time elsewhere": {tokenSecret("abc123", set("expiration", "0001-01-01T02:00:00+02:00")), true, 0, ""},
		"past, with a malformed secret": {tokenSecret("abc123", func(s *corev1.Secret) {
			s.Data["token-secret"], s.Data["expiration"] = []byte("hunter2"), []byte("1999-12-31T23:59:59Z")
		}), true, 0, "MalformedToken"},
		"past, with the ID of another": {tokenSecret("abc123", func(s *corev1.Secret) {
			s.Data["token-id"], s.Data["expiration"] = []byte("xyz789"), []byte("1999-12-31T23:59:59Z")
		}), true, 0, "MalformedToken"},
		"later, with a malformed secret": {tokenSecret("abc123", func(s *corev1.Secret) {
			s.Data["token-secret"], s.Data["expiration"] = []byte("hunter2"), []byte("2000-01-01T01:00:00Z")
		}), false, time.Hour, "MalformedToken"},
		"another name": {tokenSecret("abc123", func(s *corev1.Secret) {
			s.Name, s.Data["expiration"] = "mine", []byte("1999-01-01T00:00:00Z")
		}), false, 0, "MalformedToken"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // at 2000-01-01
				recorder := events.NewFakeRecorder(10)
				c := fake.NewClientBuilder().WithObjects(tc.secret).Build()
				key := client.ObjectKeyFromObject(tc.secret)
				cleaner := &Cleaner{Client: c, Events: recorder}
				result, err := cleaner.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
				if err != nil || result.RequeueAfter != tc.after {
					t.Errorf("after %s, %v", result.RequeueAfter, err)
				}
				if err := c.Get(t.Context(), key, &corev1.Secret{}); (err != nil) != tc.gone {
					t.Errorf("afterwards: %v", err)
				}
				_, isName := secrets.ParseName(tc.secret.Name)
				malformed := tc.event == "MalformedExpiration"
				if isName && tc.secret.Type == bootstrapapi.SecretTypeBootstrapToken && !malformed &&
					secrets.HasExpired(tc.secret, time.Now()) != tc.gone {
					t.Error("Kubernetes does otherwise")
				}
				event := ""
				select {
				case event = <-recorder.Events:
				default:
				}
				if !strings.Contains(event, tc.event) || tc.event == "" && event != "" || strings.Contains(event, "0123456789") ||
					strings.Contains(event, "hunter2") {
					t.Errorf("event %q", event)
				}
			})
		})
	}
}

// A token that is extended between reading and deleting survives.
func TestCleanerRaces(t *testing.T) {
	secret := tokenSecret("abc123", set("expiration", "2020-01-01T00:00:00Z"))
	key := client.ObjectKeyFromObject(secret)
	extended := false
	c := fake.NewClientBuilder().WithObjects(secret).WithInterceptorFuncs(interceptor.Funcs{
		Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, opts ...client.DeleteOption) error {
			var o client.DeleteOptions
			o.ApplyOptions(opts)
			if o.Preconditions == nil || o.Preconditions.ResourceVersion == nil || o.Preconditions.UID == nil {
				t.Error("deleted without preconditions")
			}
			extended = true
			return fmt.Errorf("the object has been modified")
		}}).Build()
	if _, err := (&Cleaner{Client: c}).Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err == nil || !extended {
		t.Errorf("the conflict was swallowed: %v", err)
	}
}
