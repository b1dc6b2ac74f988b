package doctor

import (
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/internal/doctor/internal/reason"
)

// Class is one of the known failures of a service.
type Class struct {
	// Reason is the stable name of the cause, such as "IssuerNotTrusted". Services share it where the remedy is the same. It is empty
	// if the error is not a known failure.
	Reason string
	// Service is the service that refused, such as "AWS STS".
	Service string
	// Summary says in a few words what the refusal means.
	Summary string
	// Causes are the possible mistakes, the most frequent one first.
	Causes []string
	// Remedy corrects a mistake without making a service trust or permit more.
	Remedy string
	// Grant is the alternative that makes a service trust or permit more. It is empty if no grant can correct the failure.
	Grant string
	// Show is a command that reads the setting, for an answer with several causes. It is empty otherwise.
	Show string
}

// remedy has the Grant as the alternative.
func (c *Class) remedy() Remedy {
	r := Do(c.Remedy)
	if c.Grant != "" {
		r = r.OrTrust("If the identity is meant to have it", c.Grant)
	}
	return r
}

// catalog holds the known failures of a provider.
type catalog struct {
	provider string // empty: of all providers
	rules    []classRule
	classes  []Class
}

// catalogs begin with Kubernetes, because errors of the API server name the provider too.
func catalogs() []catalog {
	return []catalog{kubernetesCatalog(), awsCatalog(), azureCatalog(), gcpCatalog()}
}

func (c *catalog) class(name string) Class {
	if i := slices.IndexFunc(c.classes, func(known Class) bool { return known.Reason == name }); i >= 0 {
		return c.classes[i]
	}
	return Class{}
}

// classRule recognizes a class. Empty fields match everything.
type classRule struct {
	reason      string
	cause       auth.Cause // found by this module itself
	status      int
	code, text  string // sent by a service; text is a part of its message
	apiServer   bool   // sent by a Kubernetes API server
	knowsBetter bool   // the class's remedy fits the answer, the error's only the operation
}

func (r *classRule) matches(e *auth.Error) bool {
	return (r.cause == "" || r.cause == e.Cause) && (r.status == 0 || r.status == e.StatusCode) && (r.code == "" || r.code == e.Code) &&
		(r.text == "" || e.StatusCode != 0 && strings.Contains(e.Message, r.text)) && (!r.apiServer || isFromAPIServer(e))
}

// isFromAPIServer keeps apart services whose codes have the same names.
func isFromAPIServer(e *auth.Error) bool {
	var status apierrors.APIStatus
	return errors.As(e.Err, &status)
}

// classify returns the class of the error. The error's own remedy names the object, so it replaces that of the class: its Grant if the
// class has one, because the error's remedy may grant the same.
func classify(e *auth.Error) Class {
	for _, known := range catalogs() {
		if known.provider != "" && known.provider != e.Provider {
			continue
		}
		i := slices.IndexFunc(known.rules, func(r classRule) bool { return r.matches(e) })
		if i < 0 {
			continue
		}
		c := known.class(known.rules[i].reason)
		switch {
		case known.rules[i].knowsBetter:
		case c.Grant != "":
			c.Grant = firstOf(e.Remedy, c.Grant)
		default:
			c.Remedy = firstOf(e.Remedy, c.Remedy)
		}
		return c
	}
	return Class{}
}

// ClassOf returns the class of an error of this module, however deep it is wrapped. The zero Class means that the error is not a
// known failure.
func ClassOf(err error) Class {
	var e *auth.Error
	if !errors.As(err, &e) {
		return Class{}
	}
	return classify(e)
}

// ClassFor returns a class of a provider, for checks that find a failure themselves. The zero Class means that there is none.
func ClassFor(provider, name string) Class {
	for _, known := range catalogs() {
		if known.provider == provider {
			return known.class(name)
		}
	}
	return Class{}
}

func kubernetesCatalog() catalog {
	const service = "Kubernetes"
	return catalog{rules: []classRule{
		{reason: reason.AudienceDeniedToNode, status: 403, text: "not found in pod spec volume", apiServer: true, knowsBetter: true},
		{reason: reason.RightMissing, cause: auth.CauseTokenRequestForbidden},
		{reason: reason.ServiceAccountNotFound, cause: auth.CauseServiceAccountNotFound},
		{reason: reason.LifetimeRefused, status: 422, text: "expirationSeconds", apiServer: true},
		{reason: reason.LoginRefused, status: 401, code: "Unauthorized", apiServer: true},
		{reason: reason.AudienceOfAnotherService, cause: auth.CauseAPIServerAudience},
		{reason: reason.TokenFileUnreadable, cause: auth.CauseTokenFileForbidden},
	}, classes: []Class{
		{Reason: reason.RightMissing, Service: service, Summary: "the RBAC rule for creating tokens is missing",
			Causes: []string{"the Role lacks create on serviceaccounts/token", "the chart's value for RBAC is off"},
			Remedy: "grant the verb create on serviceaccounts/token, with the ServiceAccount in resourceNames"},
		{Reason: reason.ServiceAccountNotFound, Service: service, Summary: "the ServiceAccount does not exist",
			Causes: []string{"its name has a typo", "it lies in another namespace"}, Remedy: "create it, or correct name and namespace"},
		{Reason: reason.LifetimeRefused, Service: service, Summary: "the lifetime of the token is refused",
			Causes: []string{"less than 10 minutes were asked for"}, Remedy: "ask for 600 seconds or more"},
		{Reason: reason.AudienceDeniedToNode, Service: service, Summary: "the node may not ask for this audience",
			Causes: []string{"the audience is in no projected volume of the pod, nor allowed by RBAC"},
			Remedy: "list the audience in a projected volume of the pod", Grant: "allow the verb request-serviceaccounts-token-audience"},
		{Reason: reason.AudienceOfAnotherService, Service: service, Summary: "the token's audience belongs to another service",
			Causes: []string{"the default token of the pod was given to a cloud", "a token for a cloud was given to the API server"},
			Remedy: "request a token with the audience of the service that receives it"},
		{Reason: reason.TokenFileUnreadable, Service: service, Summary: "the token file cannot be read",
			Causes: []string{"the program runs as another user than the file's", "defaultMode of the volume is too strict"},
			Remedy: "set securityContext.fsGroup of the pod"},
		{Reason: reason.LoginRefused, Service: service, Summary: "the API server refuses the caller's own credentials",
			Causes: []string{"a client has kept a token that was replaced since", "the login has expired"},
			Remedy: "log in again, or re-read the token file before each use"},
	}}
}
