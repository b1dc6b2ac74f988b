package flux_test

import (
	"errors"
	"testing"

	fluxauth "github.com/fluxcd/pkg/auth"
	fluxaws "github.com/fluxcd/pkg/auth/aws"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cache"
)

// object is the involved object of calls that no reconciler makes.
var object = cache.InvolvedObject{Kind: sourcev1.BucketKind, Name: bucketKey.Name, Namespace: tenant,
	Operation: cache.OperationReconcile}

// An object with spec.provider aws and a foreign registry fails in both
// versions. A keychain fails if it is strict.
func TestForeignRegistry(t *testing.T) {
	const foreign = "ghcr.io/org/app"
	for version, start := range versions {
		t.Run(version, func(t *testing.T) {
			w := newCloudAndCluster(t)
			c := start(t, w)
			edit(t, w, ociKey, &sourcev1.OCIRepository{}, func(o *sourcev1.OCIRepository) {
				o.Spec.URL = sourcev1.OCIRepositoryPrefix + foreign
			})
			if _, err := c.oci(t.Context(), ociKey); err == nil ||
				errors.Is(err, auth.ErrMisconfigured) != (version == "after") {
				t.Errorf("error %v", err)
			}
			edit(t, w, ociKey, &sourcev1.OCIRepository{}, func(o *sourcev1.OCIRepository) {
				o.Spec.Provider = sourcev1.GenericOCIProvider
			})
			run(t, c.oci, ociKey)
			if *c.login != (authn.AuthConfig{}) || len(w.cloud.Log()) > 0 {
				t.Errorf("provider generic gets %v, with calls %v", c.login, w.cloud.Log())
			}
		})
	}
	w := newCloudAndCluster(t)
	opts := []auth.Option{auth.WithServiceAccount(client.ObjectKey{Namespace: tenant, Name: "app"}, w.kube),
		auth.WithOwner(object), auth.WithHTTPClient(w.http)}
	providers, err := auth.NewProviderSet(&aws.Provider{})
	if err != nil {
		t.Fatal(err)
	}
	strict, lenient := auth.NewKeychain(providers, opts...), auth.NewKeychain(providers, opts...)
	strict.Strict = true
	resolve := func(k *auth.Keychain) func(string) (*authn.AuthConfig, error) {
		return func(repository string) (*authn.AuthConfig, error) {
			ref, err := name.NewRepository(repository)
			if err != nil {
				return nil, err
			}
			a, err := k.ResolveContext(t.Context(), ref)
			if err != nil {
				return nil, err
			}
			return a.Authorization()
		}
	}
	for way, row := range map[string]struct {
		login   func(repository string) (*authn.AuthConfig, error)
		refuses bool
	}{
		"NewRegistryAuthenticator": {func(repository string) (*authn.AuthConfig, error) {
			return auth.NewRegistryAuthenticator(&aws.Provider{}, repository, opts...).AuthorizationContext(t.Context())
		}, true},
		"keychain":        {resolve(lenient), false},
		"strict keychain": {resolve(strict), true},
	} {
		t.Run(way, func(t *testing.T) {
			if login, err := row.login(repository); err != nil || login.Username != "AWS" {
				t.Errorf("own registry: %v, %v", login, err)
			}
			login, err := row.login(foreign)
			if errors.Is(err, auth.ErrMisconfigured) != row.refuses || !row.refuses && *login != (authn.AuthConfig{}) {
				t.Errorf("foreign registry: %v, %v", login, err)
			}
		})
	}
}

// A call that names a ServiceAccount needs an owner, also with the cache off.
// Flux has no owner.
func TestOwner(t *testing.T) {
	w := newCloudAndCluster(t)
	newBefore(t, w) // switches the feature gate on
	key := client.ObjectKey{Namespace: tenant, Name: "app"}
	_, err := fluxauth.GetAccessToken(t.Context(), fluxaws.Provider{Implementation: fluxSDK{http: w.http}},
		fluxauth.WithClient(w.kube),
		fluxauth.WithServiceAccountName(key.Name), fluxauth.WithServiceAccountNamespace(key.Namespace),
		fluxauth.WithSTSRegion(region))
	if err != nil {
		t.Errorf("Flux, without an owner: %v", err)
	}
	other := object
	other.Namespace = "tenant-b"
	for name, row := range map[string]struct {
		opts []auth.Option
		want error
	}{
		"none":                      {nil, auth.ErrMisconfigured},
		"no cache, involved object": {[]auth.Option{auth.WithCache(nil, object)}, nil},
		"WithOwner alone":           {[]auth.Option{auth.WithOwner(object)}, nil},
		"of another namespace":      {[]auth.Option{auth.WithOwner(other)}, auth.ErrDenied},
		"of another namespace, by the Policy": {[]auth.Option{auth.WithOwner(other),
			auth.WithPolicy(auth.Policy{AllowCrossNamespace: func(cache.InvolvedObject, client.ObjectKey) bool {
				return true
			}})}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			opts := append(row.opts, auth.WithServiceAccount(key, w.kube), auth.WithSTSRegion(region),
				auth.WithHTTPClient(w.http))
			if _, err := auth.GetAccessToken(t.Context(), &aws.Provider{}, opts...); !errors.Is(err, row.want) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// The session of AWS that a bucket gets, by name. Its name is new, since IAM
// conditions may name it. Empty: the object fails, and AWS is not asked.
func TestSession(t *testing.T) {
	const flux, port = "app.tenant-a." + region + ".fluxcd.io", "tenant-a.app"
	t.Setenv("AWS_REGION", region)
	for name, row := range map[string]struct {
		change        func(*sourcev1.BucketSpec)
		flags         []string
		before, after string
	}{
		"ServiceAccount": {func(*sourcev1.BucketSpec) {}, nil, flux, port},
		"default ServiceAccount": {func(b *sourcev1.BucketSpec) { b.ServiceAccountName = "" },
			[]string{"--default-service-account=app"}, flux, port},
		"default ServiceAccount that is missing": {func(b *sourcev1.BucketSpec) { b.ServiceAccountName = "" },
			[]string{"--default-service-account=missing"}, "", ""},
		"region of the controller": {func(b *sourcev1.BucketSpec) { b.Region = "" }, nil, "", port},
		"STS endpoint outside AWS": {func(b *sourcev1.BucketSpec) {
			b.STS = &sourcev1.BucketSTSSpec{Provider: sourcev1.STSProviderAmazon, Endpoint: "https://sts.example.com"}
		}, nil, "", ""},
	} {
		for version, want := range map[string]string{"before": row.before, "after": row.after} {
			t.Run(name+"/"+version, func(t *testing.T) {
				w := newCloudAndCluster(t)
				c := versions[version](t, w, row.flags...)
				edit(t, w, bucketKey, &sourcev1.Bucket{}, func(b *sourcev1.Bucket) { row.change(&b.Spec) })
				_, err := c.bucket(t.Context(), bucketKey)
				got, _ := w.cloud.AWS().Identity(c.accessKey)
				if got.SessionName != want || (err == nil) != (want != "") || want == "" && len(w.cloud.Log()) > 0 {
					t.Errorf("session %q, error %v, calls %v", got.SessionName, err, w.cloud.Log())
				}
			})
		}
	}
}
