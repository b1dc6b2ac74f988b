package credentials

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/auth/token"
	"github.com/workloadid/workloadid/internal/podidentity"
	"github.com/workloadid/workloadid/podidentity/proxy"
)

// forAWS offers the endpoint for containers. It comes late in the chains of the
// SDKs, so the child loses everything that comes earlier. The metadata service
// of the machine comes later, and some SDKs ask it after a refusal.
func (e *execution) forAWS(first *credential, mint minter) error {
	e.lost = strings.Fields("AWS_ACCESS_KEY_ID AWS_ACCESS_KEY AWS_SECRET_ACCESS_KEY AWS_SECRET_KEY AWS_SESSION_TOKEN " +
		"AWS_SECURITY_TOKEN AWS_CREDENTIAL_EXPIRATION AWS_ACCOUNT_ID AWS_PROFILE AWS_DEFAULT_PROFILE AWS_CREDENTIAL_FILE " +
		"AWS_CREDENTIAL_PROFILES_FILE AWS_ROLE_ARN AWS_ROLE_SESSION_NAME AWS_WEB_IDENTITY_TOKEN_FILE " +
		"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI AWS_CONTAINER_CREDENTIALS_FULL_URI AWS_CONTAINER_AUTHORIZATION_TOKEN " +
		"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
	empty, err := e.file("empty", nil)
	if err != nil {
		return err
	}
	for _, name := range []string{"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "BOTO_CONFIG"} {
		e.set[name] = empty
	}
	e.set["AWS_EC2_METADATA_DISABLED"] = "true"
	if e.id.region != "" {
		e.set["AWS_REGION"], e.set["AWS_DEFAULT_REGION"] = e.id.region, e.id.region
	}
	if e.static {
		e.add(first.values(aws.ProviderName))
		e.set["AWS_CREDENTIAL_EXPIRATION"] = first.Expires.UTC().Format(time.RFC3339)
		return nil
	}
	return e.serve(mint)
}

// answerTime is less than proxy.Serve allows for an answer. The exchange goes
// on for the next request.
const answerTime = 8 * time.Second

func (e *execution) serve(mint minter) error {
	listeners, err := proxy.Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		return err
	}
	secret := rand.Text()
	e.set["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = "http://" + listeners[0].Addr().String() + podidentity.Path
	e.set["AWS_CONTAINER_AUTHORIZATION_TOKEN"] = secret
	handler := proxy.Guard(secret, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), answerTime)
		defer cancel()
		c, err := mint(ctx)
		if err != nil {
			e.refuse(w, err)
			return
		}
		podidentity.Write(w, http.StatusOK, map[string]string{"AccessKeyId": c.Keys.AccessKeyID,
			"SecretAccessKey": c.Keys.SecretAccessKey, "Token": c.Keys.SessionToken,
			"Expiration": c.Expires.UTC().Format(time.RFC3339)})
	}))
	e.beside = append(e.beside, func(ctx context.Context) {
		if err := proxy.Serve(ctx, handler, listeners); err != nil {
			e.id.warn("the AWS credentials are no longer renewed: %v", err)
		}
	})
	return nil
}

// refuse answers with a reason that the SDKs show. They try again after a 5xx.
func (e *execution) refuse(w http.ResponseWriter, err error) {
	status, code := http.StatusServiceUnavailable, "Unavailable"
	switch {
	case errors.Is(err, auth.ErrDenied):
		status, code = http.StatusForbidden, "Denied"
	case errors.Is(err, auth.ErrMisconfigured):
		status, code = http.StatusForbidden, "Misconfigured"
	}
	podidentity.Write(w, status, podidentity.Error{Code: code, Message: "wid: " + e.id.InTermsOfFlags(err).Error()})
}

// forAzure sets the variables of WorkloadIdentityCredential, which
// DefaultAzureCredential tries after EnvironmentCredential.
// AZURE_TOKEN_CREDENTIALS excludes the logins of developers. Older SDKs refuse
// the name of a single credential there. The configuration without a login
// keeps the command from using the person's az.
func (e *execution) forAzure(ctx context.Context, s *source) error {
	e.lost = strings.Fields("AZURE_CLIENT_SECRET AZURE_CLIENT_CERTIFICATE_PATH AZURE_CLIENT_CERTIFICATE_PASSWORD " +
		"AZURE_USERNAME AZURE_PASSWORD AZURE_KUBERNETES_TOKEN_PROXY AZURE_KUBERNETES_SNI_NAME AZURE_KUBERNETES_CA_FILE " +
		"AZURE_KUBERNETES_CA_DATA")
	p := &e.id.azure
	identity, err := p.GetIdentity(s.account, &provider.Options{})
	if err != nil {
		return err
	}
	authority, err := p.TokenServiceURL(&provider.Options{})
	if err != nil {
		return err
	}
	file, err := e.tokenFile(ctx, s, p)
	if err != nil {
		return err
	}
	tenant, clientID, _ := strings.Cut(identity, "/")
	maps.Copy(e.set, map[string]string{"AZURE_TENANT_ID": tenant, "AZURE_CLIENT_ID": clientID,
		"AZURE_AUTHORITY_HOST": authority + "/", "AZURE_FEDERATED_TOKEN_FILE": file,
		"AZURE_TOKEN_CREDENTIALS": "prod", "AZURE_CONFIG_DIR": filepath.Join(e.dir, "azure")})
	return nil
}

// forGoogle writes a configuration for Application Default Credentials, and
// lets gcloud use it too.
func (e *execution) forGoogle(ctx context.Context, s *source) error {
	e.lost = strings.Fields("CLOUDSDK_AUTH_ACCESS_TOKEN CLOUDSDK_AUTH_ACCESS_TOKEN_FILE " +
		"CLOUDSDK_AUTH_IMPERSONATE_SERVICE_ACCOUNT GOOGLE_CREDENTIALS GOOGLE_OAUTH_ACCESS_TOKEN " +
		"GOOGLE_IMPERSONATE_SERVICE_ACCOUNT GOOGLE_CLOUD_KEYFILE_JSON GCLOUD_KEYFILE_JSON")
	p := &e.id.gcp
	if s.account.Annotations[gcp.WorkloadIdentityProviderAnnotation] == "" {
		return &auth.Error{Provider: gcp.ProviderName, Reason: auth.ErrMisconfigured,
			Message: "SDKs need the name of the workload identity provider",
			Remedy:  "set the annotation " + gcp.WorkloadIdentityProviderAnnotation}
	}
	audiences, err := p.GetAudiences(ctx, s.account, &provider.Options{})
	if err != nil {
		return err
	}
	tokenURL, err := p.TokenServiceURL(&provider.Options{})
	if err != nil {
		return err
	}
	email, err := p.GetIdentity(s.account, &provider.Options{})
	if err != nil {
		return err
	}
	file, err := e.tokenFile(ctx, s, p)
	if err != nil {
		return err
	}
	universe := cmp.Or(p.UniverseDomain, "googleapis.com")
	account := map[string]any{"type": "external_account", "audience": audiences[0], "universe_domain": universe,
		"token_url": tokenURL, "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
		"credential_source": map[string]string{"file": file}}
	if email != "" {
		account["service_account_impersonation_url"] = "https://iamcredentials." + universe +
			"/v1/projects/-/serviceAccounts/" + email + ":generateAccessToken"
		if e.id.accessTokenLifetime > 0 {
			account["service_account_impersonation"] = map[string]int{
				"token_lifetime_seconds": int(e.id.accessTokenLifetime.Seconds())}
		}
	}
	content, err := json.Marshal(account)
	if err != nil {
		return err
	}
	config, err := e.file("google.json", content)
	e.set["GOOGLE_APPLICATION_CREDENTIALS"], e.set["CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE"] = config, config
	return err
}

// tokenFile writes the ServiceAccount's token for the provider, and keeps it
// fresh.
func (e *execution) tokenFile(ctx context.Context, s *source, p auth.Provider) (path string, err error) {
	audiences := e.id.audiences
	if len(audiences) == 0 {
		if audiences, err = p.GetAudiences(ctx, s.account, &provider.Options{}); err != nil {
			return "", err
		}
	}
	mint := newMinter(&token.Provider{}, append(slices.Clip(s.opts), auth.WithAudiences(audiences...),
		auth.WithPolicy(auth.Policy{Audiences: audiences, APIServerAudiences: e.id.apiServerAudiences})))
	c, err := mint(ctx)
	if err != nil {
		return "", err
	}
	e.beside = append(e.beside, func(ctx context.Context) { e.keepFresh(ctx, c.BearerToken, mint) })
	return e.file("token", []byte(c.BearerToken))
}

// keepFresh asks every minute, also after the machine was suspended. It says
// once why there is no new token.
func (e *execution) keepFresh(ctx context.Context, held string, mint minter) {
	tick, failing := time.NewTicker(time.Minute), false
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		try, cancel := context.WithTimeout(ctx, e.id.Timeout)
		c, err := mint(try)
		cancel()
		if err == nil && c.BearerToken != held {
			if _, err = e.file("token", []byte(c.BearerToken)); err == nil {
				held = c.BearerToken
			}
		}
		if err != nil && !failing && ctx.Err() == nil {
			e.id.warn("the ServiceAccount's token is not renewed: %v", e.id.InTermsOfFlags(err))
		}
		failing = err != nil
	}
}
