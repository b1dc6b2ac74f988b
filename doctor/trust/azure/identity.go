package azure

import (
	"context"
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
func (s *session) read(ctx context.Context) ([]credential, *doctor.Finding) {
	token, f := s.token(ctx, s.cloud.ManagementAudience)
	if f != nil {
		return nil, f
	}
	id, f := s.find(ctx, token)
	if f != nil {
		return nil, f
	}
	if id != "" {
		s.use(id)
		return s.list(ctx, s.request("Azure Resource Manager", token, readCredentials, "identity "+s.name,
			"https://"+s.cloud.ManagementHost+id+"/federatedIdentityCredentials?api-version="+identityVersion))
	}
	if token, f = s.token(ctx, "https://"+s.cloud.GraphHost); f != nil {
		return nil, f
	}
	s.application = true
	list, f := s.list(ctx, s.request("Microsoft Graph", token, "Application.Read.All", "application "+s.clientID,
		"https://"+s.cloud.GraphHost+"/v1.0/applications(appId='"+s.clientID+"')/federatedIdentityCredentials"))
	if f != nil && (f.StatusCode == http.StatusNotFound || f.StatusCode == http.StatusForbidden) {
		f = s.notVisible(f)
	}
	return list, f
}

// notVisible proves nothing: Azure hides what a login may not read.
func (s *session) notVisible(answer *doctor.Finding) *doctor.Finding {
	right := "Reader on the managed identity"
	if answer.StatusCode == http.StatusForbidden {
		right += ", or Application.Read.All for an application"
	}
	f := doctor.Unclear(doctor.Do("Correct the client ID, or grant "+s.login+" "+right+":", "az identity list --query \"[?clientId=='"+s.clientID+"']\""),
		"Your login sees no identity with client ID %s.", s.clientID)
	f.StatusCode, f.Code = answer.StatusCode, answer.Code
	return &f
}

func (s *session) request(service, token, right, resource, url string) *reading.Request {
	return &reading.Request{Method: http.MethodGet, URL: url, Token: token, LogIn: s.logIn(), Question: reading.Question{
		Service: service, Right: right, Resource: resource, Login: s.login, Show: s.command("list", ""), Secrets: []string{token}}}
}

// find asks Azure Resource Graph for the resource ID of the managed identity, "" if the login sees none.
func (s *session) find(ctx context.Context, token string) (string, *doctor.Finding) {
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
	if f := r.Ask(ctx, s.client, &answer); f != nil {
		return "", f
	}
	switch {
	case answer.Data != nil && len(*answer.Data) == 0:
		return "", nil
	case answer.Data != nil && len(*answer.Data) == 1 && validIdentity((*answer.Data)[0].ID):
		return (*answer.Data)[0].ID, nil
	}
	f := r.Strange()
	return "", &f
}

// validIdentity checks the resource ID of a managed identity, which becomes part of an address.
func validIdentity(id string) bool {
	const maxID = 600
	match := regexp.MustCompile(`(?i)^/subscriptions/([0-9a-f-]+)/resourceGroups/[A-Za-z0-9._()-]+/providers/Microsoft\.ManagedIdentity/userAssignedIdentities/[A-Za-z0-9_-]+$`).FindStringSubmatch(id)
	return len(id) <= maxID && match != nil && azurename.ValidGUID(match[1])
}

// use takes names for commands from a resource ID.
func (s *session) use(id string) {
	parts := strings.Split(id, "/")
	s.group, s.name = parts[4], parts[len(parts)-1]
}

// list reads one page, which holds the 20 credentials that an identity can have.
func (s *session) list(ctx context.Context, r *reading.Request) ([]credential, *doctor.Finding) {
	var page struct {
		Value     *[]*listed `json:"value"`
		NextLink  string     `json:"nextLink"`
		ODataNext string     `json:"@odata.nextLink"`
	}
	if f := r.Ask(ctx, s.client, &page); f != nil {
		return nil, f
	}
	strange := r.Strange()
	if page.Value == nil || page.NextLink+page.ODataNext != "" {
		return nil, &strange
	}
	list := []credential{}
	for _, item := range *page.Value {
		if item == nil {
			return nil, &strange
		}
		list = append(list, item.flat())
	}
	return list, nil
}
