package doctor_test

import (
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/olddoctor"
)

// A provider with another issuer is mostly another cluster's. It is changed only where the same issuer is meant.
func TestRemedyForAnotherIssuer(t *testing.T) {
	for issuer, update := range map[string]bool{"https://issuer.example/": true, "https://ISSUER.example": true,
		"https://other-cluster.example/id/1": false, "https://issuer.example/id/1": false, "http://issuer.example": false, "": false} {
		a := doctor.Anchor{Name: poolProvider, Issuer: issuer, SubjectMapping: "assertion.sub"}
		f := anchored(t, "gcp", &doctor.Trust{Anchors: []doctor.Anchor{a}}, nil).Of("trust-anchor")
		if f.Class != "G4" || strings.Contains(f.Remedy, "update-oidc") != update {
			t.Errorf("%q: %+v", issuer, f)
		}
		if update {
			continue
		}
		const pools = "projects/123456789012/locations/global/workloadIdentityPools/"
		for _, want := range []string{"annotation", "workload-identity-pools create " + pools + "NEW_POOL",
			"create-oidc " + pools + "NEW_POOL/providers/NEW_PROVIDER --issuer-uri=https://issuer.example --attribute-mapping="} {
			if !strings.Contains(f.Remedy, want) {
				t.Errorf("%q: lacks %q: %s", issuer, want, f.Remedy)
			}
		}
	}
}

// What depends on numbers, or on mappings that are not read, is neither a pass nor a failure. Nor is what would take for ever.
func TestConditionsThatCannotBeTold(t *testing.T) {
	for _, condition := range []string{`assertion.levels == [7, 8]`, `!(3 in assertion.levels)`, `3 in assertion.levels`,
		`has(google.groups) && 'a' in google.groups`, `google == {'subject': 'x'}`, `!has(attribute.x)`,
		`[[1,2]]` + strings.Repeat(`.map(a,a+a)`, 30) + `.all(a, 3 in a)`} {
		a := doctor.Anchor{Name: poolProvider, Issuer: "https://issuer.example", SubjectMapping: "assertion.sub", Condition: condition}
		f := anchored(t, "gcp", &doctor.Trust{Anchors: []doctor.Anchor{a}}, func(w *world) {
			w.config.Token = w.sign(func(c map[string]any) { c["levels"] = []any{3, 5} })
		}).Of("trust-anchor")
		if f.Result != doctor.Unknown {
			t.Errorf("%s: %+v", condition, f)
		}
	}
}
