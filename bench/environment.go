package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	fluxauth "github.com/fluxcd/pkg/auth"
	fluxcache "github.com/fluxcd/pkg/cache"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
)

const (
	account    = "123456789012"
	region     = "eu-central-1"
	saName     = "app"
	repository = account + ".dkr.ecr." + region + ".amazonaws.com/team/app"
	clusterARN = "arn:aws:eks:" + region + ":" + account + ":cluster/remote"
)

// environment is what both libraries work with: a fake cloud and a Kubernetes
// client in memory.
type environment struct {
	cloud  *cloudtest.Cloud
	issuer *cloudtest.Issuer
	kube   *memory
	http   *http.Client // for ours; the reference clones its transport, http.DefaultTransport
	dir    string
}

func newEnvironment() (*environment, error) {
	issuer, err := cloudtest.NewIssuer(cloudtest.IssuerConfig{})
	if err != nil {
		return nil, err
	}
	cloud, err := cloudtest.NewCloud()
	if err != nil {
		return nil, err
	}
	cloud.AWS().AddOIDCProvider(account, issuer.URL(), issuer.HTTPClient(), aws.DefaultAudience)
	w := &environment{cloud: cloud, issuer: issuer, kube: &memory{accounts: map[client.ObjectKey]*tenant{}}}
	fluxauth.EnableObjectLevelWorkloadIdentity()
	if err := w.useDefaultTransport(); err != nil {
		return nil, err
	}
	return w, w.controllerIdentity()
}

func (w *environment) close() {
	w.cloud.Close()
	_ = os.RemoveAll(w.dir) // a temporary folder
}

// idleConnections is what the pool of ours has per host; http.DefaultTransport
// has two.
const idleConnections = 64

// useDefaultTransport has http.DefaultTransport dial the fake cloud: the
// reference uses clones of it and takes no client.
func (w *environment) useDefaultTransport() error {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return errors.New("http.DefaultTransport is not an *http.Transport")
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.cloud.CA())
	t.Proxy = nil
	t.DialContext = w.cloud.DialContext
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	t.MaxIdleConnsPerHost = idleConnections
	w.http = &http.Client{Transport: t}
	return nil
}

// closeConnections makes the next exchange a cold one.
func (w *environment) closeConnections() { w.http.CloseIdleConnections() }

// controllerIdentity gives this process a role by the usual environment of EKS,
// with credentials that end.
func (w *environment) controllerIdentity() (err error) {
	if w.dir, err = os.MkdirTemp("", "bench-"); err != nil {
		return err
	}
	controller := w.tenant("controllers", true)
	file := filepath.Join(w.dir, "token")
	if err := os.WriteFile(file, []byte(controller.jwt), 0o600); err != nil {
		return err
	}
	for name, value := range map[string]string{
		"AWS_REGION": region, "AWS_ROLE_ARN": roleOf(controller.key.Namespace), "AWS_WEB_IDENTITY_TOKEN_FILE": file,
		"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_PROFILE": "", "AWS_CA_BUNDLE": "",
		"AWS_CONFIG_FILE": filepath.Join(w.dir, "none"), "AWS_SHARED_CREDENTIALS_FILE": filepath.Join(w.dir, "none"),
	} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}

func roleOf(namespace string) string { return "arn:aws:iam::" + account + ":role/" + namespace }

// tenant is a namespace with a ServiceAccount, and a token of it that was
// signed beforehand: signing is the API server's work, not that of the
// libraries.
type tenant struct {
	key     client.ObjectKey
	account *corev1.ServiceAccount
	jwt     string
}

// tenant returns the tenant of that name. One that is not good has a role that
// trusts no subject.
func (w *environment) tenant(namespace string, good bool) *tenant {
	key := client.ObjectKey{Namespace: namespace, Name: saName}
	if t := w.kube.find(key); t != nil {
		return t
	}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: saName,
		UID:         types.UID("0a1b2c3d-0000-4000-8000-" + fmt.Sprintf("%012x", len(namespace)*7919)),
		Annotations: map[string]string{aws.RoleARNAnnotation: roleOf(namespace)}}}
	jwt, err := w.issuer.Sign(w.issuer.Claims(sa, []string{aws.DefaultAudience}, 24*time.Hour))
	if err != nil {
		panic(err) // a key that was just made signs
	}
	if good {
		w.cloud.AWS().SetRole(roleOf(namespace),
			cloudtest.Trust{Issuer: w.issuer.URL(), Subjects: []string{"system:serviceaccount:" + namespace + ":" + saName}})
	}
	t := &tenant{key: key, account: sa, jwt: jwt}
	w.kube.add(t)
	return t
}

// tenants returns n of them, made by all cores.
func (w *environment) tenants(prefix string, n int, good bool) []*tenant {
	all := make([]*tenant, n)
	var wg sync.WaitGroup
	for part := range parts {
		wg.Go(func() {
			for i := part; i < n; i += parts {
				all[i] = w.tenant(fmt.Sprintf("%s-%05d", prefix, i), good)
			}
		})
	}
	wg.Wait()
	return all
}

const parts = 4

// memory is a Kubernetes client that reads ServiceAccounts from memory, without
// a deep copy, and hands out the tokens that were signed beforehand.
type memory struct {
	client.Client // nil unless informed

	mu       sync.RWMutex
	accounts map[client.ObjectKey]*tenant
	informed bool // ServiceAccounts are read with Client
}

func (m *memory) find(key client.ObjectKey) *tenant {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.accounts[key]
}

func (m *memory) add(t *tenant) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.accounts[t.key] = t
}

// Get implements client.Reader.
func (m *memory) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if m.informed {
		return m.Client.Get(ctx, key, obj, opts...)
	}
	t := m.find(key)
	sa, ok := obj.(*corev1.ServiceAccount)
	if t == nil || !ok {
		return apierrors.NewNotFound(corev1.Resource("serviceaccounts"), key.Name)
	}
	*sa = *t.account
	return nil
}

// SubResource implements client.Client.
func (m *memory) SubResource(string) client.SubResourceClient { return tokens{memory: m} }

type tokens struct {
	client.SubResourceClient // nil
	memory                   *memory
}

// Create issues a token.
func (t tokens) Create(_ context.Context, obj, sub client.Object, _ ...client.SubResourceCreateOption) error {
	found := t.memory.find(client.ObjectKeyFromObject(obj))
	request, ok := sub.(*authenticationv1.TokenRequest)
	if found == nil || !ok {
		return apierrors.NewNotFound(corev1.Resource("serviceaccounts"), obj.GetName())
	}
	request.Status.Token = found.jwt
	request.Status.ExpirationTimestamp = metav1.NewTime(time.Now().Add(time.Hour))
	return nil
}

// The two libraries' options for the same thing.

func (w *environment) ours(c *cache.TokenCache, t *tenant, more ...auth.Option) []auth.Option {
	opts := []auth.Option{auth.WithSTSRegion(region), auth.WithHTTPClient(w.http)}
	object := cache.InvolvedObject{Kind: "Bucket", Name: "b", Namespace: "flux-system", Operation: "reconcile"}
	if t != nil {
		opts = append(opts, auth.WithServiceAccount(t.key, w.kube))
		object.Namespace = t.key.Namespace
	}
	return append(append(opts, auth.WithCache(c, object)), more...)
}

func (w *environment) theirs(c *fluxcache.TokenCache, t *tenant, more ...fluxauth.Option) []fluxauth.Option {
	opts := []fluxauth.Option{fluxauth.WithSTSRegion(region)}
	object := fluxcache.InvolvedObject{Kind: "Bucket", Name: "b", Namespace: "flux-system", Operation: "reconcile"}
	if t != nil {
		opts = append(opts, fluxauth.WithClient(w.kube), fluxauth.WithServiceAccountName(t.key.Name),
			fluxauth.WithServiceAccountNamespace(t.key.Namespace))
		object.Namespace = t.key.Namespace
	}
	return append(append(opts, fluxauth.WithCache(*c, object)), more...)
}

// caches returns one of each, for as many tokens, and the function that ends
// them.
func caches(size int) (*cache.TokenCache, *fluxcache.TokenCache, func(), error) {
	ours, err := cache.NewTokenCache(size, cache.WithRate(rate.Inf, 0))
	if err != nil {
		return nil, nil, nil, err
	}
	theirs, err := fluxcache.NewTokenCache(size)
	if err != nil {
		return nil, nil, nil, err
	}
	return ours, theirs, ours.Close, nil
}
