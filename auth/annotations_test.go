package auth_test

import (
	"context"
	"maps"
	"reflect"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// informer returns ServiceAccounts that share their maps with its memory, as
// with UnsafeDisableDeepCopy.
type informer struct {
	*cluster
	sa *corev1.ServiceAccount
}

func (c informer) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	*obj.(*corev1.ServiceAccount) = *c.sa //nolint:forcetypeassert // auth reads nothing else here
	return nil
}

func TestCallersAnnotationsWin(t *testing.T) {
	k8s, provider := newCluster(), &exchange{}
	key := k8s.create("tenant-a", "app", map[string]string{"identity": "one", "note": "kept"})
	var seen map[string]string
	provider.inspect = func(sa corev1.ServiceAccount) { seen = sa.Annotations }
	opts := []auth.Option{auth.WithServiceAccount(key, k8s), testenv.Cached(t, "tenant-a")}

	callers := map[string]string{"identity": "two", "more": "added"}
	with := append(opts[:2:2], auth.WithAnnotations(callers))
	callers["identity"] = "changed after it was given"
	if got := mustGet(t, provider, with...); got.identity != "two" {
		t.Errorf("the identity is %q, want the caller's", got.identity)
	}
	if want := map[string]string{"identity": "two", "note": "kept", "more": "added"}; !maps.Equal(seen, want) {
		t.Errorf("the provider saw %q, want %q", seen, want)
	}
	if got := mustGet(t, provider, opts...); got.identity != "one" {
		t.Errorf("without the caller's annotations the identity is %q", got.identity)
	}
	if mustGet(t, provider, with...).identity != "two" || provider.mints.Load() != 2 {
		t.Errorf("%d exchanges for two identities", provider.mints.Load())
	}
	if got := mustGet(t, provider, append(opts, auth.WithAnnotations(nil))...); got.identity != "one" {
		t.Errorf("an empty map changed the identity to %q", got.identity)
	}
}

// An API passes its optional fields as they are.
func TestCallersAnnotationsThatAreEmptyCountAsAbsent(t *testing.T) {
	k8s, provider := newCluster(), &exchange{}
	key := k8s.create("tenant-a", "app", map[string]string{"identity": "one"})
	var seen []auth.AuthorizeRequest
	opts := []auth.Option{testenv.Cached(t, "tenant-a"),
		auth.WithAnnotations(map[string]string{"identity": "", "more": ""}),
		auth.WithPolicy(auth.Policy{Authorize: func(_ context.Context, r auth.AuthorizeRequest) error {
			seen = append(seen, r)
			return nil
		}})}
	if got := mustGet(t, provider, append(opts, auth.WithServiceAccount(key, k8s))...); got.identity != "one" {
		t.Errorf("the identity is %q, want the ServiceAccount's", got.identity)
	}
	if len(seen) != 1 || seen[0].Identity != "one" || len(seen[0].Annotations) != 0 {
		t.Errorf("the hook saw %+v", seen)
	}
	if got := mustGet(t, provider, opts...); got.subject != "controller" {
		t.Errorf("without a ServiceAccount the token is that of %q", got.subject)
	}
	k8s.annotate(key, map[string]string{"identity": "malformed"})
	_, err := auth.GetAccessToken(t.Context(), provider, append(opts, auth.WithServiceAccount(key, k8s))...)
	testenv.CheckError(t, err, auth.ErrMisconfigured, `the annotation "identity" is malformed`)
}

func TestCallersAnnotationsWithATokenInHand(t *testing.T) {
	subject := *testenv.ServiceAccount("tenant-a", "app", "identity", "one")
	jwt := unsigned(map[string]any{"sub": "system:serviceaccount:tenant-a:app", "aud": []string{"exchange"},
		"exp": time.Now().Add(time.Hour).Unix()})
	got := mustGet(t, &exchange{}, auth.WithSubjectToken(auth.NewStaticTokenSource(jwt), subject),
		auth.WithAnnotations(map[string]string{"identity": "two"}))
	if got.identity != "two" || subject.Annotations["identity"] != "one" {
		t.Errorf("the identity is %q, the ServiceAccount's %q", got.identity, subject.Annotations["identity"])
	}
}

// The race detector sees a write to the informer's memory.
func TestCallersAnnotationsNeverWriteToTheInformer(t *testing.T) {
	k8s := newCluster()
	key := k8s.create("tenant-a", "app", map[string]string{"identity": "one"})
	shared := k8s.accounts[key].DeepCopy()
	before := shared.DeepCopy()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			got, err := auth.GetAccessToken(t.Context(), &exchange{}, auth.WithServiceAccount(key, informer{k8s, shared}),
				testenv.Owner("tenant-a"), auth.WithAnnotations(map[string]string{"identity": "two"}))
			if token, ok := got.(*tagged); err != nil || !ok || token.identity != "two" {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
	wg.Wait()
	if !reflect.DeepEqual(shared, before) {
		t.Errorf("the informer's ServiceAccount became %+v", shared)
	}
}

func TestCallersAnnotationsNeedAServiceAccount(t *testing.T) {
	_, err := auth.GetAccessToken(t.Context(), silent{t}, testenv.Owner("tenant-a"),
		auth.WithAnnotations(map[string]string{"identity": "two"}))
	testenv.CheckError(t, err, auth.ErrMisconfigured, "the caller's identity", "without a ServiceAccount",
		"name a ServiceAccount")
}

func TestCallersAnnotationsWithTheDefaultServiceAccount(t *testing.T) {
	k8s := newCluster()
	k8s.create("tenant-a", "default-app", map[string]string{"identity": "one"})
	settings := &auth.Settings{ObjectLevelWorkloadIdentity: true, DefaultServiceAccount: "default-app"}
	got := mustGet(t, &exchange{}, auth.WithClient(k8s), auth.WithSettings(settings), testenv.Owner("tenant-a"),
		auth.WithAnnotations(map[string]string{"identity": "two"}))
	if got.identity != "two" || got.subject != "tenant-a/default-app" {
		t.Errorf("got identity %q of %q", got.identity, got.subject)
	}
}

// The values of the caller pass the provider's checks, and the error does not
// send the reader to the ServiceAccount.
func TestCallersAnnotationsThatAreMalformed(t *testing.T) {
	k8s := newCluster()
	key := k8s.create("tenant-a", "app", map[string]string{"identity": "malformed"})
	opts := []auth.Option{auth.WithServiceAccount(key, k8s), testenv.Owner("tenant-a")}
	_, err := auth.GetAccessToken(t.Context(), &exchange{}, opts...)
	testenv.CheckError(t, err, auth.ErrMisconfigured, `the annotation "identity" is malformed`)
	_, err = auth.GetAccessToken(t.Context(), &exchange{},
		append(opts, auth.WithAnnotations(map[string]string{"note": "x"}))...)
	testenv.CheckError(t, err, auth.ErrMisconfigured, `the annotation "identity" is malformed`)
	_, err = auth.GetAccessToken(t.Context(), &exchange{},
		append(opts, auth.WithAnnotations(map[string]string{"identity": "malformed"}))...)
	testenv.CheckError(t, err, auth.ErrMisconfigured,
		`the annotation "identity" is malformed; the caller, not the ServiceAccount, set ["identity"]`)
	if mustGet(t, &exchange{},
		append(opts, auth.WithAnnotations(map[string]string{"identity": "two"}))...).identity != "two" {
		t.Error("the caller's identity did not win")
	}
}

// The hook checks the identity that is used, sees that the caller chose it, and
// is asked on hits too.
func TestAuthorizeSeesTheCallersIdentity(t *testing.T) {
	k8s, provider := newCluster(), &exchange{}
	key := k8s.create("tenant-a", "app", map[string]string{"identity": "one"})
	callers := map[string]string{"identity": "two"}
	var got []auth.AuthorizeRequest
	opts := []auth.Option{auth.WithServiceAccount(key, k8s), testenv.Cached(t, "tenant-a"),
		auth.WithPolicy(auth.Policy{Authorize: func(_ context.Context, r auth.AuthorizeRequest) error {
			got = append(got, r)
			return nil
		}})}
	mustGet(t, provider, append(opts, auth.WithAnnotations(callers))...)
	mustGet(t, provider, append(opts, auth.WithAnnotations(callers))...)
	mustGet(t, provider, opts...)
	if len(got) != 3 || provider.mints.Load() != 2 {
		t.Fatalf("the hook was asked %d times, with %d exchanges", len(got), provider.mints.Load())
	}
	for _, r := range got[:2] {
		if r.Identity != "two" || !maps.Equal(r.Annotations, callers) {
			t.Errorf("the hook saw %+v", r)
		}
	}
	if got[2].Identity != "one" || got[2].Annotations != nil {
		t.Errorf("without the caller's annotations the hook saw %+v", got[2])
	}
}

func TestDerivedCredentialsHaveTheCallersIdentity(t *testing.T) {
	k8s, provider := newCluster(), newClouds()
	key := k8s.create("tenant-a", "app", map[string]string{"identity": "one"})
	var made []auth.Token
	provider.newToken = func(_ string, from []auth.Token) error { made = from; return nil }
	_, err := auth.GetArtifactRegistryCredentials(t.Context(), provider, "r.example.com/app",
		auth.WithServiceAccount(key, k8s),
		testenv.Cached(t, "tenant-a"), auth.WithAnnotations(map[string]string{"identity": "two"}))
	if err != nil {
		t.Fatal(err)
	}
	if from, ok := made[0].(*tagged); !ok || from.identity != "two" {
		t.Errorf("they are made of %+v", made[0])
	}
}
