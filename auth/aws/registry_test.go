package aws_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/awsname"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

const registryHost = account + ".dkr.ecr.eu-central-1.amazonaws.com"

// registry asks for credentials as auth.GetArtifactRegistryCredentials does
// without a cache. asCaller turns options of a provider into a caller's.
func asCaller(list []provider.Option) (opts []auth.Option) {
	for _, set := range list {
		opts = append(opts, func(o *auth.Options) { set(&o.Options) })
	}
	return opts
}

func (w *environment) registry(t testing.TB, p *aws.Provider, repository string,
	more ...auth.Option) (*auth.ArtifactRegistryCredentials, error) {
	t.Helper()
	opts := append([]auth.Option{auth.WithHTTPClient(w.Cloud.Client())}, more...)
	input, err := p.ParseArtifactRepository(repository, resolve(opts))
	if err != nil {
		return nil, err
	}
	add, err := p.GetAccessTokenOptionsForArtifactRepository(input, resolve(opts))
	if err != nil {
		t.Fatal(err)
	}
	opts = append(opts, asCaller(add)...)
	token, err := auth.GetAccessToken(t.Context(), p, w.options("tenant-a", "app", opts...)...)
	if err != nil {
		return nil, err
	}
	return p.NewArtifactRegistryCredentials(t.Context(), input, token, resolve(opts))
}

// login sends the credentials to the registry.
func (w *environment) login(t *testing.T, host string, c *auth.ArtifactRegistryCredentials) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+host+"/v2/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if c != nil {
		config, err := c.Authorization()
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth(config.Username, config.Password)
	}
	resp, err := w.Cloud.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // nothing to read
	return resp.StatusCode
}

func TestRegistry(t *testing.T) {
	w := newEnvironment(t)
	c, err := w.registry(t, &aws.Provider{}, registryHost+"/team/app")
	if err != nil {
		t.Fatal(err)
	}
	config, _ := c.Authorization()
	if id, ok := w.Cloud.AWS().ValidRegistryPassword(registryHost, config.Username, config.Password); !ok ||
		id.RoleARN != role("tenant-a") {
		t.Errorf("it is the password of %+v, %t", id, ok)
	}
	if config.Username != "AWS" || !strings.Contains(config.Password, ":") || c.GetDuration() < 11*time.Hour ||
		c.GetDuration() > 12*time.Hour {
		t.Errorf("user %q, lives for %s", config.Username, c.GetDuration())
	}
	if with, without := w.login(t, registryHost, c), w.login(t, registryHost, nil); with != 200 || without != 401 {
		t.Errorf("the registry answers %d, without credentials %d", with, without)
	}
	if status := w.login(t, account+".dkr.ecr.eu-west-1.amazonaws.com", c); status != 401 {
		t.Errorf("the registry of another region answers %d", status)
	}
}

func TestRegistryEndpoints(t *testing.T) {
	for _, tc := range []struct {
		provider   *aws.Provider
		repository string
		want       string
	}{
		{&aws.Provider{}, registryHost, "api.ecr.eu-central-1.amazonaws.com"},
		{&aws.Provider{}, strings.ToUpper(registryHost) + ":443/a", "api.ecr.eu-central-1.amazonaws.com"},
		{&aws.Provider{}, account + ".dkr.ecr-fips.us-east-1.amazonaws.com/a",
			"ecr-fips.us-east-1.amazonaws.com api.ecr-fips.us-east-1.amazonaws.com"},
		{&aws.Provider{UseFIPSEndpoint: true}, account + ".dkr.ecr.us-west-2.amazonaws.com/a",
			"api.ecr-fips.us-west-2.amazonaws.com"},
		{&aws.Provider{}, account + ".dkr-ecr.eu-central-1.on.aws/a", "ecr.eu-central-1.api.aws"},
		{&aws.Provider{UseDualStackEndpoint: true}, registryHost, "ecr.eu-central-1.api.aws"},
		{&aws.Provider{}, "public.ecr.aws/nginx/nginx", "api.ecr-public.us-east-1.amazonaws.com"},
		{&aws.Provider{}, "ecr-public.aws.com/nginx/nginx", "api.ecr-public.us-east-1.amazonaws.com"},
		{&aws.Provider{UseDualStackEndpoint: true}, "public.ecr.aws/nginx/nginx", "ecr-public.us-east-1.api.aws"},
	} {
		w := newEnvironment(t)
		c, err := w.registry(t, tc.provider, tc.repository)
		if err != nil {
			t.Errorf("%s: %v", tc.repository, err)
			continue
		}
		if calls := w.Cloud.Log(); len(calls) != 2 || !strings.Contains(" "+tc.want+" ", " "+calls[1].Host+" ") {
			t.Errorf("%s: asked %+v, want %s", tc.repository, calls, tc.want)
		}
		host, _ := provider.RegistryHost(tc.repository)
		if status := w.login(t, host, c); status != http.StatusOK {
			t.Errorf("%s answers %d", host, status)
		}
	}
}

// In each partition, ECR and STS are those of the registry's own.
func TestRegistryPartitions(t *testing.T) {
	for _, region := range []string{"cn-north-1", "us-gov-west-1", "eusc-de-east-1", "us-iso-east-1", "us-isob-east-1",
		"eu-isoe-west-1", "us-isof-south-1"} {
		t.Run(region, func(t *testing.T) {
			t.Parallel()
			partition, _ := awsname.PartitionOf(region)
			arn := "arn:" + partition.Name + ":iam::" + account + ":role/tenant-a"
			sa := testenv.ServiceAccount("tenant-a", "abroad", aws.RoleARNAnnotation, arn)
			w := newEnvironment(t, sa)
			w.Cloud.AWS().SetRole(arn,
				cloudtest.Trust{Issuer: w.Issuer.URL(), Subjects: []string{"system:serviceaccount:tenant-a:abroad"}})
			p := &aws.Provider{}
			input, err := p.ParseArtifactRepository(account+".dkr.ecr."+region+"."+partition.Suffix+"/app", &provider.Options{})
			if err != nil {
				t.Fatal(err)
			}
			add, err := p.GetAccessTokenOptionsForArtifactRepository(input, &provider.Options{})
			if err != nil || len(add) != 1 {
				t.Fatalf("%d options, %v", len(add), err)
			}
			opts := w.options("tenant-a", "abroad", asCaller(add)...)
			token, err := auth.GetAccessToken(t.Context(), p, opts...)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.NewArtifactRegistryCredentials(t.Context(), input, token, resolve(opts)); err != nil {
				t.Fatal(err)
			}
			for _, call := range w.Cloud.Log() {
				if !strings.HasSuffix(call.Host, "."+region+"."+partition.Suffix) {
					t.Errorf("asked %s", call.Host)
				}
			}
		})
	}
}

// The caller's region for STS is used, and ECR is that of the registry
// nevertheless.
func TestRegistryWithSTSRegion(t *testing.T) {
	w := newEnvironment(t)
	if _, err := w.registry(t, &aws.Provider{}, account+".dkr.ecr.eu-west-1.amazonaws.com/a",
		auth.WithSTSRegion("us-west-2")); err != nil {
		t.Fatal(err)
	}
	if calls := w.Cloud.Log(); calls[0].Host != "sts.us-west-2.amazonaws.com" ||
		calls[1].Host != "api.ecr.eu-west-1.amazonaws.com" {
		t.Errorf("asked %+v", calls)
	}
}

func TestRepositoriesThatAreRefused(t *testing.T) {
	p := &aws.Provider{}
	for _, repository := range []string{
		"", "/", "app", "ghcr.io/a/b", "docker.io/library/nginx", "oci://" + registryHost + "/a",
		"https://" + registryHost + "/a", registryHost + ":8443/a",
		registryHost + ":5000/a", "AWS:x@" + registryHost + "/a", registryHost + "@evil.example/a", registryHost +
			".evil.example/a", "evil.example/" + registryHost,
		"x" + registryHost, registryHost + "%2f.evil.example/a", registryHost + "\\.evil.example/a", registryHost + "?a",
		registryHost + "#a", " " + registryHost,
		account + ".dkr.ecr.cn-north-1.amazonaws.com/a", account + ".dkr.ecr.eu-central-1.amazonaws.com.cn/a", account +
			".dkr.ecr.us-isox-east-1.amazonaws.com/a",
		"public.ecr.aws.evil.example/a", "evilpublic.ecr.aws/a", "127.0.0.1/a", "[::1]/a", strings.Repeat("a", 100_000),
		registryHost + "\n",
	} {
		input, err := p.ParseArtifactRepository(repository, &provider.Options{})
		if !errors.Is(err, auth.ErrMisconfigured) || input != "" {
			t.Errorf("%.200q: got %q, %v, want ErrMisconfigured", repository, input, err)
		} else if len(err.Error()) > 1000 {
			t.Errorf("%.100q: the message has %d bytes", repository, len(err.Error()))
		}
	}
	for _, repository := range []string{registryHost, registryHost + "/a/b", strings.ToUpper(registryHost) + "/a"} {
		if input, err := p.ParseArtifactRepository(repository, &provider.Options{}); err != nil || input != "eu-central-1" {
			t.Errorf("%q: got %q, %v, want the region eu-central-1", repository, input, err)
		}
	}
}

// Everything that ECR can answer besides a password.
func TestErrorsOfECR(t *testing.T) {
	body := func(s string) cloudtest.Fault { return cloudtest.Fault{Service: "ecr", Body: s} }
	data := func(token, expiry string) cloudtest.Fault {
		return body(`{"authorizationData":[{"authorizationToken":"` + token + `","expiresAt":` + expiry + `}]}`)
	}
	const good, soon = "QVdTOnBhc3M6d29yZA==", "4000000000"
	for name, tc := range map[string]struct {
		fault  cloudtest.Fault
		reason provider.Reason
		want   string
	}{
		"throttled": {cloudtest.Fault{Service: "ecr", Status: 400, Code: "ThrottlingException",
			Message: "Rate exceeded"}, auth.ErrThrottled, "Rate exceeded"},
		"region not active": {cloudtest.Fault{Service: "ecr", Status: 400, Code: "UnrecognizedClientException",
			Message: "The security token included in the request is invalid."}, auth.ErrDenied, "activated the region"},
		"expired": {cloudtest.Fault{Service: "ecr", Status: 400, Code: "ExpiredTokenException", Message: "expired"},
			auth.ErrUnavailable, "clocks"},
		"clock late": {cloudtest.Fault{Service: "ecr", Status: 400, Code: "InvalidSignatureException",
			Message: "Signature expired: 20260101T000000Z is now earlier than 20260101T000500Z (20260101T002000Z - 15 min.)"},
			auth.ErrUnavailable, "check the clock"},
		"clock early": {cloudtest.Fault{Service: "ecr", Status: 400, Code: "InvalidSignatureException",
			Message: "Signature not yet current: 20260101T002000Z is still later than 20260101T001500Z (20260101T000000Z + 15 min.)"}, auth.ErrUnavailable, "check the clock"},
		"signature": {cloudtest.Fault{Service: "ecr", Status: 400, Code: "InvalidSignatureException",
			Message: "The request signature we calculated does not match"}, auth.ErrDenied, "does not match"},
		"server": {cloudtest.Fault{Service: "ecr", Status: 500, Code: "ServerException", Message: "oops"},
			auth.ErrUnavailable, "oops"},
		"parameter": {cloudtest.Fault{Service: "ecr", Status: 400, Code: "InvalidParameterException", Message: "bad"},
			auth.ErrMisconfigured, "bad"},
		"cut": {cloudtest.Fault{Service: "ecr", Cut: true}, auth.ErrUnavailable,
			"api.ecr.eu-central-1.amazonaws.com"},
		"redirect": {cloudtest.Fault{Service: "ecr", Redirect: "https://evil.example/"}, auth.ErrUnavailable,
			"redirect, which is not followed"},
		"HTML":           {body("<html>secret of the proxy</html>"), auth.ErrUnavailable, "cannot be"},
		"10 MB":          {body(`{"a":"` + strings.Repeat("a", 10<<20)), auth.ErrUnavailable, "larger than"},
		"empty":          {body("{}"), auth.ErrUnavailable, "no authorization token"},
		"empty list":     {body(`{"authorizationData":[]}`), auth.ErrUnavailable, "no authorization token"},
		"null":           {body(`{"authorizationData":[null]}`), auth.ErrUnavailable, "no authorization token"},
		"no token":       {data("", "4000000000"), auth.ErrUnavailable, "no authorization token"},
		"not base64":     {data("%%%", "4000000000"), auth.ErrUnavailable, "not base64"},
		"no colon":       {data("QVdT", soon), auth.ErrUnavailable, "AWS:<password>"},
		"no password":    {data("QVdTOg==", soon), auth.ErrUnavailable, "AWS:<password>"},
		"another user":   {data("cm9vdDp4", soon), auth.ErrUnavailable, "AWS:<password>"},
		"expiry in 2096": {data(good, soon), auth.ErrUnavailable, "later than any"},
		"expiry in 1970": {data(good, "1"), auth.ErrUnavailable, "it expired at"},
		"expiry null":    {data(good, "null"), auth.ErrUnavailable, "expiry is missing"},
		"expiry a word":  {data(good, `"soon"`), auth.ErrUnavailable, "cannot be"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEnvironment(t)
			w.Cloud.AddFault(tc.fault)
			c, err := w.registry(t, aws.Impatient(), registryHost+"/a")
			testenv.CheckError(t, err, tc.reason, "authorization token of Amazon ECR", tc.want)
			if c != nil || strings.Contains(err.Error(), "secret of the proxy") || strings.Contains(err.Error(), "pass:word") {
				t.Errorf("got %v, %v", c, err)
			}
		})
	}
}

// A machine whose clock is off by more than signatures may be learns the time
// from the service's answer and goes on.
func TestRegistryWithClocksThatDiffer(t *testing.T) {
	for _, off := range []time.Duration{20 * time.Minute, -20 * time.Minute} {
		w := newEnvironment(t)
		w.Cloud.SetClock(func() time.Time { return time.Now().Add(off) })
		if _, err := w.registry(t, aws.Impatient(), registryHost+"/team/app"); err != nil {
			t.Errorf("%s: %v", off, err)
		}
	}
}

func TestRegistryDenied(t *testing.T) {
	for repository, action := range map[string]string{
		registryHost + "/a": "ecr:GetAuthorizationToken", "public.ecr.aws/a/b": "ecr-public:GetAuthorizationToken",
		"ecr-public.aws.com/a": "sts:GetServiceBearerToken",
	} {
		w := newEnvironment(t)
		w.Cloud.AWS().Deny(role("tenant-a"), action)
		_, err := w.registry(t, &aws.Provider{}, repository)
		testenv.CheckError(t, err, auth.ErrDenied, action, "AccessDeniedException", "assumed-role/tenant-a/tenant-a.app",
			"allow the role")
	}
}

func FuzzArtifactRepository(f *testing.F) {
	f.Add(registryHost + "/team/app")
	f.Add("public.ecr.aws/a/b")
	f.Add(account + ".dkr.ecr-fips.us-gov-west-1.amazonaws.com")
	p := &aws.Provider{}
	f.Fuzz(func(t *testing.T, repository string) {
		input, err := p.ParseArtifactRepository(repository, &provider.Options{})
		if err != nil {
			return
		}
		host, _, _ := strings.Cut(strings.ToLower(repository), "/")
		region, _, _ := strings.Cut(input, " ")
		if strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "" {
			t.Errorf("%q was accepted", repository)
		}
		if public := host == "public.ecr.aws" || host == "ecr-public.aws.com"; public != (input == "public") ||
			!public && (!strings.Contains(host, "."+region+".") || !awsname.ValidAccount(host[:12])) {
			t.Errorf("%q is %q", repository, input)
		}
		partition, _ := awsname.PartitionOf(region)
		if input != "public" && !strings.HasSuffix(host, "."+partition.Suffix) &&
			!strings.HasSuffix(host, "."+partition.Registries) {
			t.Errorf("%q was accepted for %q", repository, partition.Name)
		}
	})
}
