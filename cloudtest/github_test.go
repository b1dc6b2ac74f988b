package cloudtest_test

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// The fake accepts the forms of GitHub's own SDK (@octokit/auth-app 8.3): a
// numeric iss, the scheme in lower case, the older media type, no version, and
// no body for everything that the installation has. It refuses other JWTs.
func TestGitHubAcceptsItsSDK(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	cloud := testenv.Cloud(t)
	github := cloudtest.NewGitHub(cloud, "github.com")
	github.AddApp("1234", &key.PublicKey)
	github.SetInstallation(42, cloudtest.GitHubInstallation{App: "1234", Owner: "org",
		Repositories: []string{"app", "infra"}, Permissions: map[string]string{"contents": "write"}})
	now := time.Now().Unix()
	for name, tc := range map[string]struct {
		claims    map[string]any
		algorithm jose.SignatureAlgorithm
		status    int
	}{
		"as the SDK":        {map[string]any{"iss": 1234, "iat": now - 30, "exp": now + 570}, jose.RS256, 201},
		"a string":          {map[string]any{"iss": "1234", "iat": now - 30, "exp": now + 570}, jose.RS256, 201},
		"another App":       {map[string]any{"iss": 1, "iat": now - 30, "exp": now + 570}, jose.RS256, 401},
		"from the future":   {map[string]any{"iss": 1234, "iat": now + 30, "exp": now + 570}, jose.RS256, 401},
		"for too long":      {map[string]any{"iss": 1234, "iat": now - 30, "exp": now + 660}, jose.RS256, 401},
		"expired":           {map[string]any{"iss": 1234, "iat": now - 30, "exp": now - 1}, jose.RS256, 401},
		"another algorithm": {map[string]any{"iss": 1234, "iat": now - 30, "exp": now + 570}, jose.PS256, 401},
	} {
		t.Run(name, func(t *testing.T) {
			signer, err := jose.NewSigner(jose.SigningKey{Algorithm: tc.algorithm, Key: key}, nil)
			if err != nil {
				t.Fatal(err)
			}
			assertion, err := jwt.Signed(signer).Claims(tc.claims).Serialize()
			if err != nil {
				t.Fatal(err)
			}
			const url = "https://api.github.com/app/installations/42/access_tokens"
			status, text, _ := send(t, cloud, http.MethodPost, url, "", "Authorization", "bearer "+assertion,
				"Accept", "application/vnd.github.v3+json")
			var answer struct {
				Token     string `json:"token"`
				Selection string `json:"repository_selection"`
			}
			err = json.Unmarshal([]byte(text), &answer)
			id, ok := github.Identity(answer.Token)
			if err != nil || status != tc.status || ok != (tc.status == 201) ||
				ok && (answer.Selection != "all" || strings.Join(id.Repositories, " ") != "org/app org/infra") {
				t.Errorf("status %d, %+v of %+v, %v", status, id, answer, err)
			}
		})
	}
}
