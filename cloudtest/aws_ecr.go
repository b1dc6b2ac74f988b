package cloudtest

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/workloadid/workloadid/internal/awsname"
)

// registryPassword is a password of GetAuthorizationToken.
type registryPassword struct {
	identity Identity
	region   string
	public   bool
	expires  time.Time
}

const registryLife = 12 * time.Hour

// ecrAPI is the API of ECR or of ECR Public, with GetAuthorizationToken as its
// only action. It speaks awsJson1.1: the header X-Amz-Target holds the action,
// input and output are JSON.
type ecrAPI struct {
	aws *AWS
	// name is the service in signatures, in Call.Service and in permissions.
	// target is the prefix of the action.
	name, target string
	permissions  []string
	// public is set for ECR Public. It exists in us-east-1 only, and answers in
	// another form.
	public bool
}

func (a *AWS) ecrServices() []service {
	private := &ecrAPI{aws: a, name: "ecr", target: "AmazonEC2ContainerRegistry_V20150921.",
		permissions: []string{"ecr:GetAuthorizationToken"}}
	public := &ecrAPI{aws: a, name: "ecr-public", target: "SpencerFrontendService.", public: true,
		permissions: []string{"ecr-public:GetAuthorizationToken", "sts:GetServiceBearerToken"}}
	at := func(e *ecrAPI) func(string) bool {
		return func(host string) bool { _, ok := e.region(host); return ok }
	}
	return []service{{at(private), private.serve}, {at(public), public.serve}}
}

func (e *ecrAPI) region(host string) (string, bool) {
	if e.public {
		endpoint, ok := awsname.ParseEndpoint(host, "api.ecr-public", "ecr-public")
		return endpoint.Region, ok && endpoint.Region == "us-east-1"
	}
	endpoint, ok := awsname.ParseEndpoint(host, "api.ecr", "api.ecr-fips", "ecr", "ecr-fips")
	return endpoint.Region, ok
}

func (e *ecrAPI) serve(w http.ResponseWriter, r *http.Request, host string) {
	action := strings.TrimPrefix(r.Header.Get("X-Amz-Target"), e.target)
	fault, ok := e.aws.cloud.begin(w, r, Call{Service: e.name, Action: action, Host: host},
		func(f Fault) { e.fail(w, r, nil, &awsError{f.Status, f.Code, f.Message}) })
	if !ok {
		return
	}
	out, err := e.authorizationToken(w, r, host)
	if err != nil {
		e.fail(w, r, fault, err)
		return
	}
	sendJSON(e.aws.cloud, w, r, fault, http.StatusOK, awsJSON, out)
}

const awsJSON = "application/x-amz-json-1.1"

// fail spells the key of the text as the service does: "Message" for refusals
// of AWS's front end, "message" for errors in the service's own model.
func (e *ecrAPI) fail(w http.ResponseWriter, r *http.Request, fault *Fault, err *awsError) {
	key := "message"
	if err.code == "AccessDeniedException" {
		key = "Message"
	}
	sendJSON(e.aws.cloud, w, r, fault, err.status, awsJSON, map[string]string{"__type": err.code, key: err.message})
}

func (e *ecrAPI) authorizationToken(w http.ResponseWriter, r *http.Request, host string) (any, *awsError) {
	if r.Method != http.MethodPost || r.Header.Get("X-Amz-Target") != e.target+"GetAuthorizationToken" {
		return nil, refuse(http.StatusBadRequest, "UnknownOperationException", "")
	}
	body, ok := readBody(w, r)
	if !ok {
		return nil, refuse(http.StatusRequestEntityTooLarge, "RequestEntityTooLargeException", "Request size exceeded")
	}
	region, _ := e.region(host)
	caller, err := e.aws.authenticate(signedRequest{r, body, e.name, region})
	if err != nil {
		return nil, modelled(err, http.StatusBadRequest)
	}
	for _, action := range e.permissions {
		if e.aws.isDenied(caller.Identity, action) {
			return nil, refuse(http.StatusBadRequest, "AccessDeniedException",
				"User: %s is not authorized to perform: %s on resource: * because no identity-based policy allows the %s action",
				caller.ARN, action, action)
		}
	}
	data := e.newPassword(caller.Identity, region)
	if e.public {
		return map[string]any{"authorizationData": data}, nil
	}
	partition, _ := awsname.PartitionOf(region)
	data["proxyEndpoint"] = fmt.Sprintf("https://%s.dkr.ecr.%s.%s", caller.account, region, partition.Suffix)
	return map[string]any{"authorizationData": []any{data}}, nil
}

// newPassword puts colons into the password, because real passwords contain
// them.
func (e *ecrAPI) newPassword(id Identity, region string) map[string]any {
	password := randomSecret(300) + ":" + randomSecret(300)
	p := &registryPassword{id, region, e.public, e.aws.cloud.time().Add(registryLife)}
	e.aws.mu.Lock()
	defer e.aws.mu.Unlock()
	e.aws.passwords[password] = p
	return map[string]any{
		"authorizationToken": base64.StdEncoding.EncodeToString([]byte("AWS:" + password)),
		"expiresAt":          float64(p.expires.UnixMilli()) / 1000,
	}
}

// ValidRegistryPassword returns the identity behind a password. It reports
// whether the registry at the host accepts it.
func (a *AWS) ValidRegistryPassword(host, user, password string) (Identity, bool) {
	r, ok := awsname.ParseRegistry(host)
	p := a.password(password)
	if !ok || user != "AWS" || p == nil || p.region != r.Region || p.public != r.Public ||
		!a.cloud.time().Before(p.expires) {
		return Identity{}, false
	}
	return p.identity, true
}

func (a *AWS) password(password string) *registryPassword {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.passwords[password]
}

// SetRegistry sets the handler for the registries of ECR, such as
// go-containerregistry's. It runs after the user and the password are verified.
// Without it, the registries answer every request with 200 and {}.
func (a *AWS) SetRegistry(h http.Handler) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.registry = h
}

// registryService serves the registries. They require the password for
// everything. The real ECR Public lets anonymous clients pull.
func (a *AWS) registryService() service {
	return service{
		at: func(host string) bool { _, ok := awsname.ParseRegistry(host); return ok },
		serve: func(w http.ResponseWriter, r *http.Request, host string) {
			fault, ok := a.cloud.begin(w, r, Call{Service: "registry", Action: r.Method + " " + r.URL.Path, Host: host},
				func(f Fault) { http.Error(w, f.Message, f.Status) })
			if !ok {
				return
			}
			a.serveRegistry(w, r, host, fault)
		},
	}
}

func (a *AWS) serveRegistry(w http.ResponseWriter, r *http.Request, host string, fault *Fault) {
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	user, password, _ := r.BasicAuth()
	if _, ok := a.ValidRegistryPassword(host, user, password); !ok {
		a.refuseRegistry(w, r, host, password, fault)
		return
	}
	a.mu.Lock()
	registry := a.registry
	a.mu.Unlock()
	if registry != nil {
		registry.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fault.send(w, r, a.cloud.closing, http.StatusOK, []byte("{}"))
}

func (a *AWS) refuseRegistry(w http.ResponseWriter, r *http.Request, host, password string, fault *Fault) {
	if p := a.password(password); p != nil && !a.cloud.time().Before(p.expires) {
		// The real status is not known for sure.
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		const expired = `{"errors":[{"code":"DENIED",` +
			`"message":"Your authorization token has expired. Reauthenticate and try again."}]}`
		fault.send(w, r, a.cloud.closing, http.StatusForbidden, []byte(expired))
		return
	}
	challenge := fmt.Sprintf(`Basic realm="https://%s/",service="ecr.amazonaws.com"`, strings.ToLower(host))
	w.Header().Set("Www-Authenticate", challenge)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fault.send(w, r, a.cloud.closing, http.StatusUnauthorized, []byte("Not Authorized\n"))
}
