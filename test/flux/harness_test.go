// Package flux_test runs one small controller on fluxcd/pkg/auth and on
// workloadid, and compares the two.
package flux_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	sdkaws "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	fluxauth "github.com/fluxcd/pkg/auth"
	fluxaws "github.com/fluxcd/pkg/auth/aws"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
	"github.com/workloadid/workloadid/test/flux/after"
	"github.com/workloadid/workloadid/test/flux/before"
)

const (
	account    = "123456789012"
	region     = "eu-central-1"
	tenant     = "tenant-a"
	repository = account + ".dkr.ecr." + region + ".amazonaws.com/app"
	role       = "arn:aws:iam::" + account + ":role/" + tenant
)

var (
	bucketKey = reconcile.Request{NamespacedName: types.NamespacedName{Namespace: tenant, Name: "bucket"}}
	ociKey    = reconcile.Request{NamespacedName: types.NamespacedName{Namespace: tenant, Name: "artifact"}}
)

// cloudAndCluster is what both controllers run against.
type cloudAndCluster struct {
	cloud    *cloudtest.Cloud
	kube     client.WithWatch
	http     *http.Client
	lifetime time.Duration // of AWS sessions
}

func newCloudAndCluster(t *testing.T) *cloudAndCluster {
	t.Helper()
	issuer, cloud := testenv.Issuer(t), testenv.Cloud(t)
	cloud.AWS().AddOIDCProvider(account, issuer.URL(), issuer.HTTPClient(), aws.DefaultAudience)
	cloud.AWS().SetRole(role,
		cloudtest.Trust{Issuer: issuer.URL(), Subjects: []string{"system:serviceaccount:" + tenant + ":app"}})
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, sourcev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	bucket := &sourcev1.Bucket{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: bucketKey.Name},
		Spec: sourcev1.BucketSpec{
			Provider: sourcev1.BucketProviderAmazon, BucketName: "b", Region: region, ServiceAccountName: "app"}}
	artifact := &sourcev1.OCIRepository{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: ociKey.Name},
		Spec: sourcev1.OCIRepositorySpec{
			Provider: sourcev1.AmazonOCIProvider, URL: sourcev1.OCIRepositoryPrefix + repository, ServiceAccountName: "app"}}
	kube := fake.NewClientBuilder().WithScheme(scheme).WithObjects(bucket, artifact,
		testenv.ServiceAccount(tenant, "app", aws.RoleARNAnnotation, role)).Build()
	return &cloudAndCluster{cloud: cloud, kube: issuer.Wrap(kube),
		http: &http.Client{Transport: inProcess{cloud.Handler()}}, lifetime: time.Hour}
}

// inProcess serves requests without a network, so that they run in a bubble of
// synctest.
type inProcess struct{ handler http.Handler }

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	served := r.Clone(r.Context())
	served.Host = r.URL.Host
	if served.Body == nil {
		served.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	p.handler.ServeHTTP(w, served)
	return w.Result(), nil
}

// setSessions lets AWS sessions expire after d.
func (w *cloudAndCluster) setSessions(d time.Duration) {
	w.lifetime = d
	expiration := regexp.MustCompile(`<Expiration>[^<]*`)
	w.cloud.AddFault(cloudtest.Fault{Service: "sts", Rewrite: func(body []byte) []byte {
		return expiration.ReplaceAll(body, []byte("<Expiration>"+time.Now().Add(d).UTC().Format(time.RFC3339)))
	}})
}

// remaining returns how long a session is still valid. The fake itself knows
// sessions of an hour only.
func (w *cloudAndCluster) remaining(t *testing.T, accessKeyID string) time.Duration {
	t.Helper()
	identity, ok := w.cloud.AWS().Identity(accessKeyID)
	if !ok {
		t.Fatalf("%q is no access key of the cloud", accessKeyID)
	}
	return time.Until(identity.Expiration.Add(w.lifetime - time.Hour))
}

// edit changes an object of the cluster.
func edit[T client.Object](t *testing.T, w *cloudAndCluster, key reconcile.Request, obj T, change func(T)) {
	t.Helper()
	if err := w.kube.Get(t.Context(), key.NamespacedName, obj); err != nil {
		t.Fatal(err)
	}
	change(obj)
	if err := w.kube.Update(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
}

// fluxSDK makes the AWS calls of fluxcd/pkg/auth to the cloud.
type fluxSDK struct {
	fluxaws.Implementation // nil, because nothing else is called
	http                   *http.Client
}

func (f fluxSDK) AssumeRoleWithWebIdentity(ctx context.Context, in *sts.AssumeRoleWithWebIdentityInput,
	o sts.Options) (*sts.AssumeRoleWithWebIdentityOutput, error) {
	o.HTTPClient = f.http
	return sts.New(o).AssumeRoleWithWebIdentity(ctx, in)
}

// GetAuthorizationToken removes the colons from the password of the fake, with
// which fluxcd/pkg/auth refuses it.
func (f fluxSDK) GetAuthorizationToken(ctx context.Context, config sdkaws.Config) (any, error) {
	config.HTTPClient = f.http
	out, err := ecr.NewFromConfig(config).GetAuthorizationToken(ctx, &ecr.GetAuthorizationTokenInput{})
	if err != nil {
		return nil, err
	}
	data := &out.AuthorizationData[0]
	decoded, err := base64.StdEncoding.DecodeString(*data.AuthorizationToken)
	user, password, _ := bytes.Cut(decoded, []byte(":"))
	plain := string(user) + ":" + strings.ReplaceAll(string(password), ":", "_")
	data.AuthorizationToken = sdkaws.String(base64.StdEncoding.EncodeToString([]byte(plain)))
	return out, err
}

// controller is one of the two versions.
type controller struct {
	bucket, oci reconcile.Func
	registry    *prometheus.Registry
	accessKey   string            // of the last List
	login       *authn.AuthConfig // of the last Pull
}

func (c *controller) list(_ context.Context, _, accessKeyID, _, _ string) error {
	c.accessKey = accessKeyID
	return nil
}

func (c *controller) pull(_ context.Context, _ string, a authn.Authenticator) (err error) {
	c.login, err = a.Authorization()
	return err
}

func parse(t *testing.T, bind func(*pflag.FlagSet), args []string) {
	t.Helper()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	bind(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
}

type startFunc func(*testing.T, *cloudAndCluster, ...string) *controller

var versions = map[string]startFunc{"before": newBefore, "after": newAfter}

// resetFlux undoes the settings of fluxcd/pkg/auth, which are those of the
// process.
func resetFlux() {
	fluxauth.DisableObjectLevelWorkloadIdentity()
	fluxauth.SetDefaultServiceAccount("")
}

// newBefore starts the controller on fluxcd/pkg/auth.
func newBefore(t *testing.T, w *cloudAndCluster, args ...string) *controller {
	t.Helper()
	t.Cleanup(resetFlux)
	config := &before.Config{ObjectLevelWorkloadIdentity: true}
	parse(t, config.BindFlags, args)
	if err := config.Apply(); err != nil {
		t.Fatal(err)
	}
	c := &controller{registry: prometheus.NewRegistry()}
	tokens, err := config.NewTokenCache(c.registry)
	if err != nil {
		t.Fatal(err)
	}
	r := &before.Reconciler{Client: w.kube, TokenCache: tokens,
		AWS: fluxaws.Provider{Implementation: fluxSDK{http: w.http}}, List: c.list, Pull: c.pull}
	c.bucket, c.oci = r.ReconcileBucket, r.ReconcileOCIRepository
	return c
}

// newAfter starts the controller on workloadid.
func newAfter(t *testing.T, w *cloudAndCluster, args ...string) *controller {
	t.Helper()
	config := &after.Config{}
	config.ObjectLevelWorkloadIdentity = true
	parse(t, config.BindFlags, args)
	if err := config.Apply(); err != nil {
		t.Fatal(err)
	}
	c := &controller{registry: prometheus.NewRegistry()}
	tokens, m, err := config.NewTokenCache(c.registry)
	if err != nil {
		t.Fatal(err)
	}
	if tokens != nil {
		t.Cleanup(tokens.Close)
	}
	r := &after.Reconciler{Client: w.kube, TokenCache: tokens, Metrics: m, Settings: &config.Settings,
		AWS: &aws.Provider{}, HTTPClient: w.http, List: c.list, Pull: c.pull}
	c.bucket, c.oci = r.ReconcileBucket, r.ReconcileOCIRepository
	return c
}

func run(t *testing.T, r reconcile.Func, key reconcile.Request) {
	t.Helper()
	if _, err := r(t.Context(), key); err != nil {
		t.Fatal(err)
	}
}
