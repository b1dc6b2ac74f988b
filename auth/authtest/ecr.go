package authtest

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/workloadid/workloadid/internal/awsname"
)

// registryPassword is what GetAuthorizationToken handed out.
type registryPassword struct {
	identity Identity
	region   string
	public   bool
	expires  time.Time
}

const registryLife = 12 * time.Hour

// ecrService is the API of ECR. Of its actions it has GetAuthorizationToken.
func (a *AWS) ecrService() service {
	s := &jsonService{aws: a, name: "ecr", target: "AmazonEC2ContainerRegistry_V20150921",
		hosts: []string{"api.ecr", "api.ecr-fips", "ecr", "ecr-fips"}}
	s.actions = map[string]func(*awsCall) (any, *awsError){"GetAuthorizationToken": func(c *awsCall) (any, *awsError) {
		if a.isDenied(c.caller.Identity, "ecr:GetAuthorizationToken") {
			return nil, c.deniedJSON(http.StatusBadRequest, "ecr:GetAuthorizationToken", "*")
		}
		data := c.authorize(false)
		partition, _ := awsname.PartitionOf(c.region)
		data["proxyEndpoint"] = fmt.Sprintf("https://%s.dkr.ecr.%s.%s", c.caller.account, c.region, partition.Suffix)
		return map[string]any{"authorizationData": []any{data}}, nil
	}}
	return s.service()
}

// ecrPublicService is the API of ECR Public, which is in us-east-1 only.
func (a *AWS) ecrPublicService() service {
	s := &jsonService{aws: a, name: "ecr-public", target: "SpencerFrontendService", only: "us-east-1",
		hosts: []string{"api.ecr-public", "ecr-public"}}
	s.actions = map[string]func(*awsCall) (any, *awsError){"GetAuthorizationToken": func(c *awsCall) (any, *awsError) {
		for _, action := range []string{"ecr-public:GetAuthorizationToken", "sts:GetServiceBearerToken"} {
			if a.isDenied(c.caller.Identity, action) {
				return nil, c.deniedJSON(http.StatusBadRequest, action, "*")
			}
		}
		return map[string]any{"authorizationData": c.authorize(true)}, nil
	}}
	return s.service()
}

// authorize makes a password. It holds colons, as real ones do.
func (c *awsCall) authorize(public bool) map[string]any {
	password := randomSecret(300) + ":" + randomSecret(300)
	p := &registryPassword{c.caller.Identity, c.region, public, c.aws.cloud.time().Add(registryLife)}
	c.aws.mu.Lock()
	defer c.aws.mu.Unlock()
	c.aws.passwords[password] = p
	return map[string]any{
		"authorizationToken": base64.StdEncoding.EncodeToString([]byte("AWS:" + password)),
		"expiresAt":          float64(p.expires.UnixMilli()) / 1000,
	}
}

// ValidRegistryPassword reports whose password it is, if the registry at that host would accept it.
func (a *AWS) ValidRegistryPassword(host, user, password string) (Identity, bool) {
	r, ok := awsname.ParseRegistry(host)
	p := a.password(password)
	if !ok || user != "AWS" || p == nil || p.region != r.Region || p.public != r.Public || !a.cloud.time().Before(p.expires) {
		return Identity{}, false
	}
	return p.identity, true
}

func (a *AWS) password(password string) *registryPassword {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.passwords[password]
}

// SetRegistry sets what serves the registries of ECR behind the check of user and password: that of go-containerregistry,
// say. Without it they answer to everything with 200 and {}.
func (a *AWS) SetRegistry(h http.Handler) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.registry = h
}

// registryService is the registries themselves. They demand the password for everything, also in the public one, which
// really lets anybody pull.
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
		// The status is not known for certain.
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
