package reading_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/workloadid/workloadid/internal/doctor"
	"github.com/workloadid/workloadid/internal/doctor/internal/reading"
)

func TestSlip(t *testing.T) {
	for _, tt := range []struct{ a, b, want string }{
		{"https://issuer.example", "https://issuer.example/", "only by the / at the end"},
		{"system:serviceaccount:tenant-a:app", "system:serviceaccount:Tenant-A:app", "only in upper and lower case"},
		{"sts.amazonaws.com", "sts.amazonaws.com ", "only by a blank"},
		{"system:serviceaccount:tenant-a:app", "system:serviceaccount:tenant-b:app", ""},
		{"https://issuer.example/a", "https://issuer.example/b", ""},
	} {
		t.Run(tt.b, func(t *testing.T) {
			if got := reading.Slip(tt.a, tt.b); got != tt.want || reading.Slip(tt.b, tt.a) != tt.want {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestAudience(t *testing.T) {
	for name, tt := range map[string]struct {
		token, trusted []string
		want           doctor.Result
	}{
		"trusted": {[]string{"a"}, []string{"b", "a"}, doctor.Pass}, "another": {[]string{"a"}, []string{"b"}, doctor.Fail},
		"none": {nil, []string{"b"}, doctor.Fail}, "several": {[]string{"a", "b"}, []string{"a", "b"}, doctor.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			if got := reading.Audience(tt.token, tt.trusted); got != tt.want {
				t.Errorf("got %s", got)
			}
		})
	}
}

func TestCommandsQuoteHostileNames(t *testing.T) {
	q := &doctor.TrustQuery{Claims: doctor.Claims{Namespace: "$(id)", ServiceAccount: "-o"}}
	if got := reading.Annotate(q, "a=b"); got != "kubectl annotate sa -n '$(id)' SERVICE_ACCOUNT --overwrite a=b" {
		t.Errorf("got %s", got)
	}
	q.Claims.Namespace = strings.Repeat("x", 1000)
	if got := reading.IfMeant(q); len(got) > 100 {
		t.Errorf("got %d bytes", len(got))
	}
}

func TestDocuments(t *testing.T) {
	n := 0
	if err := reading.Documents([]byte("{} []\n7"), func(json.RawMessage) error { n++; return nil }); err != nil || n != 3 {
		t.Errorf("%d documents, %v", n, err)
	}
}
