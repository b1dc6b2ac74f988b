package doctor_test

import (
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/olddoctor"
)

// Paths that differ in upper and lower case are those of two issuers: what trusts the one is not to be changed to the other.
func TestIssuersByPath(t *testing.T) {
	for issuer, same := range map[string]bool{"https://Issuers.example/Prod": true, "https://issuers.example/Prod/": true,
		"https://issuers.example/prod": false, "https://issuers.example/prod/": false, "HTTPS://issuers.example/Prod": true,
		"https://issuers.example/Prod//": false, "https://issuers.example:443/Prod": false, "https://issuers.example/%50rod": false} {
		a := doctor.Anchor{Name: poolProvider, Issuer: issuer, SubjectMapping: "assertion.sub"}
		token := func(w *world) {
			w.config.Token = w.sign(func(c map[string]any) { c["iss"] = "https://issuers.example/Prod" })
		}
		f := anchored(t, "gcp", &doctor.Trust{Anchors: []doctor.Anchor{a}}, token).Of("trust-anchor")
		if f.Result != doctor.Fail || strings.Contains(f.Remedy, "update-oidc") != same {
			t.Errorf("%s: %+v", issuer, f)
		}
		a = doctor.Anchor{Name: "x", Issuer: issuer, Subject: subject, Audiences: []string{"api://AzureADTokenExchange"}}
		f = anchored(t, "azure", &doctor.Trust{Anchors: []doctor.Anchor{a}}, token).Of("trust-anchor")
		if f.Result != doctor.Fail || strings.Contains(f.Remedy, "federated-credential update") != same {
			t.Errorf("%s: %+v", issuer, f)
		}
	}
}
