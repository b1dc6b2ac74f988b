package aws_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/awsname"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

const gitURL = "https://git-codecommit.eu-central-1.amazonaws.com/v1/repos/my-repo"

func parseURL(t testing.TB, s string) url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return *u
}

// refs asks for the references of a repository, as git does first.
func (w *environment) refs(t *testing.T, repository string, c *auth.GitCredentials) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		repository+"/info/refs?service=git-upload-pack", nil)
	if err != nil {
		t.Fatal(err)
	}
	if c != nil {
		req.SetBasicAuth(c.Username(), c.Password())
	}
	resp, err := w.Cloud.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // nothing to read
	return resp.StatusCode
}

func TestGit(t *testing.T) {
	w := newEnvironment(t)
	c, err := auth.GetGitCredentials(t.Context(), &aws.Provider{},
		w.options("tenant-a", "app", auth.WithGitURL(parseURL(t, gitURL)))...)
	if err != nil {
		t.Fatal(err)
	}
	for repository, want := range map[string]int{
		gitURL: 200, gitURL + "2": 403, strings.Replace(gitURL, "eu-central-1", "eu-west-1", 1): 403,
		strings.Replace(gitURL, "git-codecommit", "git-codecommit-fips", 1): 403,
	} {
		if got := w.refs(t, repository, c); got != want {
			t.Errorf("%s answers %d, want %d", repository, got, want)
		}
	}
	if status := w.refs(t, gitURL, nil); status != 401 {
		t.Errorf("without credentials %d", status)
	}
	if d := c.GetDuration(); d > 15*time.Minute || d < 13*time.Minute || c.BearerToken() != "" {
		t.Errorf("lives for %s", d)
	}
	id, session, found := strings.Cut(c.Username(), "%")
	if whose, _ := w.Cloud.AWS().Identity(id); !found || session == "" || whose.RoleARN != role("tenant-a") {
		t.Errorf("the user is of %+v", whose)
	}
	w.Cloud.AWS().Deny(role("tenant-a"), "codecommit:GitPull")
	if status := w.refs(t, gitURL, c); status != 403 {
		t.Errorf("without the permission %d", status)
	}
}

// STS is that of the repository's region unless the caller chose another. A hit
// makes no request.
func TestGitRegionAndCache(t *testing.T) {
	t.Setenv("AWS_REGION", "us-west-2")
	w := newEnvironment(t)
	tokens := testenv.Cache(t)
	p := &aws.Provider{}
	for range 3 {
		for _, more := range []auth.Option{auth.WithSTSRegion(""), auth.WithSTSRegion("us-east-1")} {
			opts := w.options("tenant-a", "app", auth.WithGitURL(parseURL(t, gitURL)),
				testenv.WithCache(tokens, "tenant-a"), more)
			if _, err := auth.GetGitCredentials(t.Context(), p, opts...); err != nil {
				t.Fatal(err)
			}
		}
	}
	if calls := w.Cloud.Log(); len(calls) != 2 || calls[0].Host != "sts.eu-central-1.amazonaws.com" ||
		calls[1].Host != "sts.us-east-1.amazonaws.com" {
		t.Errorf("calls: %+v", calls)
	}
}

// Keys without a session token, such as a user's, have no % in the user name.
// CodeCommit goes by its own clock.
func TestGitWithStaticKeys(t *testing.T) {
	clearEnvironment(t)
	w := newEnvironment(t)
	id, secret := w.Cloud.AWS().AddUser(account, "controller")
	t.Setenv("AWS_ACCESS_KEY_ID", id)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	c, err := auth.GetGitCredentials(t.Context(), &aws.Provider{}, auth.WithGitURL(parseURL(t, gitURL)),
		auth.WithHTTPClient(w.Cloud.Client()))
	if err != nil || c.Username() != id || w.refs(t, gitURL, c) != 200 {
		t.Fatalf("user %q, %v", c.Username(), err)
	}
	w.Cloud.SetClock(func() time.Time { return time.Now().Add(16 * time.Minute) })
	if status := w.refs(t, gitURL, c); status != 403 {
		t.Errorf("after 16 minutes %d", status)
	}
}

func TestGitEndsWithItsCredentials(t *testing.T) {
	w := newEnvironment(t)
	w.Cloud.SetClock(func() time.Time { return time.Now().Add(-55 * time.Minute) })
	c, err := auth.GetGitCredentials(t.Context(), &aws.Provider{},
		w.options("tenant-a", "app", auth.WithGitURL(parseURL(t, gitURL)))...)
	if err != nil || c.GetDuration() > 5*time.Minute {
		t.Errorf("got %v, %v, want five minutes at most", c, err)
	}
}

// Other ways to write the same host get the same credentials, from the cache.
func TestGitHostForms(t *testing.T) {
	w := newEnvironment(t)
	tokens := testenv.Cache(t)
	for _, s := range []string{gitURL, strings.Replace(gitURL, ".com/", ".com:443/", 1),
		strings.Replace(gitURL, "git-codecommit", "GIT-CodeCommit", 1)} {
		opts := w.options("tenant-a", "app", auth.WithGitURL(parseURL(t, s)), testenv.WithCache(tokens, "tenant-a"))
		c, err := auth.GetGitCredentials(t.Context(), &aws.Provider{}, opts...)
		if err != nil || w.refs(t, gitURL, c) != http.StatusOK {
			t.Errorf("%s: %v", s, err)
		}
	}
	if n := w.Cloud.Calls("sts", ""); n != 1 {
		t.Errorf("%d exchanges for one repository", n)
	}
}

func TestGitURLsThatAreRefused(t *testing.T) {
	w := newEnvironment(t)
	for _, s := range []string{
		"https://github.com/a/b", "https://git-codecommit.eu-central-1.amazonaws.com",
		"https://git-codecommit.eu-central-1.amazonaws.com/",
		gitURL + "/", gitURL + "/x", gitURL + ".git", "https://git-codecommit.eu-central-1.amazonaws.com/v1/repos/",
		"https://git-codecommit.eu-central-1.amazonaws.com/v1/repos/a%2fb",
		"https://git-codecommit.eu-central-1.amazonaws.com/v1/repos/a%20b",
		"https://git-codecommit.eu-central-1.amazonaws.com/v1/repos/..",
		"https://git-codecommit.eu-central-1.amazonaws.com/v1/repos/%61",
		"https://git-codecommit.eu-central-1.amazonaws.com//v1/repos/a",
		"https://git-codecommit.eu-central-1.amazonaws.com/v1/repos/" + strings.Repeat("a", 101),
		"https://git-codecommit.eu-central-1.amazonaws.com:8443/v1/repos/a",
		"https://git-codecommit.eu-central-1.amazonaws.com./v1/repos/a",
		"https://git-codecommit.eu-central-1.amazonaws.com:0443/v1/repos/a",
		"https://git-codecommit.eu-central-1.amazonaws.com.evil.example/v1/repos/a",
		"https://evil.example/git-codecommit.eu-central-1.amazonaws.com/v1/repos/a",
		"https://git-codecommit.eu-central-1.amazonaws.com@evil.example/v1/repos/a",
		"https://user:password@git-codecommit.eu-central-1.amazonaws.com/v1/repos/a",
		"https://git-codecommit.cn-north-1.amazonaws.com/v1/repos/a",
		"https://git-codecommit.eu-central-1.amazonaws.com.cn/v1/repos/a",
		"https://git-codecommit.us-isox-east-1.amazonaws.com/v1/repos/a",
		"https://xgit-codecommit.eu-central-1.amazonaws.com/v1/repos/a",
		"http://git-codecommit.eu-central-1.amazonaws.com/v1/repos/a",
		"ssh://git-codecommit.eu-central-1.amazonaws.com/v1/repos/a",
		gitURL + "?x", gitURL + "#x", "codecommit::eu-central-1://a",
	} {
		c, err := auth.GetGitCredentials(t.Context(), &aws.Provider{},
			w.options("tenant-a", "app", auth.WithGitURL(parseURL(t, s)))...)
		testenv.CheckError(t, err, auth.ErrMisconfigured)
		if c != nil {
			t.Errorf("%q: got %v", s, c)
		}
	}
	testenv.ExpectNone(t, w.Cloud.Calls("", ""))
}

func FuzzGitRepository(f *testing.F) {
	f.Add(gitURL)
	f.Add("https://git-codecommit-fips.us-gov-west-1.amazonaws.com/v1/repos/a.b_c-d")
	f.Add("https://git-codecommit.eu-central-1.amazonaws.com@evil.example/v1/repos/a")
	p := &aws.Provider{}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := url.Parse(s)
		if err != nil {
			return
		}
		input, err := p.ParseGitRepository(u, &provider.Options{})
		if err != nil {
			return
		}
		host, path, _ := strings.Cut(input, "/")
		region, ok := awsname.ParseGitHost(host)
		partition, _ := awsname.PartitionOf(region)
		if !ok || host != strings.ToLower(strings.TrimSuffix(u.Host, ":443")) ||
			!strings.HasSuffix(host, "."+region+"."+partition.Suffix) || !strings.HasPrefix(path, "v1/repos/") ||
			strings.Count(path, "/") != 2 ||
			strings.Trim(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/") != "" {
			t.Errorf("%q is %q", s, input)
		}
	})
}
