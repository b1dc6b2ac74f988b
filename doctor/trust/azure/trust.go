package azure

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strings"

	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/reading"
	"github.com/workloadid/workloadid/internal/azurename"
)

const (
	identityVersion      = "2023-01-31" // of Microsoft.ManagedIdentity
	resourceGraphVersion = "2021-03-01"
	readCredentials      = "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials/read"
)

// read finds out whether the client ID is that of a managed identity or of an application.
func (s *session) read(ctx context.Context) ([]credential, doctor.Finding) {
	token, f := s.token(ctx, s.cloud.ManagementAudience)
	if f.Result != "" {
		return nil, f
	}
	id, f := s.find(ctx, token)
	switch {
	case f.Result != "":
		return nil, f
	case id != "":
		parts := strings.Split(id, "/")
		s.group, s.name = parts[4], parts[len(parts)-1]
		return s.list(ctx, s.request("Azure Resource Manager", token, readCredentials, "identity "+s.name,
			"https://"+s.cloud.ManagementHost+id+"/federatedIdentityCredentials?api-version="+identityVersion))
	}
	if token, f = s.token(ctx, "https://"+s.cloud.GraphHost); f.Result != "" {
		return nil, f
	}
	s.application = true
	list, f := s.list(ctx, s.request("Microsoft Graph", token, "Application.Read.All", "application "+s.clientID,
		"https://"+s.cloud.GraphHost+"/v1.0/applications(appId='"+s.clientID+"')/federatedIdentityCredentials"))
	if f.StatusCode == http.StatusNotFound || f.StatusCode == http.StatusForbidden {
		f = s.notVisible(f)
	}
	return list, f
}

// notVisible proves nothing: Azure hides what a login may not read.
func (s *session) notVisible(answer doctor.Finding) doctor.Finding {
	f := doctor.Unclear(doctor.Do("Correct the client ID, or grant your login Reader on the managed identity, or Application.Read.All for an application:",
		"az identity list --query \"[?clientId=='"+s.clientID+"']\""), "Your login sees no identity with client ID %s.", s.clientID)
	f.StatusCode, f.Code = answer.StatusCode, answer.Code
	return f
}

func (s *session) request(service, token, right, resource, url string) *reading.Request {
	return &reading.Request{Method: http.MethodGet, URL: url, Token: token, Question: reading.Question{
		Service: service, Right: right, Resource: resource, Login: s.login, LogIn: s.logIn(), Show: s.show(), Secrets: []string{token}}}
}

// find asks Azure Resource Graph for the resource ID of the managed identity, "" if the login sees none.
func (s *session) find(ctx context.Context, token string) (string, doctor.Finding) {
	var answer struct {
		Data *[]struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	r := s.request("Azure Resource Graph", token, "Microsoft.ResourceGraph/resources/read", "your subscriptions",
		"https://"+s.cloud.ManagementHost+"/providers/Microsoft.ResourceGraph/resources?api-version="+resourceGraphVersion)
	r.Method = http.MethodPost
	r.Body = map[string]any{"options": map[string]string{"resultFormat": "objectArray"},
		"query": "resources | where type =~ 'microsoft.managedidentity/userassignedidentities' and properties.clientId =~ '" + s.clientID + "' | project id"}
	f := r.Ask(ctx, s.client, &answer)
	switch {
	case f.Result != "":
		return "", f
	case answer.Data != nil && len(*answer.Data) == 0:
		return "", f
	case answer.Data != nil && len(*answer.Data) == 1 && validIdentity((*answer.Data)[0].ID):
		return (*answer.Data)[0].ID, f
	}
	return "", r.Strange()
}

// validIdentity checks the resource ID of a managed identity, which becomes part of an address.
func validIdentity(id string) bool {
	const maxID = 600
	match := regexp.MustCompile(`(?i)^/subscriptions/([0-9a-f-]+)/resourceGroups/[A-Za-z0-9._()-]+/providers/Microsoft\.ManagedIdentity/userAssignedIdentities/[A-Za-z0-9_-]+$`).FindStringSubmatch(id)
	return len(id) <= maxID && match != nil && azurename.ValidGUID(match[1])
}

// list reads one page, which holds the 20 credentials that an identity can have.
func (s *session) list(ctx context.Context, r *reading.Request) ([]credential, doctor.Finding) {
	var page struct {
		Value     []*listed `json:"value"`
		NextLink  string    `json:"nextLink"`
		ODataNext string    `json:"@odata.nextLink"`
	}
	f := r.Ask(ctx, s.client, &page)
	if f.Result != "" {
		return nil, f
	}
	list, ok := flat(page.Value)
	if !ok || page.NextLink+page.ODataNext != "" {
		return nil, r.Strange()
	}
	return list, f
}

// Parse reads the JSON that one of these commands prints:
//
//	az identity federated-credential list
//	az ad app federated-credential list
func Parse(content []byte) (doctor.Trust, error) {
	f := &file{}
	return f, reading.Documents(content, f.add)
}

type file struct{ credentials []credential }

func (f *file) add(document json.RawMessage) error {
	var items []*listed
	list, ok := []credential(nil), json.Unmarshal(document, &items) == nil
	if ok {
		list, ok = flat(items)
	}
	if !ok {
		return errors.New("it is not a list of federated credentials of Azure")
	}
	f.credentials = append(f.credentials, list...)
	return nil
}

func (f *file) Anchor(_ context.Context, q doctor.TrustQuery) doctor.Finding {
	t, failure := newTarget(&q)
	if failure.Result != "" {
		return failure
	}
	return t.judge(f.credentials)
}

func (*file) Rule(context.Context, doctor.TrustQuery) doctor.Finding { return noRule() }
