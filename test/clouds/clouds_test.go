// Package clouds_test tries credentials of all three clouds with the clouds'
// own SDKs, partly with a real API server as the issuer.
package clouds_test

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"testing"

	"cloud.google.com/go/auth/httptransport"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	sdkaws "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"golang.org/x/oauth2"
	"google.golang.org/api/option"
	"google.golang.org/api/storage/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/kubetest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m).Run()) }

const (
	account      = "123456789012"
	kmsKey       = "arn:aws:kms:eu-central-1:" + account + ":key/3f1b0a52-0000-4000-8000-000000000001"
	azureTenant  = "72f988bf-86f1-41af-91ab-2d7cd011db47"
	azureClient  = "d6e4fc00-c5b2-4a72-9f84-6a92e3f06b08"
	blobAccount  = "account"
	gcpPool      = "projects/123456789012/locations/global/workloadIdentityPools/east"
	gcpProvider  = gcpPool + "/providers/east"
	secretOfBlob = "what the blob holds"
)

// environment is a cluster that three clouds trust.
type environment struct {
	cluster *kubetest.Cluster
	cloud   *cloudtest.Cloud
	client  client.Client
	tokens  *cache.TokenCache
	buckets *testenv.Buckets

	aws   *aws.Provider
	azure *azure.Provider
	gcp   *gcp.Provider
}

func newEnvironment(t *testing.T) *environment {
	t.Helper()
	cluster := kubetest.Start(t)
	cloud := testenv.Cloud(t)
	tokens, err := cache.NewTokenCache(100)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tokens.Close)
	c, err := client.New(cluster.User(t, "controller-of-"+t.Name(), "",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"get"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts/token"}, Verbs: []string{"create"}}),
		client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cloud.AWS().AddOIDCProvider(account, cluster.IssuerURL(), cluster.IssuerClient(t), aws.DefaultAudience)
	fakeKMS(cloud, kmsKey, nil)
	cloud.GCP().SetWorkloadIdentityProvider(gcpProvider,
		cloudtest.WorkloadIdentityProvider{Issuer: cluster.IssuerURL(), Fetch: cluster.IssuerClient(t)})
	return &environment{cluster: cluster, cloud: cloud, client: c, tokens: tokens, buckets: testenv.NewBuckets(cloud),
		aws: &aws.Provider{}, azure: &azure.Provider{}, gcp: &gcp.Provider{}}
}

// tenant is a namespace with a ServiceAccount that has an identity in each
// cloud.
type tenant struct {
	*environment
	namespace, role, clientID, bucket string
}

func (w *environment) tenant(t *testing.T, clientID string) *tenant {
	t.Helper()
	n := &tenant{environment: w, namespace: w.cluster.Namespace(t), clientID: clientID}
	n.role, n.bucket = "arn:aws:iam::"+account+":role/"+n.namespace, n.namespace
	n.serviceAccount(t, "app", n)
	subject := "system:serviceaccount:" + n.namespace + ":app"

	w.cloud.AWS().SetRole(n.role, cloudtest.Trust{Issuer: w.cluster.IssuerURL(), Subjects: []string{subject}})
	w.cloud.Azure().AddFederatedCredential(azureTenant, clientID,
		cloudtest.FederatedCredential{Issuer: w.cluster.IssuerURL(), Subject: subject,
			Audience: azure.DefaultAudience, Fetch: w.cluster.IssuerClient(t)})
	w.cloud.Azure().SetContainer(blobAccount, n.namespace, cloudtest.AzureContainer{Tenant: azureTenant,
		Writers: []string{clientID}})
	blobs, err := n.blobs("app")
	if err == nil {
		_, err = blobs.UploadBuffer(t.Context(), n.namespace, "file", []byte(secretOfBlob), nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.buckets.Set(n.bucket,
		testenv.Bucket{Viewers: []string{"principal://iam.googleapis.com/" + gcpPool + "/subject/" + subject},
			Objects: map[string]string{"file": secretOfBlob}})
	return n
}

// serviceAccount creates one with the annotations of a tenant, perhaps another
// one.
func (n *tenant) serviceAccount(t *testing.T, name string, of *tenant) {
	t.Helper()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: name,
		Annotations: map[string]string{
			aws.RoleARNAnnotation:                  of.role,
			azure.ClientIDAnnotation:               of.clientID,
			azure.TenantIDAnnotation:               azureTenant,
			gcp.WorkloadIdentityProviderAnnotation: gcpProvider,
		}}}
	if err := n.cluster.Client().Create(t.Context(), sa); err != nil {
		t.Fatal(err)
	}
}

func (n *tenant) options(name string) []auth.Option {
	return []auth.Option{
		auth.WithServiceAccount(client.ObjectKey{Namespace: n.namespace, Name: name}, n.client),
		auth.WithCache(n.tokens, cache.InvolvedObject{Kind: "Bucket", Namespace: n.namespace, Name: "b"}),
		auth.WithHTTPClient(n.cloud.Client()),
	}
}

// decrypt uses a key of AWS KMS.
func (n *tenant) decrypt(ctx context.Context, name string) (string, error) {
	c := kms.New(kms.Options{Region: "eu-central-1", HTTPClient: n.cloud.Client(), RetryMaxAttempts: 1,
		Credentials: n.aws.NewCredentialsProvider(append(n.options(name), auth.WithSTSRegion("eu-central-1"))...)})
	sealed, err := c.Encrypt(ctx, &kms.EncryptInput{KeyId: sdkaws.String(kmsKey), Plaintext: []byte(secretOfBlob)})
	if err != nil {
		return "", err
	}
	opened, err := c.Decrypt(ctx, &kms.DecryptInput{CiphertextBlob: sealed.CiphertextBlob})
	if err != nil {
		return "", err
	}
	return string(opened.Plaintext), nil
}

func (n *tenant) blobs(name string) (*azblob.Client, error) {
	return azblob.NewClient("https://"+blobAccount+".blob.core.windows.net",
		n.azure.NewTokenCredential(n.options(name)...),
		&azblob.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: n.cloud.Client()}})
}

// blob reads from Azure Blob Storage, in the container of a tenant.
func (n *tenant) blob(ctx context.Context, name string, of *tenant) (string, error) {
	c, err := n.blobs(name)
	if err != nil {
		return "", err
	}
	stream, err := c.DownloadStream(ctx, of.namespace, "file", nil)
	if err != nil {
		return "", err
	}
	defer stream.Body.Close() //nolint:errcheck // read to its end
	content, err := io.ReadAll(stream.Body)
	return string(content), err
}

// object reads from Google Cloud Storage, from the bucket of a tenant.
func (n *tenant) object(ctx context.Context, name string, of *tenant) (string, error) {
	httpClient,
		err := httptransport.NewClient(
		&httptransport.Options{Credentials: n.gcp.NewCredentials(n.options(name)...).Credentials,
			BaseRoundTripper: n.cloud.Client().Transport})
	if err != nil {
		return "", err
	}
	return readObject(ctx, of.bucket, option.WithHTTPClient(httpClient))
}

// objectWithTokenSource is the same with the older adapter.
func (n *tenant) objectWithTokenSource(ctx context.Context, name string, of *tenant) (string, error) {
	httpClient := oauth2.NewClient(context.WithValue(ctx, oauth2.HTTPClient, n.cloud.Client()),
		n.gcp.NewTokenSource(ctx, n.options(name)...))
	return readObject(ctx, of.bucket, option.WithHTTPClient(httpClient))
}

func readObject(ctx context.Context, bucket string, opts ...option.ClientOption) (string, error) {
	service, err := storage.NewService(ctx, opts...)
	if err != nil {
		return "", err
	}
	resp, err := service.Objects.Get(bucket, "file").Context(ctx).Download()
	if err != nil {
		return "", err
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	content, err := io.ReadAll(resp.Body)
	return string(content), err
}

// uses are what a tenant does, by cloud. Each reads the data of a tenant,
// perhaps of another one.
func (n *tenant) uses(name string, of *tenant) map[string]func(context.Context) (string, error) {
	return map[string]func(context.Context) (string, error){
		"kms":     func(ctx context.Context) (string, error) { return n.decrypt(ctx, name) },
		"blob":    func(ctx context.Context) (string, error) { return n.blob(ctx, name, of) },
		"storage": func(ctx context.Context) (string, error) { return n.object(ctx, name, of) },
		"storage with a TokenSource": func(ctx context.Context) (string, error) {
			return n.objectWithTokenSource(ctx, name, of)
		},
	}
}

func TestThreeClouds(t *testing.T) {
	w := newEnvironment(t)
	a := w.tenant(t, azureClient)
	b := w.tenant(t, "4a7272f9-f186-41af-9f84-6a92e32d7cd0")
	for _, n := range []*tenant{a, b, a} {
		for what, use := range n.uses("app", n) {
			if got, err := use(t.Context()); err != nil || got != secretOfBlob {
				t.Errorf("%s of %s: %q, %v", what, n.namespace, got, err)
			}
		}
	}
	if sts, entra, google := w.cloud.Calls("sts", ""), w.cloud.Calls("entra", ""),
		w.cloud.Calls("gcp-sts", ""); sts != 2 || entra != 2 || google != 2 {
		t.Errorf("%d exchanges in AWS, %d in Azure, %d in GCP for two tenants", sts, entra, google)
	}
	// A copy of another tenant's annotations gets nothing: the clouds go by the
	// subject.
	b.serviceAccount(t, "thief", a)
	for what, use := range b.uses("thief", a) {
		got, err := use(t.Context())
		if err == nil || got != "" {
			t.Errorf("%s: the thief got %q", what, got)
		}
	}
}

// An SDK's call ends with its own context, whatever the adapter is waiting for.
func TestSDKCallsHonourTheirContext(t *testing.T) {
	w := newEnvironment(t)
	w.tokens = nil // an exchange that others wait for goes on
	a := w.tenant(t, azureClient)
	for what, use := range a.uses("app", a) {
		end := w.cloud.AddFault(cloudtest.Fault{Hang: true})
		ctx, cancel := context.WithCancel(t.Context())
		before := w.cloud.Calls("", "")
		go func() {
			for w.cloud.Calls("", "") == before && ctx.Err() == nil {
				runtime.Gosched() // until the exchange is under way
			}
			cancel()
		}()
		if _, err := use(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", what, err)
		}
		cancel()
		end()
	}
}
