package aws_test

import (
	"encoding/base64"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

const (
	clusterARN      = "arn:aws:eks:eu-central-1:" + account + ":cluster/prod"
	clusterEndpoint = "https://ABCDEF0123456789.gr7.eu-central-1.eks.amazonaws.com"
	clusterAddress  = "https://abcdef0123456789.gr7.eu-central-1.eks.amazonaws.com:443"
)

// clusters adds an EKS cluster to the environment. The cloud's own authority
// serves as the cluster's.
func (w *environment) clusters() *environment {
	w.Cloud.AWS().SetEKSCluster(cloudtest.EKSCluster{ARN: clusterARN, Endpoint: clusterEndpoint, CA: w.Cloud.CA()})
	w.Cloud.AWS().SetEKSAccessEntry(clusterARN, role("tenant-a"), cloudtest.EKSAccessEntry{})
	return w
}

func (w *environment) cluster(t testing.TB, p *aws.Provider, more ...auth.Option) (*auth.RESTConfig, error) {
	t.Helper()
	opts := w.options("tenant-a", "app", more...)
	return auth.GetRESTConfig(t.Context(), p, opts...)
}

func TestCluster(t *testing.T) {
	w := newEnvironment(t).clusters()
	own, given := string(w.Cloud.CA()), string(testenv.Cloud(t).CA())
	for name, tc := range map[string]struct {
		opts      []auth.Option
		ca, calls string
	}{
		"by its ARN": {[]auth.Option{auth.WithClusterResource(clusterARN)}, own, "sts eks"},
		"with its address": {[]auth.Option{auth.WithClusterResource(clusterARN), auth.WithClusterAddress(clusterEndpoint)},
			own, "sts eks"},
		"by its name": {[]auth.Option{auth.WithClusterResource("prod")}, own, "sts eks"},
		"name and address": {[]auth.Option{auth.WithClusterAddress(clusterEndpoint), aws.WithClusterName("prod")},
			own, "sts eks"},
		"with another authority": {[]auth.Option{auth.WithClusterResource(clusterARN), auth.WithCAData(given)}, given,
			"sts eks"},
		"by address and name": {[]auth.Option{auth.WithClusterAddress(clusterEndpoint), auth.WithCAData(given),
			aws.WithClusterName("prod")}, given, "sts"},
		"by all three": {[]auth.Option{auth.WithClusterResource(clusterARN), auth.WithClusterAddress(clusterEndpoint),
			auth.WithCAData(given)}, given, "sts"},
	} {
		before := len(w.Cloud.Log())
		c, err := w.cluster(t, &aws.Provider{}, tc.opts...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if c.Host() != clusterAddress || string(c.CAData()) != tc.ca {
			t.Errorf("%s: got %q with the CA\n%s, want\n%s", name, c.Host(), c.CAData(), tc.ca)
		}
		if _, id, err := w.Cloud.AWS().VerifyEKSToken(clusterARN, c.BearerToken()); err != nil ||
			id.SessionName != "tenant-a.app" {
			t.Errorf("%s: the cluster finds %+v, %v", name, id, err)
		}
		if _, _, err := w.Cloud.AWS().VerifyEKSToken(strings.Replace(clusterARN, "prod", "other", 1),
			c.BearerToken()); err == nil {
			t.Errorf("%s: another cluster accepts the bearer", name)
		}
		if d := c.GetDuration(); d > 15*time.Minute || d < 13*time.Minute {
			t.Errorf("%s: lives for %s", name, d)
		}
		var calls []string
		for _, call := range w.Cloud.Log()[before:] {
			calls = append(calls, call.Service)
		}
		if got := strings.Join(calls, " "); got != tc.calls {
			t.Errorf("%s: called %s, want %s", name, got, tc.calls)
		}
	}
}

// The bearer has the form that the webhook of EKS demands, and its host is that
// of the cluster's partition and region.
func TestClusterBearer(t *testing.T) {
	w := newEnvironment(t).clusters()
	c, err := w.cluster(t, &aws.Provider{UseFIPSEndpoint: true, UseDualStackEndpoint: true},
		auth.WithClusterResource(clusterARN), auth.WithSTSRegion("us-west-2"))
	if err != nil {
		t.Fatal(err)
	}
	encoded, ok := strings.CutPrefix(c.BearerToken(), "k8s-aws-v1.")
	decoded, err := base64.RawURLEncoding.DecodeString(encoded)
	if !ok || err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(string(decoded))
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	if u.Scheme != "https" || u.Host != "sts.eu-central-1.amazonaws.com" || u.Path != "/" || len(q) != 9 ||
		q.Get("X-Amz-SignedHeaders") != "host;x-k8s-aws-id" || q.Get("X-Amz-Expires") != "900" ||
		q.Get("Action") != "GetCallerIdentity" {
		t.Errorf("the URL is %s%s with %v", u.Host, u.Path, q)
	}
	for _, call := range w.Cloud.Log() {
		if want := map[string]string{"sts": "sts-fips.us-west-2.api.aws",
			"eks": "eks-fips.eu-central-1.api.aws"}[call.Service]; call.Host != want {
			t.Errorf("asked %s of %s, want %s", call.Service, call.Host, want)
		}
	}
}

// A bearer is worth nothing without the credentials that signed it.
func TestClusterBearerEndsWithItsCredentials(t *testing.T) {
	w := newEnvironment(t).clusters()
	// so that five minutes of the hour are left
	w.Cloud.SetClock(func() time.Time { return time.Now().Add(-55 * time.Minute) })
	token, err := w.get(t, "tenant-a", "app")
	if err != nil {
		t.Fatal(err)
	}
	opts := &auth.Options{Options: provider.Options{STSRegion: "eu-central-1", CAData: string(w.Cloud.CA()),
		ClusterAddress: clusterAddress}}
	aws.WithClusterName("prod")(opts)
	c, err := (&aws.Provider{}).NewRESTConfig(t.Context(), []auth.Token{token}, &opts.Options)
	if err != nil || !c.ExpiresAt().Equal(token.ExpiresAt()) || c.GetDuration() > 5*time.Minute {
		t.Errorf("ends at %v, %v", c, err)
	}
}

// Two names at one address are two bearers, which one session of STS signs.
func TestClusterNameIsPartOfTheKey(t *testing.T) {
	w := newEnvironment(t).clusters()
	p, cached := &aws.Provider{}, testenv.Cached(t, "tenant-a")
	for _, name := range []string{"prod", "other"} {
		c, err := w.cluster(t, p, cached, auth.WithClusterAddress(clusterEndpoint), auth.WithCAData(string(w.Cloud.CA())),
			aws.WithClusterName(name))
		if err != nil {
			t.Fatal(err)
		}
		arn := "arn:aws:eks:eu-central-1:" + account + ":cluster/" + name
		w.Cloud.AWS().SetEKSAccessEntry(arn, role("tenant-a"), cloudtest.EKSAccessEntry{})
		if _, _, err := w.Cloud.AWS().VerifyEKSToken(arn, c.BearerToken()); err != nil {
			t.Errorf("the cluster %q refuses its bearer: %v", name, err)
		}
	}
	if n := w.Cloud.Calls("sts", ""); n != 1 {
		t.Errorf("%d calls of STS for two names, want 1", n)
	}
}

// The remedy for a refusal by EKS names the permission.
func TestClusterThatTheRoleMayNotDescribe(t *testing.T) {
	w := newEnvironment(t).clusters()
	w.Cloud.AWS().Deny(role("tenant-a"), "eks:DescribeCluster")
	_, err := w.cluster(t, &aws.Provider{}, auth.WithClusterResource(clusterARN))
	testenv.CheckError(t, err, auth.ErrDenied, "HTTP 403", "AccessDeniedException", "allow the role eks:DescribeCluster")
}

// Policy.AllowCluster decides about resource and address. With WithClusterName
// an object could obtain a bearer for another cluster.
func TestOwnIdentityWithClusterNameIsRefusedForObjects(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t).clusters()
	w.setWebIdentity(t)
	opts := []auth.Option{auth.WithHTTPClient(w.Cloud.Client()), auth.WithSTSRegion("eu-central-1"),
		aws.WithClusterName("prod"), auth.WithClusterAddress("https://test.example"), auth.WithCAData(string(w.Cloud.CA()))}
	anyCluster := auth.WithPolicy(auth.Policy{AllowCluster: func(auth.ClusterRequest) bool { return true }})
	_, err := auth.GetRESTConfig(t.Context(), &aws.Provider{},
		append(opts, testenv.Owner("tenant-b"), anyCluster)...)
	testenv.CheckError(t, err, auth.ErrDenied, "own identity", "bare name", "name a ServiceAccount")
	_, err = auth.GetRESTConfig(t.Context(), &aws.Provider{}, auth.WithHTTPClient(w.Cloud.Client()),
		auth.WithSTSRegion("us-east-1"), auth.WithClusterResource("prod"), testenv.Owner("tenant-b"), anyCluster)
	testenv.CheckError(t, err, auth.ErrDenied, "own identity", "bare name")
	if n := len(w.Cloud.Log()); n != 0 {
		t.Errorf("%d calls", n)
	}
	if _, err := auth.GetRESTConfig(t.Context(), &aws.Provider{}, opts...); err != nil {
		t.Errorf("the controller for itself: %v", err)
	}
}

func TestClustersThatAreRefused(t *testing.T) {
	w := newEnvironment(t).clusters()
	other := "arn:aws:eks:eu-central-1:999999999999:cluster/prod"
	for name, tc := range map[string]struct {
		opts   []auth.Option
		reason provider.Reason
		want   string
	}{
		"another address": {[]auth.Option{auth.WithClusterResource(clusterARN),
			auth.WithClusterAddress("https://evil.example")}, auth.ErrMisconfigured,
			`"https://evil.example:443" is not that of the cluster`},
		"another port": {[]auth.Option{auth.WithClusterResource(clusterARN),
			auth.WithClusterAddress(clusterEndpoint + ":8443")}, auth.ErrMisconfigured, "is not that of the cluster"},
		"unknown": {[]auth.Option{auth.WithClusterResource(clusterARN + "-x")}, auth.ErrMisconfigured,
			"No cluster found for name: prod-x."},
		"of another account": {[]auth.Option{auth.WithClusterResource(other)}, auth.ErrMisconfigured, "instead of"},
		"nothing": {[]auth.Option{auth.WithClusterAddress(clusterEndpoint)}, auth.ErrMisconfigured,
			"WithClusterName"},
		"name, other address": {[]auth.Option{auth.WithClusterAddress("https://evil.example"), aws.WithClusterName("prod")},
			auth.ErrMisconfigured, `"https://evil.example:443" is not that of the cluster`},
		"unknown name": {[]auth.Option{auth.WithClusterResource("other")}, auth.ErrMisconfigured,
			"No cluster found for name: other."},
		"name without region": {[]auth.Option{auth.WithClusterResource("prod"), auth.WithSTSRegion("")},
			auth.ErrMisconfigured, "region"},
		"name and resource": {[]auth.Option{auth.WithClusterResource("prod"), aws.WithClusterName("other")},
			auth.ErrMisconfigured, `"prod" is not the ARN of an EKS cluster`},
		"bad name": {[]auth.Option{auth.WithClusterAddress(clusterEndpoint), auth.WithCAData(string(w.Cloud.CA())),
			aws.WithClusterName("a\r\nb")}, auth.ErrMisconfigured, "cannot be the name"},
		"empty name": {[]auth.Option{auth.WithClusterResource(clusterARN), aws.WithClusterName("")},
			auth.ErrMisconfigured, "cannot be the name"},
		"two names": {[]auth.Option{auth.WithClusterResource(clusterARN), aws.WithClusterName("other")},
			auth.ErrMisconfigured, `"other"`},
		"no ARN": {[]auth.Option{auth.WithClusterResource("cluster/prod")}, auth.ErrMisconfigured,
			`"cluster/prod" is not the ARN of an EKS cluster`},
		"another cloud's": {[]auth.Option{auth.WithClusterResource("projects/p/locations/l/clusters/c")},
			auth.ErrMisconfigured, "is not the ARN"},
		"a node group": {
			[]auth.Option{auth.WithClusterResource("arn:aws:eks:eu-central-1:" + account + ":nodegroup/prod")},
			auth.ErrMisconfigured, "cluster/<name>"},
		"partition of region": {
			[]auth.Option{auth.WithClusterResource("arn:aws-cn:eks:eu-central-1:" + account + ":cluster/prod")},
			auth.ErrMisconfigured, "partition"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := w.cluster(t, &aws.Provider{}, tc.opts...)
			testenv.CheckError(t, err, tc.reason, tc.want)
			if c != nil {
				t.Errorf("got %v", c)
			}
		})
	}
}

func TestAnswersOfEKS(t *testing.T) {
	describe := func(s string) cloudtest.Fault { return cloudtest.Fault{Service: "eks", Body: `{"cluster":` + s + `}`} }
	const ca = `"certificateAuthority":{"data":"LS0t"}`
	for name, tc := range map[string]struct {
		fault  cloudtest.Fault
		reason provider.Reason
		want   string
	}{
		"throttled": {cloudtest.Fault{Service: "eks", Status: 429, Code: "ThrottlingException", Message: "slow"},
			auth.ErrThrottled, "slow"},
		"server": {cloudtest.Fault{Service: "eks", Status: 500, Code: "ServerException", Message: "oops"},
			auth.ErrUnavailable, "oops"},
		"unavailable": {cloudtest.Fault{Service: "eks", Status: 503, Code: "ServiceUnavailableException",
			Message: "later"}, auth.ErrUnavailable, "later"},
		"client": {cloudtest.Fault{Service: "eks", Status: 400, Code: "ClientException", Message: "no"},
			auth.ErrDenied, "no"},
		"HTML": {cloudtest.Fault{Service: "eks", Body: "<html>secret of the proxy"}, auth.ErrUnavailable,
			"cannot be read"},
		"10 MB": {describe(`{"name":"` + strings.Repeat("a", 10<<20) + `"}`), auth.ErrUnavailable, "larger than"},
		"redirect": {cloudtest.Fault{Service: "eks", Redirect: "https://evil.example/"}, auth.ErrUnavailable,
			"redirect"},
		"cut": {cloudtest.Fault{Service: "eks", Cut: true}, auth.ErrUnavailable,
			"eks.eu-central-1.amazonaws.com"},
		"no cluster": {cloudtest.Fault{Service: "eks", Body: "{}"}, auth.ErrUnavailable, "no cluster"},
		"null":       {describe("null"), auth.ErrUnavailable, "no cluster"},
		"empty":      {describe("{}"), auth.ErrUnavailable, "no address or no certificate authority"},
		"being created": {describe(`{"status":"CREATING","endpoint":"https://h",` + ca + `}`), auth.ErrUnavailable,
			"CREATING"},
		"no endpoint": {describe(`{"status":"ACTIVE",` + ca + `}`), auth.ErrUnavailable, "no address"},
		"no authority": {describe(`{"status":"ACTIVE","endpoint":"https://h"}`), auth.ErrUnavailable,
			"no certificate authority"},
		"no data": {describe(`{"status":"ACTIVE","endpoint":"https://h","certificateAuthority":{}}`),
			auth.ErrUnavailable, "no certificate authority"},
		"http": {describe(`{"status":"ACTIVE","endpoint":"http://h",` + ca + `}`), auth.ErrUnavailable,
			`endpoint "http://h"`},
		"user": {describe(`{"status":"ACTIVE","endpoint":"https://u:p@h",` + ca + `}`), auth.ErrUnavailable,
			"not an address"},
		"not base64": {describe(`{"status":"ACTIVE","endpoint":"https://h","certificateAuthority":{"data":"%"}}`),
			auth.ErrUnavailable, "not PEM in base64"},
		"not PEM": {describe(`{"status":"ACTIVE","endpoint":"https://h",` + ca + `}`), auth.ErrUnavailable,
			"not PEM in base64"},
		"another name": {describe(`{"name":"other","status":"ACTIVE","endpoint":"https://h",` + ca + `}`),
			auth.ErrUnavailable, `"other"`},
		"region not active": {cloudtest.Fault{Service: "eks", Status: 403, Code: "UnrecognizedClientException",
			Message: "The security token included in the request is invalid"}, auth.ErrDenied, "activated the region"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEnvironment(t).clusters()
			w.Cloud.AddFault(tc.fault)
			c, err := w.cluster(t, aws.Impatient(), auth.WithClusterResource(clusterARN))
			testenv.CheckError(t, err, tc.reason, tc.want)
			if c != nil || strings.Contains(err.Error(), "secret of the proxy") {
				t.Errorf("got %v, %v", c, err)
			}
		})
	}
}

// The authenticator of a local cluster on AWS Outposts knows the cluster by its
// ID, not by its name (aws eks get-token --cluster-id).
func TestLocalClusterOnOutposts(t *testing.T) {
	w := newEnvironment(t).clusters()
	const id = "0d1b0c63-1f3a-4a55-9a6d-5a3f6a1c0001"
	byID := strings.Replace(clusterARN, "cluster/prod", "cluster/"+id, 1)
	w.Cloud.AWS().SetEKSCluster(cloudtest.EKSCluster{ARN: byID, Endpoint: clusterEndpoint, CA: w.Cloud.CA()})
	w.Cloud.AWS().SetEKSAccessEntry(byID, role("tenant-a"), cloudtest.EKSAccessEntry{})
	withID := func(id string) cloudtest.Fault {
		return cloudtest.Fault{Service: "eks", Action: "DescribeCluster", Rewrite: func(b []byte) []byte {
			return []byte(strings.Replace(string(b), `"cluster":{`, `"cluster":{"id":"`+id+`",`, 1))
		}}
	}
	remove := w.Cloud.AddFault(withID(id))
	whole := []auth.Option{auth.WithClusterAddress(clusterEndpoint), auth.WithCAData(string(w.Cloud.CA()))}
	for name, opts := range map[string][]auth.Option{
		"described":                {},
		"described, with its ID":   {aws.WithClusterName(id)},
		"with address, CA, and ID": append(whole, aws.WithClusterName(id)),
	} {
		t.Run(name, func(t *testing.T) {
			c, err := w.cluster(t, &aws.Provider{}, append(opts, auth.WithClusterResource(clusterARN))...)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := w.Cloud.AWS().VerifyEKSToken(byID, c.BearerToken()); err != nil {
				t.Error(err)
			}
		})
	}
	_, err := w.cluster(t, &aws.Provider{}, auth.WithClusterResource(clusterARN),
		aws.WithClusterName("ffffffff-1f3a-4a55-9a6d-5a3f6a1c0001"))
	testenv.CheckError(t, err, auth.ErrMisconfigured, id, "ffffffff-")
	remove()
	defer w.Cloud.AddFault(withID("another"))()
	_, err = w.cluster(t, &aws.Provider{}, auth.WithClusterResource(clusterARN))
	testenv.CheckError(t, err, auth.ErrUnavailable, `"another"`)
}
