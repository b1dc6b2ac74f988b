package gcp_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/workloadid/workloadid/auth/gcp"
	"github.com/workloadid/workloadid/auth/provider"
	"github.com/workloadid/workloadid/internal/testing/testenv"
)

// BenchmarkLargeRefusal is a token service that refuses with a long text.
func BenchmarkLargeRefusal(b *testing.B) {
	body := `{"error":{"status":"PERMISSION_DENIED","details":[` + strings.Repeat(`{},`, 1<<18) + `{}]}}`
	issuer := testenv.Issuer(b)
	sa := testenv.ServiceAccount("tenant-a", "app", gcp.WorkloadIdentityProviderAnnotation, poolProvider)
	jwt, err := issuer.Sign(issuer.Claims(sa, []string{"//iam.googleapis.com/" + poolProvider}, time.Hour))
	if err != nil {
		b.Fatal(err)
	}
	client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		resp := answer(http.StatusBadRequest, body)
		resp.Request = r
		return resp, nil
	})}
	p := &gcp.Provider{}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.NewTokenForServiceAccount(b.Context(), jwt, sa, &provider.Options{HTTPClient: client}); err == nil {
			b.Fatal("no error")
		}
	}
}
