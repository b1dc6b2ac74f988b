package azuretrust

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/olddoctor"
	"github.com/workloadid/workloadid/internal/olddoctor/internal/rest"
	"github.com/workloadid/workloadid/internal/azurename"
	"github.com/workloadid/workloadid/internal/shell"
)

const (
	identityVersion      = "2023-01-31" // of Microsoft.ManagedIdentity
	resourceGraphVersion = "2021-03-01"
	// maxPages is more than what an identity can have: 20 federated credentials.
	maxPages = 3
)

// read finds out what kind of identity it is on the way.
func (s *session) read(ctx context.Context) ([]doctor.Anchor, error) {
	token, err := s.token(ctx, s.cloud.ManagementAudience)
	if err != nil {
		return nil, err
	}
	id := s.reader.IdentityID
	if id == "" {
		id, err = s.find(ctx, token)
	} else {
		err = s.confirm(ctx, token, id)
		if err != nil {
			return nil, err
		}
	}
	if id != "" {
		return s.ofIdentity(ctx, token, id)
	}
	anchors, appErr := s.ofApplication(ctx)
	switch {
	case appErr == nil:
		return anchors, nil
	case err != nil:
		return nil, err // it may be a managed identity after all
	}
	return nil, s.notFound(appErr)
}

// notFound is no proof: what the login may not read is not shown to it either.
func (s *session) notFound(appErr error) error {
	e := &auth.Error{Provider: "azure", Reason: auth.ErrDenied, Err: appErr,
		Message: fmt.Sprintf("no managed identity with client ID %s is visible to %s", s.clientID, s.who),
		Remedy: "grant Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials/read on it (such as Reader), and see: " +
			"az identity list --query \"[?clientId=='" + s.clientID + "']\""}
	if errors.Is(appErr, doctor.ErrMissing) {
		e.Err = nil
		e.Message += ", and there is no application with it in tenant " + s.tenant
		return e
	}
	var refused *auth.Error
	if errors.As(appErr, &refused) {
		e.Message += "; for an application, " + refused.Message
		e.Remedy += "\nfor an application: " + refused.Remedy
		e.StatusCode, e.Code, e.RequestID = refused.StatusCode, refused.Code, refused.RequestID
	}
	return e
}

// find asks Azure Resource Graph for the managed identity, "" if it shows none.
func (s *session) find(ctx context.Context, token string) (string, error) {
	var answer struct {
		Data *[]struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	q := rest.Question{Provider: "azure", Service: "Azure Resource Graph",
		Permission: "Microsoft.ResourceGraph/resources/read", Resource: "your subscriptions",
		Who: s.who, Show: "az identity list --query \"[?clientId=='" + s.clientID + "'].id\"", Method: http.MethodPost, Token: token,
		URL: "https://" + s.cloud.ManagementHost + "/providers/Microsoft.ResourceGraph/resources?api-version=" + resourceGraphVersion,
		Body: map[string]any{"options": map[string]string{"resultFormat": "objectArray"},
			"query": "resources | where type =~ 'microsoft.managedidentity/userassignedidentities' and properties.clientId =~ '" + s.clientID + "' | project id"}}
	if err := q.Ask(ctx, s.client, &answer); err != nil {
		return "", err
	}
	switch {
	case answer.Data == nil:
		return "", q.Strange()
	case len(*answer.Data) == 0:
		return "", nil
	case len(*answer.Data) > 1 || !validIdentity((*answer.Data)[0].ID):
		return "", q.Strange()
	}
	return (*answer.Data)[0].ID, nil
}

// validIdentity knows the resource IDs of managed identities. They become part of an address.
func validIdentity(id string) bool {
	const maxID = 600
	match := regexp.MustCompile(`(?i)^/subscriptions/([0-9a-f-]+)/resourceGroups/[A-Za-z0-9._()-]+/providers/Microsoft\.ManagedIdentity/userAssignedIdentities/[A-Za-z0-9_-]+$`).FindStringSubmatch(id)
	return len(id) <= maxID && match != nil && azurename.ValidGUID(match[1])
}

// confirm holds the identity that the caller names against the client ID.
func (s *session) confirm(ctx context.Context, token, id string) error {
	if !validIdentity(id) {
		return &auth.Error{Provider: "azure", Reason: auth.ErrMisconfigured,
			Message: fmt.Sprintf("%.300q is not the resource ID of a managed identity", id),
			Remedy:  "use that of: az identity show --query id"}
	}
	var answer struct {
		Properties struct {
			ClientID string `json:"clientId"`
		} `json:"properties"`
	}
	q := s.question(token, id, "Microsoft.ManagedIdentity/userAssignedIdentities/read", "", "az identity show --ids "+shell.Word(id, "IDENTITY_ID"))
	if err := q.Ask(ctx, s.client, &answer); err != nil {
		return unfound(err)
	}
	if !strings.EqualFold(answer.Properties.ClientID, s.clientID) {
		return &auth.Error{Provider: "azure", Reason: auth.ErrMisconfigured,
			Message: fmt.Sprintf("the managed identity %q has the client ID %.100q, not %q", id, answer.Properties.ClientID,
				s.clientID),
			Remedy: "correct the annotation of the ServiceAccount, or the resource ID"}
	}
	return nil
}

func (s *session) question(token, id, permission, suffix, show string) rest.Question {
	return rest.Question{Provider: "azure", Service: "Azure Resource Manager", Permission: permission, Resource: id,
		Who: s.who, Show: show,
		Method: http.MethodGet, Token: token, URL: "https://" + s.cloud.ManagementHost + id + suffix + "?api-version=" + identityVersion}
}

type credential struct {
	Issuer    string   `json:"issuer"`
	Subject   string   `json:"subject"`
	Audiences []string `json:"audiences"`
}

func (c credential) anchor(name string) doctor.Anchor {
	a := doctor.Anchor{Name: name, Issuer: c.Issuer, Subject: c.Subject, Audiences: c.Audiences}
	if c.Subject == "" {
		a.Expression = "one that this version of the API does not show"
	}
	return a
}

// ofIdentity asks Azure Resource Manager for the federated credentials of a managed identity.
func (s *session) ofIdentity(ctx context.Context, token, id string) ([]doctor.Anchor, error) {
	const permission = "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials/read"
	name := id[strings.LastIndexByte(id, '/')+1:]
	group := strings.Split(id, "/")[4]
	q := s.question(token, id, permission, "/federatedIdentityCredentials",
		"az identity federated-credential list --identity-name "+name+" --resource-group "+shell.Word(group, "RESOURCE_GROUP"))
	return pages(ctx, s.client, q, func(item struct {
		Name       string      `json:"name"`
		Properties *credential `json:"properties"`
	}) (doctor.Anchor, bool) {
		if item.Properties == nil {
			return doctor.Anchor{}, false
		}
		return item.Properties.anchor(item.Name), true
	})
}

// ofApplication asks Microsoft Graph for those of an application.
func (s *session) ofApplication(ctx context.Context) ([]doctor.Anchor, error) {
	token, err := s.token(ctx, "https://"+s.cloud.GraphHost)
	if err != nil {
		return nil, err
	}
	q := rest.Question{Provider: "azure", Service: "Microsoft Graph", Permission: "Application.Read.All",
		Resource: "application with client ID " + s.clientID,
		Who:      s.who, Show: "az ad app federated-credential list --id " + s.clientID, Method: http.MethodGet, Token: token,
		URL: "https://" + s.cloud.GraphHost + "/v1.0/applications(appId='" + s.clientID + "')/federatedIdentityCredentials"}
	return pages(ctx, s.client, q, func(item struct {
		Name string `json:"name"`
		credential
	}) (doctor.Anchor, bool) {
		return item.anchor(item.Name), true
	})
}

// pages reads a list. The next page has to be at the same host: the request carries a token.
func pages[T any](ctx context.Context, client *http.Client, q rest.Question, anchorOf func(T) (doctor.Anchor, bool)) ([]doctor.Anchor, error) {
	host, _, _ := strings.Cut(strings.TrimPrefix(q.URL, "https://"), "/")
	anchors := []doctor.Anchor{}
	for range maxPages {
		var page struct {
			Value     *[]T   `json:"value"`
			NextLink  string `json:"nextLink"`
			ODataNext string `json:"@odata.nextLink"`
		}
		if err := q.Ask(ctx, client, &page); err != nil {
			return nil, err
		}
		if page.Value == nil {
			return nil, q.Strange()
		}
		for _, item := range *page.Value {
			a, ok := anchorOf(item)
			if !ok {
				return nil, q.Strange()
			}
			anchors = append(anchors, a)
		}
		next := page.NextLink + page.ODataNext
		if next == "" {
			return anchors, nil
		}
		if !strings.HasPrefix(next, "https://"+host+"/") {
			return nil, q.Strange()
		}
		q.URL = next
	}
	return nil, q.Strange()
}

// unfound takes the proof from a 404 of something that the caller has named.
func unfound(err error) error {
	var e *auth.Error
	if errors.As(err, &e) && errors.Is(err, doctor.ErrMissing) {
		e.Err = nil
	}
	return err
}
