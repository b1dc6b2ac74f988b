package cloudtest_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

const (
	gcpPool     = "projects/123456789012/locations/global/workloadIdentityPools/pool"
	gcpProvider = gcpPool + "/providers/cluster"
)

type gcpEnvironment struct {
	*testenv.Environment
	t *testing.T
}

func newGCPEnvironment(t *testing.T) *gcpEnvironment {
	t.Helper()
	w := &gcpEnvironment{testenv.New(t), t}
	w.Cloud.GCP().SetWorkloadIdentityProvider(gcpProvider,
		cloudtest.WorkloadIdentityProvider{Issuer: w.Issuer.URL(), Fetch: w.Issuer.HTTPClient()})
	return w
}

func (w *gcpEnvironment) get(address, bearer string) (status int, answer string, header http.Header) {
	w.t.Helper()
	return send(w.t, w.Cloud, http.MethodGet, address, "", "Authorization", bearer)
}

func (w *gcpEnvironment) exchange(audience, token string) (status int, answer map[string]any) {
	w.t.Helper()
	form := url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "audience": {audience},
		"requested_token_type": {"urn:ietf:params:oauth:token-type:access_token"},
		"scope":                {"https://www.googleapis.com/auth/cloud-platform"},
		"subject_token_type":   {"urn:ietf:params:oauth:token-type:jwt"}, "subject_token": {token}}
	status, body, _ := send(w.t, w.Cloud, http.MethodPost, "https://sts.googleapis.com/v1/token", form.Encode(),
		"Content-Type", "application/x-www-form-urlencoded")
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		w.t.Fatalf("%s: %v", body, err)
	}
	return status, answer
}

func (w *gcpEnvironment) sign(change ...func(claims map[string]any)) string {
	w.t.Helper()
	return w.Token(w.t, "tenant-a", "app", "https://iam.googleapis.com/"+gcpProvider, change...)
}

func TestGCPTokenService(t *testing.T) {
	w := newGCPEnvironment(t)
	const resource = "//iam.googleapis.com/" + gcpProvider
	now := time.Now().Unix()
	forged := func() string {
		good := w.sign()
		other := testenv.Forger(t)
		bad, err := other.Sign(w.Issuer.Claims(app(), []string{resource}, time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		return good[:strings.LastIndexByte(good, '.')] + bad[strings.LastIndexByte(bad, '.'):]
	}()
	noKey, err := w.Issuer.SignWithHeader(w.Issuer.Claims(app(), []string{resource}, time.Hour),
		map[string]any{"alg": "RS256"})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		audience, token string
		status          int
		code, text      string
	}{
		"https audience":   {resource, w.sign(), 200, "", ""},
		"without https":    {resource, w.sign(func(c map[string]any) { c["aud"] = resource }), 200, "", ""},
		"expired a moment": {resource, w.sign(func(c map[string]any) { c["exp"] = now - 50 }), 500, "", ""},
		"expired": {resource, w.sign(func(c map[string]any) {
			c["exp"] = now - 90
		}), 400, "invalid_grant", "is stale to sign-in."},
		"of the future": {resource, w.sign(func(c map[string]any) {
			c["iat"] = now + 120
		}), 400, "invalid_grant", "is stale to sign-in."},
		"without iat": {resource, w.sign(func(c map[string]any) {
			delete(c, "iat")
		}), 400, "invalid_grant", "ID Token issued at null is stale to sign-in."},
		"other audience": {resource, w.sign(func(c map[string]any) {
			c["aud"] = "x"
		}), 400, "invalid_grant", "The audience in ID Token [x] does not match the expected audience."},
		"no audience": {resource, w.sign(func(c map[string]any) {
			delete(c, "aud")
		}), 400, "invalid_grant", "The audience in ID Token [] does not match"},
		"other issuer": {resource, w.sign(func(c map[string]any) {
			c["iss"] = "https://x.example"
		}), 400, "invalid_grant",
			"The issuer in ID Token https://x.example does not match the expected one in config: https://issuer.example"},
		"no issuer": {resource, w.sign(func(c map[string]any) {
			delete(c, "iss")
		}), 400, "invalid_grant", "The issuer in ID Token null"},
		"long subject": {resource, w.sign(func(c map[string]any) {
			c["sub"] = strings.Repeat("x", 128)
		}), 400, "invalid_grant", "127 bytes"},
		"no subject": {resource, w.sign(func(c map[string]any) {
			delete(c, "sub")
		}), 400, "unauthorized_client", "attribute condition"},
		"forged": {resource, forged, 400, "invalid_grant", "Unable to verify the ID Token signature."},
		"no key": {resource, noKey, 400, "invalid_grant", "Error connecting to the given credential's issuer."},
		"no JWT": {resource, "x", 400, "invalid_grant", ""},
		"pool": {"//iam.googleapis.com/" + gcpPool, w.sign(), 400, "invalid_request",
			`Invalid value for "audience"`},
		"unknown provider": {resource + "2", w.sign(), 400, "invalid_target", "The target service indicated"},
		"project ID":       {strings.Replace(resource, "123456789012", "project", 1), w.sign(), 400, "invalid_target", ""},
		"other universe": {strings.Replace(resource, "googleapis.com", "s3nsapis.fr", 1), w.sign(), 400,
			"invalid_request", ""},
	} {
		status, answer := w.exchange(tc.audience, tc.token)
		code, _ := answer["error"].(string)
		text, _ := answer["error_description"].(string)
		if status != tc.status || code != tc.code || !strings.Contains(text, tc.text) {
			t.Errorf("%s: got %d, %v", name, status, answer)
		}
	}
}

func TestGCPFederatedToken(t *testing.T) {
	w := newGCPEnvironment(t)
	_, answer := w.exchange("//iam.googleapis.com/"+gcpProvider, w.sign(func(c map[string]any) {
		c["exp"] = time.Now().Add(10 * time.Minute).Unix()
	}))
	token, _ := answer["access_token"].(string)
	lifetime, _ := answer["expires_in"].(float64)
	id, ok := w.Cloud.GCP().Identity(token)
	if !ok || answer["token_type"] != "Bearer" || lifetime > 600 || lifetime < 540 ||
		id.Subject != "system:serviceaccount:tenant-a:app" {
		t.Errorf("got %v of %+v", answer, id)
	}
	const image, repository = "https://europe-docker.pkg.dev/v2/project/repo/app/manifests/1",
		"europe-docker.pkg.dev/project/repo"
	w.Cloud.GCP().SetRepository(repository, "principalSet://iam.googleapis.com/"+gcpPool+"/*")
	get := func(address string, status int, want string) {
		t.Helper()
		if got, body, _ := w.get(address, "Bearer "+token); got != status || !strings.Contains(body, want) {
			t.Errorf("%s: got %d, %s", address, got, body)
		}
	}
	get(image, 404, "NAME_UNKNOWN")
	w.Cloud.GCP().SetRepository(repository)
	get(image, 403, "DENIED")
	w.Cloud.SetClock(func() time.Time { return time.Now().Add(11 * time.Minute) })
	get(image, 401, "UNAUTHORIZED")
	if _, ok := w.Cloud.GCP().Identity(token); ok {
		t.Error("Identity knows an expired token")
	}
}

func TestGCPCredentialsAPI(t *testing.T) {
	w := newGCPEnvironment(t)
	const email, caller = "app@project.iam.gserviceaccount.com", "caller@project.iam.gserviceaccount.com"
	w.Cloud.GCP().SetServiceAccount(email,
		cloudtest.GCPServiceAccount{TokenCreators: []string{"serviceAccount:" + caller}})
	call := func(token, method, body string, status int, want string) {
		t.Helper()
		got, answer, header := send(t, w.Cloud, http.MethodPost,
			"https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/"+email+":"+method, body,
			"Content-Type", "application/json", "Authorization", "Bearer "+token)
		if got != status || !strings.Contains(answer, want) ||
			!strings.HasPrefix(header.Get("Content-Type"), "application/json") {
			t.Errorf("%s %s: got %d, %s", method, body, got, answer)
		}
	}
	const good = `{"scope":["https://www.googleapis.com/auth/cloud-platform"],"lifetime":"60s"}`
	token := w.Cloud.GCP().IssueAccessToken(caller)
	call(token, "generateAccessToken", good, 200, `"accessToken": "ya29.`)
	call(token, "generateAccessToken", `{}`, 400, "INVALID_ARGUMENT")
	call(token, "generateAccessToken", `{"scope":["x"],"lifetime":"7200s"}`, 400,
		"can not have lifetimes of more than 1 hour")
	call(token, "generateAccessToken", `{"scope":["x"],"lifetime":"1h"}`, 400, "INVALID_ARGUMENT")
	call(token, "generateAccessToken", `<`, 400, "INVALID_ARGUMENT")
	call(token, "generateIdToken", `{"audience":"https://x.example"}`, 200, `"token": "eyJ`)
	call(token, "generateIdToken", `{}`, 400, "INVALID_ARGUMENT")
	call(token, "signJwt", `{}`, 404, "NOT_FOUND")
	call("wrong", "generateAccessToken", good, 401, "UNAUTHENTICATED")
	call(w.Cloud.GCP().IssueAccessToken(caller, "https://www.googleapis.com/auth/devstorage.read_only"),
		"generateAccessToken", good, 403, "ACCESS_TOKEN_SCOPE_INSUFFICIENT")
	call(w.Cloud.GCP().IssueAccessToken("other@project.iam.gserviceaccount.com"), "generateAccessToken", good, 403,
		"IAM_PERMISSION_DENIED")
	w.Cloud.GCP().RemoveServiceAccount(email)
	call(token, "generateAccessToken", good, 404, "Gaia id not found for email "+email)
}

func TestGCPMetadataServer(t *testing.T) {
	w := newGCPEnvironment(t)
	get := func(path, flavor string) (status int, body string) {
		t.Helper()
		status, body, header := send(t, w.Cloud, http.MethodGet, "http://169.254.169.254/computeMetadata/v1/"+path, "",
			"Metadata-Flavor", flavor)
		if header.Get("Metadata-Flavor") != "Google" {
			t.Errorf("headers %v", header)
		}
		return status, body
	}
	if status, _ := get("project/project-id", "Google"); status != 404 {
		t.Errorf("status %d outside Google Cloud", status)
	}
	w.Cloud.GCP().SetMetadata(&cloudtest.GCPMetadata{ProjectID: "project", ClusterLocation: "us-central1",
		ClusterName: "c", Email: "pod@project.iam.gserviceaccount.com"})
	for path, want := range map[string]string{
		"project/project-id": "project", "instance/attributes/cluster-location": "us-central1",
		"instance/attributes/cluster-name":                      "c",
		"instance/service-accounts/default/email":               "pod@",
		"instance/service-accounts/default/token":               `{"access_token":"ya29.`,
		"instance/service-accounts/default/identity?audience=x": "eyJ",
	} {
		if status, body := get(path, "Google"); status != 200 || !strings.HasPrefix(body, want) {
			t.Errorf("%s: got %d %s, want %q", path, status, body, want)
		}
	}
	if status, body := get("project/project-id", ""); status != 403 ||
		!strings.Contains(body, `Missing required header "Metadata-Flavor"`) {
		t.Errorf("without the header: %d, %s", status, body)
	}
	if status, _ := get("instance/service-accounts/default/identity", "Google"); status != 400 {
		t.Errorf("an identity without an account: %d", status)
	}
}

func TestGCPRegistryAndGit(t *testing.T) {
	w := newGCPEnvironment(t)
	const email = "app@project.iam.gserviceaccount.com"
	w.Cloud.GCP().SetRepository("eu.gcr.io/project", "serviceAccount:"+email)
	token := w.Cloud.GCP().IssueAccessToken(email)
	if status, body, _ := w.get("https://eu.gcr.io/v2/other/app/manifests/v1", "Bearer "+token); status != 403 ||
		!strings.Contains(body, "downloadArtifacts") {
		t.Errorf("the manifest of another repository: got %d %s, want 403", status, body)
	}
	const git = "https://i-123456789012-git.us-central1.sourcemanager.dev/project/repo.git/info/refs?service=git-upload-pack"
	if status, _, _ := w.get(git, "Bearer "+token); status != 404 {
		t.Errorf("a repository that does not exist: got %d, want 404", status)
	}
}
