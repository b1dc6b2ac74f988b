package auth_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

func TestParseClusterReference(t *testing.T) {
	cloud := testenv.Cloud(t)
	ca := string(cloud.CA())
	for name, tc := range map[string]struct {
		data map[string]string
		want string // "" if it is accepted
	}{
		"cluster":             {map[string]string{"provider": "aws", "cluster": "c"}, ""},
		"cluster and address": {map[string]string{"provider": "aws", "cluster": "c", "address": "https://h"}, ""},
		"cluster and CA":      {map[string]string{"provider": "aws", "cluster": "c", "ca.crt": ca}, ""},
		"address and CA":      {map[string]string{"provider": "aws", "address": "https://h", "ca.crt": ca}, ""},
		"generic":             {map[string]string{"provider": "generic", "address": "https://h"}, ""},
		"generic with CA":     {map[string]string{"provider": "generic", "address": "https://h", "ca.crt": ca + ca}, ""},
		"unknown keys":        {map[string]string{"provider": "aws", "cluster": "c", "note": "x"}, ""},
		// the provider decides
		"all three": {map[string]string{"provider": "aws", "cluster": "c", "address": "https://h",
			"ca.crt": ca}, ""},
		"empty optional keys": {map[string]string{"provider": "aws", "cluster": "c", "address": "", "ca.crt": " \n",
			"serviceAccountName": "", "audiences": ""}, ""},
		"empty cluster": {map[string]string{"provider": "aws", "cluster": " ", "address": "https://h",
			"ca.crt": ca}, ""},
		"generic, empty cluster": {map[string]string{"provider": "generic", "cluster": "", "address": "https://h"}, ""},
		"empty provider":         {map[string]string{"provider": " ", "cluster": "c"}, `"provider" is missing`},
		"all of them empty": {map[string]string{"provider": "aws", "cluster": "", "address": "", "ca.crt": ""},
			`"cluster"`},
		"generic, empty address": {map[string]string{"provider": "generic", "address": "", "ca.crt": ca},
			`"address" is missing`},
		"nothing":                 {nil, `"provider" is missing`},
		"no provider":             {map[string]string{"cluster": "c"}, `"provider" is missing`},
		"only a provider":         {map[string]string{"provider": "aws"}, `"cluster"`},
		"only an address":         {map[string]string{"provider": "gcp", "address": "https://h"}, ""}, // the provider decides
		"only a CA":               {map[string]string{"provider": "aws", "ca.crt": ca}, `"address"`},
		"generic without address": {map[string]string{"provider": "generic", "ca.crt": ca}, `"address" is missing`},
		"generic with cluster": {map[string]string{"provider": "generic", "address": "https://h", "cluster": "c"},
			`"cluster" is set`},
		"bad ServiceAccount": {map[string]string{"provider": "aws", "cluster": "c", "serviceAccountName": "other/app"},
			`"other/app"`},
		"http": {map[string]string{"provider": "generic", "address": "http://h"},
			`the key "address": the cluster address "http://h"`},
		"bad PEM": {map[string]string{"provider": "generic", "address": "https://h", "ca.crt": "-----BEGIN"},
			`the key "ca.crt": the CA data holds no PEM certificate`},
		"a key": {map[string]string{"provider": "generic", "address": "https://h",
			"ca.crt": "-----BEGIN PRIVATE KEY-----\nAA==\n-----END PRIVATE KEY-----"}, `"PRIVATE KEY"`},
		"CA of garbage": {map[string]string{"provider": "generic", "address": "https://h",
			"ca.crt": "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----"}, "malformed"},
		"huge CA": {map[string]string{"provider": "generic", "address": "https://h",
			"ca.crt": ca + strings.Repeat("x", 64<<10)}, "at most 65536"},
		"huge address": {map[string]string{"provider": "generic",
			"address": "https://h/" + strings.Repeat("x", 64<<10)}, "at most 2048"},
		"audiences of a map":     {map[string]string{"provider": "aws", "cluster": "c", "audiences": "- a: b"}, "YAML list"},
		"audiences unclosed":     {map[string]string{"provider": "aws", "cluster": "c", "audiences": "[a"}, `"[a"`},
		"audiences of nothing":   {map[string]string{"provider": "aws", "cluster": "c", "audiences": "[]"}, "0 entries"},
		"audience that is empty": {map[string]string{"provider": "aws", "cluster": "c", "audiences": "- ''"}, `""`},
		"audiences with blanks":  {map[string]string{"provider": "aws", "cluster": "c", "audiences": "a b"}, `"a b"`},
		"audiences without end": {map[string]string{"provider": "aws", "cluster": "c",
			"audiences": strings.Repeat("a\n", 1000)}, "entries"},
		"alias bomb": {map[string]string{"provider": "aws", "cluster": "c", "audiences": "- &a x\n- *a"},
			"YAML list"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := auth.ParseClusterReference(tc.data)
			if tc.want == "" && err != nil ||
				tc.want != "" && (!errors.Is(err, auth.ErrMisconfigured) || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v", err)
			}
		})
	}
	for text, want := range map[string][]string{
		"- https://h/*?a=1&b=*": {"https://h/*?a=1&b=*"}, "[spiffe://*.h/a&b]": {"spiffe://*.h/a&b"},
		"- a\n- b\n": {"a", "b"}, "[a, b]": {"a", "b"}, "a\n\n  b \n": {"a", "b"}, "# which\n- a": {"a"},
		"- https://x:6443/y": {"https://x:6443/y"},
	} {
		r, err := auth.ParseClusterReference(map[string]string{"provider": "aws", "cluster": "c", "audiences": text})
		if err != nil || !slices.Equal(r.Audiences, want) {
			t.Errorf("%q: got %q, %v, want %q", text, r.Audiences, err, want)
		}
	}
}

// A small text that stands for a huge one is refused before it is one, wherever
// YAML lets an alias stand.
func TestAliasesAreNotFollowed(t *testing.T) {
	for _, alias := range []string{" *a", ",*a", "-\n*a", "\r*a", `"":*a`, "'':*a", "{*a :1}", "?*a", "\u0085*a",
		"\u2028*a", "!*a", "{'':&b x}"} {
		_,
			err := auth.ParseClusterReference(map[string]string{"provider": "aws", "cluster": "c",
			"audiences": "[x," + alias + "]"})
		if err == nil || !strings.Contains(err.Error(), "without anchors and aliases") {
			t.Errorf("%q: %v", alias, err)
		}
	}
}

func FuzzParseClusterReference(f *testing.F) {
	f.Add("generic", "", "https://h", "app", "- a", "")
	f.Add("aws", "c", "", "", "a\nb", "-----BEGIN CERTIFICATE-----")
	f.Fuzz(func(t *testing.T, provider, cluster, address, name, audiences, ca string) {
		data := map[string]string{"provider": provider, "cluster": cluster, "address": address, "serviceAccountName": name,
			"audiences": audiences, "ca.crt": ca}
		r, err := auth.ParseClusterReference(data)
		if err != nil {
			return
		}
		if r.Provider == "" || r.Cluster == "" && r.Address == "" ||
			slices.Contains(r.Audiences, "") || strings.ContainsAny(r.ServiceAccountName, "/ \n") {
			t.Errorf("accepted %+v", r)
		}
	})
}

func TestClusterConfigFromConfigMap(t *testing.T) {
	issuer := testenv.Issuer(t)
	configMap := func(namespace, name string, data map[string]string) client.Object {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data}
	}
	c := issuer.Client(
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: "app"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-b", Name: "app"}},
		configMap("tenant-a", "good",
			map[string]string{"provider": "exchange", "cluster": "c1", "serviceAccountName": "app"}),
		configMap("tenant-a", "own", map[string]string{"provider": "exchange", "cluster": "c1"}),
		configMap("tenant-a", "empty keys",
			map[string]string{"provider": "exchange", "cluster": "c1", "serviceAccountName": "app", "address": "",
				"ca.crt": "\n", "audiences": ""}),
		configMap("tenant-a", "all three",
			map[string]string{"provider": "exchange", "cluster": "c1", "serviceAccountName": "app", "address": "https://h",
				"ca.crt": string(testenv.Cloud(t).CA())}),
		configMap("tenant-a", "unknown", map[string]string{"provider": "unknown", "cluster": "c1"}),
		configMap("tenant-a", "relay",
			map[string]string{"provider": "exchange", "cluster": "c1", "serviceAccountName": "app", "audiences": "vault"}),
		configMap("tenant-b", "good",
			map[string]string{"provider": "exchange", "cluster": "c1", "serviceAccountName": "app"}),
	)
	provider := newClouds()
	providers := newSet(t, provider)
	get := func(namespace, name string, opts ...auth.Option) (string, error) {
		config, err := auth.GetClusterConfigFromConfigMap(t.Context(), providers,
			client.ObjectKey{Namespace: namespace, Name: name}, c,
			append([]auth.Option{testenv.Cached(t, "tenant-a")}, opts...)...)
		if err != nil {
			return "", err
		}
		server := &apiServer{}
		if _, err := clusterClient(t, config, server).RoundTrip(request(t.Context(), t, config.Host)); err != nil {
			return "", err
		}
		return server.bearers[0], nil
	}
	if got, err := get("tenant-a", "good"); err != nil || got != "cluster c1[tenant-a/app#1](cluster)" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := get("tenant-a", "empty keys"); err != nil || got != "cluster c1[tenant-a/app#2](cluster)" {
		t.Errorf("empty keys: %q, %v", got, err)
	}
	allowed := auth.WithPolicy(auth.Policy{AllowCluster: func(r auth.ClusterRequest) bool { return r.Resource == "c1" }})
	if got, err := get("tenant-a", "own", allowed); err != nil || !strings.Contains(got, "[controller#") {
		t.Errorf("without a ServiceAccount: %q, %v", got, err)
	}
	settings := auth.WithSettings(&auth.Settings{ObjectLevelWorkloadIdentity: true,
		DefaultKubeConfigServiceAccount: "app"})
	if got, err := get("tenant-a", "own", settings); err != nil || !strings.Contains(got, "[tenant-a/app#") {
		t.Errorf("with a default: %q, %v", got, err)
	}
	for _, tc := range []struct {
		namespace, name string
		reason          error
		want            string
		opts            []auth.Option
	}{
		{"tenant-a", "missing", auth.ErrMisconfigured, `"tenant-a/missing"`, nil},
		{"tenant-a", "unknown", auth.ErrMisconfigured, `"unknown"`, nil},
		{"tenant-a", "all three", auth.ErrMisconfigured, "are all set", nil},
		{"tenant-a", "relay", auth.ErrDenied, `"vault"`, nil},
		{"tenant-b", "good", auth.ErrDenied, `"tenant-a"`, nil},
		{"tenant-a", "own", auth.ErrDenied, "Policy.AllowCluster", nil},
		{"tenant-a", "own", auth.ErrDenied, "own identity",
			[]auth.Option{auth.WithPolicy(auth.Policy{RequireServiceAccount: true})}},
	} {
		if _, err := get(tc.namespace, tc.name, tc.opts...); !errors.Is(err, tc.reason) ||
			!strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), strconv.Quote(tc.namespace+"/"+tc.name)) {
			t.Errorf("%s/%s: got %v, want %v with %q", tc.namespace, tc.name, err, tc.reason, tc.want)
		}
	}
}

// Policy.AllowConfigMap has to allow a ConfigMap that does not lie in the
// namespace of the owner.
func TestAllowConfigMap(t *testing.T) {
	key := client.ObjectKey{Namespace: "tenant-a", Name: "production"}
	reads := &configMaps{data: map[string]string{"provider": "exchange", "cluster": "c1"}}
	providers := newSet(t, newClouds())
	for name, tc := range map[string]struct {
		owner  cache.InvolvedObject
		reason provider.Reason // of the error with a nil AllowConfigMap; "" if it is not asked
		want   string
	}{
		"owner of its namespace": {owner: cache.InvolvedObject{Kind: "Kustomization", Namespace: "tenant-a", Name: "k"}},
		"owner of another namespace": {cache.InvolvedObject{Kind: "Kustomization", Namespace: "tenant-b", Name: "k"},
			auth.ErrDenied, `Kustomization "k"`},
		"owner without any namespace": {cache.InvolvedObject{Kind: "ClusterThing", Name: "k"}, auth.ErrMisconfigured,
			"Policy.AllowConfigMap"},
		"no owner": {reason: auth.ErrMisconfigured, want: "Policy.AllowConfigMap"},
	} {
		t.Run(name, func(t *testing.T) {
			reads.count = 0
			get := func(p auth.Policy) error {
				_, err := auth.GetClusterConfigFromConfigMap(t.Context(), providers, key, reads, auth.WithOwner(tc.owner),
					auth.WithPolicy(p))
				return err
			}
			clusters := 0
			p := auth.Policy{AllowCluster: func(r auth.ClusterRequest) bool {
				clusters++
				return r.Owner != cache.InvolvedObject{}
			}}
			if err := get(p); tc.reason == "" && err != nil {
				t.Errorf("got %v", err)
			} else if tc.reason != "" {
				testenv.CheckError(t, err, tc.reason, `"tenant-a/production"`, tc.want)
				if reads.count != 0 {
					t.Error("the ConfigMap was read")
				}
			}
			asked := 0
			p.AllowConfigMap = func(owner cache.InvolvedObject, configMap client.ObjectKey) bool {
				asked++
				return owner == tc.owner && configMap == key
			}
			clusters = 0
			if err := get(p); err != nil || clusters == 0 {
				t.Errorf("allowed: %v, with %d questions about the cluster", err, clusters)
			}
			if (asked > 0) != (tc.reason != "") {
				t.Errorf("the Policy was asked %d times", asked)
			}
		})
	}
}

// configMaps is a client with one ConfigMap of every name.
type configMaps struct {
	client.Client
	data  map[string]string
	count int
}

func (c *configMaps) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	c.count++
	if cm, ok := obj.(*corev1.ConfigMap); ok {
		cm.Namespace, cm.Name, cm.Data = key.Namespace, key.Name, c.data
	}
	return nil
}
