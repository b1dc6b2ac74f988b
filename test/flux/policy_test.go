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
var object = cache.InvolvedObject{Kind: sourcev1.BucketKind, Name: bucketKey.Name, Namespace: tenant, Operation: cache.OperationReconcile}

// An object with spec.provider aws and a foreign registry fails in both versions. A keychain fails if it is strict.
func TestForeignRegistry(t *testing.T) {
	const foreign = "ghcr.io/org/app"
	for version, start := range versions {
		t.Run(version, func(t *testing.T) {
			w := newCloudAndCluster(t)
			c := start(t, w)
			edit(t, w, ociKey, &sourcev1.OCIRepository{}, func(o *sourcev1.OCIRepository) { o.Spec.URL = sourcev1.OCIRepositoryPrefix + foreign })
			if _, err := c.oci(t.Context(), ociKey); err == nil || errors.Is(err, auth.ErrMisconfigured) != (version == "after") {
				t.Errorf("error %v", err)
			}
			edit(t, w, ociKey, &sourcev1.OCIRepository{}, func(o *sourcev1.OCIRepository) { o.Spec.Provider = sourcev1.GenericOCIProvider })
			run(t, c.oci, ociKey)
			if *c.login != (authn.AuthConfig{}) || len(w.cloud.Log()) > 0 {
				t.Errorf("provider generic gets %v, with calls %v", c.login, w.cloud.Log())
			}
		})
	}
	w := newCloudAndCluster(t)
	opts := []auth.Option{auth.WithServiceAccount(client.ObjectKey{Namespace: tenant, Name: "app"}, w.kube), auth.WithCache(nil, object), auth.WithHTTPClient(w.http)}
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

// A call that names a ServiceAccount needs an owner, also with the cache off. Flux has no owner.
func TestOwner(t *testing.T) {
	w := newCloudAndCluster(t)
	newBefore(t, w) // switches the feature gate on
	key := client.ObjectKey{Namespace: tenant, Name: "app"}
	_, err := fluxauth.GetAccessToken(t.Context(), fluxaws.Provider{Implementation: fluxSDK{http: w.http}}, fluxauth.WithClient(w.kube),
		fluxauth.WithServiceAccountName(key.Name), fluxauth.WithServiceAccountNamespace(key.Namespace), fluxauth.WithSTSRegion(region))
	if err != nil {
		t.Errorf("Flux, without an owner: %v", err)
	}
	other := object
	other.Namespace = "tenant-b"
	for name, row := range map[string]struct {
		opts []auth.Option
		want error
	}{
		"none":                                {nil, auth.ErrMisconfigured},
		"no cache, involved object":           {[]auth.Option{auth.WithCache(nil, object)}, nil},
		"WithOwner alone":                     {[]auth.Option{auth.WithOwner(object)}, nil},
		"of another namespace":                {[]auth.Option{auth.WithOwner(other)}, auth.ErrDenied},
		"of another namespace, by the Policy": {[]auth.Option{auth.WithOwner(other), auth.WithPolicy(auth.Policy{AllowCrossNamespace: func(cache.InvolvedObject, client.ObjectKey) bool { return true }})}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			opts := append(row.opts, auth.WithServiceAccount(key, w.kube), auth.WithSTSRegion(region), auth.WithHTTPClient(w.http))
			if _, err := auth.GetAccessToken(t.Context(), &aws.Provider{}, opts...); !errors.Is(err, row.want) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// IAM conditions on the session name need the new form.
func TestSessionName(t *testing.T) {
	want := map[string]string{"before": "app.tenant-a." + region + ".fluxcd.io", "after": "tenant-a.app"}
	for version, start := range versions {
		w := newCloudAndCluster(t)
		run(t, start(t, w).bucket, bucketKey)
		if got := w.cloud.Log()[0].Parameters["RoleSessionName"]; got != want[version] {
			t.Errorf("%s: %q, not %q", version, got, want[version])
		}
	}
}

// A bucket without a region uses AWS_REGION of the controller. Flux refuses it.
func TestRegionOfTheController(t *testing.T) {
	t.Setenv("AWS_REGION", region)
	for version, start := range versions {
		w := newCloudAndCluster(t)
		edit(t, w, bucketKey, &sourcev1.Bucket{}, func(b *sourcev1.Bucket) { b.Spec.Region = "" })
		if _, err := start(t, w).bucket(t.Context(), bucketKey); (err == nil) != (version == "after") {
			t.Errorf("%s: %v", version, err)
		}
	}
}

// An STS endpoint outside AWS receives no token.
func TestForeignSTSEndpoint(t *testing.T) {
	for version, start := range versions {
		w := newCloudAndCluster(t)
		edit(t, w, bucketKey, &sourcev1.Bucket{}, func(b *sourcev1.Bucket) {
			b.Spec.STS = &sourcev1.BucketSTSSpec{Provider: sourcev1.STSProviderAmazon, Endpoint: "https://sts.example.com"}
		})
		if _, err := start(t, w).bucket(t.Context(), bucketKey); err == nil || len(w.cloud.Log()) > 0 {
			t.Errorf("%s: %v, calls %v", version, err, w.cloud.Log())
		}
	}
}

// Objects that name no ServiceAccount use the default one of their namespace.
func TestDefaultServiceAccount(t *testing.T) {
	for version, start := range versions {
		w := newCloudAndCluster(t)
		c := start(t, w, "--default-service-account=app")
		edit(t, w, bucketKey, &sourcev1.Bucket{}, func(b *sourcev1.Bucket) { b.Spec.ServiceAccountName = "" })
		run(t, c.bucket, bucketKey)
		if got, _ := w.cloud.AWS().Identity(c.accessKey); got.RoleARN != role {
			t.Errorf("%s: identity %v", version, got)
		}
	}
}
