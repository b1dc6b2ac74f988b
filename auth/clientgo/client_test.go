package clientgo_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	k8stesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/clientgo"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/auth/token"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m).Run()) }

var app = client.ObjectKey{Namespace: "tenant-a", Name: "app"}

// get asks for a token of the ServiceAccount for the audience "vault".
func get(t *testing.T, kube auth.KubernetesClient, key client.ObjectKey) (auth.Token, error) {
	t.Helper()
	return auth.GetAccessToken(t.Context(), &token.Provider{}, auth.WithServiceAccount(key, kube),
		auth.WithOwner(cache.InvolvedObject{Kind: "Bucket", Namespace: key.Namespace, Name: "b"}),
		auth.WithAudiences("vault"), auth.WithPolicy(auth.Policy{Audiences: []string{"vault"}}))
}

// issue has the clientset issue tokens of the issuer, as an API server does.
func issue(clientset *fake.Clientset, issuer *cloudtest.Issuer) {
	clientset.PrependReactor("create", "serviceaccounts", func(action k8stesting.Action) (bool, runtime.Object, error) {
		create, ok := action.(k8stesting.CreateActionImpl)
		if !ok || create.Subresource != "token" {
			return false, nil, nil
		}
		request, ok := create.Object.(*authenticationv1.TokenRequest)
		if !ok {
			return false, nil, nil
		}
		sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: create.Namespace, Name: create.Name,
			UID: request.UID}}
		lifetime := time.Duration(*request.Spec.ExpirationSeconds) * time.Second
		signed, err := issuer.Sign(issuer.Claims(sa, request.Spec.Audiences, lifetime))
		answer := request.DeepCopy()
		answer.Status = authenticationv1.TokenRequestStatus{Token: signed,
			ExpirationTimestamp: metav1.NewTime(time.Now().Add(lifetime))}
		return true, answer, err
	})
}

func TestServiceAccountThroughAClientset(t *testing.T) {
	issuer := testenv.Issuer(t)
	clientset := fake.NewClientset(testenv.ServiceAccount(app.Namespace, app.Name))
	issue(clientset, issuer)
	if got, err := get(t, clientgo.New(clientset), app); err != nil || got.GetDuration() < 50*time.Minute {
		t.Errorf("got %v, %v", got, err)
	}
}

// A refusal reads the same through both kinds of client.
func TestErrorsAreThoseOfControllerRuntime(t *testing.T) {
	resource := corev1.Resource("serviceaccounts")
	forbidden := apierrors.NewForbidden(resource, "app", errors.New("no rule"))
	for name, tc := range map[string]struct {
		verb   string
		err    error
		reason provider.Reason
		remedy string
	}{
		"read forbidden":  {"get", forbidden, auth.ErrDenied, "the verb get on serviceaccounts"},
		"read not found":  {"get", apierrors.NewNotFound(resource, "app"), auth.ErrMisconfigured, "create it"},
		"token forbidden": {"create", forbidden, auth.ErrDenied, "the verb create on serviceaccounts/token"},
		"token conflict": {"create", apierrors.NewConflict(resource, "app", errors.New("other UID")),
			auth.ErrUnavailable, ""},
		"token throttled":  {"create", apierrors.NewTooManyRequests("slowly", 1), auth.ErrThrottled, ""},
		"read unavailable": {"get", apierrors.NewServiceUnavailable("later"), auth.ErrUnavailable, ""},
	} {
		t.Run(name, func(t *testing.T) {
			clientset := fake.NewClientset(testenv.ServiceAccount(app.Namespace, app.Name))
			clientset.PrependReactor(tc.verb, "serviceaccounts", func(k8stesting.Action) (bool, runtime.Object, error) {
				return true, nil, tc.err
			})
			_, err := get(t, clientgo.New(clientset), app)
			testenv.CheckError(t, err, tc.reason, tc.remedy)
			_,
				want := get(t, refusing{testenv.Issuer(t).Client(testenv.ServiceAccount(app.Namespace, app.Name)), tc.verb, tc.err},
				app)
			if want == nil || err.Error() != want.Error() {
				t.Errorf("got  %v\nwant %v", err, want)
			}
		})
	}
}

// refusing is a client that fails.
type refusing struct {
	auth.KubernetesClient
	verb string
	err  error
}

func (r refusing) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if r.verb == "get" {
		return r.err
	}
	return r.KubernetesClient.Get(ctx, key, obj, opts...)
}

func (r refusing) SubResource(string) client.SubResourceClient { return refusingTokens{err: r.err} }

type refusingTokens struct {
	client.SubResourceClient
	err error
}

func (r refusingTokens) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	return r.err
}

func TestClusterReferenceThroughAClientset(t *testing.T) {
	issuer := testenv.Issuer(t)
	clientset := fake.NewClientset(testenv.ServiceAccount(app.Namespace, app.Name), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: app.Namespace, Name: "cluster"},
		Data: map[string]string{"provider": "generic", "address": "https://cluster.example",
			"serviceAccountName": app.Name}})
	issue(clientset, issuer)
	providers, err := auth.NewProviderSet(&token.Provider{})
	if err != nil {
		t.Fatal(err)
	}
	config, err := auth.GetClusterConfigFromConfigMap(t.Context(), providers,
		client.ObjectKey{Namespace: app.Namespace, Name: "cluster"},
		clientgo.New(clientset),
		auth.WithOwner(cache.InvolvedObject{Kind: "Kustomization", Namespace: app.Namespace, Name: "k"}))
	if err != nil || config.Host != "https://cluster.example:443" {
		t.Errorf("got %v, %v", config, err)
	}
}

// A typed client needs no clientset around it. One without ConfigMaps refuses
// them.
func TestTypedClient(t *testing.T) {
	clientset := fake.NewClientset(
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app"}})
	key := client.ObjectKey{Namespace: "tenant-a", Name: "app"}
	for name, tc := range map[string]struct {
		of   typedcorev1.ServiceAccountsGetter
		maps bool
	}{
		"all of core": {clientset.CoreV1(), true},
		"ServiceAccounts only": {struct {
			typedcorev1.ServiceAccountsGetter
		}{clientset.CoreV1()}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := clientgo.NewForServiceAccounts(tc.of)
			if err := c.Get(t.Context(), key, &corev1.ServiceAccount{}); err != nil {
				t.Error(err)
			}
			if err := c.Get(t.Context(), key, &corev1.ConfigMap{}); (err == nil) != tc.maps {
				t.Errorf("ConfigMap: %v", err)
			}
		})
	}
}

func TestClientRefusesEverythingElse(t *testing.T) {
	kube := clientgo.New(fake.NewClientset())
	sub, account := kube.SubResource("token"), &corev1.ServiceAccount{}
	for name, err := range map[string]error{
		"get of another kind": kube.Get(t.Context(), app, &corev1.Secret{}),
		"another sub-resource": kube.SubResource("scale").Create(t.Context(), &corev1.ServiceAccount{},
			&authenticationv1.TokenRequest{}),
		"another kind with a token": kube.SubResource("token").Create(t.Context(), &corev1.Pod{},
			&authenticationv1.TokenRequest{}),
		"another body of the request": kube.SubResource("token").Create(t.Context(), &corev1.ServiceAccount{}, &corev1.Pod{}),
		"get of a sub-resource":       sub.Get(t.Context(), account, &authenticationv1.TokenRequest{}),
		"update":                      sub.Update(t.Context(), account),
		"patch":                       sub.Patch(t.Context(), account, client.Merge),
		"apply":                       sub.Apply(t.Context(), nil),
	} {
		if err == nil || !strings.Contains(err.Error(), "the client for auth") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// On a real API server, both kinds of client get the same token and the same
// refusals.
func TestRealAPIServer(t *testing.T) {
	cluster := kubetest.Start(t)
	namespace := cluster.Namespace(t)
	key := client.ObjectKey{Namespace: namespace, Name: "app"}
	if err := cluster.Client().Create(t.Context(), testenv.ServiceAccount(key.Namespace, key.Name)); err != nil {
		t.Fatal(err)
	}
	rule := func(resource, verb string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{resource}, Verbs: []string{verb}}
	}
	read, request := rule("serviceaccounts", "get"), rule("serviceaccounts/token", "create")
	for name, tc := range map[string]struct {
		rules []rbacv1.PolicyRule
		key   client.ObjectKey
		want  error
	}{
		"all rights":      {[]rbacv1.PolicyRule{read, request}, key, nil},
		"no right to ask": {[]rbacv1.PolicyRule{read}, key, auth.ErrDenied},
		"no rights":       {nil, key, auth.ErrDenied},
		"not found": {[]rbacv1.PolicyRule{read, request}, client.ObjectKey{Namespace: namespace, Name: "gone"},
			auth.ErrMisconfigured},
	} {
		t.Run(name, func(t *testing.T) {
			config := cluster.User(t, "client-go-"+strings.ReplaceAll(name, " ", "-"), namespace, tc.rules...)
			clientset, err := kubernetes.NewForConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			other, err := client.New(config, client.Options{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := get(t, clientgo.New(clientset), tc.key)
			_, same := get(t, other, tc.key)
			if !errors.Is(err, tc.want) || (got == nil) == (err == nil) {
				t.Fatalf("got %v, %v, want %v", got, err, tc.want)
			}
			if err != nil && err.Error() != same.Error() {
				t.Errorf("through client-go %v\nthrough controller-runtime %v", err, same)
			}
		})
	}
}
