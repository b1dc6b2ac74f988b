package auth

import (
	"errors"
	"slices"
	"strings"
)

// Class says which of the known failures of a service an error is. The IDs are stable: A1 to A20 are those of AWS, Z1 to
// Z18 of Azure, G1 to G18 of Google Cloud, K1 to K11 of Kubernetes. doctor finds out which of the causes it is.
type Class struct {
	// ID is the name of the class, such as "A2". Empty if the error is none of those that are known.
	ID string
	// Service is what refused, such as "AWS STS".
	Service string
	// Summary says in a few words what the refusal means.
	Summary string
	// Causes are the things that may be wrong, the most frequent one first.
	Causes []string
	// Remedy is what to do about the first of them.
	Remedy string
	// Check is the number of the check in doctor that looks at it.
	Check int
}

// classRule recognizes a class. Empty fields match everything; text is a part of the message.
type classRule struct {
	id, provider string
	status       int
	code, text   string
}

func (r *classRule) matches(e *Error) bool {
	return (r.provider == "" || r.provider == e.Provider) && (r.status == 0 || r.status == e.StatusCode) &&
		(r.code == "" || r.code == e.Code) && (r.text == "" || strings.Contains(e.Message, r.text))
}

// Class returns the class of the error, with what is best to do about this very error as remedy. It is found when it is
// asked for: errors cost nothing more for having one.
func (e *Error) Class() Class {
	for _, rules := range [][]classRule{kubernetesRules(), awsRules(), azureRules(), gcpRules()} {
		for i := range rules {
			if rules[i].matches(e) {
				c, _ := ClassByID(rules[i].id)
				c.Remedy = firstNonEmpty(e.Remedy, c.Remedy)
				return c
			}
		}
	}
	return Class{}
}

// ClassOf returns the class of an error of this module, however deep it is wrapped. The zero Class means that it is none
// of those that are known.
func ClassOf(err error) Class {
	var e *Error
	if !errors.As(err, &e) {
		return Class{}
	}
	return e.Class()
}

// ClassByID returns a class by its name, for programs that explain what others have recorded.
func ClassByID(id string) (Class, bool) {
	for _, classes := range [][]Class{awsClasses(), azureClasses(), gcpClasses(), kubernetesClasses()} {
		if i := slices.IndexFunc(classes, func(c Class) bool { return c.ID == id }); i >= 0 {
			return classes[i], true
		}
	}
	return Class{}, false
}

// kubernetesRules are about the API server's answers. The providers' come with codes of their own.
func kubernetesRules() []classRule {
	return []classRule{
		{id: "K4", text: "not found in pod spec volume"},
		{id: "K1", status: 403, code: "Forbidden", text: "serviceaccounts/token"},
		{id: "K2", status: 404, code: "NotFound", text: "serviceaccounts"},
		{id: "K3", status: 422, text: "expirationSeconds"},
		{id: "K10", status: 401, code: "Unauthorized"},
		{id: "K5", text: "is good for the API server"},
		{id: "K5", text: "is the API server's own"},
		{id: "K9", text: "permission denied"},
	}
}

func kubernetesClasses() []Class {
	const service = "Kubernetes"
	return []Class{
		{"K1", service, "the RBAC rule for creating tokens is missing",
			[]string{"the Role lacks create on serviceaccounts/token", "the chart's value for RBAC is off"},
			"grant the verb create on serviceaccounts/token, with the ServiceAccount in resourceNames", 16},
		{"K2", service, "the ServiceAccount does not exist",
			[]string{"its name has a typo", "it lies in another namespace"}, "create it, or correct name and namespace", 14},
		{"K3", service, "the lifetime of the token is refused or shortened",
			[]string{"less than 10 minutes were asked for", "--service-account-max-token-expiration of the API server is shorter"},
			"ask for 600 seconds or more", 16},
		{"K4", service, "the node may not ask for this audience",
			[]string{"the audience is in no projected volume of the pod, nor allowed by RBAC"},
			"allow the verb request-serviceaccounts-token-audience", 16},
		{"K5", service, "the token's audience belongs to another service",
			[]string{"the default token of the pod was given to a cloud", "a token for a cloud was given to the API server"},
			"request a token with the audience of the service that receives it", 6},
		{"K6", service, "the cluster does not accept the token",
			[]string{"it has expired", "its pod, Secret or ServiceAccount is gone", "the cluster's issuer has changed", "its signing keys have"},
			"create the token or its pod anew", 18},
		{"K7", service, "the issuer's documents need credentials",
			[]string{"only ServiceAccounts may read them, as is the default", "anonymous requests are off"},
			"kubectl create clusterrolebinding oidc-reviewer --clusterrole=system:service-account-issuer-discovery " +
				"--group=system:unauthenticated, or publish the documents elsewhere", 10},
		{"K8", service, "issuers differ",
			[]string{"a slash at the end", "the issuer is the cluster's own address", "the cluster was rebuilt", "two issuers while one is being replaced"},
			"set --service-account-issuer and the cloud's setting to the same text", 17},
		{"K9", service, "the token file cannot be read",
			[]string{"the program runs as another user than the file's", "defaultMode of the volume is too strict"},
			"set securityContext.fsGroup of the pod", 2},
		{"K10", service, "the API server refuses the caller's own credentials",
			[]string{"a client has kept a token that was replaced since", "the login has expired"},
			"log in again, or re-read the token file before each use", 13},
		{"K11", service, "clocks differ", []string{"NTP is off on a node"}, "synchronize the clocks of nodes and control plane", 5},
	}
}
