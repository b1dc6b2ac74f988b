package cause

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/provider"
)

// Class is one of the known failures of a service.
type Class struct {
	// Reason is the stable name of the cause, such as "IssuerNotTrusted".
	// Services share it where the remedy is the same. It is empty if the error
	// is not a known failure.
	Reason Reason
	// Service is the service that refused, such as "AWS STS".
	Service string
	// Summary says in a few words what the refusal means.
	Summary string
	// Causes are the possible mistakes, the most frequent one first.
	Causes []string
	// Remedy corrects a mistake without making a service trust or permit more.
	Remedy string
	// Grant is the alternative that makes a service trust or permit more:
	// commands, one a line, or a sentence where no command exists. It is empty
	// if no grant can correct the failure. The reader fills in the words in
	// capitals.
	Grant string
	// Show holds commands that print what the remedy needs, one a line. It may
	// be empty.
	Show string
}

// known returns a Class without Grant and Show.
func known(name Reason, service, summary, remedy string, causes ...string) Class {
	return Class{Reason: name, Service: service, Summary: summary, Causes: causes, Remedy: remedy}
}

//nolint:gocritic // a copy
func (c Class) grant(commands ...string) Class { c.Grant = strings.Join(commands, "\n"); return c }

//nolint:gocritic // a copy
func (c Class) show(commands ...string) Class { c.Show = strings.Join(commands, "\n"); return c }

// catalog holds the known failures of a provider.
type catalog struct {
	provider string // empty: all providers
	rules    []classRule
	classes  []Class
}

// catalogs begin with Kubernetes, because errors of the API server also name
// the provider.
func catalogs() []catalog {
	return []catalog{kubernetesCatalog(), awsCatalog(), azureCatalog(), gcpCatalog()}
}

func (c *catalog) class(name Reason) Class {
	if i := slices.IndexFunc(c.classes, func(known Class) bool { return known.Reason == name }); i >= 0 {
		return c.classes[i]
	}
	return Class{}
}

// classRule recognizes a class. Empty fields match everything.
type classRule struct {
	reason      Reason
	cause       provider.Cause // found by this module itself
	status      int
	code, text  string // sent by a service; text is a part of its message
	apiServer   bool   // sent by a Kubernetes API server
	knowsBetter bool   // the class's remedy fits the answer, the error's fits only the operation
}

func (r *classRule) matches(e *auth.Error) bool {
	return (r.cause == "" || r.cause == e.Cause) && (r.status == 0 || r.status == e.StatusCode) &&
		(r.code == "" || r.code == e.Code) &&
		(r.text == "" || e.StatusCode != 0 && strings.Contains(e.Message, r.text)) && (!r.apiServer || isFromAPIServer(e))
}

// isFromAPIServer separates the API server from services that use the same
// codes.
func isFromAPIServer(e *auth.Error) bool {
	var status apierrors.APIStatus
	return errors.As(e.Err, &status)
}

// classify returns the class of the error. The error's own remedy names the
// object, so it replaces the class's remedy. A class with a Grant keeps its
// own, because the error's remedy may propose that grant.
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
		if !known.rules[i].knowsBetter && c.Grant == "" {
			c.Remedy = cmp.Or(e.Remedy, c.Remedy)
		}
		return c
	}
	return Class{}
}

// ClassOf returns the class of an error of this module, however deep it is
// wrapped. The zero [Class] means that the error is not a known failure.
// ClassOf is safe for concurrent use, and returns a copy.
func ClassOf(err error) Class {
	var e *auth.Error
	if !errors.As(err, &e) {
		return Class{}
	}
	return classify(e)
}

// ClassFor returns the class of a provider with a reason, for programs that
// find a failure themselves. The zero [Class] means that no such class exists.
func ClassFor(provider string, name Reason) Class {
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
		{reason: AudienceDeniedToNode, status: 403, text: "not found in pod spec volume", apiServer: true, knowsBetter: true},
		{reason: RightMissing, cause: provider.CauseTokenRequestForbidden},
		{reason: ServiceAccountNotFound, cause: provider.CauseServiceAccountNotFound},
		{reason: TokenExpired, cause: provider.CauseTokenExpired},
		{reason: LifetimeRefused, status: 422, text: "expirationSeconds", apiServer: true},
		{reason: LoginRefused, status: 401, code: "Unauthorized", apiServer: true},
		{reason: AudienceOfAnotherService, cause: provider.CauseAPIServerAudience},
		{reason: TokenFileUnreadable, cause: provider.CauseTokenFileForbidden},
		{reason: FeatureGateOff, cause: provider.CauseFeatureGateOff},
	}, classes: []Class{
		known(RightMissing, service, "the RBAC rule for creating tokens is missing",
			"grant the verb create on serviceaccounts/token, with the ServiceAccount in resourceNames",
			"the Role lacks create on serviceaccounts/token", "the chart's value for RBAC is off"),
		known(ServiceAccountNotFound, service, "the ServiceAccount does not exist",
			"create it, or correct name and namespace", "its name has a typo", "it lies in another namespace"),
		known(TokenExpired, service, "the token has expired", "read the token file before each use; restart the pod",
			"a program keeps the token and does not read the file again", "the volume is not rotated", "clocks differ"),
		known(LifetimeRefused, service, "the lifetime of the token is refused", "ask for 600 seconds or more",
			"less than 10 minutes were asked for"),
		known(AudienceDeniedToNode, service, "the node may not ask for this audience",
			"list the audience in a projected volume of the pod",
			"the audience is in no projected volume of the pod, nor allowed by RBAC").
			grant(
				"bind a ClusterRole with the verb request-serviceaccounts-token-audience on the audience to the group system:nodes"),
		known(AudienceOfAnotherService, service, "the token's audience belongs to another service",
			"request a token with the audience of the service that receives it",
			"the default token of the pod was given to a cloud", "a token for a cloud was given to the API server"),
		known(TokenFileUnreadable, service, "the token file cannot be read", "set securityContext.fsGroup of the pod",
			"the program runs as another user than the file's", "defaultMode of the volume is too strict"),
		known(FeatureGateOff, "the controller", "the controller uses no ServiceAccounts of objects",
			"enable its feature gate ObjectLevelWorkloadIdentity", "the feature gate is off"),
		known(LoginRefused, service, "the API server refuses the caller's own credentials",
			"log in again, or re-read the token file before each use",
			"a client has kept a token that was replaced since", "the login has expired"),
	}}
}
