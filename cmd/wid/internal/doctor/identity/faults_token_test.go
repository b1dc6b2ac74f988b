package identity_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cloudtest"
)

// each makes a fault of a token for all clouds.
func each(name, check, class, says string, spoil func(w *environment)) []fault {
	return []fault{{name, "aws", spoil, check, class, says}, {name, "azure", spoil, check, class, says},
		{name, "gcp", spoil, check, class, says}}
}

// claims has the token come from a file, with claims changed.
func claims(change func(c map[string]any)) func(w *environment) {
	return func(w *environment) { w.write(w.sign(change)) }
}

func tokenFaults() (all []fault) {
	add := func(list []fault) { all = append(all, list...) }
	add(each("another audience", "token", "AudienceNotTrusted", "another receiver", claims(func(c map[string]any) {
		c["aud"] = []string{"sts.amazon.com"}
	})))
	add(each("the API server's audience", "token", "AudienceNotTrusted", "another receiver",
		claims(func(c map[string]any) { c["aud"] = []string{"https://kubernetes.default.svc"} })))
	add(each("another subject", "token", "TokenOfAnotherServiceAccount", "another ServiceAccount",
		claims(func(c map[string]any) { c["sub"] = "system:serviceaccount:tenant-a:other" })))
	add(each("case of the subject", "token", "TokenOfAnotherServiceAccount", "another ServiceAccount",
		claims(func(c map[string]any) { c["sub"] = "system:serviceaccount:tenant-a:App" })))
	add(each("expired", "exchange", "TokenExpired", "", claims(func(c map[string]any) {
		c["iat"], c["nbf"], c["exp"] = time.Now().Add(-2*time.Hour).Unix(), time.Now().Add(-2*time.Hour).Unix(),
			time.Now().Add(-time.Hour).Unix()
	})))
	all = append(all, fault{"issued in the future", "gcp", claims(func(c map[string]any) {
		c["iat"] = time.Now().Add(10 * time.Minute).Unix()
	}), "exchange", "TokenExpired", "from the future"},
		fault{"not valid yet", "azure", claims(func(c map[string]any) {
			c["nbf"] = time.Now().Add(10 * time.Minute).Unix()
		}), "exchange", "TokenExpired", "not within its time"})
	add(each("legacy token without audience", "token", "TokenWithoutAudience", "legacy", claims(func(c map[string]any) {
		delete(c, "aud")
	})))
	add(each("legacy token of a Secret", "token", "TokenWithoutAudience", "legacy", claims(func(c map[string]any) {
		c["iss"] = "kubernetes/serviceaccount"
		delete(c, "aud")
		delete(c, "exp")
	})))
	add(each("no kid", "issuer", "SigningKeyUnavailable", "lack the one", func(w *environment) {
		token, err := w.issuer.SignWithHeader(w.issuer.Claims(w.account, []string{w.audience()}, time.Hour),
			map[string]any{"alg": "RS256"})
		if err != nil {
			w.t.Fatal(err)
		}
		w.write(token)
	}))
	add(each("opaque token", "token", "TokenMalformed", "not a JWT", func(w *environment) { w.write("ya29.opaque"[:4]) }))
	add(each("text after the token", "token", "TokenMalformed", "text beside", func(w *environment) {
		w.write(w.sign(nil) + "\nINFO ready")
	}))
	add(each("empty token file", "token", "TokenMalformed", "empty", func(w *environment) { w.write("") }))
	add(each("missing token file", "token", "IdentityNotConfigured", "annot read", func(w *environment) {
		w.config.Token = auth.NewFileTokenSource(w.dir + "/missing")
	}))
	return all
}

// serve makes anonymous clients get another answer from the issuer.
func serve(status int, body string) func(w *environment) {
	return func(w *environment) {
		w.serve = http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			rw.WriteHeader(status)
			_, _ = rw.Write([]byte(body))
		})
		w.private()
	}
}

// private shows the clouds the issuer as anonymous clients see it.
func (w *environment) private() {
	client := w.anonymous()
	w.config.IssuerClient = client
	w.cloud.AWS().AddOIDCProvider(account, w.issuer.URL(), client, aws.DefaultAudience)
	// The fake of Entra keeps one way to each issuer, so that a cloud of its
	// own is needed.
	w.pool(func(p *cloudtest.WorkloadIdentityProvider) { p.Fetch = client })
}

// document serves a discovery document with one field changed.
func document(change func(d map[string]any)) func(w *environment) {
	return func(w *environment) {
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

// forAWSAndGCP are faults of the issuer, whose fakes fetch its documents anew
// each time.
func forAWSAndGCP(name, check, class, says string, spoil func(w *environment)) []fault {
	return []fault{{name, "aws", spoil, check, class, says}, {name, "gcp", spoil, check, class, says}}
}

func issuerFaults() (all []fault) {
	add := func(list []fault) { all = append(all, list...) }
	add(forAWSAndGCP("private issuer, 403", "issuer", "IssuerNotPublic", "403 to anonymous",
		serve(http.StatusForbidden, anonymous403)))
	add(forAWSAndGCP("private issuer, 401", "issuer", "IssuerNotPublic", "401 to anonymous",
		serve(http.StatusUnauthorized, anonymous401)))
	add(forAWSAndGCP("private bucket", "issuer", "IssuerNotPublic", "403 to anonymous",
		serve(http.StatusForbidden, "<Error><Code>AccessDenied</Code></Error>")))
	add(forAWSAndGCP("documents missing", "issuer", "IssuerNotPublic", "404", serve(http.StatusNotFound, "")))
	add(forAWSAndGCP("issuer is a web page", "issuer", "IssuerNotPublic", "not a discovery document",
		serve(http.StatusOK, "<html></html>")))
	add(forAWSAndGCP("unreachable issuer", "exchange", "SigningKeyUnavailable", "", func(w *environment) {
		client := &http.Client{Transport: broken{}}
		w.config.IssuerClient = client
		w.cloud.AWS().AddOIDCProvider(account, w.issuer.URL(), client, aws.DefaultAudience)
		w.pool(func(p *cloudtest.WorkloadIdentityProvider) { p.Fetch = client })
	}))
	add(forAWSAndGCP("another issuer in the document", "issuer", "IssuersDiffer", "only by the /",
		document(func(d map[string]any) { d["issuer"] = "https://issuer.example/" })))
	add(forAWSAndGCP("list missing in the document", "issuer", "IssuerNotPublic", "subject_types_supported",
		document(func(d map[string]any) { delete(d, "subject_types_supported") })))
	add(forAWSAndGCP("keys over plain HTTP", "issuer", "IssuerNotPublic", "jwks_uri", document(func(d map[string]any) {
		d["jwks_uri"] = "http://issuer.example/openid/v1/jwks"
	})))
	add(each("stale key", "issuer", "SigningKeyUnavailable", "as after a rotation", func(w *environment) {
		issuer := w.own()
		token := w.sign(nil)
		if err := issuer.Rotate(false); err != nil {
			w.t.Fatal(err)
		}
		w.write(token)
	}))
	add(each("same kid, other key", "issuer", "SignatureNotVerified", "did not sign the token", func(w *environment) {
		other, err := cloudtest.NewIssuer(cloudtest.IssuerConfig{})
		if err != nil {
			w.t.Fatal(err)
		}
		part, _, _ := strings.Cut(w.sign(nil), ".")
		header := map[string]any{}
		content, err := base64.RawURLEncoding.DecodeString(part)
		if err = errors.Join(err, json.Unmarshal(content, &header)); err != nil {
			w.t.Fatal(err)
		}
		token, err := other.SignWithHeader(w.issuer.Claims(w.account, []string{w.audience()}, time.Hour), header)
		if err != nil {
			w.t.Fatal(err)
		}
		w.write(token)
	}))
	add(each("issuer is the cluster's own address", "exchange", "IssuerNotTrusted", "issuer",
		claims(func(c map[string]any) { c["iss"] = "https://kubernetes.default.svc.cluster.local" })))
	add(each("issuer without TLS", "exchange", "IssuerNotTrusted", "issuer", claims(func(c map[string]any) {
		c["iss"] = "http://issuer.example"
	})))
	add(each("issuer with a query", "exchange", "IssuerNotTrusted", "issuer", claims(func(c map[string]any) {
		c["iss"] = "https://issuer.example?x=y"
	})))
	return all
}

// broken is a network that leads nowhere.
type broken struct{}

func (broken) RoundTrip(*http.Request) (*http.Response, error) { return nil, errNowhere }

// kubernetesFaults do not depend on the cloud, so AWS and the generic provider
// stand for all.
func kubernetesFaults() []fault {
	return []fault{
		{"RBAC lacks serviceaccounts/token", "aws", func(w *environment) {
			w.user.mayNot = []string{"serviceaccounts/token"}
		}, "token-request", "RightMissing", "may not create tokens"},
		{"RBAC lacks serviceaccounts/token", "azure", func(w *environment) {
			w.user.mayNot = []string{"serviceaccounts/token"}
		}, "token-request", "RightMissing", "may not create tokens"},
		{"RBAC lacks serviceaccounts/token", "gcp", func(w *environment) {
			w.user.mayNot = []string{"serviceaccounts/token"}
		}, "token-request", "RightMissing", "may not create tokens"},
		{"RBAC lacks serviceaccounts/token", "generic", func(w *environment) {
			w.user.mayNot = []string{"serviceaccounts/token"}
		}, "token-request", "RightMissing", "may not create tokens"},
		{"the node may not use the audience", "aws", func(w *environment) {
			w.own().Refuse(func(corev1.ServiceAccount, authenticationv1.TokenRequestSpec) error { return errNodeAudience })
		}, "token-request", "AudienceDeniedToNode", "audience"},
		{"the ServiceAccount does not exist", "generic", func(w *environment) {
			w.config.ServiceAccount.Name = "missing"
		}, "service-account", "ServiceAccountNotFound", "does not exist"},
		{"the ServiceAccount does not exist", "aws", func(w *environment) {
			w.config.ServiceAccount.Name = "missing"
		}, "service-account", "ServiceAccountNotFound", "does not exist"},
		{"lifetime refused", "aws", func(w *environment) {
			w.config.Options = append(w.config.Options, auth.WithTokenLifetime(time.Minute))
		}, "token-request", "LifetimeRefused", ""},
		{"the caller's own credentials are refused", "generic", func(w *environment) {
			w.user = user{}
		}, "service-account", "LoginRefused", "401"},
		{"another audience", "generic", claims(func(c map[string]any) {
			c["aud"] = []string{"other"}
		}), "token", "AudienceNotTrusted", "another receiver"},
		{"expired", "generic", claims(func(c map[string]any) {
			c["exp"] = time.Now().Add(-time.Hour).Unix()
		}), "exchange", "TokenExpired", "expired"},
	}
}
