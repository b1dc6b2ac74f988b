package cloudtest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workloadid/workloadid/cloudtest"
)

// An unmodified client of the AWS SDK exchanges a ServiceAccount's token at the
// production address.
func Example() {
	issuer, err := cloudtest.NewIssuer(cloudtest.IssuerConfig{URL: "https://oidc.example"})
	if err != nil {
		fmt.Println(err)
		return
	}
	cloud, err := cloudtest.NewCloud()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cloud.Close()
	cloud.AWS().AddOIDCProvider("123456789012", issuer.URL(), issuer.HTTPClient(), "sts.amazonaws.com")
	cloud.AWS().SetRole("arn:aws:iam::123456789012:role/app", cloudtest.Trust{
		Issuer: issuer.URL(), Subjects: []string{"system:serviceaccount:tenant-a:app"}})

	client := sts.New(sts.Options{Region: "eu-central-1", HTTPClient: cloud.Client(),
		Credentials: aws.AnonymousCredentials{}})
	for _, name := range []string{"app", "other"} {
		sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-a", Name: name}}
		token, err := issuer.Sign(issuer.Claims(sa, []string{"sts.amazonaws.com"}, time.Hour))
		if err != nil {
			fmt.Println(err)
			return
		}
		out, err := client.AssumeRoleWithWebIdentity(context.Background(), &sts.AssumeRoleWithWebIdentityInput{
			RoleArn: aws.String("arn:aws:iam::123456789012:role/app"), RoleSessionName: &name, WebIdentityToken: &token})
		if err != nil {
			fmt.Println(name, "was refused")
			continue
		}
		fmt.Println(name, "is", *out.AssumedRoleUser.Arn)
	}
	fmt.Println(cloud.Calls("sts", "AssumeRoleWithWebIdentity"), "calls")
	// Output:
	// app is arn:aws:sts::123456789012:assumed-role/app/app
	// other was refused
	// 2 calls
}

// A fault makes a service fail on demand.
func ExampleCloud_AddFault() {
	cloud, err := cloudtest.NewCloud()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cloud.Close()
	end := cloud.AddFault(cloudtest.Fault{Service: "sts", Status: 503, Code: "ServiceUnavailable"})
	client := sts.New(sts.Options{Region: "eu-central-1", HTTPClient: cloud.Client(),
		Credentials: aws.AnonymousCredentials{}, RetryMaxAttempts: 1})
	_, err = client.GetCallerIdentity(context.Background(), nil)
	fmt.Println(err != nil)
	end()
	// Output: true
}

// A consumer's own fake of a bucket verifies access tokens of the fake Google
// Cloud.
func ExampleCloud_Handle() {
	cloud, err := cloudtest.NewCloud()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cloud.Close()
	cloud.Handle("storage.googleapis.com", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, ok := cloud.GCP().Identity(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		if !ok {
			http.Error(w, "Invalid Credentials", http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, "hello "+id.Email)
	}))
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet,
		"https://storage.googleapis.com/bucket", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	req.Header.Set("Authorization", "Bearer "+cloud.GCP().IssueAccessToken("app@project.iam.gserviceaccount.com"))
	resp, err := cloud.Client().Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	body, err := io.ReadAll(resp.Body)
	fmt.Println(string(body), err, resp.Body.Close())
	fmt.Println(cloud.Calls("storage.googleapis.com", "GET /bucket"), "call")
	// Output:
	// hello app@project.iam.gserviceaccount.com <nil> <nil>
	// 1 call
}
