package doctor

import (
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/workloadid/workloadid/auth"
)

// Class is one of the known failures of a service. The IDs are stable: A1 to A20 are failures of AWS, Z1 to Z18 of Azure, G1 to
// G18 of Google Cloud, K1 to K11 of Kubernetes.
type Class struct {
	// ID is the name of the class, such as "A2". It is empty if the error is not a known failure.
	ID string
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
}

// remedy has the Grant as the alternative.
func (c *Class) remedy() Remedy {
	r := Do(c.Remedy)
	if c.Grant != "" {
		r = r.OrTrust("If the identity is meant to have it", c.Grant)
	}
	return r
}

// classRule recognizes a class. Empty fields match everything.
type classRule struct {
	id, provider string
	cause        auth.Cause // found by this module itself
	status       int
	code, text   string // sent by a service; text is a part of its message
	apiServer    bool   // sent by a Kubernetes API server
	knowsBetter  bool   // the class's remedy fits the answer, the error's only the operation
}

func (r *classRule) matches(e *auth.Error) bool {
	return (r.provider == "" || r.provider == e.Provider) && (r.cause == "" || r.cause == e.Cause) &&
		(r.status == 0 || r.status == e.StatusCode) && (r.code == "" || r.code == e.Code) &&
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
	for _, rules := range [][]classRule{kubernetesRules(), awsRules(), azureRules(), gcpRules()} {
		for i := range rules {
			if rules[i].matches(e) {
				c, _ := classByID(rules[i].id)
				switch {
				case rules[i].knowsBetter:
				case c.Grant != "":
					c.Grant = firstOf(e.Remedy, c.Grant)
				default:
					c.Remedy = firstOf(e.Remedy, c.Remedy)
				}
				return c
			}
		}
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

// ClassByID returns a class by its name, for checks that find a failure themselves.
func ClassByID(id string) (Class, bool) { return classByID(id) }

func classByID(id string) (Class, bool) {
	for _, classes := range [][]Class{awsClasses(), azureClasses(), gcpClasses(), kubernetesClasses()} {
		if i := slices.IndexFunc(classes, func(c Class) bool { return c.ID == id }); i >= 0 {
			return classes[i], true
		}
	}
	return Class{}, false
}

// kubernetesRules come first, because errors of the API server name the provider too.
func kubernetesRules() []classRule {
	return []classRule{
		{id: "K4", status: 403, text: "not found in pod spec volume", apiServer: true, knowsBetter: true},
		{id: "K1", cause: auth.CauseTokenRequestForbidden},
		{id: "K2", cause: auth.CauseServiceAccountNotFound},
		{id: "K3", status: 422, text: "expirationSeconds", apiServer: true},
		{id: "K10", status: 401, code: "Unauthorized", apiServer: true},
		{id: "K5", cause: auth.CauseAPIServerAudience},
		{id: "K9", cause: auth.CauseTokenFileForbidden},
	}
}

func kubernetesClasses() []Class {
	const service = "Kubernetes"
	return []Class{
		{"K1", service, "the RBAC rule for creating tokens is missing",
			[]string{"the Role lacks create on serviceaccounts/token", "the chart's value for RBAC is off"},
			"grant the verb create on serviceaccounts/token, with the ServiceAccount in resourceNames", ""},
		{"K2", service, "the ServiceAccount does not exist",
			[]string{"its name has a typo", "it lies in another namespace"}, "create it, or correct name and namespace", ""},
		{"K3", service, "the lifetime of the token is refused or shortened",
			[]string{"less than 10 minutes were asked for", "--service-account-max-token-expiration of the API server is shorter"},
			"ask for 600 seconds or more", ""},
		{"K4", service, "the node may not ask for this audience",
			[]string{"the audience is in no projected volume of the pod, nor allowed by RBAC"},
			"list the audience in a projected volume of the pod", "allow the verb request-serviceaccounts-token-audience"},
		{"K5", service, "the token's audience belongs to another service",
			[]string{"the default token of the pod was given to a cloud", "a token for a cloud was given to the API server"},
			"request a token with the audience of the service that receives it", ""},
		{"K6", service, "the cluster does not accept the token",
			[]string{"it has expired", "its pod, Secret or ServiceAccount is gone", "the cluster's issuer has changed", "its signing keys have"},
			"create the token or its pod anew", ""},
		{"K7", service, "the issuer's documents need credentials",
			[]string{"only ServiceAccounts may read them, as is the default", "anonymous requests are off"},
			"publish the documents where the cloud can read them", "kubectl create clusterrolebinding oidc-reviewer --clusterrole=system:service-account-issuer-discovery " +
				"--group=system:unauthenticated"},
		{"K8", service, "issuers differ",
			[]string{"a slash at the end", "the issuer is the cluster's own address", "the cluster was rebuilt", "two issuers while one is being replaced"},
			"set --service-account-issuer and the cloud's setting to the same text", ""},
		{"K9", service, "the token file cannot be read",
			[]string{"the program runs as another user than the file's", "defaultMode of the volume is too strict"},
			"set securityContext.fsGroup of the pod", ""},
		{"K10", service, "the API server refuses the caller's own credentials",
			[]string{"a client has kept a token that was replaced since", "the login has expired"},
			"log in again, or re-read the token file before each use", ""},
		{"K11", service, "clocks differ", []string{"NTP is off on a node"}, "synchronize the clocks of nodes and control plane", ""},
	}
}
