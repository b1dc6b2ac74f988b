package auth_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
)

// cluster is an API server reduced to what the algorithm asks of it, with hooks
// for what can go wrong. The suites with cloudtest and with a real API server
// are in the packages of the providers.
type cluster struct {
	client.Client

	mu       sync.Mutex
	accounts map[client.ObjectKey]*corev1.ServiceAccount
	uids     int

	reads, requests atomic.Int64
	readErr         error
	requestErr      error
	claims          func(map[string]any)    // changes the token's claims
	raw             func(jwt string) string // changes the token itself
}

func newCluster() *cluster {
	return &cluster{accounts: map[client.ObjectKey]*corev1.ServiceAccount{}}
}

// create adds or re-creates a ServiceAccount, with a new UID.
func (c *cluster) create(namespace, name string, annotations map[string]string) client.ObjectKey {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uids++
	key := client.ObjectKey{Namespace: namespace, Name: name}
	c.accounts[key] = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		UID: types.UID(fmt.Sprintf("uid-%d", c.uids)), Annotations: annotations}}
	return key
}

func (c *cluster) annotate(key client.ObjectKey, annotations map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sa := c.accounts[key].DeepCopy()
	sa.Annotations = annotations
	c.accounts[key] = sa
}

// fail has requests for tokens fail with err, or succeed again if it is nil.
func (c *cluster) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requestErr = err
}

// terminate marks a ServiceAccount as being deleted.
func (c *cluster) terminate(key client.ObjectKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sa := c.accounts[key].DeepCopy()
	sa.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	c.accounts[key] = sa
}

func (c *cluster) remove(key client.ObjectKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.accounts, key)
}

var serviceAccounts = schema.GroupResource{Resource: "serviceaccounts"}

func (c *cluster) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	c.reads.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.readErr != nil {
		return c.readErr
	}
	stored, ok := c.accounts[key]
	sa, isAccount := obj.(*corev1.ServiceAccount)
	if !ok || !isAccount {
		return apierrors.NewNotFound(serviceAccounts, key.Name)
	}
	stored.DeepCopyInto(sa)
	return nil
}

func (c *cluster) SubResource(name string) client.SubResourceClient {
	if name != "token" {
		return nil
	}
	return tokens{cluster: c}
}

type tokens struct {
	client.SubResourceClient
	cluster *cluster
}

func (t tokens) Create(_ context.Context, obj, sub client.Object, _ ...client.SubResourceCreateOption) error {
	c := t.cluster
	serial := c.requests.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.requestErr != nil {
		return c.requestErr
	}
	request, ok := sub.(*authenticationv1.TokenRequest)
	stored := c.accounts[client.ObjectKeyFromObject(obj)]
	if !ok || stored == nil {
		return apierrors.NewNotFound(serviceAccounts, obj.GetName())
	}
	if uid := request.UID; uid != "" && uid != stored.UID {
		return apierrors.NewConflict(serviceAccounts, obj.GetName(), errors.New("the UID does not match"))
	}
	expiry := time.Now().Add(time.Duration(*request.Spec.ExpirationSeconds) * time.Second)
	claims := map[string]any{
		"iss": "https://issuer.example", "sub": "system:serviceaccount:" + stored.Namespace + ":" + stored.Name,
		"aud": request.Spec.Audiences, "exp": expiry.Unix(), "jti": serial,
		"kubernetes.io": map[string]any{"serviceaccount": map[string]any{"uid": stored.UID}},
	}
	if c.claims != nil {
		c.claims(claims)
	}
	request.Status.Token = unsigned(claims)
	if c.raw != nil {
		request.Status.Token = c.raw(request.Status.Token)
	}
	request.Status.ExpirationTimestamp = metav1.NewTime(expiry)
	return nil
}

func unsigned(claims map[string]any) string {
	payload, err := json.Marshal(claims)
	if err != nil {
		panic(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none"}`)) + "." + encode(payload) + "." + encode([]byte(canary))
}

// canary marks every subject token of these tests; it must appear nowhere.
const canary = "canary-in-the-signature"

func newSet(t *testing.T, providers ...auth.Provider) *auth.ProviderSet {
	t.Helper()
	set, err := auth.NewProviderSet(providers...)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// exchange is a provider that hands out tagged tokens, with hooks for what can
// go wrong.
type exchange struct {
	mints      atomic.Int64
	controller atomic.Int64
	lifetime   time.Duration
	mint       func(ctx context.Context, jwt string) (auth.Token, error)
	inspect    func(corev1.ServiceAccount)
}

// tagged carries the identity that it was minted for.
type tagged struct {
	subject, identity string
	serial            int64
	expires           time.Time
}

func (t *tagged) GetDuration() time.Duration { return time.Until(t.expires) }

func (*exchange) GetName() string { return "exchange" }

func (e *exchange) NewControllerToken(context.Context, *provider.Options) (auth.Token, error) {
	e.controller.Add(1)
	return e.token("controller", ""), nil
}

func (*exchange) GetAudiences(context.Context, *corev1.ServiceAccount, *provider.Options) ([]string, error) {
	return []string{"exchange"}, nil
}

func (e *exchange) GetIdentity(sa *corev1.ServiceAccount, _ *provider.Options) (string, error) {
	if e.inspect != nil {
		e.inspect(*sa)
	}
	if identity := sa.Annotations["identity"]; identity != "malformed" {
		return identity, nil
	}
	return "", &auth.Error{Reason: auth.ErrMisconfigured, Message: `the annotation "identity" is malformed`}
}

func (e *exchange) NewTokenForServiceAccount(ctx context.Context, jwt string, sa *corev1.ServiceAccount,
	_ *provider.Options,
) (auth.Token, error) {
	if e.mint != nil {
		e.mints.Add(1)
		return e.mint(ctx, jwt)
	}
	identity := maps.Clone(sa.Annotations)["identity"]
	return e.token(sa.Namespace+"/"+sa.Name, identity), nil
}

func (e *exchange) token(subject, identity string) *tagged {
	lifetime := e.lifetime
	if lifetime == 0 {
		lifetime = time.Hour
	}
	return &tagged{subject: subject, identity: identity, serial: e.mints.Add(1), expires: time.Now().Add(lifetime)}
}
