package podidentity_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials/endpointcreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/workloadid/workloadid/auth"
	tokencache "github.com/workloadid/workloadid/cache"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/podidentity/api/v1alpha1"
	"github.com/workloadid/workloadid/podidentity/proxy"
	"github.com/workloadid/workloadid/podidentity/server"
)

const (
	role       = "arn:aws:iam::123456789012:role/team-a/reporting"
	serverUser = "arn:aws:iam::123456789012:user/pod-identity"
)

// An administrator allows roles, a team binds one of them to a ServiceAccount,
// and a pod of this ServiceAccount calls AWS. Cluster and AWS are simulated.
func Example() {
	if err := run(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// arn:aws:sts::123456789012:assumed-role/reporting/prod.team-a.reporting
}

func run(ctx context.Context) error {
	issuer, err := cloudtest.NewIssuer(cloudtest.IssuerConfig{})
	if err != nil {
		return err
	}
	kube, err := newCluster(issuer)
	if err != nil {
		return err
	}
	if err := bind(ctx, kube); err != nil {
		return err
	}

	// The server assumes the role as a user of AWS. In a cluster it is a role,
	// with server.TrustPolicy in the other.
	cloud, err := cloudtest.NewCloud()
	if err != nil {
		return err
	}
	defer cloud.Close()
	cloud.AWS().SetRole(role, cloudtest.Trust{Principals: []string{serverUser}, TagSession: true})
	id, secretKey := cloud.AWS().AddUser("123456789012", "pod-identity")
	if err := errors.Join(os.Setenv("AWS_ACCESS_KEY_ID", id), os.Setenv("AWS_SECRET_ACCESS_KEY", secretKey)); err != nil {
		return err
	}
	tokens, err := tokencache.NewTokenCache(20_000)
	if err != nil {
		return err
	}
	defer tokens.Close()
	s, err := server.New(server.Options{
		Client:      kube,
		Audience:    audience,
		Cluster:     "prod",
		Cache:       tokens,
		AuthOptions: []auth.Option{auth.WithSTSRegion("eu-central-1"), auth.WithHTTPClient(cloud.Client())},
	})
	if err != nil {
		return err
	}
	listening := httptest.NewTLSServer(s) // in a program: Server.Listen
	defer listening.Close()

	// The sidecar has the pod's token and a secret that it shares with the
	// application.
	tokenFile, err := project(issuer)
	if err != nil {
		return err
	}
	defer os.RemoveAll(filepath.Dir(tokenFile))
	p,
		err := proxy.New(proxy.Options{Server: listening.URL, Client: listening.Client(), TokenFile: tokenFile,
		Secret: "secret-of-the-pod"})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() { _ = p.Run(ctx) }()
	loopback := httptest.NewServer(p) // in a program: proxy.Listen and proxy.Serve
	defer loopback.Close()

	// The application's SDK has both from two variables, and asks again until
	// the sidecar has credentials.
	provider := endpointcreds.New(loopback.URL+"/v1/credentials", func(o *endpointcreds.Options) {
		o.AuthorizationToken = "secret-of-the-pod"
	})
	client := sts.New(sts.Options{Region: "eu-central-1", HTTPClient: cloud.Client(),
		Credentials: aws.NewCredentialsCache(provider)})
	identity, err := client.GetCallerIdentity(ctx, nil)
	if err != nil {
		return err
	}
	fmt.Println(*identity.Arn)
	return nil
}

// bind writes the objects of the administrator and of the team.
func bind(ctx context.Context, c client.Client) error {
	allowed := &v1alpha1.IAMRoleAllowList{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AllowListName},
		Spec: v1alpha1.IAMRoleAllowListSpec{Rules: []v1alpha1.AllowRule{{
			Namespaces: []string{"team-a"},
			Roles:      []string{"arn:aws:iam::123456789012:role/team-a/*"},
		}}},
	}
	binding := &v1alpha1.IAMBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "reporting"},
		Spec: v1alpha1.IAMBindingSpec{
			AWS:               v1alpha1.AWSRole{RoleARN: role},
			ServiceAccountRef: v1alpha1.ServiceAccountReference{Name: "reporting"},
		},
	}
	return errors.Join(c.Create(ctx, allowed), c.Create(ctx, binding))
}

// newCluster returns the client of a simulated API server, which reviews the
// tokens of the issuer.
func newCluster(issuer *cloudtest.Issuer) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), authenticationv1.AddToScheme(scheme),
		v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	create := func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		review, ok := o.(*authenticationv1.TokenReview)
		if !ok {
			return c.Create(ctx, o, opts...)
		}
		sa, err := issuer.Verify(review.Spec.Token, audience)
		if err != nil {
			return err
		}
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{audience},
			User: authenticationv1.UserInfo{
				Username: "system:serviceaccount:" + sa.Namespace + ":" + sa.Name,
				Extra: map[string]authenticationv1.ExtraValue{
					"authentication.kubernetes.io/pod-name": {"reporting-0"},
					"authentication.kubernetes.io/pod-uid":  {"uid-of-reporting-0"}},
			}}
		return nil
	}
	serviceAccount := func(o client.Object) []string { // Server.SetupWithManager makes this index
		b, _ := o.(*v1alpha1.IAMBinding)
		return []string{b.Spec.ServiceAccountRef.Name}
	}
	return fake.NewClientBuilder().WithScheme(scheme).
		WithIndex(&v1alpha1.IAMBinding{}, "spec.serviceAccountRef.name", serviceAccount).
		WithInterceptorFuncs(interceptor.Funcs{Create: create}).Build(), nil
}

// project writes the pod's token, as the kubelet does.
func project(issuer *cloudtest.Issuer) (string, error) {
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "reporting"}}
	claims := issuer.Claims(sa, []string{audience}, time.Hour)
	claims["kubernetes.io"] = map[string]any{
		"namespace":      "team-a",
		"serviceaccount": map[string]any{"name": "reporting"},
		"pod":            map[string]any{"name": "reporting-0", "uid": "uid-of-reporting-0"},
	}
	token, err := issuer.Sign(claims)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "pod-")
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "token")
	return file, os.WriteFile(file, []byte(token), 0o600)
}
