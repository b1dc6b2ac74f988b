package identity_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/workloadid/workloadid/auth"
	"github.com/workloadid/workloadid/auth/aws"
	"github.com/workloadid/workloadid/cloudtest"
	"github.com/workloadid/workloadid/cmd/wid/internal/doctor"
	trustaws "github.com/workloadid/workloadid/cmd/wid/internal/doctor/trust/aws"
)

// readsAWS lets the doctor read what AWS trusts, with the login of a person.
func (w *environment) readsAWS(httpClient *http.Client) {
	id, secret := w.cloud.AWS().AddUser(account, "platform")
	reader := &trustaws.Reader{HTTPClient: httpClient,
		Credentials: credentials.NewStaticCredentialsProvider(id, secret, "")}
	w.config.Trust = reader
}

// apply makes a printed edit at the cluster or the cloud.
func (w *environment) apply(call []string) {
	name := knownCommand(call)
	flags, arguments := flagsOf(call)
	fetch := w.issuer.HTTPClient()
	switch name {
	case "": // kubectl annotate sa -n NAMESPACE NAME --overwrite ASSIGNMENT
		change := call[len(call)-1]
		key, value, _ := strings.Cut(change, "=")
		annotate(strings.TrimSuffix(key, "-"), value)(w)
	case "aws iam create-open-id-connect-provider":
		w.cloud.AWS().AddOIDCProvider(account, flags["--url"], fetch, flags["--client-id-list"])
	case "aws iam add-client-id-to-open-id-connect-provider":
		_, host, _ := strings.Cut(flags["--open-id-connect-provider-arn"], "/")
		w.cloud.AWS().AddOIDCProvider(account, "https://"+host, fetch, flags["--client-id"])
	case "jq":
		w.admit(arguments[len(arguments)-1])
	case "az identity federated-credential create", "az identity federated-credential update":
		w.federate(cloudtest.FederatedCredential{Issuer: flags["--issuer"], Subject: flags["--subject"],
			Audience: flags["--audiences"], Fetch: fetch})
	case "gcloud iam workload-identity-pools providers update-oidc":
		w.cloud.GCP().SetWorkloadIdentityProvider(arguments[len(arguments)-1],
			cloudtest.WorkloadIdentityProvider{Issuer: w.issuer.URL(), Fetch: fetch,
				JWKS: map[bool][]byte{true: w.jwks()}[flags["--jwk-json-path"] != ""]})
	case "gcloud iam service-accounts add-iam-policy-binding":
		w.cloud.GCP().SetServiceAccount(arguments[len(arguments)-1],
			cloudtest.GCPServiceAccount{WorkloadIdentityUsers: []string{flags["--member"]}})
	}
}

// admit adds the statement of a jq program to the trust policy of the annotated
// role.
func (w *environment) admit(program string) {
	_, text, _ := strings.Cut(program, "[.Statement, ")
	text, _, _ = strings.Cut(text, "] | flatten")
	var s struct {
		Principal struct{ Federated string }
		Condition struct{ StringEquals map[string]string }
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		w.t.Fatalf("%v: %s", err, program)
	}
	_, host, _ := strings.Cut(s.Principal.Federated, ":oidc-provider/")
	w.cloud.AWS().SetRole(w.account.Annotations[aws.RoleARNAnnotation], cloudtest.Trust{Issuer: "https://" + host,
		Subjects:  []string{s.Condition.StringEquals[host+":sub"]},
		Audiences: []string{s.Condition.StringEquals[host+":aud"]}})
}

// The printed edits of the set-ups and of the answers of each cloud, applied as
// they are, make the exchange work.
func TestPrintedEditsCorrect(t *testing.T) {
	const other = "arn:aws:iam::" + account + ":role/tenant-b"
	anotherRole := func(w *environment) {
		w.account.Annotations[aws.RoleARNAnnotation] = other
		w.cloud.AWS().SetRole(other,
			cloudtest.Trust{Issuer: w.issuer.URL(), Subjects: []string{"system:serviceaccount:tenant-b:app"}})
	}
	credential := func(change func(c *cloudtest.FederatedCredential)) func(w *environment) {
		return func(w *environment) { w.credential(change) }
	}
	pool := func(change func(p *cloudtest.WorkloadIdentityProvider)) func(w *environment) {
		return func(w *environment) { w.pool(change) }
	}
	for _, tt := range []struct {
		name, provider string
		spoil          func(w *environment)
		grant          bool // the alternative
	}{
		{"2 missing annotation", "aws", annotate(aws.RoleARNAnnotation, ""), false},
		{"4 role of another tenant, another role", "aws", anotherRole, false},
		{"4 role of another tenant, its trust policy", "aws", anotherRole, true},
		{"4 role of another tenant, trust policy not read", "aws", func(w *environment) {
			anotherRole(w)
			w.config.Trust = nil
		}, true},
		{"5 wrong cluster", "aws", func(w *environment) { w.cloud.AWS().RemoveOIDCProvider(account, w.issuer.URL()) }, true},
		{"8 role does not exist", "aws", annotate(aws.RoleARNAnnotation, other), false},
		{"client ID missing", "aws", func(w *environment) {
			w.cloud.AWS().AddOIDCProvider(account, w.issuer.URL(), w.issuer.HTTPClient(), "other")
		}, true},
		{"an audience in the annotation", "aws", func(w *environment) {
			annotate(aws.AudienceAnnotation, "sts.amazon.com")(w)
			w.config.Options = append(w.config.Options, auth.WithPolicy(auth.Policy{AllowAnyAudience: true})) // as wid doctor
		}, false},
		{"slash at the end of the issuer", "azure", credential(func(c *cloudtest.FederatedCredential) {
			c.Issuer += "/"
		}), true},
		{"another subject", "azure", credential(func(c *cloudtest.FederatedCredential) { c.Subject += "x" }), true},
		{"another audience", "azure", credential(func(c *cloudtest.FederatedCredential) {
			c.Audience = "api://other"
		}), true},
		{"no credential", "azure", func(w *environment) { w.federate() }, true},
		{"issuer of another cluster", "gcp", pool(func(p *cloudtest.WorkloadIdentityProvider) {
			p.Issuer = "https://old.example"
		}), true},
		{"uploaded keys are old", "gcp", pool(func(p *cloudtest.WorkloadIdentityProvider) {
			p.JWKS = []byte(`{"keys":[]}`)
		}), true},
		{"no binding", "gcp", func(w *environment) {
			w.cloud.GCP().SetServiceAccount(gcpEmail, cloudtest.GCPServiceAccount{})
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newEnvironment(t, tt.provider)
			if tt.provider == "aws" {
				w.readsAWS(w.cloud.Client())
			}
			w.config.Examination.ShowPolicy = true
			tt.spoil(w)
			f := w.run().Worst()
			if f == nil || f.Result != doctor.Fail || tt.grant && f.Remedy.Or == nil {
				t.Fatalf("%+v", f)
			}
			commands := f.Remedy.Commands
			if tt.grant {
				commands = f.Remedy.Or.Commands
			}
			for _, command := range commands {
				if tt.grant && strings.Contains(command, "workloadIdentityPools/") {
					t.Errorf("%q trusts a pool that the tenant's annotation names", command)
				}
				for _, call := range argv(t,
					strings.NewReplacer("ACCOUNT_ID", account, "ROLE_NAME", "tenant-a", "role/NAME", "role/tenant-a",
						"PROVIDER_NAME", gcpPool+"/providers/east", "POOL_NAME", gcpPool).Replace(command)) {
					w.apply(call)
				}
			}
			w.config.Client = nil // reads the ServiceAccount anew
			if report := w.run(); report.Of("exchange").Result != doctor.Pass {
				t.Errorf("%q does not correct it:\n%s", commands, report.Text(doctor.TextOptions{Verbose: true}))
			}
		})
	}
}

// What the login of a person reads of AWS is explained with whole commands too.
func TestCommandsOfTrust(t *testing.T) {
	printed := remedies{}
	for _, spoil := range []func(w *environment){
		func(w *environment) { w.cloud.AWS().RemoveRole(roleARN) },
		func(w *environment) {
			w.cloud.AWS().SetRole(roleARN, cloudtest.Trust{Issuer: w.issuer.URL(), Subjects: []string{"x"}})
		},
		func(w *environment) { w.cloud.AWS().RemoveOIDCProvider(account, w.issuer.URL()) },
		func(w *environment) {
			w.cloud.AWS().AddOIDCProvider(account, w.issuer.URL(), w.issuer.HTTPClient(), "x")
		},
		func(w *environment) {
			w.cloud.AWS().Deny("arn:aws:iam::"+account+":user/platform", "iam:GetRole")
		},
		func(w *environment) {
			w.config.Trust = &trustaws.Reader{Credentials: credentials.NewStaticCredentialsProvider("", "", "")}
		},
	} {
		w := newEnvironment(t, "aws")
		w.readsAWS(w.cloud.Client())
		w.config.Examination.ShowPolicy = true
		spoil(w)
		printed.add(w.run())
	}
	printed.check(t, builtKubectl())
}
