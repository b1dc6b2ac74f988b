package auth

import (
	"context"
	"encoding/binary"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cache"
)

// keyProvider takes identity, audience, lifetime and an input of its own from
// annotations.
type keyProvider struct {
	name  string
	extra string
}

func (p keyProvider) GetName() string { return p.name }

func (keyProvider) NewControllerToken(context.Context, *provider.Options) (Token, error) {
	return nil, ErrUnavailable
}

func (keyProvider) GetAudiences(_ context.Context, sa *corev1.ServiceAccount, _ *provider.Options) ([]string, error) {
	return strings.Split(sa.Annotations["audiences"], ","), nil
}

func (keyProvider) GetIdentity(sa *corev1.ServiceAccount, _ *provider.Options) (string, error) {
	return sa.Annotations["identity"], nil
}

func (keyProvider) NewTokenForServiceAccount(context.Context, string, *corev1.ServiceAccount,
	*provider.Options) (Token, error) {
	return nil, ErrUnavailable
}

func (keyProvider) GetTokenLifetime(sa *corev1.ServiceAccount, _ *provider.Options) (time.Duration, error) {
	if sa.Annotations["lifetime"] == "" {
		return 0, nil
	}
	return time.ParseDuration(sa.Annotations["lifetime"])
}

func (keyProvider) ValidateOptions(*provider.Options) error { return nil }

func (p keyProvider) AddToCacheKey(k provider.KeyBuilder, sa *corev1.ServiceAccount, _ *provider.Options) {
	k.Add("extra", p.extra)
	if sa != nil {
		k.Add("extraAnnotation", sa.Annotations["extra"])
	}
}

// saReader answers every Get with one ServiceAccount, without copying more than
// a client has to.
type saReader struct {
	client.Client
	sa *corev1.ServiceAccount
}

func (r saReader) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if sa, ok := obj.(*corev1.ServiceAccount); ok {
		*sa = *r.sa
	}
	return nil
}

func testServiceAccount(change func(*corev1.ServiceAccount)) *corev1.ServiceAccount {
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "sa", UID: "uid-1",
		Annotations: map[string]string{"identity": "id", "audiences": "a"},
	}}
	if change != nil {
		change(sa)
	}
	return sa
}

func annotate(key, value string) func(*corev1.ServiceAccount) {
	return func(sa *corev1.ServiceAccount) { sa.Annotations[key] = value }
}

func keyOf(t *testing.T, provider Provider, opts ...Option) (cache.Key, string) {
	t.Helper()
	s := &resolved{provider: provider, operation: opAccessToken}
	s.opts.apply(opts)
	if err := s.resolve(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return s.key().sum(), string(s.key().inputs)
}

// keyCase is an input of a credential, set to something other than in the base
// case.
type keyCase struct {
	field    string // of Options; empty for what lies outside
	name     string
	provider Provider
	sa       *corev1.ServiceAccount
	opts     []Option
	same     string // why the key stays the same; empty if it must differ
}

func keyCases() []keyCase {
	anyAudience := WithPolicy(Policy{AllowAnyAudience: true})
	crossNamespace := WithPolicy(Policy{AllowCrossNamespace: func(cache.InvolvedObject, client.ObjectKey) bool {
		return true
	}})
	return []keyCase{
		{name: "provider", provider: keyProvider{name: "q"}},
		{name: "provider value", provider: keyProvider{name: "p", extra: "x"}},
		{name: "annotation of the provider", sa: testServiceAccount(annotate("extra", "x"))},
		{name: "identity", sa: testServiceAccount(annotate("identity", "id2"))},
		{name: "no identity", sa: testServiceAccount(annotate("identity", ""))},
		{name: "audience", sa: testServiceAccount(annotate("audiences", "b"))},
		{name: "two audiences", sa: testServiceAccount(annotate("audiences", "a,b"))},
		{name: "lifetime annotation", sa: testServiceAccount(annotate("lifetime", "20m"))},
		{name: "UID", sa: testServiceAccount(func(sa *corev1.ServiceAccount) { sa.UID = "uid-2" })},
		{name: "other annotation", sa: testServiceAccount(annotate("note", "x")), same: "it shapes nothing"},
		{field: "ServiceAccount", name: "name",
			opts: []Option{WithServiceAccount(client.ObjectKey{Namespace: "ns", Name: "sb"},
				saReader{sa: testServiceAccount(nil)})}},
		{field: "ServiceAccount", name: "namespace", opts: []Option{crossNamespace,
			WithServiceAccount(client.ObjectKey{Namespace: "nt", Name: "sa"}, saReader{sa: testServiceAccount(nil)})}},
		{field: "Client", opts: []Option{WithClient(saReader{sa: testServiceAccount(annotate("identity", "id2"))})}},
		{field: "SubjectToken", opts: []Option{func(o *Options) { o.ServiceAccount = nil },
			WithSubjectToken(fixedSource("token-1"), *testServiceAccount(nil))}},
		{field: "SubjectToken", name: "other token", opts: []Option{func(o *Options) { o.ServiceAccount = nil },
			WithSubjectToken(fixedSource("token-2"), *testServiceAccount(nil))}},
		{field: "SubjectServiceAccount", opts: []Option{func(o *Options) { o.ServiceAccount = nil },
			WithSubjectToken(fixedSource("token-1"), *testServiceAccount(annotate("identity", "id2")))}},
		{field: "SubjectIssuer", opts: []Option{WithSubjectIssuer(fixedSubject{"k", "i", "s"})}},
		{field: "SubjectIssuer", name: "other key", opts: []Option{WithSubjectIssuer(fixedSubject{"l", "i", "s"})}},
		{field: "TokenIssuer", opts: []Option{WithSubjectIssuer(fixedSubject{"k", "j", "s"})}},
		{field: "TokenIssuer", name: "none", opts: []Option{WithSubjectIssuer(fixedSubject{"k", "", "s"})}},
		{field: "TokenSubject", opts: []Option{WithSubjectIssuer(fixedSubject{"k", "i", "t"})}},
		{field: "ControllerAnnotations", opts: []Option{WithControllerAnnotations(map[string]string{"identity": "id3"})},
			same: "they count for the controller's own identity only"},
		{field: "Annotations", opts: []Option{WithAnnotations(map[string]string{"identity": "id3"})}},
		{field: "Annotations", name: "audience", opts: []Option{WithAnnotations(map[string]string{"audiences": "c"})}},
		{field: "Annotations", name: "of the provider", opts: []Option{WithAnnotations(map[string]string{"extra": "y"})}},
		{field: "Annotations", name: "as the ServiceAccount has them",
			opts: []Option{WithAnnotations(map[string]string{"identity": "id"})},
			same: "it is the same identity, wherever it was written"},
		{field: "BoundObject",
			opts: []Option{WithBoundObject(authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "p"})}},
		{field: "BoundObject", name: "UID",
			opts: []Option{WithBoundObject(authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "p",
				UID: types.UID("u")})}},
		{field: "TokenLifetime", opts: []Option{WithTokenLifetime(11 * time.Minute)}},
		{field: "ClusterID", opts: []Option{WithClusterID("c")}},
		{field: "Audiences", opts: []Option{anyAudience, WithAudiences("z")}},
		{field: "Audiences", name: "two", opts: []Option{anyAudience, WithAudiences("b", "c")}},
		{field: "Audiences", name: "joined", opts: []Option{anyAudience, WithAudiences("b,c")}},
		{field: "Scopes", opts: []Option{WithScopes("s")}},
		{field: "Scopes", name: "two", opts: []Option{WithScopes("s", "t")}},
		{field: "Scopes", name: "joined", opts: []Option{WithScopes("s,t")}},
		{field: "STSRegion", opts: []Option{WithSTSRegion("r")}},
		{field: "STSEndpoint", opts: []Option{WithSTSEndpoint("r")}},
		{field: "ProxyURL", opts: []Option{WithProxyURL(url.URL{Scheme: "http", Host: "r"})}},
		{field: "ProxyURL", name: "user",
			opts: []Option{WithProxyURL(url.URL{Scheme: "http", Host: "r", User: url.UserPassword("u", "p")})}},
		{field: "Cache", opts: []Option{WithCache(&cache.TokenCache{}, testOwner)},
			same: "where a token is kept does not shape it"},
		{field: "InvolvedObject", opts: []Option{WithCache(nil, cache.InvolvedObject{Namespace: "ns", Name: "other"})},
			same: "objects share ServiceAccounts"},
		{field: "Owner", opts: []Option{WithOwner(cache.InvolvedObject{Namespace: "ns", Name: "other"})},
			same: "objects share ServiceAccounts"},
		{field: "Policy", opts: []Option{anyAudience}, same: "the policy allows or refuses, on every call"},
		{field: "Subject", same: "it is ServiceAccount, or the name of SubjectServiceAccount"},
		{field: "OnBehalf", same: "it says whether there is a ServiceAccount or an owner"},
		{field: "defaulted", same: "it says where ServiceAccount comes from"},
		{field: "Settings", opts: []Option{WithSettings(&Settings{ObjectLevelWorkloadIdentity: true})},
			same: "they allow, or name a ServiceAccount"},
		{field: "MinimumLifetime", opts: []Option{WithMinimumLifetime(time.Minute)},
			same: "it says when to renew a credential"},
		{field: "Usage", opts: []Option{WithUsage(UsageDecryption)}, same: "it picks the ServiceAccount"},
		{field: "HTTPClient", opts: []Option{WithHTTPClient(&http.Client{})},
			same: "it is the controller's, never a tenant's"},
		{field: "CAData", opts: []Option{WithCAData("pem")}, same: "access tokens hold no certificates"},
		{field: "GitURL", opts: []Option{WithGitURL(url.URL{Scheme: "https", Host: "h"})},
			same: "access tokens are not for a repository"},
		{field: "own", opts: []Option{WithProviderOption("k", "v")}, same: "the provider that knows the option adds it"},
		{field: "ClusterAudience", opts: []Option{WithClusterAddress("https://C")},
			same: "access tokens are not for a cluster; its audience is in the key"},
		{field: "ClusterResource", opts: []Option{WithClusterResource("c")},
			same: "access tokens are not for a cluster; its audience is in the key"},
		{field: "ClusterAddress", opts: []Option{WithClusterAddress("c")},
			same: "access tokens are not for a cluster; its audience is in the key"},
		{field: "invalidBefore", opts: []Option{WithInvalidBefore(time.Now())},
			same: "the new credential takes the place of the old one"},
		{field: "private", opts: []Option{func(o *Options) { o.private = true }}, same: "it says whose cache it is"},
		{field: "patient", opts: []Option{func(o *Options) {
			o.patient = true
		}}, same: "it says how long to wait for a credential"},
		{field: "Identity", opts: []Option{func(o *Options) {
			o.Identity = "other"
		}}, same: "the call sets it to the provider's answer, which the key has"},
		{field: "TokenIssued", opts: []Option{func(o *Options) {
			o.TokenIssued = true
		}}, same: "it follows from the source, whose token the key has"},
		{field: "TokenInHand", opts: []Option{func(o *Options) {
			o.TokenInHand = true
		}}, same: "it follows from the source, whose token the key has"},
		{field: "TokenRepeats", opts: []Option{func(o *Options) {
			o.TokenRepeats = true
		}}, same: "it follows from the source, whose token the key has"},
		{field: "renews", opts: []Option{func(o *Options) { o.renews = true }}, same: "it says who asks again"},
		{field: "TracerProvider", opts: []Option{WithTracerProvider(noop.NewTracerProvider())},
			same: "spans record what happens and change nothing"},
		{field: "AllowShellOut", opts: []Option{WithAllowShellOut()}, same: "ServiceAccounts never use the environment"},
	}
}

type fixedSource string

func (s fixedSource) Token(context.Context, []string) (string, time.Time, error) {
	return string(s), time.Now().Add(time.Hour), nil
}

// fixedSubject is a SubjectIssuer with a key, an issuer and a subject, in this
// order.
type fixedSubject [3]string

func (s fixedSubject) Key() string { return s[0] }

func (s fixedSubject) Subject(*corev1.ServiceAccount, *Options) (SubjectClaims, error) {
	return SubjectClaims{Issuer: s[1], Subject: s[2]}, nil
}

func (fixedSubject) Token(context.Context, *corev1.ServiceAccount, []string, *Options) (string, time.Time, error) {
	return "", time.Time{}, ErrUnavailable
}

var testOwner = cache.InvolvedObject{Kind: "Thing", Namespace: "ns", Name: "object"}

// Every input that shapes a credential changes its key, and no two cases share
// one.
func TestKeyHoldsEveryInput(t *testing.T) {
	base := []Option{WithOwner(testOwner)}
	seen := map[cache.Key]string{}
	baseKey, _ := keyOf(t, keyProvider{name: "p"}, append(base,
		WithServiceAccount(client.ObjectKey{Namespace: "ns", Name: "sa"}, saReader{sa: testServiceAccount(nil)}))...)
	seen[baseKey] = "base"
	fields := map[string]bool{}
	for _, tc := range keyCases() {
		name := strings.TrimSpace(tc.field + " " + tc.name)
		fields[tc.field] = true
		if tc.provider == nil {
			tc.provider = keyProvider{name: "p"}
		}
		if tc.sa == nil {
			tc.sa = testServiceAccount(nil)
		}
		opts := append([]Option{}, base...)
		opts = append(opts, WithServiceAccount(client.ObjectKey{Namespace: "ns", Name: "sa"}, saReader{sa: tc.sa}))
		key, text := keyOf(t, tc.provider, append(opts, tc.opts...)...)
		if tc.same != "" {
			if key != baseKey {
				t.Errorf("%s: the key differs although %s:\n%q", name, tc.same, text)
			}
			continue
		}
		if other, dup := seen[key]; dup && name != "Client" {
			t.Errorf("%s: has the key of %s:\n%q", name, other, text)
		}
		seen[key] = name
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Options]()) {
		if !f.Anonymous && !fields[f.Name] {
			t.Errorf("Options.%s is in no case: add one, and the field to the key if it shapes the credential", f.Name)
		}
	}
}

func controllers(identity string) Option {
	return WithControllerAnnotations(map[string]string{"identity": identity, "audiences": "a"})
}

// At controller level the same, with the inputs that count there.
func TestControllerKeyHoldsEveryInput(t *testing.T) {
	anyAudience := WithPolicy(Policy{AllowAnyAudience: true})
	seen := map[cache.Key]string{}
	for name, opts := range map[string][]Option{
		"base":       nil,
		"source":     {WithSubjectIssuer(fixedSubject{"k", "i", "s"}), controllers("id")},
		"other key":  {WithSubjectIssuer(fixedSubject{"l", "i", "s"}), controllers("id")},
		"annotation": {WithSubjectIssuer(fixedSubject{"k", "i", "s"}), controllers("id2")},
		"scopes":     {WithScopes("s")},
		"region":     {WithSTSRegion("s")},
		"endpoint":   {WithSTSEndpoint("s")},
		"cluster":    {WithClusterID("s")},
		"proxy":      {WithProxyURL(url.URL{Scheme: "http", Host: "s"})},
		"audiences":  {anyAudience, WithAudiences("s")},
		"lifetime":   {WithTokenLifetime(time.Hour)},
		"bound":      {WithBoundObject(authenticationv1.BoundObjectReference{Name: "s"})},
		"shell out":  {WithAllowShellOut()},
		"an account": {WithServiceAccount(client.ObjectKey{Namespace: "ns", Name: "sa"},
			saReader{sa: testServiceAccount(nil)})},
	} {
		key, text := keyOf(t, keyProvider{name: "p"}, append(opts, WithOwner(testOwner))...)
		if other, dup := seen[key]; dup {
			t.Errorf("%s and %s share a key:\n%q", name, other, text)
		}
		seen[key] = name
	}
	plain, _ := keyOf(t, keyProvider{name: "p"})
	for name, opt := range map[string]Option{
		"CA": WithCAData("pem"), "client": WithHTTPClient(&http.Client{}), "owner": WithOwner(testOwner)} {
		if key, text := keyOf(t, keyProvider{name: "p"}, opt); key != plain {
			t.Errorf("%s splits the key:\n%q", name, text)
		}
	}
}

// Two different sequences of inputs never give the same bytes: from the bytes,
// the inputs can be read again.
func FuzzKeyIsInjective(f *testing.F) {
	f.Add("a", "b", "c", "")
	f.Add("1:x\nscopes=", "y", "1:x", "\nscopes=y")
	f.Add(strings.Repeat("x", 1<<7), strings.Repeat("y", 1<<7-1), "", strings.Repeat("z", 1<<14))
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		k := &keyBuilder{}
		var want []string
		add := func(name string, values ...string) {
			k.AddList(name, values)
			want = append(append(want, name, strconv.Itoa(len(values))), values...)
		}
		if b != "" {
			k.Add(a, b)
			want = append(want, a, "1", b)
		}
		add(b, c, d)
		k.inputs = append(k.inputs, nextPart)
		want = append(want, "next")
		add(c, d, a, b)
		k.AddList(c, nil)
		if got := readKey(k.inputs); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// readKey reads what KeyBuilder has written.
func readKey(b []byte) (read []string) {
	number := func() int {
		n, size := binary.Uvarint(b)
		b = b[size:]
		return int(n)
	}
	value := func() {
		n := number()
		read, b = append(read, string(b[:n])), b[n:]
	}
	for len(b) > 0 {
		part := b[0]
		if b = b[1:]; part == nextPart {
			read = append(read, "next")
			continue
		}
		value()
		values := number()
		read = append(read, strconv.Itoa(values))
		for range values {
			value()
		}
	}
	return read
}
