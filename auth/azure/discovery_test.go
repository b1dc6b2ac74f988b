package azure_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/azure"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/testing/testworld"
)

const (
	goodDocument = `{"issuer":"https://login.microsoftonline.com/t/v2.0","token_endpoint":"https://login.microsoftonline.com/t/oauth2/v2.0/token",` +
		`"authorization_endpoint":"https://login.microsoftonline.com/t/oauth2/v2.0/authorize"}`
	goodToken = `{"token_type":"Bearer","expires_in":3600,"access_token":"t"}`
)

// entra answers for the token service, and counts the look-ups of its discovery document.
type entra struct {
	document, token string
	status, lookUps int
}

func (e *entra) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/.well-known/openid-configuration") {
		e.lookUps++
		return respond(r, http.StatusOK, e.document), nil
	}
	return respond(r, e.status, e.token), nil
}

// The endpoint's address is asked for once, as long as it serves: nothing that was answered once breaks the controller's
// identity for good.
func TestDiscoveryDocuments(t *testing.T) {
	clearEnvironment(t)
	t.Setenv("AZURE_TENANT_ID", tenantID)
	t.Setenv("AZURE_CLIENT_ID", clientA)
	t.Setenv("AZURE_CLIENT_SECRET", "the secret of it")
	elsewhere := strings.ReplaceAll(goodDocument, "login.microsoftonline.com", "evil.example")
	synctest.Test(t, func(t *testing.T) {
		e := &entra{status: http.StatusOK, token: goodToken}
		p, client := &azure.Provider{}, &http.Client{Transport: e}
		ask := func(what, document string, ok bool, lookUps int) {
			t.Helper()
			e.document, e.lookUps = document, 0
			_, err := auth.GetAccessToken(t.Context(), p, auth.WithHTTPClient(client))
			if ok != (err == nil) || e.lookUps != lookUps {
				t.Errorf("%s: %v, %d look-ups", what, err, e.lookUps)
			}
		}
		for _, document := range []string{"{}", "[]", "null", elsewhere, strings.Replace(goodDocument, "https://login.microsoftonline.com/t/v2.0", "https://evil.example/t", 1),
			strings.Replace(goodDocument, `"token_endpoint":"https:`, `"token_endpoint":"http:`, 1)} {
			e.document = document
			_, _ = auth.GetAccessToken(t.Context(), p, auth.WithHTTPClient(client)) // whether the SDK takes it is not the point
			ask(fmt.Sprintf("after %.80s", document), goodDocument, true, 1)
			ask("again", elsewhere, true, 0)
			time.Sleep(time.Hour) // that of the bubble
		}
		ask("after an hour", goodDocument, true, 1)
		e.status, e.token = http.StatusBadRequest, `{"error":"invalid_request","error_description":"AADSTS90002: no"}`
		ask("refused", elsewhere, false, 0)
		e.status, e.token = http.StatusOK, goodToken
		ask("after a refusal", goodDocument, true, 1)
	})
}

// The answers of the metadata service during an update and under load are transient.
func TestMetadataServiceDuringAnUpdate(t *testing.T) {
	clearEnvironment(t)
	for status, reason := range map[int]provider.Reason{404: auth.ErrUnavailable, 408: auth.ErrUnavailable, 410: auth.ErrUnavailable, 429: auth.ErrThrottled, 500: auth.ErrUnavailable} {
		for _, id := range []string{"", clientA} {
			t.Setenv("AZURE_CLIENT_ID", id)
			synctest.Test(t, func(t *testing.T) {
				client := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
					return respond(r, status, `{"error":"resource_unavailable","error_description":"IMDS is being updated"}`), nil
				})}
				_, err := auth.GetAccessToken(t.Context(), &azure.Provider{}, auth.WithHTTPClient(client))
				testworld.CheckError(t, err, reason, "managed identity", "IMDS is being updated")
			})
		}
	}
}
