package gcptrust

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/workloadid/workloadid/internal/olddoctor"
	"github.com/workloadid/workloadid/internal/olddoctor/internal/rest"
	"github.com/workloadid/workloadid/internal/gcpname"
	"github.com/workloadid/workloadid/internal/redact"
)

func (s *session) question(method, name, permission, resource, show string) rest.Question {
	return rest.Question{Provider: "gcp", Service: "Google IAM", Permission: permission, Resource: resource, Who: s.who,
		Show:   show,
		Method: method, URL: "https://iam." + s.universe + "/v1/" + name, Token: s.token, QuotaProject: s.quotaProject}
}

// readProvider reads the provider and its pool: what one of them says of its state counts for both.
func (s *session) readProvider(ctx context.Context, annotation string) ([]doctor.Anchor, error) {
	w, err := gcpname.ParseWorkloadIdentityProvider(annotation, s.universe)
	if err != nil {
		return nil, fmt.Errorf("%.300q is not the name of a workload identity provider: %w", annotation, err)
	}
	q := s.question(http.MethodGet, w.Name, "iam.workloadIdentityPoolProviders.get", "provider "+w.Name,
		"gcloud iam workload-identity-pools providers describe "+w.Name)
	trust, err := s.ask(ctx, q)
	if err != nil {
		return nil, err
	}
	if len(trust.Anchors) != 1 || trust.Anchors[0].Name != w.Name {
		return nil, q.Strange()
	}
	poolName, _, _ := strings.Cut(w.Name, "/providers/")
	q = s.question(http.MethodGet, poolName, "iam.workloadIdentityPools.get", "pool "+poolName,
		"gcloud iam workload-identity-pools describe "+poolName)
	var pool struct {
		Name     string `json:"name"`
		State    string `json:"state"`
		Disabled bool   `json:"disabled"`
	}
	err = q.Ask(ctx, s.client, &pool)
	switch {
	case err != nil:
	case pool.Name != poolName:
		err = q.Strange()
	case pool.State != "" && pool.State != "ACTIVE":
		trust.Anchors[0].Disabled = "its pool is " + pool.State
	case pool.Disabled:
		trust.Anchors[0].Disabled = "its pool is disabled"
	}
	return trust.Anchors, err
}

// readPolicy asks for version 3, which shows conditions.
func (s *session) readPolicy(ctx context.Context, email string, t *doctor.Trust) {
	if err := gcpname.CheckServiceAccountEmail(email); err != nil {
		t.RuleErr = fmt.Errorf("%.300q is not the e-mail address of a service account: %w", email, err)
		return
	}
	q := s.question(http.MethodPost, "projects/-/serviceAccounts/"+email+":getIamPolicy?options.requestedPolicyVersion=3",
		"iam.serviceAccounts.getIamPolicy", "service account "+email, "gcloud iam service-accounts get-iam-policy "+email)
	trust, err := s.ask(ctx, q)
	switch {
	case err != nil:
		t.RuleErr = err
	case trust.Members == nil:
		t.RuleErr = q.Strange()
	default:
		t.Members, t.Conditional = trust.Members, trust.Conditional
	}
}

// ask understands what gcloud prints, too: it is the same.
func (s *session) ask(ctx context.Context, q rest.Question) (*doctor.Trust, error) {
	var document json.RawMessage
	if err := q.Ask(ctx, s.client, &document); err != nil {
		return nil, err
	}
	reader, err := doctor.ParseTrust(document)
	if err != nil {
		return nil, q.Strange()
	}
	return reader.ReadTrust(ctx, doctor.TrustQuery{})
}

// readEmail is "" for whatever has none.
func readEmail(body []byte) string {
	var answer struct {
		Email string `json:"email"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return ""
	}
	return redact.Text(answer.Email)
}
