package azure

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/workloadid/workloadid/doctor"
	"github.com/workloadid/workloadid/doctor/internal/reading"
	"github.com/workloadid/workloadid/internal/annotation"
	"github.com/workloadid/workloadid/internal/azurename"
	"github.com/workloadid/workloadid/internal/redact"
	"github.com/workloadid/workloadid/internal/shell"
)

// credential is a federated credential.
type credential struct {
	Name       string   `json:"name"`
	Issuer     string   `json:"issuer"`
	Subject    string   `json:"subject"`
	Audiences  []string `json:"audiences"`
	Expression *struct {
		Value string `json:"value"`
	} `json:"claimsMatchingExpression"`
}

// listed is a credential as Microsoft Graph and the command line write it, or as Azure Resource Manager does.
type listed struct {
	credential

	Properties *credential `json:"properties"`
}

// flat reports false for something else than a list of credentials.
func flat(items []*listed) (list []credential, ok bool) {
	for _, item := range items {
		if item == nil {
			return nil, false
		}
		if item.Properties != nil {
			item.Properties.Name = item.Name
			item.credential = *item.Properties
		}
		list = append(list, item.credential)
	}
	return list, items != nil
}

// expression is what the credential matches instead of a subject. Older versions of the API do not show it.
func (c *credential) expression() string {
	switch {
	case c.Expression != nil:
		return c.Expression.Value
	case c.Subject == "":
		return "an expression that this version of the API does not show"
	}
	return ""
}

// fit counts what fits. Five is all.
func (c *credential) fit(claims *doctor.Claims) (fits int) {
	subject := c.expression() == ""
	for _, ok := range []bool{strings.TrimSuffix(c.Issuer, "/") == strings.TrimSuffix(claims.Issuer, "/"), c.Issuer == claims.Issuer,
		subject && strings.EqualFold(c.Subject, claims.Subject), subject && c.Subject == claims.Subject,
		reading.Audience(claims.Audiences, c.Audiences) == doctor.Pass} {
		if ok {
			fits++
		}
	}
	return fits
}

const allFit = 5

// target is the identity, and the token that should be able to use it.
type target struct {
	*doctor.TrustQuery

	tenant, clientID string
	// application says that it is not a managed identity. group and name are those of a managed identity, if they are known.
	application bool
	group, name string
}

func newTarget(q *doctor.TrustQuery) (*target, doctor.Finding) {
	tenant, clientID, _ := strings.Cut(q.Identity, "/")
	if !azurename.ValidTenant(tenant) || !azurename.ValidGUID(clientID) {
		return nil, doctor.Skipped("The identity is not a tenant and a client ID.")
	}
	return &target{TrustQuery: q, tenant: tenant, clientID: clientID}, doctor.Finding{}
}

func (t *target) judge(list []credential) doctor.Finding {
	if len(list) == 0 {
		return doctor.Failed("Z6", t.correctClient("If the client ID is wrong:"), "The identity has no federated credential.").
			Compare("token", t.Claims.Subject, "identity", "no credential")
	}
	best := slices.MaxFunc(list, func(a, b credential) int { return a.fit(&t.Claims) - b.fit(&t.Claims) })
	if best.fit(&t.Claims) == allFit {
		return doctor.Passed("Federated credential %s fits the token.", reading.Excerpt(best.Name))
	}
	for _, c := range list {
		if e := c.expression(); e != "" && c.Issuer == t.Claims.Issuer && reading.Audience(t.Claims.Audiences, c.Audiences) != doctor.Fail {
			return doctor.Unclear(doctor.Do("Compare it with the token:", t.show()),
				"The doctor does not judge the expression of federated credential %s: %s", reading.Excerpt(c.Name), reading.Excerpt(e)).
				Detail("expression", redact.Text(e))
		}
	}
	return t.difference(&best)
}

// difference is the finding of the first value of the closest credential that does not fit.
func (t *target) difference(c *credential) doctor.Finding {
	switch {
	case c.Issuer != t.Claims.Issuer:
		return t.differs(c, "Z2", "issuer", t.Claims.Issuer, c.Issuer)
	case c.expression() == "" && c.Subject != t.Claims.Subject && strings.EqualFold(c.Subject, t.Claims.Subject):
		return t.differs(c, "Z5", "subject", t.Claims.Subject, c.Subject)
	case c.expression() == "" && c.Subject != t.Claims.Subject:
		return t.differs(c, "Z4", "subject", t.Claims.Subject, c.Subject)
	case reading.Audience(t.Claims.Audiences, c.Audiences) == doctor.Unknown:
		return reading.SeveralAudiences(t.Claims.Audiences, c.Audiences)
	}
	f := t.differs(c, "Z3", "audience", reading.List(t.Claims.Audiences), reading.List(c.Audiences))
	if t.audience() != azurename.FederatedAudience {
		f.Remedy.Text, f.Remedy.Commands = "Request a token with the audience "+azurename.FederatedAudience+".", nil
	}
	return f
}

// differs corrects a credential that is meant for this token where it is. Another ServiceAccount's stays as it is.
func (t *target) differs(c *credential, class, what, token, trusted string) doctor.Finding {
	name, how := reading.Excerpt(c.Name), reading.Slip(token, trusted)
	meant := c.expression() == "" && strings.EqualFold(c.Subject, t.Claims.Subject)
	switch {
	case !meant:
		how = ""
	case how == "" && what == "audience" && reading.IsTypo(token, trusted):
		how = "by a typo"
	}
	remedy := t.correctClient("If the client ID is wrong:")
	switch {
	case how != "" || meant && what == "audience":
		remedy = doctor.Do("Correct the "+what+" of federated credential "+name+". It must equal the token's.").
			OrTrust(reading.IfMeant(t.TrustQuery), t.command("update", c.Name))
	case what == "issuer":
		remedy = t.correctClient("If the kube context is right, and the client ID is wrong:")
	}
	message := "Federated credential " + name + " has another " + what + " than the token."
	if how != "" {
		message = "The " + what + " of federated credential " + name + " differs from the token's " + how + "."
	}
	return doctor.Failed(class, remedy, "%s", message).Compare("token", token, "credential", redact.Text(trusted))
}

// correctClient is the remedy for an annotation that names the wrong identity.
func (t *target) correctClient(when string) doctor.Remedy {
	return doctor.Do(when, reading.Annotate(t.TrustQuery, annotation.AzureClientID+"=CLIENT_ID")).
		OrTrust(reading.IfMeant(t.TrustQuery), t.command("create", ""))
}

// audience returns the token's audience if a cloud may trust it without a second look, else a word to fill in.
func (t *target) audience() string {
	return reading.SafeAudience(t.Claims.Audiences, azurename.FederatedAudience)
}

// show is the command that lists the federated credentials.
func (t *target) show() string {
	if t.application {
		return "az ad app federated-credential list --id " + t.clientID
	}
	return "az identity federated-credential list" + t.managed()
}

func (t *target) managed() string {
	return " --identity-name " + shell.Word(t.name, "IDENTITY_NAME") + " --resource-group " + shell.Word(t.group, "RESOURCE_GROUP")
}

// command creates a federated credential for the token, or updates one, which replaces all of its values.
func (t *target) command(verb, name string) string {
	name = shell.Word(name, "CREDENTIAL_NAME")
	if !t.application {
		return "az identity federated-credential " + verb + " --name " + name + t.managed() + " --issuer " + shell.Word(t.Claims.Issuer, "ISSUER") +
			" --subject " + shell.Word(t.Claims.Subject, "SUBJECT") + " --audiences " + t.audience()
	}
	values := map[string]any{"issuer": t.Claims.Issuer, "subject": t.Claims.Subject, "audiences": []string{t.audience()}, "name": name}
	parameters, _ := json.Marshal(values) // strings can be encoded
	command := "az ad app federated-credential " + verb + " --id " + t.clientID
	if verb == "update" {
		command += " --federated-credential-id " + name
	}
	return command + " --parameters " + shell.Word(string(parameters), "PARAMETERS")
}
