package identity_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/authtest"
	"github.com/workloadid/workloadid/auth/aws"
)

// each makes a fault of a token for all clouds.
func each(name, check, aws, azure, gcp, says string, spoil func(w *world)) []fault {
	return []fault{{name, "aws", spoil, check, aws, says}, {name, "azure", spoil, check, azure, says}, {name, "gcp", spoil, check, gcp, says}}
}

// claims has the token come from a file, with claims changed.
func claims(change func(c map[string]any)) func(w *world) {
	return func(w *world) { w.write(w.sign(change)) }
}

func tokenFaults() (all []fault) {
	add := func(list []fault) { all = append(all, list...) }
	add(each("another audience", "audience", "A4", "Z3", "G3", "another receiver", claims(func(c map[string]any) { c["aud"] = []string{"sts.amazon.com"} })))
	add(each("the API server's audience", "audience", "A4", "Z3", "G3", "is for the API server", claims(func(c map[string]any) { c["aud"] = []string{"https://kubernetes.default.svc"} })))
	add(each("another subject", "claims", "A1", "Z4", "G10", "another ServiceAccount", claims(func(c map[string]any) { c["sub"] = "system:serviceaccount:tenant-a:other" })))
	add(each("case of the subject", "claims", "A1", "Z5", "G10", "upper and lower case", claims(func(c map[string]any) { c["sub"] = "system:serviceaccount:tenant-a:App" })))
	add(each("expired", "time", "A9", "Z10", "G7", "has expired", claims(func(c map[string]any) {
		c["iat"], c["nbf"], c["exp"] = time.Now().Add(-2*time.Hour).Unix(), time.Now().Add(-2*time.Hour).Unix(), time.Now().Add(-time.Hour).Unix()
	})))
	add(each("an old copy in memory", "time", "A9", "Z10", "G7", "holds an old copy", func(w *world) {
		w.config.Token = w.sign(func(c map[string]any) { c["exp"] = time.Now().Add(-time.Minute).Unix() })
		w.write(w.sign(nil))
	}))
	add(each("issued in the future", "time", "K11", "K11", "K11", "in the future", claims(func(c map[string]any) { c["iat"] = time.Now().Add(10 * time.Minute).Unix() })))
	add(each("not valid yet", "time", "K11", "K11", "K11", "not valid yet", claims(func(c map[string]any) { c["nbf"] = time.Now().Add(10 * time.Minute).Unix() })))
	add(each("legacy token without audience", "claims", "A5", "Z3", "G3", "legacy", claims(func(c map[string]any) { delete(c, "aud") })))
	add(each("legacy token of a Secret", "claims", "A5", "Z3", "G3", "legacy", claims(func(c map[string]any) {
		c["iss"] = "kubernetes/serviceaccount"
		delete(c, "aud")
		delete(c, "exp")
	})))
	add(each("no kid", "token-format", "A3", "Z11", "G5", "names no key", func(w *world) {
		token, err := w.issuer.SignWithHeader(w.issuer.Claims(w.account, []string{w.audience()}, time.Hour), map[string]any{"alg": "RS256"})
		if err != nil {
			w.t.Fatal(err)
		}
		w.write(token)
	}))
	add(each("not signed", "token-format", "A6", "A6", "A6", "not signed", func(w *world) {
		token, err := w.issuer.SignWithHeader(w.issuer.Claims(w.account, []string{w.audience()}, time.Hour), map[string]any{"alg": "none", "kid": "x"})
		if err != nil {
			w.t.Fatal(err)
		}
		w.write(token)
	}))
	add(each("opaque token", "token-format", "A6", "A6", "A6", "opaque", func(w *world) { w.write("ya29.opaque"[:4]) }))
	add(each("text after the token", "token-format", "A6", "A6", "A6", "text beside", func(w *world) { w.write(w.sign(nil) + "\nINFO ready") }))
	add(each("empty token file", "token-format", "A6", "A6", "A6", "is empty", func(w *world) { w.write("") }))
	add(each("missing token file", "token-format", "A14", "Z16", "G15", "does not exist", func(w *world) { w.config.TokenFile = w.dir + "/missing" }))
	add(each("clock skew", "time", "K11", "K11", "K11", "behind", func(w *world) {
		w.config.Now = func() time.Time { return time.Now().Add(-10 * time.Minute) }
	}))
	add(each("clock skew the other way", "time", "K11", "K11", "K11", "ahead", func(w *world) {
		w.config.Now = func() time.Time { return time.Now().Add(10 * time.Minute) }
	}))
	return all
}

// serve makes anonymous clients get another answer from the issuer.
func serve(status int, body string) func(w *world) {
	return func(w *world) {
		w.serve = http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.WriteHeader(status)
			_, _ = rw.Write([]byte(body))
		})
		w.private()
	}
}

// private shows the clouds the issuer as anonymous clients see it.
func (w *world) private() {
	client := w.anonymous()
	w.config.IssuerClient = client
	w.cloud.AWS().AddOIDCProvider(account, w.issuer.URL(), client, aws.DefaultAudience)
	// The fake of Entra keeps one way to each issuer, so that a cloud of its own is needed.
	w.pool(func(p *authtest.WorkloadIdentityProvider) { p.Fetch = client })
}

// document serves a discovery document with one field changed.
func document(change func(d map[string]any)) func(w *world) {
	return func(w *world) {
		good := w.issuer
		w.serve = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, "openid-configuration") {
				good.ServeHTTP(rw, r)
				return
			}
			recorded := httptest.NewRecorder()
			good.ServeHTTP(recorded, r)
			d := map[string]any{}
			if err := json.Unmarshal(recorded.Body.Bytes(), &d); err != nil {
				http.Error(rw, err.Error(), http.StatusInternalServerError)
				return
			}
			change(d)
			_ = json.NewEncoder(rw).Encode(d)
		})
		w.private()
	}
}

const anonymous403 = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"forbidden: User \"system:anonymous\" cannot get path \"/.well-known/openid-configuration\"","reason":"Forbidden","details":{},"code":403}`

const anonymous401 = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}`

// forAWSAndGCP are faults of the issuer, whose fakes fetch its documents anew each time.
func forAWSAndGCP(name, check, aws, gcp, says string, spoil func(w *world)) []fault {
	return []fault{{name, "aws", spoil, check, aws, says}, {name, "gcp", spoil, check, gcp, says}}
}

func issuerFaults() (all []fault) {
	add := func(list []fault) { all = append(all, list...) }
	add(forAWSAndGCP("private issuer, 403", "discovery", "K7", "K7", "403 to anonymous", serve(http.StatusForbidden, anonymous403)))
	add(forAWSAndGCP("private issuer, 401", "discovery", "K7", "K7", "401 to anonymous", serve(http.StatusUnauthorized, anonymous401)))
	add(forAWSAndGCP("private bucket", "discovery", "A3", "G5", "403 to anonymous", serve(http.StatusForbidden, "<Error><Code>AccessDenied</Code></Error>")))
	add(forAWSAndGCP("documents missing", "discovery", "A3", "G5", "404", serve(http.StatusNotFound, "")))
	add(forAWSAndGCP("issuer is a web page", "discovery", "A3", "G5", "not a discovery document", serve(http.StatusOK, "<html></html>")))
	add(forAWSAndGCP("unreachable issuer", "discovery", "A3", "G5", "cannot be read", func(w *world) {
		client := &http.Client{Transport: broken{}}
		w.config.IssuerClient = client
		w.cloud.AWS().AddOIDCProvider(account, w.issuer.URL(), client, aws.DefaultAudience)
		w.pool(func(p *authtest.WorkloadIdentityProvider) { p.Fetch = client })
	}))
	add(forAWSAndGCP("another issuer in the document", "discovery", "K8", "K8", "only by the /", document(func(d map[string]any) { d["issuer"] = "https://issuer.example/" })))
	add(forAWSAndGCP("list missing in the document", "discovery", "A3", "G5", "subject_types_supported", document(func(d map[string]any) { delete(d, "subject_types_supported") })))
	add(forAWSAndGCP("keys over plain HTTP", "discovery", "A3", "G5", "jwks_uri", document(func(d map[string]any) { d["jwks_uri"] = "http://issuer.example/openid/v1/jwks" })))
	add(each("stale key", "keys", "A3", "Z11", "G5", "as after a rotation", func(w *world) {
		issuer := w.own()
		token := w.sign(nil)
		if err := issuer.Rotate(false); err != nil {
			w.t.Fatal(err)
		}
		w.write(token)
	}))
	add(each("same kid, other key", "keys", "A8", "Z11", "G6", "did not sign the token", func(w *world) {
		other, err := authtest.NewIssuer(authtest.IssuerConfig{})
		if err != nil {
			w.t.Fatal(err)
		}
		header := map[string]any{}
		decodeHeader(w.sign(nil), &header)
		token, err := other.SignWithHeader(w.issuer.Claims(w.account, []string{w.audience()}, time.Hour), header)
		if err != nil {
			w.t.Fatal(err)
		}
		w.write(token)
	}))
	add(each("issuer is the cluster's own address", "issuer", "K8", "K8", "K8", "no cloud can reach", claims(func(c map[string]any) { c["iss"] = "https://kubernetes.default.svc.cluster.local" })))
	add(each("issuer without TLS", "issuer", "K8", "K8", "K8", "https://", claims(func(c map[string]any) { c["iss"] = "http://issuer.example" })))
	add(each("issuer with a query", "issuer", "K8", "K8", "K8", "query", claims(func(c map[string]any) { c["iss"] = "https://issuer.example?x=y" })))
	add(each("trailing slash", "issuer", "A2", "Z2", "G4", "only by the /", func(w *world) { w.config.Issuer = w.issuer.URL() + "/" }))
	add(each("cluster rebuilt", "issuer", "A2", "Z2", "G4", "is not the one that", func(w *world) { w.config.Issuer = "https://old.example" }))
	return all
}

// broken is a network that leads nowhere.
type broken struct{}

func (broken) RoundTrip(*http.Request) (*http.Response, error) { return nil, errNowhere }

// kubernetesFaults do not depend on the cloud, so AWS and the generic provider stand for all.
func kubernetesFaults() []fault {
	return []fault{
		{"RBAC lacks serviceaccounts/token", "aws", func(w *world) { w.user.mayNot = []string{"serviceaccounts/token"} }, "token-request", "K1", "may not create tokens"},
		{"RBAC lacks serviceaccounts/token", "azure", func(w *world) { w.user.mayNot = []string{"serviceaccounts/token"} }, "token-request", "K1", "may not create tokens"},
		{"RBAC lacks serviceaccounts/token", "gcp", func(w *world) { w.user.mayNot = []string{"serviceaccounts/token"} }, "token-request", "K1", "may not create tokens"},
		{"RBAC lacks serviceaccounts/token", "generic", func(w *world) { w.user.mayNot = []string{"serviceaccounts/token"} }, "token-request", "K1", "may not create tokens"},
		{"the node may not use the audience", "aws", func(w *world) {
			w.own().Refuse(func(corev1.ServiceAccount, authtest.TokenRequestInfo) error { return errNodeAudience })
		}, "token-request", "K4", "audience"},
		{"the ServiceAccount does not exist", "generic", func(w *world) { w.config.ServiceAccount.Name = "missing" }, "service-account", "K2", "does not exist"},
		{"the ServiceAccount does not exist", "aws", func(w *world) { w.config.ServiceAccount.Name = "missing" }, "service-account", "K2", "does not exist"},
		{"lifetime shortened", "generic", func(w *world) { w.user.maxTokenLifetime = 20 * time.Minute }, "token-request", "K3", "shortened"},
		{"lifetime refused", "aws", func(w *world) { w.config.Options = append(w.config.Options, auth.WithTokenLifetime(time.Minute)) }, "token-request", "K3", ""},
		{"the caller's own credentials are refused", "generic", func(w *world) { w.user = user{} }, "api-server", "K10", "401"},
		{"token of another cluster", "aws", func(w *world) {
			home := w.issuer
			other, err := authtest.NewIssuer(authtest.IssuerConfig{URL: "https://other.example"})
			if err != nil {
				w.t.Fatal(err)
			}
			w.use(other)
			w.write(w.sign(nil))
			w.issuer = home // the API server
		}, "cluster-issuer", "K8", "another cluster"},
		{"pod of the token is gone", "aws", func(w *world) {
			w.user.reviewError = "[invalid bearer token, service account token has been invalidated]"
		}, "token-review", "K6", "refuses the token"},
		{"ServiceAccount of the token is gone", "generic", func(w *world) {
			w.user.reviewError = "service account tenant-a/app has been deleted"
		}, "token-review", "K6", "refuses the token"},
		{"issuer that no authenticator knows", "generic", func(w *world) { w.user.reviewError = "invalid bearer token" }, "token-review", "K6", "refuses the token"},
		{"the other cluster does not trust the issuer", "generic", func(w *world) { w.at(http.StatusUnauthorized) }, "cluster", "K6", "401"},
		{"another audience", "generic", claims(func(c map[string]any) { c["aud"] = []string{"other"} }), "audience", "K5", "another receiver"},
		{"expired", "generic", claims(func(c map[string]any) { c["exp"] = time.Now().Add(-time.Hour).Unix() }), "time", "K6", "has expired"},
		{"stale key", "generic", func(w *world) {
			issuer := w.own()
			token := w.sign(nil)
			if err := issuer.Rotate(false); err != nil {
				w.t.Fatal(err)
			}
			w.write(token)
		}, "cluster-issuer", "K6", "no longer has the key"},
	}
}
